package shunt

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// The beat was sent while the lease was fresh, and answered when it was not. The waiter had come back in between, and
// only the next beat woke it.
func TestIdleGoesOnAfterLateBeat(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 6 * time.Second })
	beats := redistest.ByScript(store.Beat)(q.name)
	seen := newTally()
	q.idles(p, 2, func(_ context.Context, i int) error { seen.add(i); return nil })
	strikes(t, p.On(beats, 1, redistest.Pass), 1)
	began := time.Now() // of the term
	refused := p.On(beats, 0, redistest.ReplyError("TRYAGAIN not now"))
	time.Sleep(time.Until(began.Add(4550 * time.Millisecond)))
	late := p.On(beats, 1, redistest.Delay(950*time.Millisecond)) // within the 1 s that a beat has
	next := p.On(beats, 2, redistest.Pass)
	refused.Remove()
	strikes(t, late, 1)
	time.Sleep(time.Until(began.Add(5400 * time.Millisecond))) // two thirds of the term are over
	blocks := p.On(redistest.ByName("BRPOPLPUSH", ".prepare")(q.name), 1, redistest.Pass)
	clients, _ := redis.String(s.Do("CLIENT", "LIST"), nil)
	for line := range strings.Lines(clients) {
		if strings.Contains(line, " cmd=brpoplpush ") {
			var id int
			fmt.Sscanf(line, "id=%d ", &id)
			s.Do("CLIENT", "UNBLOCK", id)
		}
	}
	strikes(t, blocks, 1)
	if next.Struck() > 0 {
		t.Error("only the next beat woke the waiter")
	}
	q.enqueue(0, 5)
	q.until(3*time.Second, "all handled", func() bool { return seen.distinct() == 5 })
}

// After an absence of Redis all leases have run out. The receiver with the short lease was back first, and judged the
// other after half of its own.
func TestShortLeaseJudgesNoLongOne(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	pLong, pShort := redistest.NewProxy(t, s.Addr()), redistest.NewProxy(t, s.Addr())
	long := newBench(t, pLong.URL())
	short := newBench(t, pShort.URL(), func(q *Queue) { q.Lease = time.Second })
	short.name = long.name
	handle := func(context.Context, int) error { return nil }
	beats := pLong.On(redistest.ByScript(store.Beat)(long.name), 0, redistest.Pass)
	began := time.Now()
	long.receive(1, handle) // beats after 3 s
	k := store.KeysOf(long.name)
	name := members(t, s, k.Receivers)[0]
	short.idles(pShort, 1, handle)
	away(pShort)
	time.Sleep(time.Until(began.Add(1300 * time.Millisecond)))
	s.Do("ZADD", k.Receivers, "XX", 1, name) // as after 10 s
	sweeps := pShort.On(redistest.ByScript(store.Sweep)(short.name), 0, redistest.Pass)
	pShort.Refuse(false)
	strikes(t, beats, 1) // within 2.5 s
	if took := time.Since(began); sweeps.Struck() < 3 || took > 3600*time.Millisecond {
		t.Skipf("too slow a machine: %d sweeps, the beat after %v", sweeps.Struck(), took)
	}
	if short.count(EventReceiversDied) > 0 || long.count(EventLeaseLost) > 0 {
		t.Error("the living was judged")
	}
}

// A slow reap delays no beat, and goes on with the lists that it has not emptied.
func TestSlowReapDelaysNoBeat(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 6 * time.Second })
	q.corpse(s, 40, "1", "s", 1)
	var mu sync.Mutex
	var last time.Time
	var longest time.Duration
	p.On(redistest.ByScript(store.Beat)(q.name), 0, redistest.Call(func() {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); !last.IsZero() {
			longest = max(longest, now.Sub(last))
		}
		last = time.Now()
	}))
	p.On(
		redistest.ByScript(store.Reap)(q.name),
		0,
		redistest.Delay(1400*time.Millisecond),
	) // more than a sixth of the lease
	q.receive(2, func(context.Context, int) error { return nil })
	q.until(60*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 40 })
	mu.Lock()
	defer mu.Unlock()
	if longest > q.Lease/3+700*time.Millisecond { // the reap would add twice as much
		t.Errorf("%v between two beats", longest)
	}
}

// A sweep that cannot go on before a good beat does not make beats that fail come faster.
func TestSweepDoesNotHurryFailingBeats(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	q.corpse(s, 40, "1", "r", 1)
	beat, reap := redistest.ByScript(store.Beat)(q.name), redistest.ByScript(store.Reap)(q.name)
	beats := p.On(beat, 0, redistest.Pass)
	p.On(reap, 1, redistest.Delay(700*time.Millisecond)) // more than a sixth of the lease
	var refused *redistest.Rule
	p.On(reap, 1, redistest.Call(func() { refused = p.On(beat, 0, redistest.ReplyError("TRYAGAIN not now")) }))
	q.receive(1, func(context.Context, int) error { return nil })
	strikes(t, beats, 2)
	time.Sleep(time.Second) // in which a beat a round trip would be hundreds
	if n := beats.Struck(); n > 10 {
		t.Errorf("%d beats in 1 s, and 5 are allowed", n)
	}
	refused.Remove()
	q.until(20*time.Second, "all are recovered", func() bool { return q.sum(EventRecovered) == 40 })
}

// Redis stood still for nineteen twentieths of a lease, from up to a third after the last beat: most receivers lost
// theirs.
func TestLeaseOutlivesPause(t *testing.T) {
	t.Parallel()
	unlessAway(t, func() string {
		if n, died := outlivesPause(t); n+died > 0 {
			return fmt.Sprintf("%d leases lost, %d called dead", n, died)
		}
		return ""
	})
}

func outlivesPause(t *testing.T) (lost, died int) {
	s := redistest.Start(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Lease = 8 * time.Second })
	for range 4 {
		q.receive(2, func(context.Context, int) error { return nil })
	}
	for i := range 2 {
		time.Sleep(
			600*time.Millisecond + time.Duration(i)*600*time.Millisecond,
		) // from a beat on; the next comes after some 2.7 s
		s.Stop()
		time.Sleep(7600 * time.Millisecond)
		s.Cont()
		q.enqueue(i, i+1)
		q.wait(EventAcked, i+1, 10*time.Second)
	}
	return q.count(EventLeaseLost), q.sum(EventReceiversDied)
}
