package shunt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Close does not wait for an ack as long as the ack's caller would.
func TestCloseEndsAck(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.ReplyTimeout = time.Second })
	b.enqueue(0, 1)
	m := b.pull(1, PullOptions{Lease: time.Minute})[0]
	p.Refuse(true)
	p.CutAll()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	acked := make(chan error, 1)
	go func() { acked <- m.Ack(ctx) }()
	time.Sleep(300 * time.Millisecond)
	began := time.Now()
	_ = b.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	if err := <-acked; err == nil {
		t.Error("it is said to be acked")
	}
	p.Refuse(false)
}

// Large messages that are acked at the same time do not go in one script, which a slow line would never bring whole in
// time.
func TestAckCrowdOfLarge(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.ReplyTimeout = 2 * time.Second })
	var held []*Leased
	for i := range 34 {
		b.must(b.Enqueue(context.Background(), Raw(b.name, make([]byte, 512<<10)), ID(fmt.Sprint("id", i))))
		held = append(held, b.pull(1, PullOptions{Lease: time.Minute})...)
	}
	p.Slow(0, 5<<20, 0)
	var all sync.WaitGroup
	for _, m := range held {
		all.Go(func() {
			if err := m.Ack(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	p.Slow(0, 0, 0)
}

// The error of one lease's list is not that of others that are settled with it.
func TestSettleCrowdFailsAlone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		b := newBench(t, s.URL())
		b.must(b.one(1, ID("a")))
		b.must(b.one(2, ID("b")))
		good, bad := b.pull(1, PullOptions{Lease: time.Minute})[0], b.pull(1, PullOptions{Lease: time.Minute})[0]
		list := b.keys().LeaseList(bad.lease.Name)
		s.Do("DEL", list)
		s.Do("SET", list, "foreign")
		x := &settlement{held: good.held, lease: good.lease, verdict: custody.Ack, place: -1}
		y := &settlement{held: bad.held, lease: bad.lease, verdict: custody.Ack, place: -1}
		b.settle(context.Background(), []*settlement{y, x})
		if x.err != nil || y.err == nil {
			t.Errorf("%v, and %v of a list that is not shunt's", x.err, y.err)
		}
		b.must(b.one(1, ID("a"))) // its id is free
		s.Do("DEL", list)
	})
}

// Who gives up an ack hears whether it was sent: those that went with others may be done, those that waited are not.
func TestAckCrowdGivesUp(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	const n = 40
	for i := range n {
		b.must(b.one(i, ID(fmt.Sprint("id", i))))
	}
	var held []*Leased
	for range n {
		ms, err := o.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Lease: time.Minute})
		b.must(err)
		held = append(held, ms...)
	}
	p.On(redistest.ByScript(store.Settle)(b.name), 0, redistest.Delay(60*time.Millisecond))
	var all sync.WaitGroup
	var acked, unknown atomic.Int64
	for i, m := range held {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(40+5*i)*time.Millisecond)
			defer cancel()
			switch err := m.Ack(ctx); {
			case err == nil:
				acked.Add(1)
			case errors.Is(err, ErrUnknown):
				unknown.Add(1)
			case !errors.Is(err, context.DeadlineExceeded):
				t.Error(err)
			}
		})
	}
	all.Wait()
	b.must(o.Close())
	if left := int64(b.state(StateLeased)); left > n-acked.Load() || left < n-acked.Load()-unknown.Load() {
		t.Errorf("%d are leased, %d were acked, of %d it is unknown", left, acked.Load(), unknown.Load())
	}
	if unknown.Load() == 0 {
		t.Error("nobody gave up")
	}
}

// eachLeased runs f with a leased message, a plain one and one with an id, each on a server of its own.
func eachLeased(t *testing.T, f func(s *redistest.Server, b *bench, m *Leased)) {
	for name, opts := range map[string][]Option{"plain": nil, "by id": {ID("a")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			b := newBench(t, s.URL())
			b.must(b.one(1, opts...))
			f(s, b, b.pull(1, PullOptions{Lease: time.Minute})[0])
		})
	}
}

// An ack that Redis refuses is never said to be done, also where its caller leaves just then.
func TestRefusedAckIsNotDone(t *testing.T) {
	t.Parallel()
	eachLeased(t, func(s *redistest.Server, b *bench, m *Leased) {
		s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		defer s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
		for i, end := 0, time.Now().Add(2*time.Second); time.Now().Before(end); i++ {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Duration(40+i%200)*time.Microsecond, cancel)
			if err := b.Ack(ctx, m.Receipt); err == nil {
				b.t.Fatalf("ack %d is said to be done", i)
			}
			cancel()
		}
	})
}

// Who only acks leaves a master that has become a replica.
func TestAckLeavesReplica(t *testing.T) {
	t.Parallel()
	eachLeased(t, func(s *redistest.Server, b *bench, m *Leased) {
		o := newBench(b.t, s.URL())
		s.Do("REPLICAOF", "127.0.0.1", "1")
		defer s.Do("REPLICAOF", "NO", "ONE")
		acked := make(chan error, 1)
		go func() { acked <- o.Ack(context.Background(), m.Receipt) }()
		o.until(5*time.Second, "another connection", func() bool {
			return o.ready.Load() && o.server.Data.Dials() > 1
		})
		s.Do("REPLICAOF", "NO", "ONE")
		b.must(<-acked)
	})
}

// While Close waits for who is under way, acks that wait for others go as those that come alone.
func TestAckWhileClosing(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	o := b.through(p)
	const n = 6
	var held []*Leased
	for i := range n {
		b.must(b.one(i, ID(fmt.Sprint("id", i))))
		ms, err := o.Pull(context.Background(), PullOptions{Channels: []string{b.name}, Lease: time.Minute})
		b.must(err)
		held = append(held, ms...)
	}
	slow := p.On(redistest.ByScript(store.Settle)(b.name), 1, redistest.Delay(300*time.Millisecond))
	b.must(o.begin()) // as a handler that still runs
	var all sync.WaitGroup
	for i, m := range held {
		all.Go(func() {
			if err := m.Ack(context.Background()); err != nil {
				t.Errorf("ack %d: %v", i, err)
			}
		})
	}
	strikes(t, slow, 1)
	closed := make(chan error, 1)
	go func() { closed <- o.Close() }()
	all.Wait()
	o.Queue.waits.Done()
	b.must(<-closed)
}

// An ack may be under way for longer than its caller waits, who may use the memory of the Result again.
func TestAckCopiesResult(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	b.state(StateLeased) // so that it has begun
	acks := &b.stationOf(store.KeysOf(b.name)).acks
	type plug struct{}
	var picked, left, unplug chan struct{}
	send := acks.Send
	acks.Send = func(ctx context.Context, k *store.Keys, all []*settlement) {
		switch {
		case ctx.Value(plug{}) != nil: // while two of these are under way the others wait, and then go together
			<-unplug
		case len(all) > 1:
			close(picked)
			<-left
		}
		send(ctx, k, all)
	}
	round := func(round int) (after bool) { // the ack was sent after its caller had left
		for i := range 4 {
			b.must(b.one(i, ID(fmt.Sprint("id", round, "-", i)), Retain(time.Minute)))
		}
		held := b.pull(4, PullOptions{Max: 4, Lease: time.Minute})
		picked, left, unplug = make(chan struct{}), make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		for _, m := range held[1:3] {
			all.Go(func() { b.must(m.Ack(context.WithValue(t.Context(), plug{}, true))) })
		}
		time.Sleep(10 * time.Millisecond)
		leaving, leave := context.WithCancel(t.Context())
		acked := make(chan error, 1)
		held[0].Result = []byte("done")
		go func() { acked <- held[0].Ack(leaving) }()
		all.Go(func() { b.must(held[3].Ack(t.Context())) })
		time.Sleep(10 * time.Millisecond)
		close(unplug)
		select {
		case <-picked:
			leave()
			if err := <-acked; !errors.Is(err, ErrUnknown) {
				t.Error(err)
			}
			clear(held[0].Result)
			after = true
		case err := <-acked: // it came too late to wait
			b.must(err)
		}
		close(left)
		all.Wait()
		leave()
		st, err := b.Status(t.Context(), ByID(b.name, held[0].ID))
		b.must(err)
		if r := string(st.Outcome.Result); r != "done" {
			t.Errorf("the result is %q", r)
		}
		return after
	}
	for i := 0; !round(i); i++ {
		if i == 20 {
			t.Fatal("the test proves nothing: nobody left before the ack was sent")
		}
	}
}
