package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// What a handler holds goes to the next incarnation with its mark, and the rest goes back.
func TestHandover(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named("a"), named("b"), named("c"))
		held := f.take(0, 3)
		f.start(0, held[:1], false)
		next := NewIncarnation(2, time.Minute)
		_, err := RegisterIncarnation(context.Background(), f.l, []*Keys{f.k}, next, nil)
		f.must(err)
		h := Handing{From: f.i, To: next, Holder: Holder(next, 0), LeaveRest: true,
			Held: []any{held[0].Identity(held[0].Raw), "none"}, Back: []any{held[1].Identity(held[1].Raw)}}
		m, err := HandoverReply(f.run(func(c *link.Call) { AddHandover(c, f.k, h) }))
		if f.must(err); m.Back != 1 || !slices.Equal(m.Found, []int{0}) {
			f.Fatalf("%+v", m)
		}
		f.lengths(1, 0, 0, 1)
		if h := f.status("a").Holder; h.Receiver != next.Name || h.Worker != 0 || h.Attempt != 1 {
			f.Fatalf("a is held by %+v", h)
		}
		byWorker, err := HeldBy(context.Background(), f, f.k, next, &Span{Left: -1})
		if f.must(err); len(byWorker) != 2 || len(byWorker[0]) != 1 || len(byWorker[1]) != 0 {
			f.Fatalf("the next one holds %q", byWorker)
		}
	})
}

// A handover moves what is held, puts back what is named, and leaves or puts back the rest; the order stays. Where the
// next incarnation is unknown, it puts back what is held, too.
func TestHandoverOfAList(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	pool, err := link.NewPool(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := link.New(
		link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: time.Second}),
		time.Second,
		false,
	)
	defer l.Close()
	for _, at := range []struct {
		leave, unknown   bool
		want             string
		left, next, back []int
	}{
		{want: "4 [[2] [1]]", next: []int{4, 1}, back: []int{5, 3, 2, 0}},
		{leave: true, want: "2 [[2] [1]]", left: []int{5, 2}, next: []int{4, 1}, back: []int{3, 0}},
		{unknown: true, want: "6 []", back: []int{5, 4, 3, 2, 1, 0}},
		{leave: true, unknown: true, want: "4 []", left: []int{5, 2}, back: []int{4, 3, 1, 0}},
	} {
		k := KeysOf(redistest.Name(t))
		from, to := NewIncarnation(1, time.Minute), NewIncarnation(1, time.Minute)
		var es [][]byte
		var ids []any
		for range 6 {
			e := element.Element{Serial: element.NewSerial(), Payload: []byte("x")}
			raw := e.Encode()
			es, ids = append(es, raw), append(ids, e.Identity(raw))
			s.Do("LPUSH", k.Doing(from, 0), raw)
		}
		if !at.unknown {
			s.Do("ZADD", k.Receivers, 1, to.Name)
		}
		absent := element.Element{Serial: element.NewSerial()}
		c := link.NewCall()
		AddHandover(c, k, Handing{From: from, To: to, Holder: Holder(to, 0), LeaveRest: at.leave,
			Held: []any{absent.Identity(nil), ids[1], ids[4]}, Back: []any{ids[0], ids[3]}})
		if err := l.Run(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		m, err := HandoverReply(c.Replies[0])
		got := fmt.Sprint(m.Back, " [")
		for i, n := range m.Found {
			if i > 0 {
				got += " "
			}
			got += fmt.Sprintf("[%d]", n)
		}
		if got += "]"; got != at.want || err != nil {
			t.Errorf("%+v: %s, %v", at, got, err)
		}
		for list, want := range map[string][]int{k.Doing(from, 0): at.left, k.Doing(to, 0): at.next,
			k.Prepare: at.back} {
			in, _ := s.Do("LRANGE", list, 0, -1).([]any)
			if len(in) != len(want) {
				t.Errorf("%+v: %s has %d, want %d", at, list, len(in), len(want))
				continue
			}
			for i, n := range want {
				if string(in[i].([]byte)) != string(es[n]) {
					t.Errorf("%+v: %s: place %d is not element %d", at, list, i, n)
				}
			}
		}
	}
}
