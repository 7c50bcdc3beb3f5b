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
		byWorker, err := HeldBy(context.Background(), f, f.k, next)
		if f.must(err); len(byWorker) != 2 || len(byWorker[0]) != 1 || len(byWorker[1]) != 0 {
			f.Fatalf("the next one holds %q", byWorker)
		}
	})
}

// A handover moves what is held, puts back what is named, and leaves or puts back the rest; the order stays.
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
	for _, leave := range []bool{false, true} {
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
		absent := element.Element{Serial: element.NewSerial()}
		c := link.NewCall()
		AddHandover(c, k, Handing{From: from, To: to, Holder: "to/0", LeaveRest: leave,
			Held: []any{absent.Identity(nil), ids[1], ids[4]}, Back: []any{ids[0], ids[3]}})
		if err := l.Run(context.Background(), c); err != nil {
			t.Fatal(err)
		}
		m, err := HandoverReply(c.Replies[0])
		want := "4 [[2] [1]]"
		left, back := []int{}, []int{5, 3, 2, 0}
		if leave {
			want, left, back = "2 [[2] [1]]", []int{5, 2}, []int{3, 0}
		}
		got := fmt.Sprint(m.Back, " [")
		for i, n := range m.Found {
			if i > 0 {
				got += " "
			}
			got += fmt.Sprintf("[%d]", n)
		}
		if got += "]"; got != want || err != nil {
			t.Errorf("leave %v: %s, want %s, %v", leave, got, want, err)
		}
		for list, want := range map[string][]int{k.Doing(from, 0): left, k.Doing(to, 0): {4, 1}, k.Prepare: back} {
			in, _ := s.Do("LRANGE", list, 0, -1).([]any)
			if len(in) != len(want) {
				t.Errorf("leave %v: %s has %d, want %d", leave, list, len(in), len(want))
				continue
			}
			for i, n := range want {
				if string(in[i].([]byte)) != string(es[n]) {
					t.Errorf("leave %v: %s: place %d is not element %d", leave, list, i, n)
				}
			}
		}
	}
}
