package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A key of the wrong type at delay or suspect keeps nobody's messages with the dead.
func TestForeignKeyStopsNoSweep(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"delay", "suspect"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
			k, dead := store.KeysOf(b.name), store.NewIncarnation(1, time.Second)
			s.Do("ZADD", k.Receivers, 1, dead.Name)
			s.Do("LPUSH", k.Doing(dead, 0), "1")
			s.Do("SET", "{"+b.name+"}."+key, "not shunt's")
			b.receive(1, func(context.Context, int) error { return nil })
			b.wait(EventAcked, 1, 5*time.Second)
			b.wait(EventReceiverError, 1, 5*time.Second)
		})
	}
}

// A server that cuts idle connections after a second cuts each beat's. What a killed process held is recovered all the
// same, because a row of beats is about the sight of Redis.
func TestServerTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "timeout 1")
	redistest.Leaks(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.Lease = 4 * time.Second })
	b.receive(1, func(context.Context, int) error { return nil })
	b.wait(EventStarted, 1, 5*time.Second)
	k, dead := store.KeysOf(b.name), store.NewIncarnation(1, b.Lease)
	s.Do("ZADD", k.Receivers, 1, dead.Name)
	s.Do("LPUSH", k.Doing(dead, 0), "1")
	b.wait(EventAcked, 1, 4*b.Lease)
}

// A server that cuts idle connections after a second had cut that of the promoter, which looked again a second later.
func TestDueWithServerTimeout(t *testing.T) {
	t.Parallel()
	unlessAway(t, func() string {
		if late := lateWithServerTimeout(t); late > 500*time.Millisecond {
			return fmt.Sprintf("late by %v", late)
		}
		return ""
	})
}

func lateWithServerTimeout(t *testing.T) time.Duration {
	s := redistest.Start(t, "timeout 1")
	redistest.Leaks(t)
	b := newBench(t, s.URL()) // which beats every 3.3 s
	at := make(chan time.Time, 1)
	b.receive(1, func(context.Context, int) error { at <- time.Now(); return nil })
	b.wait(EventStarted, 1, 5*time.Second)
	due := time.Now().Add(2500 * time.Millisecond)
	b.must(b.Enqueue(context.Background(), b.kind(nil).Message(1), At(due)))
	select {
	case a := <-at:
		return a.Sub(due)
	case <-time.After(10 * time.Second):
		t.Fatal("not handled")
		return 0
	}
}

// While the clock of Redis is behind, a new dead letter is not the oldest, nor one of several that are as old.
func TestDeadWhileTheClockIsBehind(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.MaxDead = 3 })
	k := store.KeysOf(b.name)
	ahead := time.Now().Add(time.Hour).UnixMilli() // as an hour ago seen from there
	for _, old := range []string{"old 1", "old 2", "old 3"} {
		s.Do("ZADD", k.Dead, ahead, old)
	}
	b.receive(1, func(context.Context, int) error { return Reject(nil) })
	b.enqueue(0, 2)
	b.wait(EventTrimmed, 2, 5*time.Second)
	scores := make(map[any]bool)
	for i, v := range s.Do("ZRANGE", k.Dead, 0, -1, "WITHSCORES").([]any) {
		scores[string(v.([]byte))] = i%2 == 1
	}
	if len(scores) != 6 {
		t.Errorf("some have died at once: %v", scores)
	}
	es, err := b.List(context.Background(), b.name, StateDead, 0, 0)
	b.must(err)
	fresh := 0
	for _, e := range es {
		if e.Serial != "" {
			fresh++
		}
	}
	if len(es) != 3 || fresh != 2 {
		t.Errorf("%d dead letters, %d of them new", len(es), fresh)
	}
}

// corpse leaves in the bench's channel what a dead receiver with so many workers leaves, a message in each list. A
// sweep is to look at it from that time of the server's on, in ms. how is r of one that was called dead, and s of a
// superseded one.
func (b *bench) corpse(s redistest.Backend, workers int, payload, how string, look int64) {
	dead, k := store.NewIncarnation(workers, 2*time.Second), store.KeysOf(b.name)
	s.Do("ZADD", k.DeadReceivers, look, fmt.Sprintf("%s %d %s", dead.Name, look, how))
	for _, list := range k.AllDoing(dead) {
		s.Do("LPUSH", list, payload)
	}
}

// An idle receiver took one suspect with each sweep, which is every 5 s.
func TestSuspectsOneAfterAnother(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	seen := newTally()
	q.idles(p, 4, func(_ context.Context, i int) error { seen.add(i); return nil })
	k := store.KeysOf(q.name)
	redistest.Until(t, 5*time.Second, "it keeps", func() bool { return s.Do("EXISTS", k.Keeper).(int64) == 1 })
	time.Sleep(100 * time.Millisecond) // all are parked
	s.Do("LPUSH", k.Suspect, "0", "1", "2", "3", "4", "5")
	s.Do("PUBLISH", k.Delay, "vacant") // so it looks once
	q.until(3*time.Second, "all suspects are handled", func() bool { return seen.distinct() == 6 })
}

// Each list of a dead receiver cost a round trip, and the time in which its judgement held was over before the far
// ones.
func TestFarListIsReaped(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	dead := store.NewIncarnation(1000, 2*time.Second)
	k := store.KeysOf(q.name)
	s.Do("ZADD", k.Receivers, 1, dead.Name)
	s.Do("LPUSH", k.Doing(dead, 1), "1")
	s.Do("LPUSH", k.Doing(dead, 900), "2")
	p.Slow(500*time.Microsecond, 0, 0)
	seen := newTally()
	q.receive(2, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.until(20*time.Second, "both are handled", func() bool { return seen.distinct() == 2 })
}

// Lists are reaped several in one pipeline, but not those of large elements: nobody is to wait for Redis so long.
func TestLargeAreReapedOneByOne(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	q.corpse(s, 8, strings.Repeat("x", 100<<10), "s", 1)
	p.Slow(10*time.Millisecond, 0, 0) // so what waits for an answer comes 20 ms after what was asked before
	var mu sync.Mutex
	var last time.Time
	together := 0
	p.On(redistest.ByScript(store.Reap)(q.name), 0, redistest.Call(func() {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < 15*time.Millisecond {
			together++
		}
		last = time.Now()
	}))
	q.receive(2, func(context.Context, int) error { return nil })
	q.until(20*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 8 })
	mu.Lock()
	defer mu.Unlock()
	if together > 0 {
		t.Errorf("%d of 8 lists were reaped together with others", together)
	}
}

// A receiver claimed a dead one and was killed in turn. The next sweep of a third looked at the first only up to 5 s
// later.
func TestClaimOfTheDeadIsTakenUp(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	q.corpse(s, 1, "1", "r", time.Now().UnixMilli()+800)
	began := time.Now()
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 1, 10*time.Second)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("reaped after %v", took)
	}
}

// A sweep after beats that were answered too late may judge nobody. The next one came 5 s after it, however soon a beat
// was good.
func TestSweepAfterTheFirstGoodBeat(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	beat := redistest.ByScript(store.Beat)(q.name)
	beats := p.On(beat, 0, redistest.Pass)
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, beats, 3)
	time.Sleep(
		450 * time.Millisecond,
	) // more than a sixth of the lease, and less than a third: the next beat comes with the sweep
	q.corpse(s, 1, "1", "r", 1)
	p.On(beat, 1, redistest.Delay(450*time.Millisecond)) // more than a sixth, too
	began := time.Now()
	s.Do("PUBLISH", store.KeysOf(q.name).Delay, "vacant") // which makes it sweep
	q.wait(EventAcked, 1, 10*time.Second)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("reaped after %v", took)
	}
}

// What had run out when a row of beats began is judged as soon as the row is half a lease old. It does not wait for a
// later beat.
func TestJudgesAsSoonAsItMay(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	const lease = 6 * time.Second
	unlessAway(t, func() string {
		if took := judgesAfter(t, lease, lease); took < lease/2 || took > lease/2+500*time.Millisecond {
			return fmt.Sprintf("judged after %v", took)
		}
		return ""
	})
}

// A receiver whose lease is much shorter than that of its judge is judged as soon as its own lease allows, and not only
// after the judge's next beat.
func TestJudgesShorterLeases(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	unlessAway(t, func() string {
		if took := judgesAfter(t, time.Minute, time.Second); took < time.Second/2 || took > time.Second {
			return fmt.Sprintf("judged after %v", took)
		}
		return ""
	})
}

// judgesAfter is how long a receiver that begins takes to judge one that is dead, each with its lease.
func judgesAfter(t *testing.T, judge, lease time.Duration) time.Duration {
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = judge })
	k, dead := store.KeysOf(q.name), store.NewIncarnation(1, lease)
	s.Do("ZADD", k.Receivers, 1, dead.Name)
	s.Do("LPUSH", k.Doing(dead, 0), "1")
	began := time.Now()
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 1, 15*time.Second)
	return time.Since(began)
}

// A sweep gave way to a beat before it had said of an empty receiver that it is empty. It went on giving way, and never
// swept again.
func TestSlowSweepEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	dead, k := store.NewIncarnation(1, time.Second), store.KeysOf(q.name)
	s.Do("ZADD", k.DeadReceivers, 1, dead.Name+" 1 s")
	p.On(
		redistest.Command("EXISTS", q.name),
		0,
		redistest.Delay(600*time.Millisecond),
	) // more than a sixth of the lease
	finishes := p.On(redistest.ByScript(store.Finish)(q.name), 0, redistest.Pass)
	sweeps := p.On(redistest.ByScript(store.Sweep)(q.name), 0, redistest.Pass)
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, finishes, 1)
	strikes(t, sweeps, sweeps.Struck()+1)
}

// On a slow line those channels were never swept that came behind as many as there was time for in 5 s.
func TestEveryChannelIsSwept(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	var ms []IMessage
	var sweeps []*redistest.Rule
	for _, k := range q.ranks(26, func(context.Context, int, int) error { return nil }) {
		ms = append(ms, k)
		sweeps = append(sweeps, p.On(redistest.ByScript(store.Sweep)(k.channel), 0, redistest.Pass))
	}
	p.Slow(100*time.Millisecond, 0, 0)
	q.starts(func() (Shutdown, error) { return q.ReceiveOrdered(context.Background(), 1, ms...) })
	q.until(30*time.Second, "all are swept", func() bool {
		return !slices.ContainsFunc(sweeps, func(r *redistest.Rule) bool { return r.Struck() == 0 })
	})
}

// The beat, the sweep and the questions for a dead one's lists took longer than what the beat allows. Then nothing was
// ever reaped, because each sweep began with the questions.
func TestReapsOnSlowLine(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	q.corpse(s, 4000, "1", "r", 1)
	if _, err := q.Channels(t.Context()); err != nil { // connects, for which it has 500 ms
		t.Fatal(err)
	}
	p.Slow(200*time.Millisecond, 0, 0)
	q.receive(2, func(context.Context, int) error { return nil })
	q.until(30*time.Second, "some are recovered", func() bool { return q.sum(EventRecovered) > 0 })
}

// A key of a wrong type at cancelled kept the dead from being looked after, as long as a message with an id was
// handled.
func TestBrokenCancelledKeepsNobodyUnburied(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	started, release := make(chan struct{}), make(chan struct{})
	q.receive(2, func(_ context.Context, i int) error {
		if i == 1 {
			close(started)
			<-release
		}
		return nil
	})
	defer close(release)
	if err := q.Enqueue(context.Background(), q.kind(nil).Message(1), ID("a")); err != nil {
		t.Fatal(err)
	}
	<-started
	s.Do("SET", store.KeysOf(q.name).Cancelled, "none of shunt's")
	looks := p.On(redistest.Command("SISMEMBER", q.name), 0, redistest.Pass)
	p.On(redistest.ByScript(store.Reap)(q.name), 1, redistest.Call(func() {
		if looks.Struck() == 0 { // a long burial would keep a handler from hearing that it is cancelled
			t.Error("the dead came before what was cancelled")
		}
	}))
	q.corpse(s, 1, "2", "s", 1)
	q.wait(EventRecovered, 1, 10*time.Second)
}

// A list of a wrong type in the hands of one dead receiver held up the others' that were claimed with it.
func TestBrokenListHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	k, broken := store.KeysOf(q.name), store.NewIncarnation(1, time.Second)
	s.Do("ZADD", k.DeadReceivers, 1, broken.Name+" 2 s") // died later, so it comes first
	s.Do("SET", k.Doing(broken, 0), "none of shunt's")
	q.corpse(s, 1, "1", "s", 1)
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventRecovered, 1, 10*time.Second)
	s.Do("DEL", k.Doing(broken, 0))
}

// A receiver that goes on with a burial after its claim is over has to meet the same one first. Those that died in one
// ms came in any order.
func TestClaimsComeInOneOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	k := store.KeysOf(q.name)
	for range 20 {
		s.Do("ZADD", k.DeadReceivers, 1, store.NewIncarnation(1, time.Second).Name+" 1 s")
	}
	first := ""
	for range 5 {
		replies, _, err := asker{q: q.Queue}.Ask(context.Background(), q.name, func(c *link.Call) {
			store.AddSweep(c, k, store.Sweeping{Fence: store.Fence{Age: time.Second}, MaxClaims: sweepClaims,
				KeepFor: time.Second})
		})
		if err != nil {
			t.Fatal(err)
		}
		a, err := store.SweepReply(replies[0])
		if err != nil || len(a.Claims) != sweepClaims {
			t.Fatalf("%+v: %v", a, err)
		}
		if claimed := a.Claims[0]; first == "" {
			first = claimed
		} else if claimed != first {
			t.Errorf("%s is first, and was %s", claimed, first)
		}
	}
}

// On a line of 50 ms a list was emptied each 1.2 s.
func TestManyListsOnSlowLine(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	q.corpse(s, 200, "1", "s", 1)
	p.Slow(25*time.Millisecond, 0, 0)
	q.receive(2, func(context.Context, int) error { return nil })
	q.until(20*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 200 })
}

// A sweep, and finding out which lists there are, took longer than a sweep may, a sixth of the lease. Each began anew,
// and none came to reap. Three round trips of 80 ms are enough.
func TestSlowReapingGetsOn(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	dead := store.NewIncarnation(1, time.Second)
	k := store.KeysOf(q.name)
	seen := newTally()
	q.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil }) // a dial has a sixth of the lease
	p.Slow(40*time.Millisecond, 0, 0)
	s.Do("LPUSH", k.Doing(dead, 0), "1")
	s.Do("ZADD", k.DeadReceivers, 1, dead.Name+" 1 s")
	q.until(20*time.Second, "it is handled", func() bool { return seen.distinct() == 1 })
}

// The look for what no hint tells of came with a beat, which is every 20 s at a lease of a minute.
func TestLooksOftenWithLongLease(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Minute })
	at := make(chan time.Time, 1)
	q.receive(1, func(context.Context, int) error { at <- time.Now(); return nil })
	redistest.Until(
		t,
		5*time.Second,
		"it keeps",
		func() bool { return s.Do("EXISTS", store.KeysOf(q.name).Keeper).(int64) == 1 },
	)
	due := time.Now()
	s.Do("ZADD", store.KeysOf(q.name).Delay, due.UnixMilli(), "1") // by another hand, which does not publish
	select {
	case a := <-at:
		t.Logf("late by %v", a.Sub(due))
	case <-time.After(6500 * time.Millisecond):
		t.Error("not handled")
	}
}

// What faults leave of messages with an id is removed by the upkeep, and nothing else is.
func TestUpkeep(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		b.must(b.one(1))
		k := store.KeysOf(b.name)
		living, dead := store.NewIncarnation(1, time.Second), store.NewIncarnation(1, time.Second)
		s.Do("ZADD", k.Receivers, 1, living.Name)
		s.Do("ZADD", k.DeadReceivers, 1, dead.Name+" 1 s")
		s.Do("RPUSH", k.Doing(dead, 0), "what it held")
		for i, name := range []string{living.Name, dead.Name, "forgotten"} {
			s.Do("HSET", k.Running, fmt.Sprint(i), name+"/0 1 1")
		}
		for _, ago := range []time.Duration{0, 23 * time.Hour, 25 * time.Hour} {
			serial := element.NewSerialAt(time.Now().Add(-ago))
			s.Do("SADD", k.Receipts, serial[:])
		}
		b.must(store.Upkeep(context.Background(), b.server.Data, k, new(store.Scan), time.Now()))
		if n := s.Do("HLEN", k.Running).(int64); n != 2 || s.Do("HGET", k.Running, "2") != nil {
			t.Errorf("%d marks are left", n)
		}
		if n := s.Do("SCARD", k.Receipts).(int64); n != 2 {
			t.Errorf("%d receipts are left", n)
		}
	})
}

// An empty member among the receivers, by another's hand, ended the process.
func TestUpkeepForeignReceiver(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		b.enqueue(0, 1)
		k, dead := store.KeysOf(b.name), store.NewIncarnation(1, time.Second)
		s.Do("ZADD", k.DeadReceivers, 0, "", 0, "  ", 1, dead.Name+" 1 s")
		s.Do("ZADD", k.Receivers, 0, "", 0, " \t")
		s.Do("RPUSH", k.Doing(dead, 0), "what it held")
		for _, name := range []string{dead.Name, "forgotten"} {
			s.Do("HSET", k.Running, name, name+"/0 1 1")
		}
		b.must(store.Upkeep(context.Background(), b.server.Data, k, new(store.Scan), time.Now()))
		if n := s.Do("HLEN", k.Running).(int64); n != 1 || s.Do("HEXISTS", k.Running, dead.Name).(int64) != 1 {
			t.Errorf("%d marks are left, want that of %s", n, dead.Name)
		}
	})
}

// The mark of a command that comes when its connection has long ended, and its message waits again, held for as long as
// the dead incarnation was known: so for an hour a Cancel took the message for one in hand, and left it its id.
func TestUpkeepLateMark(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
	k := store.KeysOf(b.name)
	var late []any
	mark := redistest.Command("HSET", k.Running)
	p.On(func(args [][]byte) bool {
		is := mark(args)
		if is && late == nil {
			for _, arg := range args[1:] {
				late = append(late, string(arg))
			}
		}
		return is
	}, 1, redistest.CutBefore)
	b.receive(1, func(context.Context, int) error { return errors.New("no") })
	b.must(b.one(1, ID("a")))
	b.wait(EventRetried, 1, 5*time.Second)
	b.wait(EventHandedOver, 1, 5*time.Second)
	s.Do("HSET", late...)
	b.must(store.Upkeep(context.Background(), b.server.Data, k, new(store.Scan), time.Now()))
	if st, err := b.Cancel(context.Background(), ByID(b.name, "a")); err != nil || st.State != StateDelay {
		t.Errorf("cancelled %+v, %v", st, err)
	}
	b.noID("a")
}

// A reap has workers look for suspects where it has made some, and only there.
func TestReapThatSuspectsNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	looks := 0
	u := &undertaker{q: b.Queue, keys: b.keys(), suspects: func() { looks++ }}
	dead := store.DeadReceiver{Incarnation: store.NewIncarnation(1, time.Second)}
	if u.report(dead, store.ReapAnswer{Prepare: 1}); looks != 0 {
		t.Errorf("%d looks for suspects without one", looks)
	}
	if u.report(dead, store.ReapAnswer{Suspect: 2}); looks != 1 {
		t.Errorf("%d looks for suspects", looks)
	}
}
