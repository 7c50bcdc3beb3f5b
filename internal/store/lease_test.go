package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// lease takes up to n messages into a lease.
func (f *fixture) lease(l Lease, n int) (held []Held) {
	f.Helper()
	rep := f.run(func(c *link.Call) { AddLease(c, []*Keys{f.k}, l, n, 1<<20) })
	f.must(EachTaken(rep, func(_ int, raw []byte, err error) {
		f.must(err)
		e, err := element.Decode(raw)
		f.must(err)
		held = append(held, Held{Element: &e, Raw: bytes.Clone(raw), OwnsID: e.ID() != ""})
	}))
	return held
}

// settle sends a verdict of one message of a lease.
func (f *fixture) settle(l Lease, h Held, v *Verdict) LeaveAnswer {
	f.Helper()
	a, err := LeaveReply(v, f.run(func(c *link.Call) { AddLeave(c, f.k, f.k.LeaseList(l.Name), h, v, &Bounds{}) }))
	f.must(err)
	return a
}

// lapse ends a lease, as a judge does that has had Redis in sight for so long.
func (f *fixture) lapse(l Lease, sight time.Duration) LapseAnswer {
	f.Helper()
	now := f.now()
	fence := Fence{At: now, Since: now.Add(-sight), Age: time.Minute}
	a, err := LapseReply(f.run(func(c *link.Call) { AddLapse(c, f.k, l, fence, 32, 64<<10, &Bounds{MaxDead: 100}) }))
	f.must(err)
	return a
}

// over lets a lease's end be past.
func (f *fixture) over(l Lease) {
	f.Helper()
	f.s.Do("ZADD", f.k.Leased, f.now().Add(-time.Millisecond).UnixMilli(), l.Name)
}

// A lease's name says all, and no other text is one.
func TestLeaseNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ most, want int }{{0, 0}, {1, 1}, {255, 255}, {256, 0}, {-1, 0}} {
		l := NewLease(90*time.Second+time.Microsecond, c.most)
		got, err := ParseLease(l.Name)
		if err != nil || got != l || got.MaxAttempts != c.want || got.Length != 90*time.Second {
			t.Errorf("%d: %+v of %+v, %v", c.most, got, l, err)
		}
	}
	random := NewLease(time.Second, 1).Name[:26]
	for _, name := range []string{"", "x", random, random + "-1-0", random + "-256-1", random + "-01-1",
		random + "-1-1 ",
		random + "--1-1", random[1:] + "-1-1", "0" + random[1:] + "-1-1", random + "-1-9999999999999"} {
		if l, err := ParseLease(name); err == nil {
			t.Errorf("%q is %+v", name, l)
		}
	}
}

// A lease holds what was taken, in order, until each has left it by a verdict; then it can be forgotten.
func TestLease(t *testing.T) {
	each(t, func(f *fixture) {
		var es []*element.Element
		for i := range 7 {
			es = append(es, named(map[bool]string{true: fmt.Sprint("id", i)}[i%2 == 0], func(*element.Extra) {}))
		}
		for _, e := range es {
			f.enqueue(Now, 0, e)
		}
		l := NewLease(time.Minute, 3)
		held := f.lease(l, 6)
		if len(held) != 6 || f.length("LLEN", f.k.Prepare) != 1 || f.length("ZCARD", f.k.Leased) != 1 {
			f.Fatalf("%d leased", len(held))
		}
		for i, h := range held {
			if h.Serial != es[i].Serial {
				f.Errorf("place %d has another", i)
			}
		}
		if again := f.lease(l, 6); !slices.EqualFunc(
			again,
			held,
			func(a, b Held) bool { return bytes.Equal(a.Raw, b.Raw) },
		) {
			f.Errorf("sent again it gives %d", len(again))
		}
		if a := f.lapse(l, time.Hour); !a.Early {
			f.Errorf("ended before its time: %+v", a)
		}
		next := func(i int) []byte { e := held[i].Next(errBoom); return e.Encode() }
		for i, v := range []*Verdict{{}, {Result: []byte("r")}, {Fate: Retried, Wait: time.Hour, Next: next(2)},
			{Fate: Rejected, Next: next(3)}, {Fate: Released}} {
			if a := f.settle(l, held[i], v); !a.Found {
				f.Errorf("verdict %d finds nothing", i)
			}
			if a := f.settle(l, held[i], v); a.Found && i != 1 {
				f.Errorf("verdict %d finds it twice", i)
			}
		}
		unlease := func() int {
			n, err := CountReply(
				f.run(func(c *link.Call) { AddUnlease(c, f.k, l.Name, NewLease(time.Second, 0).Name) }),
			)
			f.must(err)
			return n
		}
		if unlease() != 0 || f.length("ZCARD", f.k.Leased) != 1 {
			f.Error("forgotten while it holds one")
		}
		f.settle(l, held[5], &Verdict{})
		if unlease() != 1 || f.length("EXISTS", f.k.Leased) != 0 {
			f.Error("not forgotten")
		}
		f.lengths(2, 1, 1, 0)
		if left := f.take(0, 5); left[0].Serial != es[4].Serial {
			f.Error("what was released does not come next")
		}
	})
}

// A lease that is over counts an attempt. Its messages go where promoted ones go, or to dead where their attempts are
// used up. What comes late finds nothing.
func TestLapse(t *testing.T) {
	each(t, func(f *fixture) {
		own := named("own", func(x *element.Extra) { x.Retain = 60000 })
		own.SetMaxAttempts(3)
		for _, e := range []*element.Element{named("a"), named(""), own, named("cancelled")} {
			f.enqueue(Now, 0, e)
		}
		f.s.Do("LPUSH", f.k.Prepare, "bare", "bare") // twins
		waiting := named("")
		f.enqueue(Now, 0, waiting)
		l := NewLease(8*time.Second, 2)
		held := f.lease(l, 6)
		f.s.Do("SADD", f.k.Cancelled, string(held[3].Serial[:]))
		f.s.Do("HSET", f.k.Running, string(held[0].Serial[:]), "mark")
		f.over(l)
		if a := f.lapse(l, 2100*time.Millisecond); a != (LapseAnswer{Prepare: 5, Dropped: 1}) {
			f.Fatalf("%+v", a)
		}
		if f.length("EXISTS", f.k.Leased) != 0 || f.length("EXISTS", f.k.Running) != 0 || f.state("cancelled") != 0 {
			f.Error("something of it is left")
		}
		for i, h := range held {
			if a := f.settle(l, h, &Verdict{}); a.Found {
				f.Errorf("a late ack finds message %d", i)
			}
		}
		first := f.take(0, 1)[0]
		if first.Serial != waiting.Serial {
			f.Error("what waited does not come first")
		}
		l = NewLease(time.Second, 2)
		again := f.lease(l, 10)
		bare := map[string]bool{}
		for _, h := range again {
			if h.Attempts != 1 || h.Recoveries != 0 {
				f.Errorf("%d attempts, %d recoveries", h.Attempts, h.Recoveries)
			}
			if string(h.Payload) == "bare" {
				bare[h.SerialString()] = true
			}
		}
		if len(again) != 5 || len(bare) != 2 || again[0].Serial != held[0].Serial {
			f.Errorf("%d come back, %d of them were bare", len(again), len(bare))
		}
		f.over(l)
		if a := f.lapse(l, time.Hour); a != (LapseAnswer{Prepare: 1, Dead: 4}) {
			f.Errorf("the second time: %+v", a)
		}
		if f.state("a") != 0 || f.state("own") != 'p' {
			f.Errorf("records %q and %q", f.state("a"), f.state("own"))
		}
		l = NewLease(time.Second, 2)
		last := f.lease(l, 1)
		f.over(l)
		if a := f.lapse(l, time.Hour); a != (LapseAnswer{Dead: 1}) || last[0].ID() != "own" {
			f.Errorf("the third time: %+v", a)
		}
		if o := f.status("own").Outcome; o.Kind != 'd' || o.Attempt != 3 {
			f.Errorf("%+v", o)
		}
	})
}

// A lease is put off while something of it is left, in parts where it is large, and where the clock was set back it
// ends after its length.
func TestExtendAndParts(t *testing.T) {
	each(t, func(f *fixture) {
		extend := func(l Lease, d time.Duration) int {
			left, cancelled, err := ExtendReply(f.run(func(c *link.Call) { AddExtend(c, f.k, l.Name, d, "none") }))
			if f.must(err); left && cancelled == nil {
				return 1
			}
			return 0
		}
		l := NewLease(time.Second, 0)
		if extend(l, time.Hour) != 0 || f.length("EXISTS", f.k.Leased) != 0 {
			f.Error("what is not there is extended")
		}
		for range 70 {
			f.enqueue(Now, 0, named(""))
		}
		f.lease(l, 70)
		f.over(l)
		if extend(l, time.Hour) != 1 || !f.lapse(l, time.Hour).Early {
			f.Error("not extended")
		}
		f.s.Do("ZADD", f.k.Leased, 1, "no lease")
		if leases, err := OverLeases(context.Background(), f.l, f.k, 10); err != nil || len(leases) != 0 {
			f.Errorf("%v, %v", leases, err)
		}
		f.over(l)
		if leases, err := OverLeases(context.Background(), f.l, f.k, 10); err != nil ||
			!slices.Equal(leases, []Lease{l}) {
			f.Errorf("%v, %v", leases, err)
		}
		if n := f.length("ZCARD", f.k.Leased); n != 1 {
			f.Errorf("%d in leased", n)
		}
		for _, want := range []LapseAnswer{{Prepare: 32, Left: 38}, {Prepare: 32, Left: 6}, {Prepare: 6}, {}} {
			if a := f.lapse(l, time.Hour); a != want {
				f.Errorf("%+v, want %+v", a, want)
			}
		}
		f.lengths(70, 0, 0, 0)
		f.lease(l, 1)
		f.s.Do("ZADD", f.k.Leased, f.now().Add(48*time.Hour).UnixMilli(), l.Name)
		f.lapse(l, time.Hour)
		ends, err := redis.Int64(f.s.Do("ZSCORE", f.k.Leased, l.Name), nil)
		if in := time.UnixMilli(ends).Sub(f.now()); err != nil || in > time.Second {
			f.Errorf("ends in %v, %v", in, err)
		}
	})
}

// Who has not had Redis in sight for a quarter of the lease puts its end off by that, once.
func TestLapseIsPutOff(t *testing.T) {
	each(t, func(f *fixture) {
		judged := func(l Lease, at, since time.Duration, age time.Duration) LapseAnswer {
			fence := Fence{At: f.now().Add(-at), Since: f.now().Add(-since), Age: age}
			a, err := LapseReply(f.run(func(c *link.Call) { AddLapse(c, f.k, l, fence, 32, 1000, &Bounds{}) }))
			f.must(err)
			return a
		}
		for name, c := range map[string]struct {
			length, since, at, age time.Duration
			grace                  time.Duration // 0: it ends
		}{
			"in sight":         {8 * time.Second, 2100 * time.Millisecond, 0, time.Second, 0},
			"not long enough":  {8 * time.Second, 1900 * time.Millisecond, 0, time.Second, 2 * time.Second},
			"long lease":       {time.Hour, 5100 * time.Millisecond, 0, time.Second, 0},
			"long, not enough": {time.Hour, 4900 * time.Millisecond, 0, time.Second, 5 * time.Second},
			"not lately":       {8 * time.Second, time.Hour, time.Minute, time.Second, 2 * time.Second},
		} {
			f.enqueue(Now, 0, named(""))
			l := NewLease(c.length, 0)
			f.lease(l, 1)
			f.over(l)
			a := judged(l, c.at, c.since, c.age)
			if a.Early != (c.grace > 0) {
				f.Errorf("%s: %+v", name, a)
			}
			if c.grace == 0 {
				f.lease(NewLease(time.Minute, 0), 1)
				continue
			}
			ends, err := redis.Float64(f.s.Do("ZSCORE", f.k.Leased, l.Name), nil)
			if in := time.UnixMilli(int64(ends)).Sub(f.now()); err != nil || in > c.grace || in < c.grace-time.Second {
				f.Errorf("%s: it ends in %v, %v", name, in, err)
			}
			if a := judged(l, c.at, c.since, c.age); !a.Early {
				f.Errorf("%s: ended before the grace was over: %+v", name, a)
			}
			f.s.Do("ZADD", f.k.Leased, fmt.Sprintf("%d.5", f.now().UnixMilli()-1), l.Name)
			if a := judged(l, c.at, c.since, c.age); a.Prepare != 1 {
				f.Errorf("%s: put off again: %+v", name, a)
			}
			f.lease(NewLease(time.Minute, 0), 1)
		}
	})
}

// A take whose reply was lost is sent again: it gives what it has taken, also where a channel asked before has
// something by now.
func TestLeaseSentAgain(t *testing.T) {
	each(t, func(f *fixture) {
		high, low := KeysOf(redistest.Name(f.T)), f.k
		f.enqueue(Now, 0, named(""))
		l := NewLease(time.Minute, 0)
		take := func() (got []string) {
			rep := f.run(func(c *link.Call) { AddLease(c, []*Keys{high, low}, l, 2, 1000) })
			f.must(EachTaken(rep, func(source int, raw []byte, err error) {
				f.must(err)
				got = append(got, fmt.Sprint(source, raw))
			}))
			return got
		}
		first := take()
		f.s.Do("LPUSH", high.Prepare, "high")
		if again := take(); len(first) != 1 || !slices.Equal(first, again) {
			f.Errorf("%v, then %v", first, again)
		}
		if n := f.length("EXISTS", high.Leased); n != 0 {
			f.Error("the same lease holds something of two channels")
		}
	})
}

// A suspect is leased alone, before all else; of several channels the first that has something is asked, and one with a
// key of a wrong type says so.
func TestLeaseFrom(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named(""))
		f.s.Do("LPUSH", f.k.Suspect, "two")
		f.s.Do("LPUSH", f.k.Suspect, "one")
		if held := f.lease(NewLease(time.Minute, 0), 10); len(held) != 1 || string(held[0].Payload) != "two" {
			f.Errorf("%d leased", len(held))
		}
		high, low := KeysOf(redistest.Name(f.T)), KeysOf(redistest.Name(f.T))
		f.s.Do("LPUSH", low.Prepare, "low")
		f.s.Do("LPUSH", high.Leased, "no sorted set")
		f.s.Do("LPUSH", high.Prepare, "high")
		var got []string
		l := NewLease(time.Minute, 0)
		f.must(EachTaken(f.run(func(c *link.Call) { AddLease(c, []*Keys{high, low}, l, 5, 1000) }),
			func(source int, raw []byte, err error) {
				got = append(got, fmt.Sprintf("%d %s %v", source, raw, err != nil))
			}))
		if len(got) != 2 || got[0] != "0  true" || got[1] != "1 low false" {
			f.Errorf("%q", got)
		}
		if n := f.length("LLEN", high.Prepare); n != 1 {
			f.Errorf("%d left where nothing could be leased", n)
		}
	})
}

// A full Redis is drained by leases as by receivers.
func TestLeaseOfFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l, k := newLink(t, s.Addr()), KeysOf(redistest.Name(t))
	f := &fixture{t, redistest.Backend(s), l, k, NewIncarnation(1, time.Minute)}
	for range 10 {
		f.enqueue(Now, 0, named(""))
	}
	s.Do("CONFIG", "SET", "maxmemory", "1")
	lease := NewLease(time.Second, 0)
	held := f.lease(lease, 5)
	for _, h := range held {
		if !f.settle(lease, h, &Verdict{Fate: Retried, Next: h.Raw}).Found {
			t.Error("a retry finds nothing")
		}
	}
	lease = NewLease(time.Millisecond, 0)
	f.lease(lease, 5)
	time.Sleep(5 * time.Millisecond)
	if a := f.lapse(lease, time.Hour); a.Prepare != 5 || len(held) != 5 {
		t.Errorf("%d leased, then %+v", len(held), a)
	}
	s.Do("CONFIG", "SET", "maxmemory", "0")
}
