package shunt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// passes waits until so much time has passed on the server's clock.
func (b *bench) passes(s redistest.Backend, d time.Duration) {
	b.t.Helper()
	end := store.ServerTime(s.Do("TIME")).Add(d)
	b.until(d+5*time.Second, "its time is over", func() bool { return store.ServerTime(s.Do("TIME")).After(end) })
}

// waited waits until somebody waits for n messages.
func (b *bench) waited(s redistest.Backend, n int64) {
	b.t.Helper()
	b.until(
		10*time.Second,
		"a Wait is known",
		func() bool { return s.Do("SCARD", store.KeysOf(b.name).Waited).(int64) == n },
	)
}

// Many tracked enqueues at once leave more receipts than Lua unpacks.
func TestManyReceipts(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	ctx := context.Background()
	var g sync.WaitGroup
	var bad atomic.Int32
	var mu sync.Mutex
	var first error
	for w := range 24 {
		g.Add(1)
		go func() {
			defer g.Done()
			var ms []IMessage
			for i := range 1000 {
				ms = append(ms, With(b.kind(nil).Message(i), ID(fmt.Sprint(w, "-", i))))
			}
			if err := b.EnqueueAll(ctx, ms); err != nil {
				bad.Add(1)
				mu.Lock()
				first = err
				mu.Unlock()
			}
		}()
	}
	g.Wait()
	st, _ := b.Stats(ctx, b.name)
	e1 := b.one(1, ID("x"))
	_, e2 := b.Status(ctx, b.name, "x")
	e3 := b.one(1, ID("y"))
	t.Logf(
		"bad calls %d (%.150v), prepare %d; one more: %v, its status: %v; and one more: %v",
		bad.Load(),
		first,
		st[StatePrepare].Count,
		e1,
		e2,
		e3,
	)
	if bad.Load() > 0 || e1 != nil {
		t.Fail()
	}
}

// RetryDead of an expired one.
func TestReviveExpired(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, ExpireToDead(time.Millisecond)))
	b.must(b.one(2, ExpireToDead(time.Millisecond), ID("x")))
	b.passes(s, 2*time.Millisecond)
	seen := newTally()
	b.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.wait(EventRejected, 2, 5*time.Second)
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	n, err := b.RetryDead(ctx, b.name, dead...)
	b.must(err)
	b.until(
		5*time.Second,
		"the end",
		func() bool { return b.count(EventRejected)+b.count(EventAcked)+b.count(EventExpired) >= 4 },
	)
	t.Logf("revived %d; handled %v, rejected %d expired %d", n, seen.n, b.count(EventRejected), b.count(EventExpired))
	if len(seen.n) != 2 {
		t.Fail()
	}
}

// A plain Expire that was reaped to dead, revived: dropped.
func TestReviveDropped(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, Expire(50*time.Millisecond)))
	k := store.KeysOf(b.name)
	raw := s.Do("RPOP", k.Prepare).([]byte)
	raw[2] = 4 // as reap does with what four dying processes held
	s.Do("ZADD", k.Dead, time.Now().UnixMilli(), raw)
	b.passes(s, 51*time.Millisecond)
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	n, err := b.RetryDead(ctx, b.name, dead...)
	b.must(err)
	seen := newTally()
	b.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.until(5*time.Second, "the end", func() bool { return b.count(EventAcked)+b.count(EventExpired) >= 1 })
	t.Logf("revived %d; handled %v, expired %d", n, seen.n, b.count(EventExpired))
	if len(seen.n) != 1 {
		t.Fail()
	}
}

// Deadline.
func TestReviveLate(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, Deadline(time.Now().Add(30*time.Millisecond))))
	b.passes(s, 31*time.Millisecond)
	seen := newTally()
	b.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.wait(EventRejected, 1, 5*time.Second)
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	_, err = b.RetryDead(ctx, b.name, dead...)
	b.must(err)
	b.until(5*time.Second, "the end", func() bool { return b.count(EventRejected)+b.count(EventAcked) >= 2 })
	if len(seen.n) != 1 {
		t.Errorf("dead again")
	}
}

// Taken, handed back, expired.
func TestReleasedDoesNotExpire(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, id := range []bool{false, true} {
		t.Run(fmt.Sprint(id), func(t *testing.T) {
			b := newBench(t, s.URL(), func(q *Queue) { q.Grace = time.Millisecond })
			in := make(chan struct{}, 1)
			stop := b.receive(
				1,
				func(ctx context.Context, i int) error { in <- struct{}{}; <-ctx.Done(); return ctx.Err() },
			)
			opts := []Option{Expire(500 * time.Millisecond)}
			if id {
				opts = append(opts, ID("a"))
			}
			b.must(b.one(1, opts...))
			<-in
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			t.Log(stop(ctx))
			b.passes(s, 501*time.Millisecond)
			var n atomic.Int32
			b.receive(1, func(ctx context.Context, i int) error { n.Add(1); return nil })
			b.until(5*time.Second, "end", func() bool { return b.count(EventAcked)+b.count(EventExpired) >= 1 })
			if n.Load() != 1 {
				t.Errorf("taken once, handed back, and then dropped as expired: Expired %d", b.count(EventExpired))
			}
		})
	}
}

// Wait that begins before the subscription is confirmed.
func TestWaitForQuick(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, s.URL())
	w := newBench(t, p.URL())
	w.name = b.name
	go_, in := make(chan struct{}), make(chan struct{})
	b.receive(1, func(context.Context, int) error { close(in); <-go_; return nil })
	b.must(b.one(1, ID("a")))
	<-in
	p.On(redistest.Command("SUBSCRIBE", ".done"), 1, redistest.Delay(200*time.Millisecond))
	type end struct {
		o   Outcome
		err error
	}
	c := make(chan end, 1)
	go func() { o, err := w.Wait(context.Background(), b.name, "a"); c <- end{o, err} }()
	b.waited(s, 1)
	close(go_)
	e := <-c
	if e.err != nil {
		t.Errorf("%+v", e)
	}
}

// The same with nothing delayed at all.
func TestWaitForQuickUnkept(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	missed, n := 0, 300
	b.receive(4, func(context.Context, int) error { return nil })
	for i := range n {
		id := fmt.Sprint(i)
		b.must(b.one(i, ID(id), In(time.Duration(rand.IntN(4))*time.Millisecond)))
		_, err := b.Wait(context.Background(), b.name, id)
		if errors.Is(err, ErrNotKept) {
			missed++
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d Waits missed the end", missed, n)
	if missed > 0 {
		t.Fail()
	}
}

// Close ends a Wait.
func TestWaitEndsWithClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.must(b.one(1, ID("a")))
	ended := make(chan error, 1)
	go func() { _, err := b.Wait(context.Background(), b.name, "a"); ended <- err }()
	b.waited(s, 1)
	b.must(b.Close())
	began := time.Now()
	err := <-ended
	t.Logf("ended %v after Close with %v", time.Since(began), err)
	if time.Since(began) > time.Second {
		t.Fail()
	}
}

// Many Waits.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	const n = 200
	for i := range n {
		b.must(b.one(i, ID(fmt.Sprint(i))))
	}
	asks := p.On(redistest.ByScript(store.Wait)(b.name), 0, redistest.Pass)
	var g sync.WaitGroup
	for i := range n {
		g.Add(1)
		go func() {
			defer g.Done()
			if o, err := b.Wait(context.Background(), b.name, fmt.Sprint(i)); err != nil || o.Kind != EventAcked {
				t.Errorf("%v %v", o, err)
			}
		}()
		b.waited(s, int64(i+1))
	}
	time.Sleep(500 * time.Millisecond)
	k := asks.Struck()
	t.Logf("%d Waits asked %d times", n, k)
	b.receive(4, func(context.Context, int) error { return nil })
	g.Wait()
	if k > 4*n {
		t.Errorf("%d Waits asked %d times", n, k)
	}
}

// Cancel while the receiver shuts down.
func TestCancelDuringShutdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	o := newBench(t, s.URL())
	in, ended := make(chan struct{}), make(chan struct{})
	stop := b.receive(
		1,
		func(ctx context.Context, i int) error { close(in); <-ctx.Done(); close(ended); return ctx.Err() },
	)
	b.must(b.one(1, ID("a")))
	<-in
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	go stop(ctx)
	b.until(5*time.Second, "it has stopped", func() bool {
		b.Queue.mu.Lock()
		defer b.Queue.mu.Unlock()
		for r := range b.receivers {
			return r.Stopped()
		}
		return false
	})
	_, err := o.Cancel(context.Background(), b.name, "a")
	b.must(err)
	began := time.Now()
	<-ended
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// Postpone among more than a script looks through of one ms.
func TestPostponeAmongMany(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	at := time.Now().Add(time.Hour)
	var ms []IMessage
	for i := range 1500 {
		ms = append(ms, With(b.kind(nil).Message(i), ID(fmt.Sprint(i))))
	}
	b.must(b.EnqueueAll(ctx, ms, At(at)))
	es, err := b.List(ctx, b.name, StateDelay, 1499, 1)
	b.must(err)
	id := es[0].ID
	b.must(b.Postpone(ctx, b.name, id, In(2*time.Hour)))
	b.must(b.Promote(ctx, b.name, id))
	st, _ := b.Stats(ctx, b.name)
	t.Logf("status %v, prepare %d, delay %d", b.status(id).State, st[StatePrepare].Count, st[StateDelay].Count)
	if st[StatePrepare].Count != 1 {
		t.Errorf("promoted, but still in delay for an hour")
	}
}

// Promote whose reply is lost is sent again: to no other message that has the id by then, and it is told as done. So is
// Postpone to what is past.
func TestPromoteSentTwice(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	o := newBench(t, s.URL())
	o.name = b.name
	for i, after := range []string{"another has its id", "it is being handled", "it is over", "it is over"} {
		o.must(o.one(1, ID("a"), In(time.Hour)))
		cut := p.On(redistest.ByScript(store.Postpone)(b.name), 1, redistest.CutAfter)
		again := p.On(redistest.ByScript(store.Postpone)(b.name), 2, redistest.Call(func() {
			if after == "it is being handled" {
				st, err := o.Status(ctx, b.name, "a")
				if err != nil {
					t.Error(err)
				}
				serial, _ := ulid.ParseStrict(st.Serial)
				s.Do("HSET", store.KeysOf(b.name).Running, serial[:], "somebody/0 1 1")
				return
			}
			_, err := o.Cancel(ctx, b.name, "a")
			if after == "another has its id" {
				err = errors.Join(err, o.one(2, ID("a"), In(time.Hour)))
			}
			if err != nil {
				t.Error(err)
			}
		}))
		soon := b.Promote
		if i == 3 {
			soon = func(ctx context.Context, channel, id string) error {
				return b.Postpone(ctx, channel, id, At(time.Now().Add(-time.Hour)))
			}
		}
		if err := soon(ctx, b.name, "a"); err != nil {
			t.Errorf("%s: %v", after, err)
		}
		if cut.Struck() != 1 || again.Struck() != 1 {
			t.Fatalf("%s: cut %d times, sent again %d times", after, cut.Struck(), again.Struck())
		}
		if after == "another has its id" && o.status("a").State != StateDelay {
			t.Errorf("the other is promoted: %+v", o.status("a"))
		}
		cut.Remove()
		again.Remove()
		s.Do("DEL", store.KeysOf(b.name).Running, store.KeysOf(b.name).IDs)
	}
}

// Cancel just before the last attempt's reject.
func TestCancelAtLastAttempt(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.MaxAttempts = 1 })
	o := newBench(t, s.URL())
	b.must(b.one(1, ID("a")))
	p.On(redistest.ByScript(store.Reject)(b.name), 1, redistest.Call(func() {
		st, err := o.Cancel(ctx, b.name, "a")
		t.Log(st.State, err)
	}))
	b.receive(1, func(context.Context, int) error { return errors.New("no") })
	b.until(5*time.Second, "end", func() bool { return b.count(EventCancelled)+b.count(EventRejected) > 0 })
	st, _ := b.Stats(ctx, b.name)
	if st[StateDead].Count != 0 {
		t.Errorf("cancelled, failed, and in dead")
	}
}

// entering matches every script that enqueues messages with an id.
func (b *bench) entering() redistest.Match {
	return redistest.Command("", "{"+b.name+"}.prepare", "{"+b.name+"}.receipts")
}

// The reply is lost, and then memory is short: what was enqueued is known all the same.
func TestDoubtThenRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	b.must(b.one(0, ID("warm")))
	lost := p.On(b.entering(), 1, redistest.CutAfter)
	full := p.On(b.entering(), 2, redistest.ReplyError("OOM command not allowed when used memory > 'maxmemory'."))
	b.must(b.one(1, ID("a")))
	b.status("a")
	strikes(t, lost, 1)
	strikes(t, full, 1)
}

// The reply to several is lost, of which one was refused: that one is looked at anew, and the others are not enqueued
// again.
func TestDoubtOfSeveral(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		p := redistest.NewProxy(t, s.Addr())
		b, o := newBench(t, p.URL()), newBench(t, s.URL())
		o.name = b.name
		ctx, seen := context.Background(), newTally()
		for _, free := range []bool{false, true} {
			id := func(i int) Option { return ID(fmt.Sprint(free, i)) }
			b.must(o.one(100, id(2)))
			lost := p.On(b.entering(), 1, redistest.CutAfter)
			if free {
				p.Refuse(true)
			}
			done := make(chan error, 1)
			go func() {
				var ms []IMessage
				for i := range 5 {
					ms = append(ms, With(b.kind(nil).Message(i), id(i)))
				}
				done <- b.EnqueueAll(ctx, ms)
			}()
			strikes(t, lost, 1)
			if free {
				_, err := o.Cancel(ctx, b.name, fmt.Sprint(free, 2))
				b.must(err)
				p.Refuse(false)
			}
			err := <-done
			var of *EnqueueError
			if errors.As(err, &of) == free || !free && (len(of.Failed) != 1 || !errors.Is(of.Failed[2], ErrDuplicate)) {
				t.Errorf("its ID free %v: %v", free, err)
			}
		}
		shutdown := o.receive(4, func(_ context.Context, i int) error { seen.add(i); return nil })
		o.wait(EventAcked, 10, 5*time.Second)
		b.must(shutdown(ctx))
		if seen.n[100] != 1 || seen.n[2] != 1 || seen.n[0] != 2 || seen.n[4] != 2 {
			t.Errorf("handled %v", seen.n)
		}
	})
}

// Options within options all count.
func TestWithinWith(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.must(b.Enqueue(context.Background(), With(With(b.kind(nil).Message(1), ID("a")), In(time.Hour))))
	if _, err := b.Status(context.Background(), b.name, "a"); err != nil {
		t.Error(err)
	}
}

// Then with the own id.
func TestThenOwnID(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.receive(1, func(ctx context.Context, i int) error {
		if i == 2 {
			return nil
		}
		return Then(ctx, With(b.kind(nil).Message(2), ID("a")))
	})
	b.must(b.one(1, ID("a")))
	b.wait(EventAcked, 2, 5*time.Second)
	if n := b.count(EventDuplicate); n != 0 {
		t.Errorf("%d duplicates", n)
	}
}

// A start that is executed late meets a record that only keeps the id taken.
func TestLateStart(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	k := store.KeysOf(b.name)
	b.receive(1, func(context.Context, int) error { return nil })
	b.must(b.one(1, ID("a"), UniqueFor(200*time.Millisecond)))
	b.wait(EventAcked, 1, 5*time.Second)
	raw := s.Do("HGET", k.IDs, "a").([]byte)
	s.Do("HSET", k.Running, raw[:16], "gone/0 1 1")
	b.until(5*time.Second, "a free id", func() bool { return b.one(2, ID("a")) == nil })
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

// Taken in time, its process died before start, expired since, id taken by another: both are handled.
func TestExpiredRecovered(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	k := store.KeysOf(b.name)
	b.must(b.one(1, ID("a"), Expire(50*time.Millisecond)))
	raw := s.Do("RPOP", k.Prepare).([]byte) // taken, and reaped
	raw[2] = 1
	s.Do("RPUSH", k.Prepare, raw)
	time.Sleep(60 * time.Millisecond)
	b.must(b.one(2, ID("a")))
	var now, most atomic.Int32
	b.receive(2, func(context.Context, int) error {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(300 * time.Millisecond)
		now.Add(-1)
		return nil
	})
	b.until(5*time.Second, "end", func() bool { return b.count(EventAcked)+b.count(EventExpired) >= 2 })
	if most.Load() > 1 {
		t.Errorf("%d of one id at once", most.Load())
	}
}

// Cancel whose reply is lost, sent again.
func TestCancelSentAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	o := newBench(t, s.URL())
	o.name = b.name
	b.must(b.one(1, ID("a")))
	p.On(redistest.ByScript(store.Cancel)(b.name), 1, redistest.CutAfter)
	st, err := b.Cancel(ctx, b.name, "a")
	t.Logf("%v %v", st.State, err)
	if errors.Is(err, ErrNotFound) {
		t.Error("it was cancelled by this very call")
	}
}

// Outcome.Ended of one that was cancelled when its retry came.
func TestCancelledRetryEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
	o := newBench(t, s.URL())
	o.name = b.name
	b.must(b.one(1, ID("a")))
	done := make(chan Outcome, 1)
	go func() { oc, _ := o.Wait(ctx, b.name, "a"); done <- oc }()
	b.waited(s, 1)
	p.On(redistest.ByScript(store.Retry)(b.name), 1, redistest.Call(func() { o.Cancel(ctx, b.name, "a") }))
	b.receive(1, func(context.Context, int) error { return errors.New("no") })
	oc := <-done
	if d := time.Until(oc.EndedAt); d > time.Second {
		t.Errorf("%v ended in %v", oc.Kind, d)
	}
}

// A bad key of one channel holds up what does not need it.
func TestBadIndex(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, key := range []string{"ids", "cancelled", "done", "kept", "receipts"} {
		t.Run(key, func(t *testing.T) {
			b := newBench(t, s.URL())
			b.must(b.one(1, ID("a"), Retain(time.Hour)))
			s.Do("DEL", "{"+b.name+"}."+key)
			s.Do("SET", "{"+b.name+"}."+key, "x")
			seen := newTally()
			b.receive(4, func(_ context.Context, i int) error { seen.add(i); return nil })
			for i := 2; i < 50; i++ {
				b.must(b.one(i))
			}
			deadline := time.Now().Add(4 * time.Second)
			for seen.distinct() < 49 && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf(
				"handled %d of 49 in 4 s, the one with the id %v; acked %d trouble %d",
				seen.distinct(),
				seen.n[1],
				b.count(EventAcked),
				b.count(EventReceiverError),
			)
			if seen.distinct() < 48 {
				t.Error("plain messages are held up")
			}
			if err := b.one(100, ID("new")); err != nil {
				t.Log("enqueue:", err)
			}
			_, err := b.Purge(context.Background(), b.name, StatePrepare)
			t.Log("purge:", err)
			s.Do("DEL", "{"+b.name+"}."+key)
		})
	}
}

// Any bytes.
func TestIDsOfAnyBytes(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL(), func(q *Queue) { q.MaxAttempts = 2; q.Backoff = func(int) time.Duration { return 0 } })
	ids := []string{
		"\n",
		"\x00",
		"a\nb",
		strings.Repeat("\xff", 255),
		" ",
		"r",
		"0",
		"p0 0 0 0 \n",
		"\r\n$3\r\n",
		"%s%d",
		string([]byte{1, 2, 3, 0xc1, 0x10}),
	}
	fail := "\x00 17 \n\xff\xfe r2 3 4 5 6/7\nx %s"
	for i, id := range ids {
		b.must(b.one(i, ID(id), Retain(time.Hour)))
		if st := b.status(id); st.State != StatePrepare {
			t.Errorf("%q %+v", id, st)
		}
	}
	b.receive(2, func(ctx context.Context, i int) error {
		info, _ := FromContext(ctx)
		if info.Attempt == 1 || i%2 == 0 {
			return errors.New(fail)
		}
		return SetResult(ctx, []byte(fail+ids[i]))
	})
	for i, id := range ids {
		c, cancel := context.WithTimeout(ctx, 8*time.Second)
		o, err := b.Wait(c, b.name, id)
		cancel()
		if err != nil || i%2 == 0 && (o.Kind != EventRejected || o.Failure != fail) ||
			i%2 == 1 && (o.Kind != EventAcked || string(o.Result) != fail+id) {
			t.Errorf("%q %+v %v", id, o, err)
		}
	}
	if n := s.Do("EXISTS", store.KeysOf(b.name).IDs).(int64); n != 0 {
		t.Error("ids left")
	}
}

// Then with many.
func TestThenMany(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	next := Define(b.name+".next", func(context.Context, int) error { return nil })
	b.receive(1, func(ctx context.Context, i int) error {
		var ms []IMessage
		for j := range 1000 {
			ms = append(ms, With(next.Message(j), ID(fmt.Sprint(j)), In(time.Duration(j%2)*time.Hour)))
		}
		return Then(ctx, ms...)
	})
	b.must(b.one(1))
	b.wait(EventAcked, 1, 10*time.Second)
	st, _ := b.Stats(context.Background(), b.name+".next")
	if st[StatePrepare].Count != 500 || st[StateDelay].Count != 500 {
		t.Errorf("%+v", st)
	}
}

// Lost replies at each script, then a handover: nothing lost, doubled or leaked.
func TestLostRepliesOfIDs(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	scripts := map[string]*link.Script{
		"start":    store.Start,
		"settle":   store.Settle,
		"follow":   store.Follow,
		"retry":    store.Retry,
		"reject":   store.Reject,
		"release":  store.Release,
		"enqueue":  store.Enqueue,
		"handover": store.Handover,
	}
	for name, script := range scripts {
		for kind, act := range map[string]redistest.Action{"after": redistest.CutAfter, "before": redistest.CutBefore,
			"unread": redistest.CutUnread} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				p := redistest.NewProxy(t, s.Addr())
				b := newBench(
					t,
					p.URL(),
					func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 }; q.Lease = 2 * time.Second },
				)
				o := newBench(t, s.URL())
				o.name = b.name
				next := Define(b.name+".next", func(context.Context, int) error { return nil })
				for i := 1; i <= 4; i++ {
					p.On(redistest.ByScript(script)(b.name), 3*i, act)
				}
				if name != "handover" {
					p.On(redistest.ByScript(store.Handover)(b.name), 2, redistest.CutAfter)
				} else {
					p.On(redistest.ByScript(store.Settle)(b.name), 3, redistest.CutAfter)
				}
				seen := newTally()
				b.receive(3, func(ctx context.Context, i int) error {
					seen.add(i)
					if i%10 == 7 {
						time.Sleep(60 * time.Millisecond)
					}
					info, _ := FromContext(ctx)
					switch i % 4 {
					case 1:
						if info.Attempt == 1 {
							return errors.New("again")
						}
					case 2:
						return Then(ctx, With(next.Message(i), ID(fmt.Sprint("n", i))), next.Message(i+1000))
					case 3:
						return Reject(errors.New("no"))
					}
					return nil
				})
				const n = 60
				for i := range n {
					var err error
					for range 3 {
						if err = b.one(i, ID(fmt.Sprint(i)), Retain(time.Hour)); err == nil ||
							errors.Is(err, ErrDuplicate) {
							break
						}
					}
					if err != nil {
						t.Errorf("enqueue %d: %v", i, err)
					}
				}
				k := store.KeysOf(b.name)
				o.until(20*time.Second, "the end", func() bool { // a message that moves may be in no count
					left, m := o.leaves(b.name)
					return m-left[StateDead].Count-left[StateDone].Count == 0 && left[StateDone].Count == n
				})
				if v := s.Do("HGETALL", k.IDs).([]any); len(v) != 0 {
					t.Errorf("ids are left: %q", v)
				}
				if v := s.Do("EXISTS", k.Cancelled).(int64); v != 0 {
					t.Error("tombstones")
				}
				if seen.distinct() != n {
					t.Errorf("%d handled", seen.distinct())
				}
				es, err := o.List(context.Background(), b.name+".next", StatePrepare, 0, 0)
				if err != nil || len(es) != n/2 {
					t.Errorf("%d followed, want %d: %v", len(es), n/2, err)
				}
				done, err := o.List(context.Background(), b.name, StateDone, 0, 0)
				if err != nil || len(done) != n {
					t.Errorf("%d kept, want %d: %v", len(done), n, err)
				}
				st, _ := o.Stats(context.Background(), b.name)
				if st[StateDead].Count != n/4 {
					t.Errorf("dead %d", st[StateDead].Count)
				}
			})
		}
	}
}

// Cancels and postpones at every point, under faults.
func TestIDStorm(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) {
		q.Backoff = func(int) time.Duration { return time.Duration(rand.IntN(5)) * time.Millisecond }
		q.Lease = 2 * time.Second
		q.MaxAttempts = 3
	})
	o := newBench(t, s.URL())
	o.name = b.name
	var cancelled sync.Map // number → handled must not be seen after
	var late atomic.Int32
	handle := func(ctx context.Context, i int) error {
		if _, off := cancelled.Load(i); off {
			late.Add(1)
			t.Errorf("%d handled after Cancel", i)
		}
		switch i % 5 {
		case 0:
			select {
			case <-time.After(time.Duration(rand.IntN(5)) * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		case 1:
			return errors.New("no")
		}
		return nil
	}
	b.receive(3, handle)
	o2 := newBench(t, s.URL(), func(q *Queue) { q.Backoff, q.MaxAttempts = b.Queue.Backoff, 3 })
	o2.name = b.name
	o2.receive(2, handle)
	end := time.Now().Add(6 * time.Second)
	var g sync.WaitGroup
	var num atomic.Int64
	for w := range 6 {
		g.Add(1)
		go func() {
			defer g.Done()
			for time.Now().Before(end) {
				i := int(num.Add(1))
				id := fmt.Sprint(w, "-", rand.IntN(3))
				opts := []Option{ID(id)}
				switch rand.IntN(5) {
				case 0:
					opts = append(opts, In(time.Duration(rand.IntN(8))*time.Millisecond))
				case 1:
					opts = append(opts, UniqueFor(3*time.Millisecond))
				case 2:
					opts = append(opts, Expire(3*time.Millisecond))
				case 3:
					opts = append(opts, Retain(50*time.Millisecond))
				}
				err := o.one(i, opts...)
				if err != nil && !errors.Is(err, ErrDuplicate) {
					t.Error(err)
				}
				if rand.IntN(4) == 0 {
					o.Postpone(ctx, b.name, id, In(time.Duration(rand.IntN(10))*time.Millisecond))
				}
				if err == nil && rand.IntN(3) == 0 {
					if rand.IntN(2) == 0 {
						time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
					}
					st, err := o.Cancel(ctx, b.name, id)
					if err == nil && st.State != StateDoing {
						cancelled.Store(i, true)
					}
				}
			}
		}()
	}
	go func() {
		for time.Now().Before(end) {
			time.Sleep(700 * time.Millisecond)
			p.CutAll()
		}
	}()
	g.Wait()
	k := store.KeysOf(b.name)
	o.until(20*time.Second, "the end", func() bool {
		left, m := o.leaves(b.name)
		return m-left[StateDead].Count-left[StateDone].Count == 0
	})
	time.Sleep(200 * time.Millisecond)
	v := s.Do("HGETALL", k.IDs).([]any)
	for i := 0; i+1 < len(v); i += 2 {
		if st := statusOf("", v[i+1].([]byte), nil, time.Time{}); st.State != StateDone {
			t.Errorf("leaked: %q", v[i:i+2])
		}
	}
	if v := s.Do("SMEMBERS", k.Cancelled).([]any); len(v) != 0 {
		t.Errorf("%d tombstones left", len(v))
	}
	t.Logf("%d messages", num.Load())
}

// A full Redis drains.
func TestFullRedisWithIDs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "maxmemory-policy noeviction")
	ctx := context.Background()
	b := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
	var ms []IMessage
	for i := range 400 {
		ms = append(ms, With(b.kind(nil).Message(i), ID(fmt.Sprint(i)), Retain(time.Hour)))
	}
	b.must(b.EnqueueAll(ctx, ms))
	b.must(b.one(1000, ID("c"), In(time.Hour)))
	b.must(b.one(1001, ID("d"), In(time.Hour)))
	s.Do("CONFIG", "SET", "maxmemory", "1")
	if err := b.one(2, ID("new")); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	if _, err := b.Cancel(ctx, b.name, "c"); err != nil {
		t.Error(err)
	}
	if err := b.Promote(ctx, b.name, "d"); err != nil {
		t.Error(err)
	}
	next := Define(b.name+".next", func(context.Context, int) error { return nil })
	b.receive(2, func(ctx context.Context, i int) error {
		info, _ := FromContext(ctx)
		switch {
		case i%3 == 0 && info.Attempt == 1:
			return errors.New("x")
		case i%3 == 1:
			return Then(ctx, next.Message(i))
		case i%30 == 2:
			return Reject(errors.New("no"))
		}
		return nil
	})
	b.until(10*time.Second, "all", func() bool { return b.count(EventAcked)+b.count(EventRejected) >= 401 })
	k := store.KeysOf(b.name)
	if v := s.Do("HLEN", k.IDs).(int64); v != 0 {
		t.Errorf("%d ids left", v)
	}
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	n, err := b.RetryDead(ctx, b.name, dead[:1]...)
	t.Log("revive on a full one:", n, err)
	s.Do("CONFIG", "SET", "maxmemory", "0")
}

// Concurrent enqueues by id share scripts; each has its own answer, and one whose context ends leaves.
func TestEnqueuesByIDTogether(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		var g sync.WaitGroup
		var dups, ok atomic.Int32
		for i := range 400 {
			g.Add(1)
			go func() {
				defer g.Done()
				switch err := b.one(i, ID(fmt.Sprint(i/2))); {
				case err == nil:
					ok.Add(1)
				case errors.Is(err, ErrDuplicate):
					dups.Add(1)
				default:
					t.Error(err)
				}
			}()
		}
		g.Wait()
		if ok.Load() != 200 || dups.Load() != 200 || s.Do("LLEN", store.KeysOf(b.name).Prepare).(int64) != 200 {
			t.Errorf("%d enqueued, %d duplicates", ok.Load(), dups.Load())
		}
	})
}

// What is over of a take leaves its list together, whatever else lies there, and whatever of other messages is to be
// told or dropped.
func TestOverTogether(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		disturb func(do func(string, ...any) any, k *store.Keys, doing string)
		left    string // in the doing list
	}{
		{"in order", func(func(string, ...any) any, *store.Keys, string) {}, ""},
		{"in another order", func(do func(string, ...any) any, _ *store.Keys, doing string) {
			do("RPOPLPUSH", doing,
				doing)
		}, ""},
		{"behind another", func(do func(string, ...any) any, _ *store.Keys, doing string) {
			do("RPUSH", doing,
				"another")
		}, "another"},
		{"in another order, while another was cancelled", func(do func(string, ...any) any, k *store.Keys,
			doing string) {
			do("SADD", k.Cancelled, "another")
			do("EVAL", "local a, b = redis.call('LINDEX', KEYS[1], 1), redis.call('LINDEX', KEYS[1], 2) "+
				"redis.call('LSET', KEYS[1], 1, b) redis.call('LSET', KEYS[1], 2, a)", 1, doing)
		}, ""},
		{"while another was cancelled", func(do func(string, ...any) any, k *store.Keys, _ string) {
			do("SADD",
				k.Cancelled, "another")
		}, ""},
	} {
		for _, named := range []bool{true, false} {
			t.Run(
				c.name+map[bool]string{false: ", without ids"}[named],
				func(t *testing.T) { overTogether(t, named, c.disturb, c.left) },
			)
		}
	}
}

func overTogether(
	t *testing.T,
	named bool,
	disturb func(do func(string, ...any) any, k *store.Keys, doing string),
	stays string,
) {
	t.Parallel()
	const n = 60
	s := redistest.Start(t)
	b := newBench(t, s.URL())
	k := store.KeysOf(b.name)
	for i := range n {
		var opts []Option
		if named {
			opts = append(opts, ID(fmt.Sprint(i)))
		}
		b.must(b.one(i, opts...))
	}
	doings := func() (keys []string) {
		for _, key := range s.Do("KEYS", "{"+b.name+"}.doing.*").([]any) {
			keys = append(keys, string(key.([]byte)))
		}
		return keys
	}
	b.receive(1, func(ctx context.Context, i int) error {
		if i == n*2/3 { // as many are taken at once by now as ever
			doing := doings()[0]
			if held := s.Do("LLEN", doing).(int64); held < 3 {
				t.Errorf("%d are held", held)
			}
			disturb(s.Do, k, doing)
		}
		return nil
	})
	b.wait(EventAcked, n, 5*time.Second)
	for _, key := range []any{k.IDs, k.Running} {
		if left := s.Do("HLEN", key).(int64); left > 0 {
			t.Errorf("%d left in %s", left, key)
		}
	}
	left := ""
	for _, doing := range doings() {
		for _, e := range s.Do("LRANGE", doing, 0, -1).([]any) {
			left += string(e.([]byte))
		}
	}
	if left != stays {
		t.Errorf("left in hand: %q", left)
	}
	if stats := string(s.Do("INFO", "commandstats").([]byte)); !strings.Contains(stats, "cmdstat_ltrim") {
		t.Error("none left together")
	}
}

// A handover keeps the attempt of what a handler holds, and names the new holder.
func TestHolderAfterHandover(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
	o := newBench(t, s.URL())
	o.name = b.name
	in, out := make(chan string, 1), make(chan struct{})
	b.receive(2, func(ctx context.Context, _ int) error {
		info, _ := FromContext(ctx)
		if info.Attempt == 1 {
			return errors.New("again")
		}
		in <- info.Receiver
		<-out
		return nil
	})
	b.must(o.one(1, ID("a")))
	before := <-in
	p.CutAll()
	b.wait(EventHandedOver, 1, 5*time.Second)
	if st := o.status("a"); st.State != StateDoing || st.Attempt != 2 || st.Receiver == before ||
		time.Since(st.StartedAt).Abs() > time.Minute {
		t.Errorf("before in the hands of %s: %+v", before, st)
	}
	close(out)
	b.wait(EventAcked, 1, 5*time.Second)
	o.noID("a")
}

// Enqueues that go together have each its own time: the end of its context, however short EnqueueTimeout is.
func TestEnqueuesTogetherHaveTheirTime(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.EnqueueTimeout = 100 * time.Millisecond })
	redistest.Until(t, 5*time.Second, "it is connected", func() bool { return b.one(-1) == nil })
	p.Refuse(true)
	p.CutAll()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	patient, hasty := make(chan error, 10), make(chan error, 10)
	for i := range 10 {
		go func() { patient <- b.Enqueue(ctx, b.kind(nil).Message(i), ID(fmt.Sprint(i))) }()
		go func() { hasty <- b.one(i, ID(fmt.Sprint("hasty-", i))) }()
	}
	for range 10 {
		if err := <-hasty; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in the time of EnqueueTimeout: %v", err)
		}
	}
	p.Refuse(false)
	for range 10 {
		if err := <-patient; err != nil {
			t.Error(err)
		}
	}
}
