package store

import (
	"context"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// fence judges every lease.
func (f *fixture) fence() Fence {
	now := f.now()
	return Fence{At: now, Since: now.Add(-time.Hour), Age: time.Minute}
}

// Who has run out is judged by one who has seen Redis for a third of that lease, and again within three quarters of
// it. A judge of a longer lease may have been away with it for longer than that, and not know.
func TestSweepAfterAnAbsence(t *testing.T) {
	each(t, func(f *fixture) {
		for _, c := range []struct {
			since, at time.Duration // before now
			judged    bool
		}{{time.Hour, 46 * time.Second, false}, {35 * time.Second, 25 * time.Second, false},
			{35 * time.Second, 35 * time.Second, false}, {35 * time.Second, 5 * time.Second, true}} {
			f.s.Do("ZADD", f.k.Receivers, 1, f.i.Name)
			now := f.now()
			s, err := RunSweep(context.Background(), f.l, f.k, Sweeping{
				Fence: Fence{At: now.Add(-c.at), Since: now.Add(-c.since), Age: time.Minute},
			})
			if f.must(err); s.Died == 1 != c.judged || s.Unjudged == c.judged {
				f.Errorf("seen from %v to %v ago: %+v", c.since, c.at, s)
			}
		}
	})
}

// What a dead receiver held goes back, more and more carefully; its entry goes in the end.
func TestSweepAndReap(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		keeper := NewIncarnation(1, time.Minute)
		f.enqueue(Now, 0, named("a"), named("b"))
		f.start(0, f.take(0, 2), false)
		f.s.Do("ZADD", f.k.Receivers, 1, f.i.Name)
		q := Sweeping{MaxClaims: 10, ClaimFor: time.Minute, Bid: keeper.Name, KeepFor: time.Minute}
		s, err := RunSweep(ctx, f.l, f.k, q)
		if f.must(err); s.Died != 0 || !s.Keeper || len(s.Claims) > 0 || !s.Unjudged {
			f.Fatalf("without a fence: %+v", s)
		}
		q.Fence = Fence{At: f.now(), Since: f.now(), Age: time.Minute}
		s, err = RunSweep(ctx, f.l, f.k, q)
		half := f.i.Lease / 2
		if f.must(err); s.Died != 0 || s.Unjudged || s.Again <= half-time.Second || s.Again > half+time.Second {
			f.Fatalf("not seen for half of the lease: %+v", s)
		}
		q.Fence = f.fence()
		s, err = RunSweep(ctx, f.l, f.k, q)
		if f.must(err); s.Died != 1 || len(s.Claims) != 1 || s.Unjudged || s.Scheduled || s.Suspects ||
			s.Unreadable != nil {
			f.Fatalf("%+v", s)
		}
		s2, err := RunSweep(ctx, f.l, f.k, q)
		if f.must(err); len(s2.Claims) > 0 || s2.Again == 0 {
			f.Fatalf("claimed twice: %+v", s2)
		}
		all, err := Receivers(ctx, f, f.k)
		if f.must(err); len(all) != 1 || all[0].Alive || all[0].Holding != 2 {
			f.Fatalf("%+v", all)
		}
		dead, err := ParseDeadReceiver(s.Claims[0])
		if f.must(err); dead.Name != f.i.Name || !dead.Counted || dead.Superseded {
			f.Fatalf("%+v", dead)
		}
		reap := func(fence Fence, n int) ReapAnswer {
			r, err := ReapReply(f.run(func(c *link.Call) {
				AddReap(c, f.k, f.k.Doing(f.i, 0), fence, dead, n, 1<<20, &Bounds{})
			}))
			f.must(err)
			return r
		}
		if r := reap(Fence{At: f.now().Add(-time.Hour), Age: time.Second}, 10); !r.Late {
			f.Fatalf("with an old fence: %+v", r)
		}
		if r := reap(f.fence(), 1); r.Prepare != 1 || r.Left != 1 || r.Bytes == 0 || r.Late {
			f.Fatalf("one: %+v", r)
		}
		if r := reap(f.fence(), 10); r.Prepare != 1 || r.Left != 0 {
			f.Fatalf("the other: %+v", r)
		}
		f.must(FinishDead(ctx, f.l, f.k, s.Claims[0], dead))
		if n := f.length("ZCARD", f.k.DeadReceivers); n != 1 {
			f.Fatal("one that died just now is forgotten")
		}
		for range 2 { // more deaths make suspects, and then poison
			held := f.take(0, 2)
			for _, h := range held {
				if h.Recoveries == 0 || h.Recoveries > 2 {
					f.Fatalf("%+v", h.Element)
				}
			}
			reap(f.fence(), 10)
		}
		s, err = RunSweep(ctx, f.l, f.k, q)
		if f.must(err); !s.Suspects {
			f.Fatalf("no suspects: %+v", s)
		}
		err = EachTaken(f.run(func(c *link.Call) {
			AddTake(c, []Source{{Keys: f.k, Doing: f.k.Doing(f.i, 0), Suspect: true}}, 2)
		}), func(int, []byte, error) {})
		f.must(err)
		reap(f.fence(), 10)
		err = EachTaken(f.run(func(c *link.Call) {
			AddTake(c, []Source{{Keys: f.k, Doing: f.k.Doing(f.i, 0), Suspect: true}}, 2)
		}), func(int, []byte, error) {})
		f.must(err)
		if r := reap(f.fence(), 10); r.Dead != 2 {
			f.Fatalf("held by four that died: %+v", r)
		}
		f.lengths(0, 0, 2, 0)
		page, err := SetPage(ctx, f, f.k, f.k.Dead, true, 0, 1)
		f.must(err)
		if e, _ := element.Decode(page[0].Raw); !strings.Contains(e.Failure(), "dying process 4 times") {
			f.Fatalf("dead for %q", e.Failure())
		}
	})
}

// Dead receivers whose long leases may not be judged yet do not hide one after them that may be.
func TestSweepBehindLongLeases(t *testing.T) {
	each(t, func(f *fixture) {
		for range 100 {
			f.s.Do("ZADD", f.k.Receivers, 1, NewIncarnation(1, 10*time.Minute).Name)
		}
		f.s.Do("ZADD", f.k.Receivers, 2, NewIncarnation(1, 10*time.Second).Name)
		now := f.now()
		q := Sweeping{MaxClaims: 10, ClaimFor: time.Minute,
			Fence: Fence{At: now, Since: now.Add(-time.Minute), Age: time.Minute}}
		s, err := RunSweep(context.Background(), f.l, f.k, q)
		if f.must(err); s.Died != 1 || s.Again < 3*time.Minute {
			f.Errorf("%+v", s)
		}
		q.Fence.Since = now.Add(-time.Hour)
		for range 2 {
			s, err = RunSweep(context.Background(), f.l, f.k, q)
			f.must(err)
		}
		if n := f.length("ZCARD", f.k.Receivers); n != 1 { // f.i, which lives
			f.Errorf("%d are left among the living: %+v", n, s)
		}
	})
}

// Whatever the script says is read, and what it never says is an error.
func TestSweepNames(t *testing.T) {
	t.Parallel()
	said := make(map[string]bool)
	for _, m := range regexp.MustCompile(`say\('(\w+)'`).FindAllStringSubmatch(source("sweep"), -1) {
		said[m[1]] = true
		if s := (SweepAnswer{}); !s.take(m[1], "1") || reflect.DeepEqual(s, SweepAnswer{}) {
			t.Errorf("%s changes nothing: %+v", m[1], s)
		}
	}
	if len(said) != 12 {
		t.Errorf("the script says %v: this test no longer sees all", said)
	}
	for _, parts := range [][]any{{}, {"died", "1"}, {"now", "x"}, {"now", "1", "else", "1"}, {"now"}} {
		if s, err := SweepReply(link.Reply{Value: parts}); err == nil {
			t.Errorf("%q: %+v", parts, s)
		}
	}
}
