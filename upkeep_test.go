package shunt

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Channels that no receiver keeps are kept by whoever has Upkeep: due messages, leases and what a killed receiver held.
func TestUpkeepOfAll(t *testing.T) {
	t.Parallel()
	redistest.EachOwn(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
		dead := store.NewIncarnation(1, time.Second)
		k := store.KeysOf(b.name)
		b.enqueue(0, 3)
		s.Do("ZADD", k.Receivers, 1, dead.Name)
		s.Do("RPOPLPUSH", k.Prepare, k.Doing(dead, 0))
		l := store.NewLease(50*time.Millisecond, 0)
		c := link.NewCall()
		store.AddLease(c, []*store.Keys{k}, l, 1, 100)
		b.must(b.open(ctx))
		b.must(b.server.Data.Run(ctx, c))
		b.must(b.Upkeep(ctx))
		b.must(b.Upkeep(ctx))
		b.wait(EventRecovered, 1, 3*time.Second) // before the next sweep is due anyway
		b.wait(EventLapsed, 1, 3*time.Second)
		// By now it hears hints, of a channel that it does not know too.
		o := newBench(t, s.URL())
		for i := range 5 {
			o.must(o.one(i, In(50*time.Millisecond)))
			b.must(b.one(i, In(50*time.Millisecond)))
		}
		b.until(3*time.Second, "all are due", func() bool {
			return o.state(StatePrepare) == 5 && b.state(StatePrepare) == 8
		})
	})
}

// Who has just begun to pull hears of what is due, whenever the subscription is confirmed.
func TestPullKeepsAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b, o := newBench(t, s.URL()), newBench(t, s.URL())
			o.name = b.name
			go func() {
				b.until(5*time.Second, "it waits", func() bool { return b.callers() == 1 })
				if err := o.one(0, In(300*time.Millisecond)); err != nil {
					t.Error(err)
				}
			}()
			b.pull(1, PullOptions{Wait: 3 * time.Second})
		})
	}
}

// A channel is kept for as long as somebody pulls from it, and for a while after; then it is left, with the keeper's
// place.
func TestKeptWhilePulled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go b.Pull(ctx, PullOptions{Channels: []string{b.name}, Wait: time.Hour, Lease: 2 * time.Second})
	k := store.KeysOf(b.name)
	kept := func() *kept {
		b.Queue.mu.Lock()
		u := b.stations[b.server]
		b.Queue.mu.Unlock()
		if u == nil {
			return nil
		}
		u.upkeep.mu.Lock()
		defer u.upkeep.mu.Unlock()
		return u.upkeep.of[b.name]
	}
	b.until(5*time.Second, "it keeps", func() bool { return s.Do("EXISTS", k.Keeper) == int64(1) })
	c, u := kept(), b.stationAt(b.server).upkeep
	long := func() (visits time.Time) { // the last pull is long ago
		u.mu.Lock()
		defer u.mu.Unlock()
		c.pulled = time.Now().Add(-time.Hour)
		c.look(0)
		return c.sweep
	}
	long()
	b.until(5*time.Second, "it has looked", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return !c.sweep.IsZero() && !c.visiting
	})
	if kept() != c {
		t.Fatal("it is left while somebody pulls")
	}
	cancel()
	b.until(5*time.Second, "nobody pulls", func() bool { u.mu.Lock(); defer u.mu.Unlock(); return c.pullers == 0 })
	long()
	// A pull that is cancelled amid a step may leave its empty lease to run out. Then a later sweep leaves the channel.
	b.until(15*time.Second, "it is left", func() bool { return kept() == nil && s.Do("EXISTS", k.Keeper) == int64(0) })
}

// A lease of a program that lives for a moment ends in time, although Upkeep has found the channel quiet just before.
func TestLeaseBesideQuietUpkeep(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b, o := newBench(t, s.URL()), newBench(t, s.URL())
	o.name = b.name
	b.must(b.one(0, In(time.Hour)))
	b.must(b.Upkeep(context.Background()))
	u := b.stationAt(b.server).upkeep
	b.until(5*time.Second, "the channel is found quiet", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		c := u.of[b.name]
		return c != nil && !c.visiting && time.Until(c.sweep) > time.Minute
	})
	o.must(o.one(1))
	const term = 7100 * time.Millisecond // a lease; Pull tells the keeper of each that is 7 s or shorter
	ends := o.pull(1, PullOptions{Lease: term})[0].EndsAt
	o.must(o.Close())
	b.wait(EventLapsed, 1, 15*time.Second)
	if late := time.Since(ends); late < 0 || late > 3*time.Second {
		t.Errorf("%v late", late)
	}
}

// A lease of a killed puller, which was the keeper, is found by the next look through all, although Upkeep has found
// the channel quiet just before.
func TestLeaseOfAKilledKeeper(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := newBench(t, s.URL())
	k := store.KeysOf(b.name)
	b.must(b.one(0, In(time.Hour)))
	b.must(b.Upkeep(context.Background()))
	u := b.stationAt(b.server).upkeep
	b.until(5*time.Second, "the channel is found quiet", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		c := u.of[b.name]
		return c != nil && !c.visiting && time.Until(c.sweep) > time.Minute
	})
	// The puller has bid to be the keeper, takes a lease of which no hint tells, and dies.
	b.must(b.one(1))
	s.Do("HSET", k.Keeper, "name", "killed", "until", time.Now().Add(keeperKeeps).UnixMilli())
	c := link.NewCall()
	store.AddLease(c, []*store.Keys{k}, store.NewLease(7100*time.Millisecond, 0), 1, 100)
	b.must(b.server.Data.Run(context.Background(), c))
	time.Sleep(7200 * time.Millisecond)
	u.again <- struct{}{} // as once a minute
	b.wait(EventLapsed, 1, 5*time.Second)
}

// Where the pattern subscription is refused, Upkeep says so, and looks more often.
func TestUpkeepIsDeaf(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-psubscribe")
	b := newBench(t, fmt.Sprintf("redis://deaf:secret@%s/0", s.Addr()))
	o := newBench(t, s.URL())
	b.must(b.Upkeep(context.Background()))
	o.must(o.one(0, In(time.Second)))
	b.wait(EventReceiverError, 1, 20*time.Second)
	b.mu.Lock()
	for _, e := range b.events {
		if e.Kind == EventReceiverError && !strings.Contains(e.Err.Error(), "not confirmed") {
			t.Error(e.Err)
		}
	}
	b.mu.Unlock()
	o.until(10*time.Second, "it is due", func() bool { return o.state(StatePrepare) == 1 })
}

// A channel of which delay or leased cannot be read is kept until it can, and looked at once a second: it was left and
// taken on anew without a pause, some thousand times a second, and looked at for each hint.
func TestUpkeepForeignKey(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	k := store.KeysOf(b.name)
	for _, key := range []string{k.Delay, k.Leased} {
		s.Do("SET", key, "not shunt's")
		seen := b.count(EventReceiverError)
		b.must(b.one(0))
		b.must(b.Upkeep(context.Background()))
		b.wait(EventReceiverError, seen+1, 10*time.Second)
		before := p.Commands()
		for range 50 {
			s.Do("PUBLISH", k.Delay, "0") // as for each lease that nobody keeps
			time.Sleep(20 * time.Millisecond)
		}
		if n := p.Commands() - before; n > 200 {
			t.Errorf("%d commands in a second, with a foreign key at %s", n, key)
		}
		s.Do("DEL", key)
	}
	b.must(b.one(1, In(10*time.Millisecond)))
	b.until(10*time.Second, "what is due is promoted", func() bool { return b.state(StatePrepare) == 3 })
}

// Those who wait take no connection that receivers need.
func TestBellsLeaveConnections(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := newBench(t, s.URL())
	b.Pool.MaxActive = 9
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range 20 {
		go b.Pull(ctx, PullOptions{Channels: []string{fmt.Sprint(b.name, i)}, Wait: time.Minute})
	}
	b.until(5*time.Second, "all wait", func() bool { return b.callers() == 20 })
	b.receive(1, func(context.Context, int) error { return nil })
	b.enqueue(0, 1)
	b.wait(EventAcked, 1, 5*time.Second)
	if n := s.Connections(); n > 10 { // with that of the test
		t.Errorf("%d connections", n)
	}
}

// Where the Pool has no bound, who waits has a bell of his own, and does not poll.
func TestBellOfAPoolWithoutBound(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	b := newBench(t, p.URL())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go b.Pull(ctx, PullOptions{Channels: []string{b.name}, Wait: time.Minute})
	bell := redistest.Command("BLMOVE", b.keys().Prepare)
	b.until(5*time.Second, "a bell is hung", func() bool { return p.Count(bell) > 0 })
}
