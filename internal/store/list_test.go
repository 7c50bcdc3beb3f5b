package store

import (
	"context"
	"testing"
	"time"

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
		n, err := RunRevive(ctx, f, f.k, []Revival{{Raw: []byte("early"), Next: []byte("revived")},
			{Raw: []byte("none"), Next: []byte("none")}})
		if f.must(err); n != 1 {
			f.Fatalf("%d were revived", n)
		}
		n, err = DeleteDead(ctx, f, f.k, [][]byte{[]byte("late"), []byte("none")})
		if f.must(err); n != 1 {
			f.Fatalf("%d were deleted", n)
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
		_, write := WriteRecur(ctx, f, f.k, "a", "", "head\n")
		for name, err := range map[string]error{
			"list": list, "set": set, "done": done, "count": count, "status": status, "wait": wait,
			"purge": purge, "table": table, "mark": mark, "write": write,
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
