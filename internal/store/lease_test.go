package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// lease takes up to n messages into a lease.
func (f *fixture) lease(l Lease, n int) (held []Held) {
	f.Helper()
	rep := f.run(func(c *link.Call) { AddLease(c, []*Keys{f.k}, l, n, 1<<20) })
	f.must(eachLeased(rep, func(_ int, raw []byte, err error) {
		f.must(err)
		e, err := element.Decode(raw)
		f.must(err)
		held = append(held, Held{Element: &e, Raw: bytes.Clone(raw), OwnsID: e.ID() != ""})
	}))
	return held
}

// eachLeased is EachLeasedTaken without what is known of ids.
func eachLeased(rep link.Reply, give func(source int, raw []byte, err error)) error {
	return EachLeasedTaken(rep, func(source int, t LeasedTaken, err error) { give(source, t.Raw, err) })
}

// leaseMark is the entry in the index for a message that is leased, as the take makes it.
func leaseMark(l Lease, attempt int) string {
	return fmt.Sprintf("%s%s %d 1", leaseHolder, l.Name, attempt)
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
		random + "-1-1 ", random + "--1-1", random[1:] + "-1-1", "0" + random[1:] + "-1-1",
		random + "-1-9999999999999"} {
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
		same := func(a, b Held) bool { return bytes.Equal(a.Raw, b.Raw) }
		if again := f.lease(l, 6); !slices.EqualFunc(again, held, same) {
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
			other := NewLease(time.Second, 0)
			n, err := CountReply(f.run(func(c *link.Call) { AddUnlease(c, f.k, l.Name, other.Name) }))
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

// A lease is put off while something of it is left, and ends in parts where it is large.
func TestExtendAndParts(t *testing.T) {
	each(t, func(f *fixture) {
		extend := func(l Lease, d time.Duration) bool {
			left, cancelled, err := ExtendReply(f.run(func(c *link.Call) { AddExtend(c, f.k, l.Name, d) }))
			if f.must(err); len(cancelled) > 0 {
				f.Errorf("%v are cancelled", cancelled)
			}
			return left
		}
		l := NewLease(time.Second, 0)
		if extend(l, time.Hour) || f.length("EXISTS", f.k.Leased) != 0 {
			f.Error("what is not there is extended")
		}
		for range 70 {
			f.enqueue(Now, 0, named(""))
		}
		f.lease(l, 70)
		f.over(l)
		if !extend(l, time.Hour) || !f.lapse(l, time.Hour).Early {
			f.Error("not extended")
		}
		f.s.Do("ZADD", f.k.Leased, 1, "no lease")
		if leases, err := OverLeases(context.Background(), f.l, f.k, 10); err != nil || len(leases) != 0 {
			f.Errorf("%v, %v", leases, err)
		}
		f.over(l)
		leases, err := OverLeases(context.Background(), f.l, f.k, 10)
		if err != nil || !slices.Equal(leases, []Lease{l}) {
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
	})
}

// A holder whose extension Redis refuses is not told that the lease is over.
func TestExtendRefused(t *testing.T) {
	each(t, func(f *fixture) {
		f.s.Do("DEL", f.k.Receivers)
		f.s.Do("SET", f.k.Receivers, "foreign")
		rep := f.run(func(c *link.Call) { AddExtend(c, f.k, NewLease(time.Hour, 0).Name, time.Hour) })
		if left, _, err := ExtendReply(rep); link.Code(err) != "WRONGTYPE" {
			f.Errorf("%v, %v", left, err)
		}
	})
}

// An extension tells the holder which of its messages were cancelled, by their places. It brings no end forward.
func TestExtend(t *testing.T) {
	each(t, func(f *fixture) {
		for i := range 4 {
			f.enqueue(Now, 0, named(fmt.Sprint("id", i)))
		}
		l := NewLease(time.Hour, 0)
		held := f.lease(l, 4)
		serial := func(i int) string { return string(held[i].Serial[:]) }
		extend := func(d time.Duration, of ...string) string {
			left, cancelled, err := ExtendReply(f.run(func(c *link.Call) { AddExtend(c, f.k, l.Name, d, of...) }))
			f.must(err)
			return fmt.Sprint(left, cancelled)
		}
		ends := func() int64 {
			ms, err := redis.Int64(f.s.Do("ZSCORE", f.k.Leased, l.Name), nil)
			f.must(err)
			return ms
		}
		before := ends()
		if got := extend(time.Minute, serial(0), serial(3)); got != "true []" || ends() != before {
			f.Errorf("%s, and the end is brought forward by %d ms", got, before-ends())
		}
		f.cancel("id1", held[1].Serial)
		f.cancel("id3", held[3].Serial)
		for _, c := range []struct {
			of   []string
			want string
		}{
			{nil, "true []"},
			{[]string{serial(0), serial(2)}, "true []"},
			{[]string{serial(1)}, "true [0]"},
			{[]string{serial(0), serial(1), "none", serial(3), serial(1)}, "true [1 3 4]"},
		} {
			if got := extend(2*time.Hour, c.of...); got != c.want {
				f.Errorf("of %q: %s, want %s", c.of, got, c.want)
			}
		}
		in := time.Duration(ends()-before) * time.Millisecond
		if in < time.Hour-time.Minute || in > time.Hour+time.Minute {
			f.Errorf("the end is put off by %v", in)
		}
		// One that is over, or put off by who ends it, is held again.
		for _, score := range []any{1, fmt.Sprint(before, ".5")} {
			f.s.Do("ZADD", f.k.Leased, score, l.Name)
			if got := extend(2 * time.Hour); got != "true []" || ends() <= before {
				f.Errorf("after %v: %s, it ends at %d", score, got, ends())
			}
		}
		f.s.Do("DEL", f.k.Cancelled)
		f.s.Do("SET", f.k.Cancelled, "foreign")
		if got := extend(2*time.Hour, serial(1)); got != "true []" {
			f.Errorf("of a foreign key: %s", got)
		}
		// Where nothing is left, nobody is asked and nothing changes.
		f.s.Do("DEL", f.k.Cancelled, f.k.LeaseList(l.Name))
		f.s.Do("SADD", f.k.Cancelled, serial(1))
		before = ends()
		if got := extend(9*time.Hour, serial(1)); got != "false []" || ends() != before {
			f.Errorf("of nothing: %s, the end is put off by %d ms", got, ends()-before)
		}
	})
}

// A lease that has ended ends for all its messages, although a script moves a part of them at a time. Between two parts
// Extend does not put its end off, and Lapse needs no fence.
func TestExtendAmidALapse(t *testing.T) {
	each(t, func(f *fixture) {
		l := NewLease(time.Minute, 0)
		f.enqueue(Now, 0, named("a"), named("b"), named("c"))
		f.lease(l, 3)
		f.over(l)
		now := f.now()
		seen := Fence{At: now, Since: now.Add(-time.Hour), Age: time.Minute}
		for part, fence := range []Fence{seen, {}, {}} { // nobody has to have seen it for the second and the third
			a, err := LapseReply(f.run(func(c *link.Call) { AddLapse(c, f.k, l, fence, 1, 100, &Bounds{}) }))
			if f.must(err); a.Prepare != 1 || a.Left != 2-part {
				f.Errorf("part %d: %+v", part, a)
			}
			left, _, err := ExtendReply(f.run(func(c *link.Call) { AddExtend(c, f.k, l.Name, time.Minute) }))
			if f.must(err); left {
				f.Errorf("part %d: it is extended", part)
			}
			if over, err := OverLeases(context.Background(), f.l, f.k, 9); err != nil || len(over) != min(1, a.Left) {
				f.Errorf("part %d: %d leases are over, %v", part, len(over), err)
			}
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
			f.must(eachLeased(rep, func(source int, raw []byte, err error) {
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
		f.must(eachLeased(f.run(func(c *link.Call) { AddLease(c, []*Keys{high, low}, l, 5, 1000) }),
			func(source int, raw []byte, err error) {
				e, _ := element.Decode(raw)
				got = append(got, fmt.Sprintf("%d %s %v", source, e.Payload, err != nil))
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

// hints hears what is published of a channel's due times.
type hints struct {
	f *fixture
	c redis.PubSubConn
}

func (f *fixture) hints() *hints {
	f.Helper()
	conn, err := redis.Dial("tcp", f.s.Addr(), redis.DialReadTimeout(10*time.Second))
	f.must(err)
	f.Cleanup(func() { conn.Close() })
	h := &hints{f, redis.PubSubConn{Conn: conn}}
	f.must(h.c.Subscribe(f.k.Delay))
	if _, is := h.c.Receive().(redis.Subscription); !is {
		f.Fatal("not subscribed")
	}
	return h
}

// since is what was published since the last call.
func (h *hints) since() (all []string) {
	h.f.Helper()
	h.f.s.Do("PUBLISH", h.f.k.Delay, "the end")
	for {
		m, is := h.c.Receive().(redis.Message)
		if !is {
			h.f.Fatal("no longer subscribed")
		}
		if string(m.Data) == "the end" {
			return all
		}
		all = append(all, string(m.Data))
	}
}

// A lease that ends before all others is told to the keeper, unless there is one that finds it in time by itself.
func TestLeaseHint(t *testing.T) {
	each(t, func(f *fixture) {
		h := f.hints()
		keeps := func(in time.Duration) {
			f.s.Do("HSET", f.k.Keeper, "name", "x", "until", f.now().Add(in).UnixMilli())
		}
		foreign := func() { f.s.Do("SET", f.k.Keeper, "no hash") }
		other := func(in time.Duration) func() {
			return func() { f.s.Do("ZADD", f.k.Leased, f.now().Add(in).UnixMilli(), "other") }
		}
		keeper, gone := func() { keeps(time.Minute) }, func() { keeps(-time.Millisecond) }
		for name, c := range map[string]struct {
			there []func()
			end   time.Duration
			told  bool
		}{
			"the first":                      {nil, time.Hour, true},
			"later than another":             {[]func(){other(time.Minute)}, time.Hour, false},
			"earlier than another":           {[]func(){other(2 * time.Hour)}, time.Hour, true},
			"with a keeper":                  {[]func(){keeper}, time.Hour, false},
			"as far as a keeper looks":       {[]func(){keeper}, keeperLooks, true},
			"just further":                   {[]func(){keeper}, keeperLooks + time.Millisecond, false},
			"with a keeper, not the first":   {[]func(){keeper, other(time.Second)}, 5 * time.Second, false},
			"its keeper is gone":             {[]func(){gone}, time.Hour, true},
			"a keeper's key of a wrong sort": {[]func(){foreign}, time.Hour, true},
			"a keeper that says no time": {[]func(){func() { f.s.Do("HSET", f.k.Keeper, "until", "x") }},
				time.Hour, true},
		} {
			for _, set := range c.there {
				set()
			}
			l := NewLease(c.end, 0)
			if f.lease(l, 1); len(h.since()) != 0 {
				f.Errorf("%s: a hint of nothing", name)
			}
			f.enqueue(Now, 0, named(""))
			want := []string(nil)
			if c.told {
				want = []string{fmt.Sprint(c.end.Milliseconds())}
			}
			if n := len(f.lease(l, 1)); n != 1 {
				f.Errorf("%s: %d leased", name, n)
			}
			if got := h.since(); !slices.Equal(got, want) {
				f.Errorf("%s: published %q, want %q", name, got, want)
			}
			f.s.Do("DEL", f.k.Keeper, f.k.Leased, f.k.LeaseList(l.Name))
		}

		// Of one that is over nobody can have known.
		for _, ago := range []time.Duration{50 * time.Millisecond, 2 * time.Second} {
			other(-ago)()
			keeper()
			f.enqueue(Now, 0, named(""))
			f.lease(NewLease(time.Hour, 0), 1)
			if got, want := h.since(), ago > time.Second; len(got) > 0 != want || want && got[0] != "0" {
				f.Errorf("another is over since %v: published %q", ago, got)
			}
			f.s.Do("DEL", f.k.Keeper, f.k.Leased)
		}

		// The reply to the first may be lost with its hint, so one that is sent again tells of the end again.
		l := NewLease(time.Minute, 0)
		f.enqueue(Now, 0, named(""))
		f.lease(l, 1)
		f.lease(l, 1)
		if got := h.since(); !slices.Equal(got, []string{"60000", "60000"}) {
			f.Errorf("sent again: %q", got)
		}
	})
}

// What the channel knows of an id is true after a lease has ended, whatever it was before.
func TestLapseOfIDs(t *testing.T) {
	each(t, func(f *fixture) {
		const failure = "shunt: its lease has ended"
		record := func(id string) element.Record {
			r, _ := element.ParseRecord(f.status(id).Record)
			return r
		}
		// lapse leases all, lets f happen to them, and ends the lease.
		lapse := func(most int, then func(held []Held)) (LapseAnswer, []Held) {
			l := NewLease(time.Minute, most)
			held := f.lease(l, 32)
			if then != nil {
				then(held)
			}
			f.over(l)
			a := f.lapse(l, time.Hour)
			if n := f.length("HLEN", f.k.Running); n != 0 {
				f.Errorf("%d marks are left", n)
			}
			return a, held
		}
		// Its own record says that it waits, since now, and does not expire any more.
		f.enqueue(Now, 0, named("own", func(x *element.Extra) { x.Expires = 60_000 }))
		if record("own").Expires == 0 {
			f.Error("it does not expire")
		}
		for attempts := 1; attempts < 3; attempts++ {
			if a, held := lapse(0, nil); a != (LapseAnswer{Prepare: 1}) || held[0].Attempt() != attempts {
				f.Errorf("%+v of attempt %d", a, held[0].Attempt())
			}
			r := record("own")
			if since := f.now().Sub(time.UnixMilli(r.At)); r.State != 'p' || r.Attempts != attempts || r.Expires != 0 ||
				r.Failure != failure || since < 0 || since > time.Minute {
				f.Errorf("after %d: %+v", attempts, r)
			}
		}
		// A record of a retry, which promote leaves as it was.
		h := f.take(0, 1)[0]
		next := h.Next(errBoom)
		f.leave(0, h, &Verdict{Fate: Retried, Wait: time.Nanosecond, Next: next.Encode(), Failure: "boom"}, &Bounds{})
		redistest.Until(f.T, 10*time.Second, "it is due", func() bool {
			p, err := RunPromote(context.Background(), f.l, f.k, 1, 1000, 1)
			f.must(err)
			return p.Moved == 1
		})
		if r := record("own"); r.State != 'd' || r.Attempts != 3 {
			f.Errorf("%+v", r)
		}
		lapse(0, nil)
		if r := record("own"); r.State != 'p' || r.Attempts != 4 || r.Failure != failure {
			f.Errorf("after a retry: %+v", r)
		}
		// Another message has the id by now: its record and its outcome are its own.
		other := named("own")
		foreign := string(other.Serial[:]) + "p 0 1 0 \n"
		lapse(0, func([]Held) { f.s.Do("HSET", f.k.IDs, "own", foreign) })
		if got := string(f.status("own").Record); got != foreign || f.length("LLEN", f.k.Prepare) != 1 {
			f.Errorf("the record of another is %q", got)
		}
		if a, _ := lapse(1, nil); a != (LapseAnswer{Dead: 1}) || string(f.status("own").Record) != foreign {
			f.Errorf("%+v, the record is %q", a, f.status("own").Record)
		}
		f.s.Do("DEL", f.k.Dead, f.k.IDs)

		// One whose record is lost has none later.
		f.enqueue(Now, 0, named("lost"), named("other"))
		lapse(0, func([]Held) { f.s.Do("HDEL", f.k.IDs, "lost") })
		if r := f.status("lost").Record; len(r) != 0 || f.length("LLEN", f.k.Prepare) != 2 {
			f.Errorf("a record %q comes of nothing", r)
		}
		f.s.Do("DEL", f.k.Prepare, f.k.IDs)

		// Cancelled in the lease, for one who waits: it is over, without this attempt.
		f.enqueue(Now, 0, named("cancelled", func(x *element.Extra) { x.Retain = 60_000 }), named("stays"))
		a, held := lapse(1, func(held []Held) {
			f.s.Do("SADD", f.k.Waited, held[0].Serial[:])
			if holder := f.cancel("cancelled", held[0].Serial); holder.Lease == "" {
				f.Errorf("its holder is %+v", holder)
			}
		})
		if a != (LapseAnswer{Dropped: 1, Dead: 1}) || f.length("SCARD", f.k.Cancelled) != 0 ||
			f.state("cancelled") != 0 {
			f.Errorf("%+v", a)
		}
		if o := f.status("cancelled").Outcome; o.Kind != 'c' || o.Attempt != 0 || o.Serial != held[0].Serial {
			f.Errorf("%+v", o)
		}
		// Cancelled before it was leased, the only one with an id: its record is gone, and it is over all the same.
		f.s.Do("DEL", f.k.Dead)
		f.enqueue(Now, 0, named("alone"))
		e, err := redis.Bytes(f.s.Do("LINDEX", f.k.Prepare, 0), nil)
		f.must(err)
		if holder := f.cancel("alone", SerialOf(e)); holder.Some() || f.length("EXISTS", f.k.IDs) != 0 {
			f.Errorf("its holder is %+v", holder)
		}
		if a, _ := lapse(0, nil); a != (LapseAnswer{Dropped: 1}) || f.length("EXISTS", f.k.Cancelled) != 0 {
			f.Errorf("%+v", a)
		}

		// What has used up its attempts frees its id, and keeps what it asked for.
		f.s.Do("DEL", f.k.Dead, f.k.IDs, f.k.Done, f.k.Kept)
		f.enqueue(Now, 0, named("dead", func(x *element.Extra) { x.Retain = 3_600_000 }), named("unkept"))
		a, held = lapse(1, nil)
		if a != (LapseAnswer{Dead: 2}) || f.state("dead") != 0 || f.state("unkept") != 0 {
			f.Errorf("%+v", a)
		}
		o := f.status("dead").Outcome
		if o.Kind != 'd' || o.Attempt != 1 || o.Serial != held[0].Serial || o.KeptUntil.Sub(o.EndedAt) != time.Hour ||
			o.Failure != "shunt: its lease ended, and with that its attempts were used up" {
			f.Errorf("%+v", o)
		}
		if o := f.status("unkept").Outcome; o.Kind != 0 {
			f.Errorf("%+v is kept", o)
		}
		page, err := SetPage(context.Background(), f, f.k, f.k.Dead, false, 0, -1)
		f.must(err)
		for i, p := range page {
			e, err := element.Decode(p.Raw)
			if f.must(err); e.Attempts != 1 || e.Recoveries != 0 || e.Failure() != o.Failure ||
				f.now().Sub(p.At).Abs() > time.Minute {
				f.Errorf("dead letter %d: %+v of %v", i, e, p.At)
			}
		}
		if len(page) != 2 {
			f.Errorf("%d dead letters", len(page))
		}
	})
}

// cancel cancels a message, and says who has it.
func (f *fixture) cancel(id string, serial ulid.ULID) Handling {
	f.Helper()
	a := CancelReply(f.run(func(c *link.Call) { AddCancel(c, f.k, id, serial, &Bounds{}) }).Any())
	if !a.Found {
		f.Fatalf("%q is not there to be cancelled", id)
	}
	return a.Holder
}

// The bounds of a lapse: of what is dead, and how much goes at once. An element of a newer shunt comes back as it was,
// whatever the bound; a count of attempts saturates.
func TestLapseBounds(t *testing.T) {
	each(t, func(f *fixture) {
		now := f.now()
		end := func(l Lease, bytes int, b *Bounds) LapseAnswer {
			f.over(l)
			fence := Fence{At: now, Since: now.Add(-time.Hour), Age: time.Minute}
			a, err := LapseReply(f.run(func(c *link.Call) { AddLapse(c, f.k, l, fence, 32, bytes, b) }))
			f.must(err)
			return a
		}
		newer := "\xc1\x20newer, for it is longer than 20 bytes"
		bound := func(n, attempts int) *element.Element {
			e := named("")
			e.SetMaxAttempts(n)
			e.Attempts = int16(attempts)
			return e
		}
		for name, c := range map[string]struct {
			raw         string
			most        int
			dead        bool
			withAttempt int16
		}{
			"newer":               {newer, 1, false, 0},
			"no bound":            {string(bound(0, 7).Encode()), 0, false, 8},
			"saturated":           {string(bound(0, 255).Encode()), 0, false, 255},
			"saturated and bound": {string(bound(0, 255).Encode()), 255, true, 255},
			"below":               {string(bound(0, 1).Encode()), 3, false, 2},
			"reached":             {string(bound(0, 2).Encode()), 3, true, 3},
			"its own is less":     {string(bound(2, 1).Encode()), 3, true, 2},
			"its own is more":     {string(bound(4, 2).Encode()), 3, false, 3},
			"its own is none":     {string(bound(-1, 200).Encode()), 3, false, 201},
			"its own is over 255": {string(bound(300, 254).Encode()), 3, false, 255},
			"its own is 255":      {string(bound(255, 254).Encode()), 3, true, 255},
			"escaped":             {"\xc1\x00\xc1", 0, false, 1},
			"bare":                {"bare", 1, true, 1},
		} {
			f.s.Do("DEL", f.k.Prepare, f.k.Dead)
			f.s.Do("LPUSH", f.k.Prepare, c.raw)
			l := NewLease(time.Minute, c.most)
			f.run(func(call *link.Call) { AddLease(call, []*Keys{f.k}, l, 1, 1000) })
			want := LapseAnswer{Prepare: 1}
			if c.dead {
				want = LapseAnswer{Dead: 1}
			}
			if a := end(l, 1000, &Bounds{}); a != want {
				f.Errorf("%s: %+v", name, a)
				continue
			}
			var raws []string
			for _, of := range [][]any{{"LRANGE", f.k.Prepare, 0, -1}, {"ZRANGE", f.k.Dead, 0, -1}} {
				some, err := redis.Strings(f.s.Do(of[0].(string), of[1:]...), nil)
				f.must(err)
				raws = append(raws, some...)
			}
			if len(raws) != 1 {
				f.Fatalf("%s: %q", name, raws)
			}
			if c.withAttempt == 0 {
				if raws[0] != c.raw {
					f.Errorf("%s: %q", name, raws[0])
				}
				continue
			}
			before, err := element.Decode([]byte(c.raw))
			f.must(err)
			e, err := element.Decode([]byte(raws[0]))
			if f.must(err); e.Bare || e.Attempts != c.withAttempt || e.Recoveries != before.Recoveries ||
				string(e.Payload) != string(before.Payload) || !before.Bare && e.Serial != before.Serial {
				f.Errorf("%s: %+v", name, e)
			}
		}

		// No further one after so many bytes, but one at least; and the oldest of dead go.
		f.s.Do("DEL", f.k.Prepare, f.k.Dead)
		for range 6 {
			f.enqueue(Now, 0, named(""))
		}
		l := NewLease(time.Minute, 1)
		f.lease(l, 6)
		if a := end(l, 1, &Bounds{}); a != (LapseAnswer{Dead: 1, Left: 5}) {
			f.Errorf("one byte: %+v", a)
		}
		size := len(named("").Encode())
		if a := end(l, size, &Bounds{}); a != (LapseAnswer{Dead: 1, Left: 4}) {
			f.Errorf("as many bytes as one has: %+v", a)
		}
		if a := end(l, size+1, &Bounds{}); a != (LapseAnswer{Dead: 2, Left: 2}) {
			f.Errorf("one more: %+v", a)
		}
		if a := end(l, 1, &Bounds{MaxDead: 2}); a != (LapseAnswer{Dead: 1, Trimmed: 3, Left: 1}) {
			f.Errorf("the most dead are 2: %+v", a)
		}
		oldest, err := redis.Strings(f.s.Do("ZRANGE", f.k.Dead, 0, 0), nil)
		f.must(err)
		f.s.Do("ZADD", f.k.Dead, now.Add(-time.Hour).UnixMilli(), oldest[0])
		if a := end(l, 1000, &Bounds{DeadFor: time.Minute}); a != (LapseAnswer{Dead: 1, Trimmed: 1}) {
			f.Errorf("of an hour ago: %+v", a)
		}
		// A second one of the same bytes changes nothing: the first death counts.
		f.s.Do("DEL", f.k.Dead)
		twin := named("")
		for again := range 2 {
			f.enqueue(Now, 0, twin)
			l = NewLease(time.Minute, 1)
			f.lease(l, 1)
			if a := end(l, 1000, &Bounds{}); a != (LapseAnswer{Dead: 1}) {
				f.Errorf("a twin: %+v", a)
			}
			dead, err := redis.Strings(f.s.Do("ZRANGE", f.k.Dead, 0, -1, "WITHSCORES"), nil)
			if f.must(err); len(dead) != 2 {
				f.Errorf("dead are %q", dead)
			}
			if again > 0 && dead[1] != "5" {
				f.Errorf("it died at %s", dead[1])
			}
			f.s.Do("ZADD", f.k.Dead, 5, dead[0])
		}
		// Where nothing dies, nothing is looked after.
		f.s.Do("ZADD", f.k.Dead, 1, "of long ago")
		f.enqueue(Now, 0, named(""))
		l = NewLease(time.Minute, 0)
		f.lease(l, 1)
		if a := end(l, 1000, &Bounds{MaxDead: 1, DeadFor: time.Minute}); a != (LapseAnswer{Prepare: 1}) {
			f.Errorf("none dies: %+v", a)
		}
		f.s.Do("ZREM", f.k.Dead, "of long ago")
		f.s.Do("DEL", f.k.Prepare)
		// A clock that was set back makes no dead letter older than those that are there.
		ahead := now.Add(time.Hour).UnixMilli()
		f.s.Do("ZADD", f.k.Dead, ahead, "ahead")
		f.enqueue(Now, 0, named(""))
		l = NewLease(time.Minute, 1)
		f.lease(l, 1)
		end(l, 1000, &Bounds{})
		if n := f.length("ZCARD", f.k.Dead); n != 3 {
			f.Errorf("%d dead", n)
		}
		if n, err := redis.Int(f.s.Do("ZCOUNT", f.k.Dead, fmt.Sprint("(", ahead), ahead+1), nil); err != nil || n != 1 {
			f.Errorf("%d died last, %v", n, err)
		}
	})
}

// What a lapse keeps of those that are over is bounded, by number and by bytes.
func TestLapseOutcomes(t *testing.T) {
	each(t, func(f *fixture) {
		for _, c := range []struct {
			bounds Bounds
			kept   int
		}{
			{Bounds{}, 3}, {Bounds{MaxDone: 2}, 2}, {Bounds{MaxDone: 3}, 3},
			{Bounds{MaxDoneBytes: 1}, 1}, {Bounds{MaxDoneBytes: 300}, 2}, {Bounds{MaxDoneBytes: 10_000}, 3},
		} {
			for i := range 3 {
				f.enqueue(Now, 0, named(fmt.Sprint(i), func(x *element.Extra) { x.Retain = 60_000 }))
			}
			l := NewLease(time.Minute, 1)
			f.lease(l, 3)
			f.over(l)
			now := f.now()
			fence := Fence{At: now, Since: now.Add(-time.Hour), Age: time.Minute}
			f.must(f.run(func(call *link.Call) { AddLapse(call, f.k, l, fence, 3, 1000, &c.bounds) }).Err)
			if n, err := redis.Int(f.s.Do("ZCOUNT", f.k.Kept, "-inf", "(0"), nil); n != c.kept || err != nil {
				size, _ := redis.Int(f.s.Do("HGET", f.k.Done, ""), nil)
				f.Errorf("%+v: %d are kept, %v; they have %d bytes", c.bounds, n, err, size)
			}
			f.s.Do("DEL", f.k.Dead, f.k.Done, f.k.Kept)
		}
	})
}

// A key that is not shunt's ends nothing halfway: where something would go there, all stays; where nothing would, it
// does no harm.
func TestLapseOfForeignKeys(t *testing.T) {
	each(t, func(f *fixture) {
		for name, c := range map[string]struct {
			key  func() string
			most int
			bad  bool
		}{
			"prepare":           {func() string { return f.k.Prepare }, 0, true},
			"prepare, all dead": {func() string { return f.k.Prepare }, 1, false},
			"dead":              {func() string { return f.k.Dead }, 1, true},
			"dead, none is":     {func() string { return f.k.Dead }, 0, false},
			"ids":               {func() string { return f.k.IDs }, 0, false},
			"running":           {func() string { return f.k.Running }, 0, false},
			"cancelled":         {func() string { return f.k.Cancelled }, 0, false},
			"done":              {func() string { return f.k.Done }, 1, false},
			"kept":              {func() string { return f.k.Kept }, 1, false},
			"waited":            {func() string { return f.k.Waited }, 1, false},
		} {
			f.s.Do("DEL", f.k.Prepare, f.k.Dead, f.k.IDs, f.k.Running, f.k.Cancelled, f.k.Done, f.k.Kept, f.k.Waited,
				f.k.Leased)
			f.enqueue(Now, 0, named("a", func(x *element.Extra) { x.Retain = 60_000 }))
			l := NewLease(time.Minute, c.most)
			f.lease(l, 1)
			f.over(l)
			f.s.Do("DEL", c.key())
			f.s.Do("SET", c.key(), "foreign")
			now := f.now()
			fence := Fence{At: now, Since: now.Add(-time.Hour), Age: time.Minute}
			a, err := LapseReply(f.run(func(call *link.Call) { AddLapse(call, f.k, l, fence, 1, 100, &Bounds{}) }))
			if (err != nil) != c.bad || err == nil && a.Prepare+a.Dead != 1 {
				f.Errorf("%s: %+v, %v", name, a, err)
			}
			if n := f.length("LLEN", f.k.LeaseList(l.Name)) + f.length("ZCARD", f.k.Leased); n != 0 != c.bad {
				f.Errorf("%s: %d left", name, n)
			}
			f.s.Do("DEL", c.key(), f.k.LeaseList(l.Name))
		}
		// Where one would go to dead and one to prepare, neither does.
		f.s.Do("DEL", f.k.Prepare, f.k.Dead)
		l := NewLease(time.Minute, 2)
		first, second := named(""), named("")
		first.Attempts = 1
		f.enqueue(Now, 0, first, second)
		f.lease(l, 2)
		f.over(l)
		f.s.Do("SET", f.k.Prepare, "foreign")
		now := f.now()
		fence := Fence{At: now, Since: now.Add(-time.Hour), Age: time.Minute}
		if rep := f.run(func(c *link.Call) { AddLapse(c, f.k, l, fence, 2, 1000, &Bounds{}) }); rep.Err == nil ||
			f.length("LLEN", f.k.LeaseList(l.Name)) != 2 || f.length("ZCARD", f.k.Dead) != 0 {
			f.Errorf("%v: %d are left, %d are dead", rep.Err, f.length("LLEN", f.k.LeaseList(l.Name)),
				f.length("ZCARD", f.k.Dead))
		}
	})
}

// What is over is listed by when it ended, up to so many; what is no lease goes once it is over.
func TestOverLeases(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, now := context.Background(), f.now()
		over := func(n int) (lengths []time.Duration) {
			leases, err := OverLeases(ctx, f.l, f.k, n)
			f.must(err)
			for _, l := range leases {
				lengths = append(lengths, l.Length)
			}
			return lengths
		}
		if got := over(10); got != nil {
			f.Errorf("of nothing: %v", got)
		}
		for i, ago := range []time.Duration{time.Second, -time.Minute, time.Hour, time.Minute} {
			l := NewLease(time.Duration(i+1)*time.Second, 0)
			f.s.Do("ZADD", f.k.Leased, now.Add(-ago).UnixMilli(), l.Name)
		}
		f.s.Do("ZADD", f.k.Leased, "1.5", NewLease(9*time.Second, 0).Name, 2, "foreign", "1e15", "foreign, ahead")
		if got := over(3); !slices.Equal(got, []time.Duration{9 * time.Second, 3 * time.Second}) {
			f.Errorf("of three: %v", got)
		}
		if n := f.length("ZCARD", f.k.Leased); n != 6 {
			f.Errorf("%d are left", n)
		}
		for range 2 {
			want := []time.Duration{9 * time.Second, 3 * time.Second, 4 * time.Second, time.Second}
			if got := over(10); !slices.Equal(got, want) {
				f.Errorf("%v", got)
			}
		}
		f.s.Do("DEL", f.k.Leased)
		f.s.Do("SET", f.k.Leased, "foreign")
		if leases, err := OverLeases(ctx, f.l, f.k, 10); err == nil {
			f.Errorf("%v of what is no set", leases)
		}
	})
}

// Leases are counted and listed whatever their number; the first end is that of one which holds something.
func TestManyLeases(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, now := context.Background(), f.now()
		count := func() LeasedCount {
			n, err := CountLeased(ctx, f, f.k)
			f.must(err)
			return n
		}
		if n := count(); n != (LeasedCount{}) {
			f.Errorf("none: %+v", n)
		}
		c := link.NewCall()
		total, names := 0, []string(nil)
		const leases = 2*leasesAt + 1
		for i := range leases {
			name := NewLease(time.Minute, 0).Name
			names = append(names, name)
			c.Add("ZADD", f.k.Leased, now.UnixMilli()+int64(i), name)
			if i%2 == 1 {
				c.Add("LPUSH", f.k.LeaseList(name), fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
				total += 2
			}
		}
		f.must(f.l.Run(ctx, c))
		first := time.UnixMilli(now.UnixMilli() + 1)
		if n := count(); n.N != total || !n.First.Equal(first) {
			f.Errorf("%+v, want %d from %v on", n, total, first)
		}
		at := 0
		f.must(EachLeased(ctx, f, f.k, &Span{Left: -1}, func(name string, ends time.Time, raws [][]byte) {
			if name != names[at] {
				f.Errorf("%d is %s, want %s", at, name, names[at])
			}
			if ends.UnixMilli() != now.UnixMilli()+int64(at) {
				f.Errorf("the end of %d is %v", at, ends)
			}
			want := []string(nil)
			if at%2 == 1 {
				want = []string{fmt.Sprint(at, "a"), fmt.Sprint(at, "b")}
			}
			if !slices.EqualFunc(raws, want, func(raw []byte, s string) bool { return string(raw) == s }) {
				f.Errorf("%d holds %q", at, raws)
			}
			at++
		}))
		if at != leases {
			f.Errorf("%d leases", at)
		}
		f.s.Do("SET", f.k.Leased, "foreign")
		if _, err := CountLeased(ctx, f, f.k); err == nil {
			f.Error("what is no set is counted")
		}
	})
}

// A message that is leased is marked as its lease's, also on a full Redis. There a lease is extended, given back and
// forgotten, too.
func TestLeasedMarksOfFullRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := &fixture{t, s, newLink(t, s.Addr()), KeysOf(redistest.Name(t)), NewIncarnation(1, time.Minute)}
	for i := range 4 {
		f.enqueue(Now, 0, named(fmt.Sprint("id", i), func(x *element.Extra) { x.Expires = int64(i/3) * 60_000 }))
	}
	l := NewLease(time.Hour, 0)
	s.Do("CONFIG", "SET", "maxmemory", "1")
	defer s.Do("CONFIG", "SET", "maxmemory", "0")
	before := time.Now().Truncate(time.Millisecond)
	held := f.lease(l, 3)
	for i, h := range held {
		got := f.status(h.ID()).Holder
		if at := got.StartedAt; at.Before(before) || at.After(time.Now()) {
			t.Errorf("message %d is held since %v", i, at)
		}
		if got.StartedAt = (time.Time{}); got != (Handling{Lease: l.Name, Attempt: 1}) || !got.Some() {
			t.Errorf("message %d is held by %+v", i, got)
		}
	}
	if !f.settle(l, held[0], &Verdict{}).Found {
		t.Error("an ack finds nothing")
	}
	left, _, err := ExtendReply(f.run(func(c *link.Call) { AddExtend(c, f.k, l.Name, 2*time.Hour) }))
	if !left || err != nil {
		t.Errorf("extended %v, %v", left, err)
	}
	give := link.NewCall()
	AddGiveBack(give, f.k, l.Name)
	f.must(f.l.Run(context.Background(), give))
	n, err := GiveBackReply(give.Replies[0])
	if n != 2 || err != nil {
		t.Errorf("%d are given back, %v", n, err)
	}
	if f.length("HLEN", f.k.Running) != 0 || f.length("ZCARD", f.k.Leased) != 1 {
		t.Error("a mark is left, or the lease that was given up is not known")
	}
	next := NewLease(time.Hour, 0)
	for i, h := range f.lease(next, 4) { // as before, in the same order
		if want := fmt.Sprint("id", i+1); h.ID() != want || h.Attempts+h.Recoveries != 0 {
			t.Errorf("%q comes in place %d", h.ID(), i)
		}
	}
}

// The take says what is known of each id, and notes who has its message, unless that has expired. A key of a wrong type
// holds up none.
func TestLeaseOfIDs(t *testing.T) {
	each(t, func(f *fixture) {
		soon := func(x *element.Extra) { x.Expires = 1 }
		take := func(l Lease) (got map[string]LeasedTaken) {
			got = make(map[string]LeasedTaken)
			rep := f.run(func(c *link.Call) { AddLease(c, []*Keys{f.k}, l, 32, 1<<20) })
			f.must(EachLeasedTaken(rep, func(_ int, t LeasedTaken, err error) {
				f.must(err)
				e, err := element.Decode(t.Raw)
				f.must(err)
				got[e.ID()] = t
				if d := f.now().UnixMilli() - t.Now; d < 0 || d > 5000 {
					f.Errorf("the take was %d ms ago", d)
				}
			}))
			return got
		}
		again := named("again")
		again.Attempts = 3
		f.enqueue(Now, 0, named("own"), named("gone"), named("lost"), named("none"), again)
		f.enqueue(Now, 0, named(""))
		f.enqueue(Now, 0, named("late", soon))
		serial := func(id string) []byte {
			r, _ := element.ParseRecord(f.status(id).Record)
			return r.Serial[:]
		}
		f.s.Do("SADD", f.k.Cancelled, serial("gone"))
		other, _ := redis.String(f.s.Do("HGET", f.k.IDs, "own"), nil)
		f.s.Do("HSET", f.k.IDs, "lost", other)
		f.s.Do("HDEL", f.k.IDs, "none")
		time.Sleep(3 * time.Millisecond)
		l := NewLease(time.Minute, 0)
		for range 2 { // sent again it says the same
			for id, got := range take(l) {
				e, _ := element.Decode(got.Raw)
				record, _ := redis.Bytes(f.s.Do("HGET", f.k.IDs, id), nil)
				mark, _ := redis.Bytes(f.s.Do("HGET", f.k.Running, e.Serial[:]), nil)
				want := Handling{Lease: l.Name, Attempt: int(e.Attempts) + 1}
				if id == "late" || id == "" {
					want = Handling{}
				}
				h := ParseMark(mark)
				if h.StartedAt = (time.Time{}); h != want {
					f.Errorf("%q: in the hands of %+v", id, h)
				}
				if got.Read != (id != "") || got.Cancelled != (id == "gone") || !bytes.Equal(got.Record, record) {
					f.Errorf("%q: %+v, and its record is %q", id, got, record)
				}
			}
		}
		for _, key := range []string{f.k.IDs, f.k.Running, f.k.Cancelled} {
			f.s.Do("DEL", f.k.IDs, f.k.Running, f.k.Cancelled)
			f.enqueue(Now, 0, named("x"))
			f.s.Do("DEL", key)
			f.s.Do("SET", key, "foreign")
			if got := take(NewLease(time.Minute, 0))["x"]; !got.Read || got.Cancelled || got.Raw == nil {
				f.Errorf("%s is not shunt's: %+v", key, got)
			}
			f.s.Do("DEL", key)
		}
	})
}

// leaseEach takes one message for each of several leases. The places are those that have one.
func (f *fixture) leaseEach(ls ...Lease) (places []int, taken []LeasedTaken, empty bool) {
	f.Helper()
	rep := f.run(func(c *link.Call) { AddLeaseEach(c, f.k, ls, 1000) })
	empty, err := EachLeasedOne(rep, func(place int, t LeasedTaken) {
		if d := f.now().UnixMilli() - t.Now; d < 0 || d > 5000 {
			f.Errorf("the take was %d ms ago", d)
		}
		t.Raw, t.Record = bytes.Clone(t.Raw), bytes.Clone(t.Record)
		places, taken = append(places, place), append(taken, t)
	})
	f.must(err)
	return places, taken, empty
}

// Script lease_each gives each of several leases one message, as script lease would. A bare message gets a header, and
// a message with an id has its lease for holder. The keeper is told of the lease that ends first. A lease that was
// given up gets no message. Where a suspect waits, no lease gets one.
func TestLeaseEach(t *testing.T) {
	each(t, func(f *fixture) {
		leases := func(terms ...time.Duration) (ls []Lease) {
			for _, d := range terms {
				ls = append(ls, NewLease(d, 3))
			}
			return ls
		}
		f.enqueue(Now, 0, named("a"), named("b"))
		f.s.Do("SADD", f.k.Cancelled, serialOf(f, "b"))
		f.s.Do("LPUSH", f.k.Prepare, "bare")
		h := f.hints()
		ls := leases(time.Hour, 30*time.Second, 2*time.Minute, time.Hour)
		f.run(func(c *link.Call) { AddGiveBack(c, f.k, ls[0].Name) })
		places, taken, empty := f.leaseEach(ls...)
		if !slices.Equal(places, []int{1, 2, 3}) || empty {
			f.Fatalf("%v have taken something, empty %v", places, empty)
		}
		if got := h.since(); !slices.Equal(got, []string{"30000"}) {
			f.Errorf("published %q", got)
		}
		for i, want := range []struct {
			payload, id          string
			cancelled, read, own bool
		}{{"payload of a", "a", false, true, true}, {"payload of b", "b", true, true, true}, {payload: "bare"}} {
			e, err := element.Decode(taken[i].Raw)
			f.must(err)
			held, err := HeldByLease(context.Background(), f, f.k, ls[places[i]].Name)
			f.must(err)
			r, own := element.ParseRecord(taken[i].Record)
			if string(e.Payload) != want.payload || e.ID() != want.id || e.Bare || taken[i].Read != want.read ||
				taken[i].Cancelled != want.cancelled || own != want.own || own && r.Serial != e.Serial ||
				len(held) != 1 || !bytes.Equal(held[0], taken[i].Raw) {
				f.Errorf("place %d: %+v of %+v, and its list has %q", i, taken[i], e, held)
			}
			if h := f.status(want.id).Holder; want.id != "" && (h.Lease != ls[places[i]].Name || h.Attempt != 1) {
				f.Errorf("%q is held by %+v", want.id, h)
			}
			at, _ := redis.Int64(f.s.Do("ZSCORE", f.k.Leased, ls[places[i]].Name), nil)
			if d := time.UnixMilli(at).Sub(f.now()) - ls[places[i]].Length; d.Abs() > 5*time.Second {
				f.Errorf("its lease ends %v off", d)
			}
		}
		if places, _, empty := f.leaseEach(leases(time.Hour, time.Hour)...); len(places) > 0 || !empty {
			f.Errorf("of nothing %v have taken something, empty %v", places, empty)
		}
		f.s.Do("LPUSH", f.k.Prepare, "x")
		f.s.Do("LPUSH", f.k.Suspect, "poison")
		if places, _, empty := f.leaseEach(leases(time.Hour, time.Hour)...); len(places) > 0 || empty {
			f.Errorf("beside a suspect %v have taken something, empty %v", places, empty)
		}
		f.s.Do("DEL", f.k.Suspect)
		if places, _, empty := f.leaseEach(leases(time.Hour, time.Hour)...); !slices.Equal(places, []int{0}) || !empty {
			f.Errorf("of one message %v have taken it, empty %v", places, empty)
		}
		for range 3 {
			f.s.Do("LPUSH", f.k.Prepare, strings.Repeat("x", 600))
		}
		places, _, empty = f.leaseEach(leases(time.Hour, time.Hour, time.Hour)...)
		if !slices.Equal(places, []int{0, 1}) || empty {
			f.Errorf("of 1,000 bytes %v have taken something, empty %v", places, empty)
		}
		f.s.Do("DEL", f.k.Prepare)
		if n := f.length("ZCARD", f.k.Leased); n != 7 { // with the one that was given up
			f.Errorf("%d leases are there", n)
		}
		// What it cannot do it leaves, with an error, also where nothing waits.
		f.s.Do("DEL", f.k.Leased)
		f.s.Do("SET", f.k.Leased, "foreign")
		c := link.NewCall()
		AddLeaseEach(c, f.k, leases(time.Hour), 1000)
		if err := f.l.Run(context.Background(), c); link.Code(err) != "WRONGTYPE" {
			f.Errorf("of an empty channel with a foreign key: %v", err)
		}
		f.s.Do("DEL", f.k.Leased)
		for _, key := range []string{f.k.Prepare, f.k.Suspect, f.k.Leased} {
			f.s.Do("LPUSH", f.k.Prepare, "x")
			f.s.Do("DEL", key)
			f.s.Do("SET", key, "foreign")
			c := link.NewCall()
			AddLeaseEach(c, f.k, leases(time.Hour), 1000)
			if err := f.l.Run(context.Background(), c); link.Code(err) != "WRONGTYPE" {
				f.Errorf("%s is not shunt's: %v", key, err)
			}
			f.s.Do("DEL", key)
		}
	})
}

func serialOf(f *fixture, id string) []byte {
	r, _ := element.ParseRecord(f.status(id).Record)
	return r.Serial[:]
}

// Messages of several leases are settled in one script, each as by itself.
func TestSettleEach(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named("a"), named("b", func(x *element.Extra) { x.Retain = 60_000 }), named("c"), named("d"))
		var ls []Lease
		var held []Held
		for range 4 {
			l := NewLease(time.Minute, 0)
			ls, held = append(ls, l), append(held, f.lease(l, 1)...)
		}
		f.s.Do("DEL", f.k.LeaseList(ls[2].Name)) // its lease has ended
		verdicts := []*Verdict{{}, {Result: []byte("result")}, {}, {Fate: Expired}}
		rep := f.run(func(c *link.Call) {
			AddSettleEach(c, f.k, &Bounds{}, 4, func(i int) (Key, Held, *Verdict) {
				return f.k.LeaseList(ls[i].Name), held[i], verdicts[i]
			})
		})
		for i, want := range []bool{true, true, false, true} {
			a, err := LeaveReply(verdicts[i], EachReply(rep, i))
			f.must(err)
			if a.Found != want || f.length("EXISTS", f.k.LeaseList(ls[i].Name)) != 0 {
				f.Errorf("message %d: %+v", i, a)
			}
			if state := f.state(held[i].ID()); (state == 0) != want {
				f.Errorf("message %d has state %q", i, state)
			}
		}
		if n := f.length("HLEN", f.k.Done); n != 2 || f.s.Do("HEXISTS", f.k.Done, "b") != int64(1) { // and their bytes
			f.Errorf("%d outcomes are kept", n-1)
		}
		if n := f.length("HLEN", f.k.Running); n != 1 {
			f.Errorf("%d marks are left", n)
		}
	})
}

// A server that takes no writes refuses the take as a whole, so that the connection to it is given up.
func TestLeaseOfReplica(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := &fixture{t, s, newLink(t, s.Addr()), KeysOf(redistest.Name(t)), NewIncarnation(1, time.Minute)}
	f.enqueue(Now, 0, named("a"))
	s.Do("REPLICAOF", "127.0.0.1", "1")
	c := link.NewCall()
	AddLease(c, []*Keys{f.k}, NewLease(time.Minute, 0), 1, 1000)
	if err := f.l.Run(context.Background(), c); link.Code(err) != "READONLY" {
		t.Errorf("%v", err)
	}
}

// A channel with a key that is not shunt's says so, before anything has moved, and the next one is asked.
func TestLeaseOfForeignKeys(t *testing.T) {
	each(t, func(f *fixture) {
		for name, key := range map[string]func(*Keys) string{
			"prepare": func(k *Keys) string { return k.Prepare },
			"suspect": func(k *Keys) string { return k.Suspect },
			"leased":  func(k *Keys) string { return k.Leased },
		} {
			high, low := KeysOf(redistest.Name(f.T)), KeysOf(redistest.Name(f.T))
			f.s.Do("LPUSH", high.Prepare, "high")
			f.s.Do("LPUSH", low.Prepare, "low")
			f.s.Do("DEL", key(high))
			f.s.Do("HSET", key(high), "foreign", "foreign")
			l := NewLease(time.Minute, 0)
			var got []string
			f.must(eachLeased(f.run(func(c *link.Call) { AddLease(c, []*Keys{high, low}, l, 5, 1000) }),
				func(source int, raw []byte, err error) {
					e, _ := element.Decode(raw)
					got = append(got, fmt.Sprintf("%d %s %v", source, e.Payload, err))
				}))
			if len(got) != 2 || !strings.HasPrefix(got[0], "0  WRONGTYPE") || got[1] != "1 low <nil>" {
				f.Errorf("%s: %q", name, got)
			}
			if n := f.length("EXISTS", high.LeaseList(l.Name)); n != 0 {
				f.Errorf("%s: something of it is leased", name)
			}
		}
		// The key of the receivers is none that a lease needs, neither of the first channel nor of others.
		high, low := KeysOf(redistest.Name(f.T)), KeysOf(redistest.Name(f.T))
		for _, k := range []*Keys{high, low} {
			f.s.Do("SET", k.Receivers, "foreign")
			f.s.Do("LPUSH", k.Prepare, "of "+k.Name)
		}
		for _, want := range []*Keys{high, low} {
			rep := f.run(func(c *link.Call) { AddLease(c, []*Keys{high, low}, NewLease(time.Minute, 0), 5, 1000) })
			f.must(eachLeased(rep, func(_ int, raw []byte, err error) {
				if e, _ := element.Decode(raw); err != nil || string(e.Payload) != "of "+want.Name {
					f.Errorf("%q, %v", e.Payload, err)
				}
			}))
			if n := f.length("LLEN", want.Prepare); n != 0 {
				f.Errorf("%d are left of %s", n, want.Name)
			}
		}
	})
}

// No further message is taken once so many bytes are, and one is at least.
func TestLeaseBytes(t *testing.T) {
	each(t, func(f *fixture) {
		for bytes, want := range map[int]int{1: 1, 9: 1, 10: 1, 11: 2, 20: 2, 21: 3, 1000: 3} {
			f.s.Do("DEL", f.k.Prepare)
			f.s.Do("LPUSH", f.k.Prepare, "0123456789", "0123456789", "0123456789")
			l := NewLease(time.Minute, 0)
			f.run(func(c *link.Call) { AddLease(c, []*Keys{f.k}, l, 3, bytes) })
			if n := f.length("LLEN", f.k.LeaseList(l.Name)); n != want {
				f.Errorf("%d messages of %d bytes, want %d", n, bytes, want)
			}
		}
	})
}

// No lease ends before its time, not by a part of a millisecond, neither one that has begun nor one that was extended.
func TestLeaseIsWhole(t *testing.T) {
	each(t, func(f *fixture) {
		l := NewLease(time.Minute, 0)
		for i := range 30 {
			f.s.Do("DEL", f.k.Leased)
			f.s.Do("LPUSH", f.k.Prepare, "message")
			before := f.now()
			if i%2 == 0 {
				f.run(func(c *link.Call) { AddLease(c, []*Keys{f.k}, l, 1, 1000) })
			} else {
				f.run(func(c *link.Call) { AddExtend(c, f.k, l.Name, time.Minute) }) // it was listed no more
			}
			ends, err := redis.Int64(f.s.Do("ZSCORE", f.k.Leased, l.Name), nil)
			f.must(err)
			if d := time.UnixMilli(ends).Sub(before); d < time.Minute || d > 2*time.Minute {
				f.Fatalf("round %d: it ends after %v", i, d)
			}
		}
	})
}

// The end of a lease was set before the clock was set back where no lease can end so late: the sweep cuts it to its
// length. That of a lease of a week stays, and what is no lease's name.
func TestSweepOfLeases(t *testing.T) {
	each(t, func(f *fixture) {
		const week = 7 * 24 * time.Hour
		sweep := func() SweepAnswer {
			s, err := RunSweep(context.Background(), f.l, f.k, Sweeping{})
			f.must(err)
			return s
		}
		ends := func(name string) time.Time {
			ms, err := redis.Float64(f.s.Do("ZSCORE", f.k.Leased, name), nil)
			f.must(err)
			return time.UnixMilli(int64(ms))
		}
		f.enqueue(Now, 0, named(""))
		long := NewLease(week, 0)
		f.lease(long, 1)
		taken := ends(long.Name)
		s := sweep()
		if d := week - s.NextLapse; ends(long.Name) != taken || !s.Leased || d > time.Minute || d < -time.Second {
			f.Errorf("a lease of a week: %+v, it ends %v later", s, ends(long.Name).Sub(taken))
		}
		for name, c := range map[string]struct {
			in  time.Duration
			cut bool
		}{
			"an hour":        {time.Hour, false},
			"six days":       {week - 24*time.Hour, false},
			"a week and 1 s": {week + time.Second - time.Millisecond, false},
			"more":           {week + 11*time.Second, true},
			"a year":         {365 * 24 * time.Hour, true},
		} {
			for _, fraction := range []string{"", ".5"} {
				l, now := NewLease(90*time.Second, 0), f.now()
				to := now.Add(c.in).UnixMilli()
				f.s.Do("ZADD", f.k.Leased, fmt.Sprint(to, fraction), l.Name)
				a := f.lapse(l, time.Hour)
				if got := ends(l.Name); got.UnixMilli() != to || !a.Early {
					f.Errorf("%s: its end is %v from now after %+v", name, got.Sub(now), a)
				}
				sweep()
				if in := ends(l.Name).Sub(now); !c.cut && ends(l.Name).UnixMilli() != to ||
					c.cut && (in < l.Length-time.Millisecond || in > 2*l.Length) {
					f.Errorf("%s: it ends in %v", name, in)
				}
				f.s.Do("ZREM", f.k.Leased, l.Name)
			}
		}
		// However many there are, some go each time, though what is no lease's stays.
		f.s.Do("ZADD", f.k.Leased, "1e15", "foreign", "1e15", "other")
		var all []Lease
		for range 20 {
			l := NewLease(time.Hour, 0)
			all = append(all, l)
			f.s.Do("ZADD", f.k.Leased, f.now().Add(2*week).UnixMilli(), l.Name)
		}
		for range 4 {
			sweep()
		}
		for i, l := range all {
			if in := ends(l.Name).Sub(f.now()); in > time.Hour+time.Minute {
				f.Errorf("lease %d ends in %v", i, in)
			}
		}
		if ends("foreign") != time.UnixMilli(1e15) || ends(long.Name) != taken {
			f.Error("what was to stay is cut")
		}
		f.s.Do("DEL", f.k.Leased)
		f.s.Do("SET", f.k.Leased, "foreign")
		if s := sweep(); s.Unreadable == nil {
			f.Errorf("of what is no set: %+v", s)
		}
	})
}

// A bare payload is given a header as it is leased, without an attempt, in its place; so twins are told apart. Sent
// again the take gives it no other. What has a header, and what only a newer shunt may rewrite, stays as it was.
func TestLeaseOfBare(t *testing.T) {
	each(t, func(f *fixture) {
		header, newer := named(""), "\xc1\x20newer, for it is longer than 20 bytes"
		header.Attempts = 2
		raws := []string{"twin", string(header.Encode()), "twin", newer, "\xc1\x00\xc1", "\xc1", "twin", "", newer}
		for _, raw := range raws {
			f.s.Do("LPUSH", f.k.Prepare, raw)
		}
		l := NewLease(time.Minute, 0)
		take := func() (got []string) {
			rep := f.run(func(c *link.Call) { AddLease(c, []*Keys{f.k}, l, len(raws), 1<<20) })
			f.must(eachLeased(rep, func(_ int, raw []byte, err error) {
				f.must(err)
				got = append(got, string(raw))
			}))
			return got
		}
		got, began := take(), f.now()
		if again := take(); !slices.Equal(got, again) {
			f.Errorf("%q, and then %q", got, again)
		}
		serials := make(map[ulid.ULID]bool)
		for i, raw := range raws {
			if i >= len(got) {
				f.Fatalf("%d are leased", len(got))
			}
			was, err := element.Decode([]byte(raw))
			if err != nil || !was.Bare {
				if got[i] != raw {
					f.Errorf("place %d: %q was %q", i, got[i], raw)
				}
				continue
			}
			e, err := element.Decode([]byte(got[i]))
			f.must(err)
			if e.Bare || string(e.Payload) != string(was.Payload) || e.Attempts != 0 || e.Recoveries != 0 ||
				began.Sub(element.EnqueuedAt(e.Serial)).Abs() > time.Minute || serials[e.Serial] {
				f.Errorf("place %d: %+v of %q", i, e, raw)
			}
			serials[e.Serial] = true
		}
		// A suspect, too.
		f.s.Do("LPUSH", f.k.Suspect, "suspect")
		if held := f.lease(NewLease(time.Minute, 0), 3); len(held) != 1 || held[0].Bare || held[0].Attempts != 0 {
			f.Errorf("%d are leased", len(held))
		}
		// One in the middle of many is settled by its own name.
		middle, err := element.Decode([]byte(got[2]))
		f.must(err)
		if !f.settle(l, Held{Element: &middle, Raw: []byte(got[2])}, &Verdict{}).Found {
			f.Error("it is not found")
		}
		f.over(l)
		if a := f.lapse(l, time.Hour); a != (LapseAnswer{Prepare: len(raws) - 1}) {
			f.Errorf("%+v", a)
		}
		back, err := redis.Strings(f.s.Do("LRANGE", f.k.Prepare, 0, -1), nil)
		f.must(err)
		slices.Reverse(back)
		for i, raw := range slices.Delete(slices.Clone(got), 2, 3) {
			e, err := element.Decode([]byte(raw))
			if err == nil {
				e.Attempts++
				raw = string(e.Encode())
			}
			if back[i] != raw {
				f.Errorf("place %d: %q, want %q", i, back[i], raw)
			}
		}
	})
}

// The ends of leases that are listed are put off; others stay away.
func TestPutOff(t *testing.T) {
	each(t, func(f *fixture) {
		one, two, gone := NewLease(time.Minute, 0), NewLease(time.Hour, 1), NewLease(time.Hour, 2)
		f.over(one)
		f.over(two)
		f.must(PutOff(context.Background(), f.l, f.k, []Lease{one, gone, two}, 10*time.Second))
		for _, l := range []Lease{one, two} {
			ends, err := redis.Int64(f.s.Do("ZSCORE", f.k.Leased, l.Name), nil)
			f.must(err)
			if in := time.UnixMilli(ends).Sub(f.now()); in > 10*time.Second || in < 0 {
				f.Errorf("it ends in %v", in)
			}
		}
		if n := f.length("ZCARD", f.k.Leased); n != 2 {
			f.Errorf("%d are listed", n)
		}
	})
}

// A lease that was given up has released what it had taken, and a take of it that comes later takes nothing.
func TestLeaseGivenUp(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named(""))
		f.enqueue(Now, 0, named(""))
		giveUp := func(l Lease) int {
			c := link.NewCall()
			AddGiveBack(c, f.k, l.Name)
			f.must(f.l.Run(context.Background(), c))
			back, err := GiveBackReply(c.Replies[0])
			f.must(err)
			return back
		}
		early, late := NewLease(time.Minute, 0), NewLease(time.Minute, 0)
		f.lease(early, 1)
		if n, m := giveUp(early), giveUp(late); n != 1 || m != 0 {
			f.Errorf("%d and %d came back", n, m)
		}
		for _, l := range []Lease{early, late} {
			if held := f.lease(l, 2); len(held) != 0 {
				f.Errorf("%d leased, for nobody", len(held))
			}
			f.over(l)
			f.lapse(l, time.Minute)
		}
		if n := f.length("EXISTS", f.k.Leased); n != 0 {
			f.Error("what was given up stays known for ever")
		}
	})
}

// A lease whose give-back fails keeps its end, and what it holds: it shall not be longer for it.
func TestGiveBackFailsWhole(t *testing.T) {
	each(t, func(f *fixture) {
		f.enqueue(Now, 0, named("a"), named("b"))
		l := NewLease(2*time.Second, 0)
		f.lease(l, 1)
		f.s.Do("RENAME", f.k.Prepare, "aside")
		f.s.Do("SET", f.k.Prepare, "no list")
		before, _ := redis.String(f.s.Do("ZSCORE", f.k.Leased, l.Name), nil)
		c := link.NewCall()
		AddGiveBack(c, f.k, l.Name)
		if f.l.Run(context.Background(), c) == nil {
			f.Error("what cannot be put back is given back")
		}
		after, _ := redis.String(f.s.Do("ZSCORE", f.k.Leased, l.Name), nil)
		if n := f.length("LLEN", f.k.LeaseList(l.Name)); n != 1 || before == "" || after != before {
			f.Errorf("its end goes from %q to %q, and it holds %d", before, after, n)
		}
	})
}
