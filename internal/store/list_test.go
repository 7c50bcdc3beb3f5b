package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Pages of a list begin at its taking end, and those of a set at either end.
func TestPages(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		for _, e := range []string{"first", "second", "third"} {
			f.run(func(c *link.Call) { AddPush(c, f.k, []byte(e)) })
		}
		f.s.Do("ZADD", f.k.Dead, 1, "early", 2, "late")
		for _, c := range []struct {
			offset, n int
			want      string
		}{
			{0, -1, "first second third "}, {0, 2, "first second "}, {1, 1, "second "}, {2, 5, "third "},
			{0, 0, ""}, {3, 1, ""},
		} {
			page, err := ListPage(ctx, f, f.k, f.k.Prepare, c.offset, c.n)
			f.must(err)
			got := ""
			for _, raw := range page {
				got += string(raw) + " "
			}
			if got != c.want {
				f.Fatalf("%d after %d: %q, want %q", c.n, c.offset, got, c.want)
			}
		}
		for _, c := range []struct {
			latest    bool
			offset, n int
			want      string
		}{{false, 0, -1, "early late "}, {true, 0, 1, "late "}, {true, 1, 5, "early "}, {false, 0, 0, ""}} {
			page, err := SetPage(ctx, f, f.k, f.k.Dead, c.latest, c.offset, c.n)
			f.must(err)
			got := ""
			for _, s := range page {
				got += string(s.Raw) + " "
			}
			if got != c.want {
				f.Fatalf("%+v: %q", c, got)
			}
		}
		n, _, err := RunRevive(ctx, f, f.k, []Revival{{Raw: []byte("early"), Next: []byte("revived")},
			{Raw: []byte("none"), Next: []byte("none")}})
		if f.must(err); n != 1 {
			f.Fatalf("%d were revived", n)
		}
		gone, _, err := DeleteDead(ctx, f, f.k, [][]byte{[]byte("late"), []byte("none")})
		if f.must(err); !slices.Equal(gone, []bool{true, false}) {
			f.Fatalf("deleted: %v", gone)
		}
		f.lengths(4, 0, 0, 0)
	})
}

// Counts and what comes first, and then what a purge leaves of it.
func TestCountAndPurge(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		retain := func(x *element.Extra) { x.Retain = time.Minute.Milliseconds() }
		f.enqueue(Now, 0, named("over", retain), named("late", retain))
		for _, h := range f.take(0, 2) {
			f.leave(0, h, &Verdict{}, &Bounds{})
		}
		f.enqueue(Now, 0, named("a"), named("b"), named("c"))
		f.enqueue(In, 60_000, named("d"))
		held := f.take(0, 1)
		f.start(0, held, false)
		_, err := RunCancel(ctx, f, f.k, "a", held[0].Serial, &Bounds{})
		f.must(err)
		f.s.Do("LPUSH", f.k.Suspect, "suspect")
		f.s.Do("ZADD", f.k.Dead, 5, "dead")
		n, err := Count(ctx, f, f.k)
		f.must(err)
		if n.Prepare != 2 || n.Suspect != 1 || n.Delay != 1 || n.Dead != 1 || n.Done != 2 || n.Cancelled != 0 {
			f.Fatalf("%+v", n)
		}
		next, _ := element.Decode(n.NextPrepare)
		if next.ID() != "b" || string(n.NextSuspect) != "suspect" || n.FirstDead.At.UnixMilli() != 5 ||
			n.FirstDelay.At.Sub(n.Now).Abs() > 61*time.Second || n.Now.Sub(n.FirstDone).Abs() > time.Minute {
			f.Fatalf("%+v", n)
		}
		done, err := DonePage(ctx, f, f.k, 0, -1)
		if f.must(err); len(done) != 2 || done[0].ID == done[1].ID || done[0].Kind != OutcomeAcked {
			f.Fatalf("%+v", done)
		}
		deleted, left, err := DropDone(ctx, f, f.k, 1)
		if f.must(err); deleted != 1 || left != 1 {
			f.Fatalf("%d outcomes dropped, %d left", deleted, left)
		}
		for _, set := range []struct {
			key   string
			set   bool
			count int
		}{{f.k.Prepare, false, 2}, {f.k.Delay, true, 1}, {f.k.Dead, true, 1}} {
			deleted, left, err := RunPurge(ctx, f, f.k, set.key, set.set, 1, true)
			if f.must(err); deleted != 1 || left != set.count-1 {
				f.Fatalf("%s: %d deleted, %d left", set.key, deleted, left)
			}
		}
		if b, c, d := f.state("b"), f.state("c"), f.state("d"); b != 0 || c != 'p' || d != 0 {
			f.Fatalf("the records say %q %q %q", b, c, d)
		}
	})
}

// An overview counts the receivers whose leases last, and their workers.
func TestOverviewReceivers(t *testing.T) {
	each(t, func(f *fixture) {
		f.s.Do("ZADD", f.k.Receivers, 1, NewIncarnation(5, time.Minute).Name)
		o, err := OverviewReply(f.run(func(c *link.Call) { AddOverview(c, f.k) }))
		if f.must(err); o.Receivers != 1 || o.Workers != f.i.Workers {
			f.Errorf("%+v", o)
		}
	})
}

// A message is found among others by its serial, a bare payload by its SHA-1, and either by an id.
func TestSeek(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		var es []*element.Element
		for i := range 3 * seekSome / 2 {
			es = append(es, named(fmt.Sprint(i)))
		}
		for chunk := range slices.Chunk(es, 100) {
			f.enqueue(Now, 0, chunk...)
		}
		f.run(func(c *link.Call) { AddPush(c, f.k, []byte("bare")) })
		for at, i := range []int{0, 1, seekSome, len(es) - 1} {
			raw := es[i].Encode()
			f.s.Do("ZADD", f.k.Dead, 1000+at%2, raw)
			for _, key := range []string{f.k.Prepare, f.k.Dead} {
				set := key == f.k.Dead
				for _, what := range []Sought{{Identity: string(es[i].Serial[:])}, {ID: es[i].ID()},
					{Identity: string(es[i].Serial[:]), At: time.UnixMilli(int64(1000 + at%2))}} {
					found, err := RunSeek(ctx, f, f.k, key, set, what)
					f.must(err)
					if found == nil || !bytes.Equal(found.Raw, raw) || set && found.At.UnixMilli() != int64(1000+at%2) {
						f.Fatalf("%d in %s by %+v: %+v", i, key, what, found)
					}
				}
			}
		}
		bare := element.Element{Bare: true}
		found, err := RunSeek(ctx, f, f.k, f.k.Prepare, false, Sought{Identity: bare.Identity([]byte("bare"))})
		if f.must(err); found == nil || string(found.Raw) != "bare" {
			f.Fatalf("%+v", found)
		}
		serial := element.NewSerial()
		for _, what := range []Sought{{Identity: string(serial[:])}, {ID: "none"}} {
			if found, err := RunSeek(ctx, f, f.k, f.k.Prepare, false, what); found != nil || err != nil {
				f.Fatalf("%+v, %v", found, err)
			}
		}
	})
}

// What is hastened waits at once, in order, and its record says so; what is removed is gone; what is dropped frees its
// id.
func TestBySerial(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		a, b := named("a"), named("b")
		f.enqueue(In, 60_000, a, b)
		n, _, err := RunHasten(ctx, f, f.k, []Hastened{{a.Encode(), "a"}, {b.Encode(), "b"}, {[]byte("none"), ""}})
		if f.must(err); n != 2 || f.state("a") != 'p' || f.state("b") != 'p' {
			f.Fatalf("%d hastened; the records say %q %q", n, f.state("a"), f.state("b"))
		}
		n, _, err = RunHasten(ctx, f, f.k, []Hastened{{a.Encode(), "a"}})
		if f.must(err); n != 0 {
			f.Fatalf("%d hastened again", n)
		}
		f.lengths(2, 0, 0, 0)
		if h := f.take(0, 1); h[0].ID() != "a" {
			f.Fatalf("%q is taken first", h[0].ID())
		}
		if was, _, err := Remove(ctx, f, f.k, f.k.Prepare, false, b.Encode()); !was || err != nil {
			f.Fatal(was, err)
		}
		if was, _, err := Remove(ctx, f, f.k, f.k.Prepare, false, b.Encode()); was || err != nil {
			f.Fatal(was, err)
		}
		f.s.Do("ZADD", f.k.Delay, 5, "late")
		p, err := RunPostpone(ctx, f, f.k, "", ulid.ULID{}, At, 7, []byte("late"), true)
		if f.must(err); p.Result != Postponed {
			f.Fatalf("%+v", p)
		}
		p, err = RunPostpone(ctx, f, f.k, "", ulid.ULID{}, In, 60_000, []byte("late"), true)
		if f.must(err); p.Result == Postponed { // the first one was past, so it waits now
			f.Fatalf("%+v", p)
		}
		f.enqueue(Now, 0, named("c", func(x *element.Extra) { x.Retain, x.Unique = 60_000, 60_000 }))
		f.take(1, 1)
		h := f.take(1, 1)
		f.leave(1, h[0], &Verdict{}, &Bounds{})
		for _, want := range []bool{true, false} {
			if was, err := RunDrop(ctx, f, f.k, "c", h[0].Serial); was != want || err != nil {
				f.Fatal(was, err)
			}
		}
		if state := f.state("c"); state != 0 {
			f.Fatalf("the record says %q", state)
		}
		if kept := f.s.Do("EXISTS", f.k.Done, f.k.Kept); kept != int64(0) {
			f.Fatal("something is kept")
		}
	})
}

// counted counts the questions.
type counted struct {
	Asker
	n int
}

func (a *counted) Ask(ctx context.Context, channel string, fill func(*link.Call)) ([]link.Reply, bool, error) {
	a.n++
	return a.Asker.Ask(ctx, channel, fill)
}

// A page of a list that has not moved is one question, or two while it is not known how large its elements are.
func TestPageOfAFewQuestions(t *testing.T) {
	each(t, func(f *fixture) {
		for range 25 {
			f.enqueue(Now, 0, named(""))
		}
		a := &counted{Asker: f}
		w := NewWalk(a, f.k, f.k.Prepare, false, false, 100, "")
		for page := range 2 {
			a.n = 0
			all, more, err := w.Page(context.Background(), 10)
			if f.must(err); len(all) != 10 || !more || a.n > 2 {
				f.Errorf("page %d: %d elements, more: %v, of %d questions", page, len(all), more, a.n)
			}
		}
	})
}

// A key of the wrong type is an error of its question.
func TestWrongType(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		for _, key := range []string{f.k.Prepare, f.k.Dead, f.k.IDs, f.k.Recur, f.k.Kept, f.k.Done} {
			f.s.Do("SET", key, "wrong")
		}
		_, list := ListPage(ctx, f, f.k, f.k.Prepare, 0, -1)
		_, set := SetPage(ctx, f, f.k, f.k.Dead, false, 0, -1)
		_, done := DonePage(ctx, f, f.k, 0, -1)
		_, count := Count(ctx, f, f.k)
		_, status := RunStatus(ctx, f, f.k, "a")
		_, wait := RunWait(ctx, f, f.k, "a", nil)
		_, postpone := RunPostpone(ctx, f, f.k, "a", element.NewSerial(), In, 1, nil, false)
		_, _, purge := RunPurge(ctx, f, f.k, f.k.Prepare, false, 1, true)
		_, table := ReadRecurTable(ctx, f, f.k)
		_, _, mark := ReadRecurMark(ctx, f, f.k)
		_, seek := RunSeek(ctx, f, f.k, f.k.Prepare, false, Sought{ID: "a"})
		_, _, page := NewWalk(f, f.k, f.k.Dead, true, false, 0, "").Page(ctx, 1)
		_, size := Length(ctx, f, f.k, f.k.Dead, true)
		_, _, hasten := RunHasten(ctx, f, f.k, nil)
		_, drop := RunDrop(ctx, f, f.k, "a", element.NewSerial())
		_, _, remove := Remove(ctx, f, f.k, f.k.Dead, true, []byte("x"))
		_, write := WriteRecur(ctx, f, f.k, "a", "", "head\n")
		for name, err := range map[string]error{
			"list": list, "set": set, "done": done, "count": count, "status": status, "wait": wait,
			"purge": purge, "table": table, "mark": mark, "write": write,
			"seek": seek, "page": page, "size": size, "hasten": hasten, "drop": drop, "remove": remove,
		} {
			if link.Code(err) != "WRONGTYPE" {
				f.Errorf("%s: %v", name, err)
			}
		}
		if postpone == nil {
			f.Error("postpone has no error")
		}
	})
}
