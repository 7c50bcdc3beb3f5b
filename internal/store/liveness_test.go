package store

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// now is the server's time.
func (f *fixture) now() time.Time { return ServerTime(f.s.Do("TIME")) }

// fence judges every lease.
func (f *fixture) fence() Fence {
	now := f.now()
	return Fence{At: now, Since: now.Add(-time.Hour), Age: time.Minute}
}

// An incarnation is among the living from its register until it is unregistered or superseded.
func TestLiveness(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		beat := func(i Incarnation) BeatAnswer {
			b, err := BeatReply(f.run(func(c *link.Call) { AddBeat(c, f.k, i) }))
			f.must(err)
			return b
		}
		if b := beat(f.i); !b.Alive || !b.Others || b.Earliest <= 0 || b.Now.Sub(f.now()).Abs() > time.Minute {
			f.Fatalf("%+v", b)
		}
		if b := beat(NewIncarnation(1, time.Second)); b.Alive {
			f.Fatalf("a beat brought one back: %+v", b)
		}
		next := NewIncarnation(1, time.Minute)
		abandoned := NewIncarnation(1, time.Minute)
		_, err := RegisterIncarnation(ctx, f.l, []*Keys{f.k}, abandoned, nil)
		f.must(err)
		run, err := RegisterIncarnation(ctx, f.l, []*Keys{f.k}, next, []string{abandoned.Name})
		if f.must(err); beat(abandoned).Alive || !beat(next).Alive {
			f.Fatal("an abandoned one lives, or the new one does not")
		}
		if _, real := f.s.(*redistest.Server); real && len(run) != 40 {
			f.Fatalf("the run is %q", run)
		}
		all, err := Receivers(ctx, f, f.k)
		if f.must(err); len(all) != 2 || !all[0].Alive || !all[1].Alive || time.Until(all[0].Until) > 90*time.Second {
			f.Fatalf("%+v", all)
		}
		f.enqueue(Now, 0, named(""))
		f.take(1, 1)
		gone := func(i Incarnation) bool {
			g, err := UnregisterReply(f.run(func(c *link.Call) { AddUnregister(c, f.k, i) }))
			f.must(err)
			return g
		}
		if gone(f.i) || !gone(next) || !gone(next) {
			f.Fatal("one that holds a message is unregistered, or one that holds none is not")
		}
		n, err := HeldReply(f.run(func(c *link.Call) { AddHeld(c, f.k.AllDoing(f.i)...) }))
		if f.must(err); n != 1 {
			f.Fatalf("%d lists hold something", n)
		}
		some, err := NonEmpty(ctx, f.l, f.k.AllDoing(f.i))
		if f.must(err); !slices.Equal(some, []string{f.k.Doing(f.i, 1)}) {
			f.Fatalf("some hold something: %q", some)
		}
		f.run(func(c *link.Call) { AddEmpty(c, f.k, f.i, 1) })
		n, err = CountNonEmpty(ctx, f.l, f.k.AllDoing(f.i))
		if f.must(err); n != 0 || !gone(f.i) {
			f.Fatalf("%d lists hold something", n)
		}
		f.lengths(1, 0, 0, 0)
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
		if f.must(err); s.Died != 0 || !s.Keeper || len(s.Claims) > 0 {
			f.Fatalf("without a fence: %+v", s)
		}
		q.Fence = f.fence()
		s, err = RunSweep(ctx, f.l, f.k, q)
		if f.must(err); s.Died != 1 || len(s.Claims) != 1 || s.Scheduled || s.Suspects || s.Unreadable != nil {
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

// A superseded receiver is swept without a fence.
func TestSupersede(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		for _, counted := range []bool{false, true} {
			i := NewIncarnation(1, time.Minute)
			_, err := RegisterIncarnation(ctx, f.l, []*Keys{f.k}, i, nil)
			f.must(err)
			f.run(func(c *link.Call) { AddSupersede(c, f.k, i.Name, counted) })
			s, err := RunSweep(ctx, f.l, f.k, Sweeping{MaxClaims: 10, ClaimFor: time.Minute})
			if f.must(err); len(s.Claims) != 1 {
				f.Fatalf("%+v", s)
			}
			d, err := ParseDeadReceiver(s.Claims[0])
			if f.must(err); !d.Superseded || d.Counted != counted || d.Name != i.Name {
				f.Fatalf("%+v", d)
			}
		}
	})
}

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

// Due messages go to prepare, and the reply says when the next is due.
func TestPromote(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		f.enqueue(In, 60_000, named(""))
		f.s.Do("ZADD", f.k.Delay, 1, "one", 2, "two", 3, "three")
		p, err := RunPromote(ctx, f.l, f.k, 1, 1<<20, 2)
		if f.must(err); p.Moved != 2 || !p.Scheduled || p.NextDue >= 0 {
			f.Fatalf("%+v", p)
		}
		p, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1)
		if f.must(err); p.Moved != 1 || p.NextDue < 50*time.Second || p.NextDue > 61*time.Second {
			f.Fatalf("%+v", p)
		}
		page, err := ListPage(ctx, f, f.k, f.k.Prepare, 0, 2)
		if f.must(err); len(page) != 2 || string(page[0]) != "one" || string(page[1]) != "two" {
			f.Fatalf("%q", page)
		}
		f.s.Do("DEL", f.k.Delay)
		if _, real := f.s.(*redistest.Server); real { // miniredis gives "inf" in a form that its own Lua cannot read
			f.s.Do("ZADD", f.k.Delay, "+inf", "never")
			p, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1)
			if f.must(err); p.Moved != 0 || p.NextDue <= 0 {
				f.Fatalf("a score that no integer holds: %+v", p)
			}
			f.s.Do("DEL", f.k.Delay)
		}
		f.s.Do("SET", f.k.Delay, "no set")
		if _, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1); err == nil {
			f.Fatal("what is no set is promoted")
		}
	})
}

// A keeper that yields makes room for the next one at once.
func TestYieldKeeper(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		bid := func(name string) bool {
			s, err := RunSweep(ctx, f.l, f.k, Sweeping{Bid: name, KeepFor: time.Minute})
			f.must(err)
			return s.Keeper
		}
		if !bid("one") || bid("two") {
			f.Fatal("two keep at once, or none does")
		}
		f.must(YieldKeeper(ctx, f.l, f.k, "two"))
		if bid("two") {
			f.Fatal("another's place was yielded")
		}
		f.must(YieldKeeper(ctx, f.l, f.k, "one"))
		if !bid("two") {
			f.Fatal("the place is not free")
		}
	})
}

// Upkeep removes marks of nobody and receipts of long ago, and nothing else.
func TestUpkeep(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, now := context.Background(), time.Now()
		f.must(Upkeep(ctx, f.l, f.k, new(Scan), now))
		f.enqueue(Now, 0, named("a"))
		f.start(0, f.take(0, 1), false)
		stale, old := element.NewSerial(), element.NewSerialAt(now.Add(-48*time.Hour))
		f.s.Do("HSET", f.k.Running, stale[:], string(Mark(NewIncarnation(1, time.Second), 0, 1, now)))
		f.s.Do("SADD", f.k.Receipts, old[:], "x"+string(old[:]), "?")
		var at Scan
		for range 4 {
			f.must(Upkeep(ctx, f.l, f.k, &at, now))
		}
		if n := f.length("HLEN", f.k.Running); n != 1 || f.status("a").Holder == (Handling{}) {
			f.Fatalf("%d marks are left", n)
		}
		if n := f.length("SCARD", f.k.Receipts); n != 1 { // that of a
			f.Fatalf("%d receipts are left", n)
		}
		f.must(Upkeep(ctx, f.l, f.k, &at, now))
	})
}

// A full Redis notes who handles a message by the script, and does not where it has expired.
func TestStart(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named("a", func(x *element.Extra) { x.Expires = 1 }), named("b"))
		held := f.take(0, 2)
		time.Sleep(3 * time.Millisecond)
		s := f.start(0, held, true)
		n := 0
		EachRecord(s.Records, func(_ int, raw []byte) {
			if raw != nil {
				n++
			}
		})
		if n != 2 || s.SomeCancelled || f.length("HLEN", f.k.Running) != 1 {
			f.Fatalf("%d records: %+v", n, s)
		}
		cancelled, err := WereCancelled(context.Background(), f, f.k, []ulid.ULID{held[0].Serial})
		if f.must(err); len(cancelled) != 1 || cancelled[0] {
			f.Fatalf("cancelled: %v", cancelled)
		}
	})
}

func TestParseHint(t *testing.T) {
	t.Parallel()
	serial := element.NewSerial()
	for payload, want := range map[string]Hint{
		"":                             {},
		"anything":                     {},
		"15":                           {Kind: HintDue, In: 15 * time.Millisecond},
		"-3":                           {Kind: HintDue, In: -3 * time.Millisecond},
		"9223372036854775807":          {Kind: HintDue, In: maxAhead},
		"cancel " + string(serial[:]):  {Kind: HintCancelled, Serial: serial},
		"cancel " + string(serial[:4]): {},
	} {
		if got := ParseHint(payload); got != want {
			t.Errorf("%q: %+v, want %+v", payload, got, want)
		}
	}
}
