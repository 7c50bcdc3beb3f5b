package shunt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// status is what is known of an id, or fails the test.
func (b *bench) status(id string) Status {
	b.t.Helper()
	s, err := b.Status(context.Background(), ByID(b.name, id))
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// noID fails the test unless nothing is known of the id.
func (b *bench) noID(id string) {
	b.t.Helper()
	if s, err := b.Status(context.Background(), ByID(b.name, id)); !errors.Is(err, ErrNotFound) {
		b.t.Fatalf("%q is still known: %+v, %v", id, s, err)
	}
}

// one enqueues a number with an id.
func (b *bench) one(i int, opts ...Option) error {
	return b.Enqueue(context.Background(), b.kind(nil).Message(i), opts...)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// An id is taken while its message waits, is delayed or is being handled, and free when it is acked. The error says
// where the first one is.
func TestIDIsUnique(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		taken := func(state State) {
			t.Helper()
			var dup *DuplicateError
			if err := b.one(2, ID("a")); !errors.Is(err, ErrDuplicate) || !errors.As(err, &dup) ||
				dup.Status.State != state ||
				dup.Status.ID != "a" {
				t.Fatalf("in %s: %v", state, err)
			}
		}
		b.must(b.one(1, ID("a"), In(time.Hour)))
		taken(StateDelay)
		if st := b.status("a"); st.State != StateDelay || time.Until(st.DueAt) < 50*time.Minute || st.Serial == "" {
			t.Fatalf("delayed: %+v", st)
		}
		b.must(b.Promote(context.Background(), ByID(b.name, "a")))
		taken(StatePrepare)
		in, out := make(chan struct{}), make(chan struct{})
		b.receive(1, func(ctx context.Context, i int) error {
			in <- struct{}{}
			<-out
			return nil
		})
		<-in
		taken(StateDoing)
		if st := b.status("a"); st.State != StateDoing || st.Attempt != 1 || st.Receiver == "" ||
			time.Since(st.StartedAt) > time.Minute {
			t.Fatalf("in hand: %+v", st)
		}
		close(out)
		b.wait(EventAcked, 1, 5*time.Second)
		b.noID("a")
		b.must(b.one(3, ID("a")))
		<-in
		b.wait(EventAcked, 2, 5*time.Second)
		if n := b.count(EventAcked); n != 2 {
			t.Fatalf("%d acked", n)
		}
		if n := s.Do("EXISTS", store.KeysOf(b.name).IDs).(int64); n != 0 {
			t.Fatal("ids are left")
		}
	})
}

// Retries keep the id, dead frees it and no dead letter holds it; a revived one takes it again, unless it is another's.
func TestIDOfTheDead(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := context.Background()
		b := newBench(t, s.URL(), func(q *Queue) {
			q.MaxAttempts = 2
			q.Backoff = func(int) time.Duration { return time.Hour }
		})
		b.receive(1, func(ctx context.Context, i int) error { return errors.New("no") })
		b.must(b.one(1, ID("a")))
		b.wait(EventRetried, 1, 5*time.Second)
		if st := b.status("a"); st.State != StateDelay || st.Attempt != 1 || st.Failure != "no" {
			t.Fatalf("after a failure: %+v", st)
		}
		b.must(b.Promote(ctx, ByID(b.name, "a")))
		b.wait(EventRejected, 1, 5*time.Second)
		if st := b.status("a"); st.State != StateDead || st.Attempt != 2 {
			t.Fatalf("after the last failure: %+v", st)
		}
		dead, err := b.List(ctx, b.name, StateDead, 0, 0)
		if err != nil || len(dead) != 1 || dead[0].ID != "a" {
			t.Fatalf("dead: %+v, %v", dead, err)
		}
		b.must(b.one(2, ID("a"), In(time.Hour)))
		if n, err := b.RetryDead(ctx, b.name, dead...); n != 0 || err != nil {
			t.Fatalf("revived %d beside another of its id: %v", n, err)
		}
		_, err = b.Cancel(ctx, ByID(b.name, "a"))
		b.must(err)
		if n, err := b.RetryDead(ctx, b.name, dead...); n != 1 || err != nil {
			t.Fatalf("revived %d: %v", n, err)
		}
		b.wait(EventRetried, 2, 5*time.Second)
		if st := b.status("a"); st.State != StateDelay {
			t.Fatalf("revived: %+v", st)
		}
	})
}

// What waits or is delayed is never handled after Cancel, its id is free at once, and counts do not count it.
func TestCancelWaiting(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := context.Background()
		b := newBench(t, s.URL())
		b.must(b.one(1, ID("waits")))
		b.must(b.one(2, ID("later"), In(200*time.Millisecond)))
		b.must(b.one(3))
		for _, id := range []string{"waits", "later"} {
			if st, err := b.Cancel(ctx, ByID(b.name, id)); err != nil ||
				st.State != map[string]State{"waits": StatePrepare, "later": StateDelay}[id] {
				t.Fatalf("cancel %s: %+v, %v", id, st, err)
			}
			b.noID(id)
			if _, err := b.Cancel(ctx, ByID(b.name, id)); !errors.Is(err, ErrNotFound) {
				t.Fatalf("again: %v", err)
			}
		}
		st, err := b.Stats(ctx, b.name)
		if err != nil || st[StatePrepare].Count != 1 || st[StateDelay].Count != 0 {
			t.Fatalf("stats %+v, %v", st, err)
		}
		if es, err := b.List(ctx, b.name, StatePrepare, 0, 0); err != nil || len(es) != 1 {
			t.Fatalf("list %+v, %v", es, err)
		}
		b.must(b.one(4, ID("waits"))) // a new one of the same name is handled
		seen := newTally()
		b.receive(2, func(_ context.Context, i int) error { seen.add(i); return nil })
		b.wait(EventAcked, 2, 5*time.Second)
		b.wait(EventCancelled, 1, 5*time.Second)
		if seen.n[3] != 1 || seen.n[4] != 1 || len(seen.n) != 2 {
			t.Fatalf("handled %v", seen.n)
		}
		if n := s.Do("EXISTS", store.KeysOf(b.name).Cancelled).(int64); n != 0 {
			t.Fatal("a tombstone is left")
		}
	})
}

// A running one's context is ended in whichever process, with a cause, soon; then it is dropped.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := context.Background()
		b := newBench(t, s.URL())
		other := newBench(t, s.URL()) // as another process
		in := make(chan struct{})
		b.receive(1, func(ctx context.Context, i int) error {
			in <- struct{}{}
			<-ctx.Done()
			if context.Cause(ctx) != ErrCancelled {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		b.must(b.one(1, ID("a")))
		<-in
		began := time.Now()
		if st, err := other.Cancel(ctx, ByID(b.name, "a")); err != nil || st.State != StateDoing {
			t.Fatalf("%+v, %v", st, err)
		}
		b.wait(EventCancelled, 1, 5*time.Second)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
		b.noID("a")
		if n := b.count(EventRetried) + b.count(EventAcked); n != 0 {
			t.Errorf("%d other verdicts", n)
		}
	})
}

// Postpone moves a message to another time, wherever it lies.
func TestPostpone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := context.Background()
		b := newBench(t, s.URL())
		b.must(b.one(1, ID("waits")))
		b.must(b.one(2, ID("later"), In(time.Hour)))
		due := time.Now().Add(300 * time.Millisecond)
		if err := b.Postpone(ctx, ByID(b.name, "waits"), At(due)); !errors.Is(err, ErrWaiting) {
			t.Errorf("what waits to be taken: %v", err)
		}
		b.must(b.Promote(ctx, ByID(b.name, "waits"))) // it is due already
		for _, o := range []Option{Type("x"), RefTo(new(Ref)), Timeout(0), MaxAttempts(0), nil} {
			if err := b.Postpone(ctx, ByID(b.name, "later"), o); err == nil {
				t.Error("an option that is no due time was taken")
			}
		}
		b.must(b.Postpone(ctx, ByID(b.name, "later"), At(due)))
		if st := b.status("later"); st.State != StateDelay || st.DueAt.Sub(due).Abs() > 2*time.Millisecond {
			t.Fatalf("%+v, want %v", st, due)
		}
		handled := make(chan time.Time, 2)
		b.receive(1, func(_ context.Context, i int) error {
			if i == 2 {
				handled <- time.Now()
			}
			return nil
		})
		if at := <-handled; at.Before(due.Truncate(time.Millisecond)) {
			t.Errorf("handled %v before its time", due.Sub(at))
		}
		b.wait(EventAcked, 2, 5*time.Second)
		if err := b.Postpone(ctx, ByID(b.name, "waits"), In(time.Hour)); !errors.Is(err, ErrNotFound) {
			t.Errorf("when it is over: %v", err)
		}
		if n := s.Do("EXISTS", store.KeysOf(b.name).IDs).(int64); n != 0 {
			t.Fatal("ids are left")
		}
	})
}

// Peek looks past what is cancelled and only waits to be dropped, however much of it there is.
func TestPeekBehindCancelled(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	const n = 1000 // a page
	var ms []IMessage
	for i := range n + 1 {
		ms = append(ms, With(b.kind(nil).Message(i), ID(fmt.Sprint(i))))
	}
	b.must(b.EnqueueAll(ctx, ms))
	var all errgroup.Group
	all.SetLimit(16)
	for i := range n {
		all.Go(func() error { _, err := b.Cancel(ctx, ByID(b.name, fmt.Sprint(i))); return err })
	}
	b.must(all.Wait())
	if e, err := b.Peek(ctx, ByID(b.name, fmt.Sprint(n))); err != nil || string(e.Payload) != fmt.Sprint(n) {
		t.Errorf("%q, %v", e.Payload, err)
	}
}

// What became of a message is kept as long as it asked, with its result; whoever waits is told at once, in whichever
// process.
func TestRetainAndWait(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		b := newBench(t, s.URL(), func(q *Queue) { q.MaxAttempts = 1 })
		other := newBench(t, s.URL())
		type end struct {
			o   Outcome
			err error
		}
		wait := func(id string) chan end {
			c := make(chan end, 1)
			go func() { o, err := other.Wait(ctx, ByID(b.name, id)); c <- end{o, err} }()
			return c
		}
		b.must(b.one(1, ID("good"), Retain(time.Hour)))
		b.must(b.one(2, ID("bad"), Retain(time.Hour)))
		b.must(b.one(3, ID("gone"), In(time.Hour)))
		good, bad, gone := wait("good"), wait("bad"), wait("gone")
		k := store.KeysOf(b.name)
		other.until(10*time.Second, "three who wait", func() bool {
			return s.Do("SCARD", k.Waited).(int64) == 3
		})
		_, err := b.Cancel(ctx, ByID(b.name, "gone"))
		b.must(err)
		b.receive(1, func(ctx context.Context, i int) error {
			if i == 2 {
				return errors.New("broken")
			}
			return SetResult(ctx, []byte("42"))
		})
		if e := <-good; e.err != nil || e.o.Kind != EventAcked || string(e.o.Result) != "42" || e.o.Attempt != 1 {
			t.Errorf("good: %+v", e)
		}
		if e := <-bad; e.err != nil || e.o.Kind != EventRejected || e.o.Failure != "broken" {
			t.Errorf("bad: %+v", e)
		}
		if e := <-gone; e.err != nil || e.o.Kind != EventCancelled {
			t.Errorf("gone: %+v", e)
		}
		if o, err := b.Wait(ctx, ByID(b.name, "good")); err != nil || string(o.Result) != "42" {
			t.Errorf("afterwards: %+v, %v", o, err)
		}
		if st := b.status("bad"); st.State != StateDone || st.Outcome.Kind != EventRejected || st.Failure != "broken" {
			t.Errorf("status %+v", st)
		}
		es, err := b.List(ctx, b.name, StateDone, 0, 0)
		if err != nil || len(es) != 3 { // the cancelled one for a while, because somebody waited for it
			t.Errorf("done: %+v, %v", es, err)
		}
		if _, err := b.Wait(ctx, ByID(b.name, "nobody")); !errors.Is(err, ErrNotFound) {
			t.Errorf("nobody: %v", err)
		}
		b.must(b.one(4, ID("good"), In(time.Hour))) // a kept result does not hold the id
		if st := b.status("good"); st.State != StateDelay {
			t.Errorf("the living one comes first: %+v", st)
		}
	})
}

// Results are bounded by count and by bytes, and forgotten when their time is over.
func TestRetainIsBounded(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := context.Background()
		b := newBench(t, s.URL(), func(q *Queue) { q.MaxDone = 3 })
		b.receive(1, func(ctx context.Context, i int) error { return SetResult(ctx, []byte(strings.Repeat("x", i))) })
		for i := range 10 {
			b.must(b.one(i, ID(fmt.Sprint(i)), Retain(time.Hour)))
		}
		b.wait(EventAcked, 10, 5*time.Second)
		es, err := b.List(ctx, b.name, StateDone, 0, 0)
		if err != nil || len(es) != 3 {
			t.Fatalf("%d kept: %v", len(es), err)
		}
		small := newBench(t, s.URL(), func(q *Queue) { q.MaxDoneBytes = 2500 })
		small.name += "-bytes"
		small.receive(1, func(ctx context.Context, i int) error { return SetResult(ctx, make([]byte, 1000)) })
		for i := range 5 {
			small.must(small.one(i, ID(fmt.Sprint(i)), Retain(time.Hour)))
		}
		small.wait(EventAcked, 5, 5*time.Second)
		if es, err := b.List(ctx, small.name, StateDone, 0, 0); err != nil || len(es) != 2 {
			t.Fatalf("%d kept: %v", len(es), err)
		}
		if n, err := b.Purge(ctx, b.name, StateDone); n != 3 || err != nil {
			t.Fatalf("purged %d: %v", n, err)
		}
	})
}

// UniqueFor keeps the id taken after success, and only for so long.
func TestUniqueFor(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		var n atomic.Int32
		b.receive(1, func(context.Context, int) error { n.Add(1); return nil })
		const unique = 2 * time.Second
		b.must(b.one(1, ID("a"), UniqueFor(unique)))
		b.wait(EventAcked, 1, 5*time.Second)
		if st, err := b.Status(context.Background(), ByID(b.name, "a")); err == nil &&
			(st.State != StateDone || !st.DueAt.IsZero() || time.Until(st.UniqueUntil) > unique) {
			t.Errorf("%+v", st)
		}
		if err := b.one(2, ID("a")); !errors.Is(err, ErrDuplicate) {
			t.Fatal(err)
		}
		b.until(5*time.Second, "a free id", func() bool { return b.one(3, ID("a")) == nil })
		b.wait(EventAcked, 2, 5*time.Second)
	})
}

// Follow-ups come with the ack and not without it.
func TestThen(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
		next := Define(b.name+".next", func(context.Context, int) error { return nil })
		b.receive(2, func(ctx context.Context, i int) error {
			info, _ := FromContext(ctx)
			if err := Then(ctx, next.Message(i), With(next.Message(i+100), ID(fmt.Sprint(i)),
				In(time.Hour))); err != nil {
				return err
			}
			if info.Attempt == 1 {
				return errors.New("again")
			}
			return nil
		})
		b.must(b.one(1))
		b.must(b.one(2, ID("two")))
		b.wait(EventAcked, 2, 5*time.Second)
		st, err := b.Stats(context.Background(), b.name+".next")
		if err != nil || st[StatePrepare].Count != 2 || st[StateDelay].Count != 2 {
			t.Fatalf("%+v, %v", st, err)
		}
		if st, err := b.Status(context.Background(), ByID(b.name+".next", "1")); err != nil || st.State != StateDelay {
			t.Fatalf("%+v, %v", st, err)
		}
		b.noID("two")
	})
}

// What was not taken in time is dropped, or goes to dead; what was taken is not.
func TestExpire(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		b.must(b.one(1, Expire(time.Millisecond)))
		b.must(b.one(2, ExpireToDead(time.Millisecond), ID("a")))
		b.must(b.one(3, Expire(time.Hour)))
		// A worker takes the time at which it has asked for that of the take, by a reply that may be late.
		time.Sleep(200 * time.Millisecond)
		b.until(time.Second, "the id of an expired one is free", func() bool { return b.one(4, ID("a")) == nil })
		seen := newTally()
		b.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
		b.wait(EventAcked, 2, 5*time.Second)
		b.wait(EventExpired, 1, 5*time.Second)
		b.wait(EventRejected, 1, 5*time.Second)
		if seen.n[3] != 1 || seen.n[4] != 1 || len(seen.n) != 2 {
			t.Fatalf("handled %v", seen.n)
		}
	})
}

// A message that is due together with many is found by its id. So is one that was retried, and therefore lies elsewhere
// than by its serial.
func TestDueAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
		ctx, at := context.Background(), time.Now().Add(2*time.Hour)
		b.must(b.one(0, ID("0")))
		shutdown := b.receive(1, func(context.Context, int) error { return errors.New("again") })
		b.wait(EventRetried, 1, 5*time.Second)
		b.must(shutdown(ctx))
		const n = 30 // as many as Cancel looks through
		for i := 1; i < n; i++ {
			b.must(b.one(i, ID(fmt.Sprint(i)), At(at)))
		}
		b.must(b.Postpone(ctx, ByID(b.name, "0"), At(at)))
		for i := range n {
			_, err := b.Cancel(ctx, ByID(b.name, fmt.Sprint(i)))
			b.must(err)
			if left := s.Do("ZCARD", store.KeysOf(b.name).Delay).(int64); left != int64(n-1-i) {
				t.Fatalf("%d are left after %d", left, i)
			}
		}
	})
}

// What has expired is over for whoever asks by its id, before any receiver has met it.
func TestExpiredByID(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		ctx := context.Background()
		b.must(b.one(1, Expire(time.Millisecond), ID("waits")))
		b.must(b.one(2, Expire(20*time.Millisecond), ID("is due later"), In(10*time.Millisecond)))
		b.until(time.Second, "they have expired", func() bool {
			_, err1 := b.Status(ctx, ByID(b.name, "waits"))
			_, err2 := b.Status(ctx, ByID(b.name, "is due later"))
			return errors.Is(err1, ErrNotFound) && errors.Is(err2, ErrNotFound)
		})
		for _, id := range []string{"waits", "is due later"} {
			r := ByID(b.name, id)
			_, err := b.Cancel(ctx, r)
			for what, err := range map[string]error{
				"cancel": err, "postpone": b.Postpone(ctx, r, In(time.Minute)), "promote": b.Promote(ctx, r),
			} {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%s what %s and has expired: %v", what, id, err)
				}
			}
		}
	})
}

// A deadline ends the handler, and what is late is not handled.
func TestDeadline(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		b.receive(1, func(ctx context.Context, i int) error {
			<-ctx.Done()
			if context.Cause(ctx) != ErrDeadline {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		at := time.Now().Add(1500 * time.Millisecond) // by then the first one has begun
		b.must(b.one(1, Deadline(at)))
		b.must(b.one(2, Deadline(at.Add(-50*time.Millisecond)))) // over when its turn comes
		b.wait(EventRejected, 2, 5*time.Second)
		if n := b.count(EventTimedOut); n != 1 {
			t.Errorf("%d were handled", n)
		}
	})
}

// Redis stands still for a second, just when a worker asks what time it is there. No message goes to dead as too late,
// and no handler's context ends, before the deadline.
func TestDeadlineBesidePause(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, opts := range [][]Option{{}, {ID("a")}} {
		p := redistest.NewProxy(t, s.Addr())
		b, to := newBench(t, p.URL()), newBench(t, s.URL())
		to.name = b.name
		ended := make(chan time.Time, 1)
		b.receive(1, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			ended <- time.Now()
			return ctx.Err()
		})
		const pause = time.Second
		stands := p.On(func(args [][]byte) bool { return string(args[0]) == "TIME" }, 1,
			redistest.Call(func() { <-time.After(pause) }))
		at := time.Now().Add(pause + pause/2)
		to.must(to.one(1, append(opts, Deadline(at))...))
		b.wait(EventRejected, 1, 5*time.Second)
		early := time.Until(at)
		select {
		case end := <-ended:
			early = at.Sub(end)
		default:
			t.Error("it was not handled")
		}
		if early > pause/10 || stands.Struck() != 1 {
			t.Errorf("%v: too late %v before the deadline; Redis stood still %d times", opts, early, stands.Struck())
		}
	}
}

// A second pause, as the clock is asked once more, brings none to its end either.
func TestDeadlineBesideTwoPauses(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b, to := newBench(t, p.URL()), newBench(t, s.URL())
	to.name = b.name
	var ended atomic.Int64
	b.receive(1, func(ctx context.Context, _ int) error {
		<-ctx.Done()
		ended.Store(time.Now().UnixMilli())
		return ctx.Err()
	})
	const brief, pause = 150 * time.Millisecond, time.Second
	clock := func(args [][]byte) bool { return string(args[0]) == "TIME" }
	stand := func(d time.Duration) redistest.Action { return redistest.Call(func() { <-time.After(d) }) }
	first, second := p.On(clock, 1, stand(brief)), p.On(clock, 2, stand(pause))
	at := time.Now().Add(pause + pause/2)
	to.must(to.one(1, Deadline(at)))
	b.wait(EventRejected, 1, 5*time.Second)
	early := time.Until(at)
	if end := ended.Load(); end != 0 {
		early = at.Sub(time.UnixMilli(end))
	}
	if early > brief+pause/10 || first.Struck() != 1 || second.Struck() != 1 {
		t.Errorf("it ended %v before the deadline; Redis stood still %d and %d times", early, first.Struck(),
			second.Struck())
	}
}

// Nothing begins after its deadline, where the channels above were asked for that long before it.
func TestDeadlineWhileAboveIsAsked(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b, to := newBench(t, p.URL()), newBench(t, s.URL())
	var begun atomic.Int32
	ks := b.ranks(2, func(context.Context, int, int) error { begun.Add(1); return nil })
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	b.starts(func() (Shutdown, error) { return b.ReceiveOrdered(context.Background(), 1, ks[0], ks[1]) })
	strikes(t, blocks, 2)
	ask := p.On(redistest.ByScript(store.Take)(ks[0].channel), 1, redistest.Delay(800*time.Millisecond))
	b.must(to.Enqueue(context.Background(), ks[1].Message(1), Deadline(time.Now().Add(400*time.Millisecond))))
	b.wait(EventRejected, 1, 5*time.Second)
	if begun.Load() != 0 || b.count(EventTimedOut) != 0 || ask.Struck() != 1 {
		t.Errorf("it began %d times; the channel above was asked %d times", begun.Load(), ask.Struck())
	}
	if es, err := b.List(context.Background(), ks[1].channel, StateDead, 0, 1); err != nil || len(es) != 1 ||
		es[0].Failure != ErrDeadline.Error() || es[0].Attempts != 0 {
		t.Errorf("dead is %+v, %v", es, err)
	}
}

// An enqueue with an id whose reply was lost is looked for, not sent blindly. That holds also when its message was
// handled by then, and the id is free.
func TestEnqueueByIDResolves(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for _, cut := range []redistest.Action{redistest.CutAfter, redistest.CutBefore, redistest.CutUnread} {
		for i, opts := range [][]Option{{ID("a")}, {ID("a"), In(50 * time.Millisecond)}, {Expire(time.Hour)}} {
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, p.URL())
			quick := newBench(t, s.URL()) // handles it before the producer is back
			quick.name = b.name
			seen := newTally()
			quick.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
			script := store.Enqueue
			if len(opts) == 1 && i == 0 {
				script = store.Enter
			}
			lost := p.On(redistest.ByScript(script)(b.name), 1, cut)
			b.must(b.one(1, opts...))
			quick.wait(EventAcked, 1, 5*time.Second)
			if lost.Struck() != 1 {
				t.Fatalf("%d replies were lost", lost.Struck())
			}
			b.must(b.one(2, opts...))
			quick.wait(EventAcked, 2, 5*time.Second)
			if seen.extra() != 0 || seen.distinct() != 2 {
				t.Errorf("handled %v", seen.n)
			}
		}
	}
}

// Receipts go with the next enqueue, and with Close.
func TestReceiptsGo(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		for i := range 500 {
			b.must(b.one(i, ID(fmt.Sprint(i))))
		}
		k := store.KeysOf(b.name)
		if n := s.Do("SCARD", k.Receipts).(int64); n >= 64 {
			t.Errorf("%d receipts", n)
		}
		var ms []IMessage
		for i := range 500 {
			ms = append(ms, With(b.kind(nil).Message(i), ID(fmt.Sprint("all-", i))))
		}
		b.must(b.EnqueueAll(context.Background(), ms))
		var failed *EnqueueError
		if err := b.EnqueueAll(context.Background(), ms[490:]); !errors.As(err, &failed) || len(failed.Failed) != 10 ||
			!errors.Is(err, ErrDuplicate) {
			t.Errorf("again: %v", err)
		}
		if n := s.Do("HLEN", k.IDs).(int64); n != 1000 {
			t.Errorf("%d ids", n)
		}
		b.must(b.Close())
		if n := s.Do("EXISTS", k.Receipts).(int64); n != 0 {
			t.Errorf("%d receipts are left", s.Do("SCARD", k.Receipts))
		}
		again := newBench(t, s.URL())
		if n, err := again.Purge(context.Background(), b.name, StatePrepare); n != 1000 || err != nil {
			t.Errorf("purged %d: %v", n, err)
		}
		if n := s.Do("EXISTS", k.IDs).(int64); n != 0 {
			t.Error("a purge leaves ids")
		}
	})
}

// What is bad is refused before Redis is asked.
func TestBadIDsAndTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL())
	past := time.Now().Add(-time.Second)
	for name, opts := range map[string][]Option{
		"the id \"\" has 0 bytes":                   {ID("")},
		"has 256 bytes: want 1 to 255":              {ID(strings.Repeat("x", 256))},
		"Retain without an ID":                      {Retain(time.Hour)},
		"UniqueFor without an ID":                   {UniqueFor(time.Hour)},
		"Expire(0s): want 1ms":                      {Expire(0)},
		"has passed":                                {Deadline(past)},
		"Expire(1s) of a message that is due in 2s": {Expire(time.Second), In(2 * time.Second)},
		"of a message that is due at":               {Deadline(time.Now().Add(time.Minute)), In(time.Hour)},
	} {
		if err := b.one(1, opts...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	if err := b.Postpone(context.Background(), ByID(b.name, "a"), ID("b")); err == nil ||
		!strings.Contains(err.Error(), "want In or At") {
		t.Error(err)
	}
	if err := SetResult(context.Background(), nil); !errors.Is(err, errNoHandling) {
		t.Error(err)
	}
	if err := Then(context.Background()); !errors.Is(err, errNoHandling) {
		t.Error(err)
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
		o, err := b.Wait(c, ByID(b.name, id))
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
					o.Postpone(ctx, ByID(b.name, id), In(time.Duration(rand.IntN(10))*time.Millisecond))
				}
				if err == nil && rand.IntN(3) == 0 {
					if rand.IntN(2) == 0 {
						time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
					}
					st, err := o.Cancel(ctx, ByID(b.name, id))
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
	var taken []any // ids and their records
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("taken: %q; cancelled: %q", taken, s.Do("SMEMBERS", k.Cancelled))
		}
	})
	// That nothing lies anywhere does not say that all is over: a message that moves may be in no count. Then it has
	// its id still. One that is over never frees it any more.
	o.until(20*time.Second, "all is over, and has left no id and no tombstone", func() bool {
		left, m := o.leaves(b.name)
		v := s.Do("HGETALL", k.IDs).([]any)
		taken = taken[:0]
		for i := 0; i+1 < len(v); i += 2 {
			if st := statusOf("", v[i+1].([]byte), store.Handling{}, time.Time{}); st.State != StateDone {
				taken = append(taken, v[i], v[i+1])
			}
		}
		return m-left[StateDead].Count-left[StateDone].Count == 0 && len(taken) == 0 &&
			s.Do("SCARD", k.Cancelled).(int64) == 0
	})
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
	if _, err := b.Cancel(ctx, ByID(b.name, "c")); err != nil {
		t.Error(err)
	}
	if err := b.Promote(ctx, ByID(b.name, "d")); err != nil {
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

// taken are the ids of the bench's channel that are taken.
func (b *bench) taken(s redistest.Backend) []string {
	b.t.Helper()
	ids, err := redis.Strings(s.Do("HKEYS", store.KeysOf(b.name).IDs), nil)
	b.must(err)
	slices.Sort(ids)
	return ids
}

// A key of the wrong type ended the script's last part: the message was gone, and its id taken for ever.
func TestWrongTypeFreesIDs(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"cancelled", "running", "waited", "done", "kept"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			foreign := "{" + b.name + "}." + suffix
			s.Do("SET", foreign, "not shunt's")
			ids := []string{"plain 1", "plain 2", "plain 3", "retained", "result", "unique", "rejected", "followed"}
			for i, id := range ids {
				b.must(b.one(i, append([]Option{ID(id)}, map[string][]Option{
					"retained": {Retain(time.Hour)}, "result": {Retain(time.Hour)},
					"unique": {UniqueFor(20 * time.Millisecond)}, "rejected": {Retain(time.Hour)},
				}[id]...)...))
			}
			b.must(b.one(len(ids), ID("long"), UniqueFor(time.Hour)))
			shutdown := b.receive(1, func(ctx context.Context, i int) error {
				switch {
				case i >= len(ids):
				case ids[i] == "result":
					return SetResult(ctx, []byte("what came of it"))
				case ids[i] == "rejected":
					return Reject(errors.New("never"))
				case ids[i] == "followed":
					return Then(ctx, b.kind(nil).Message(100))
				}
				return nil
			})
			b.wait(EventAcked, len(ids)+1, 5*time.Second) // one was rejected, and another follows
			b.wait(EventRejected, 1, 5*time.Second)
			b.must(shutdown(context.Background()))
			b.passes(s, 21*time.Millisecond) // so the one is not unique any more
			for i, id := range ids {
				if err := b.one(i, ID(id)); err != nil {
					t.Errorf("%q is gone, and its id is not free: %v", id, err)
				}
			}
			if err := b.one(0, ID("long")); !errors.Is(err, ErrDuplicate) {
				t.Errorf("the id is unique for an hour: %v", err)
			}
			s.Do("DEL", foreign)
			for _, id := range ids {
				if st := b.status(id); st.State != StatePrepare {
					t.Errorf("%q: %+v", id, st)
				}
			}
			if n := s.Do("HLEN", store.KeysOf(b.name).Running).(int64); n > 0 {
				t.Errorf("%d that are gone are still in hand", n)
			}
			// What is kept is known to both keys, or will be forgotten: else it would be there for ever.
			k := store.KeysOf(b.name)
			kept, _ := redis.Strings(s.Do("HKEYS", k.Done), nil)
			for _, id := range []string{"retained", "result", "rejected"} {
				if !strings.HasPrefix(suffix, "done") && suffix != "kept" && !slices.Contains(kept, id) {
					t.Errorf("what became of %q is not kept", id)
				}
			}
			for _, id := range kept {
				if id != "" && (s.Do("ZSCORE", k.Kept, "e"+id) == nil || s.Do("ZSCORE", k.Kept, "r"+id) == nil) {
					t.Errorf("what became of %q is never forgotten", id)
				}
			}
		})
	}
}

// Nor was whoever waited for the end told of it. With these keys as they are that is all he gets.
func TestWrongTypeIsTold(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"running", "cancelled", "done", "kept"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			b := newBench(t, s.URL())
			k := store.KeysOf(b.name)
			c, err := redis.DialURL(s.URL())
			b.must(err)
			defer c.Close()
			listens := redis.PubSubConn{Conn: c}
			b.must(listens.Subscribe(k.Done))
			if _, ok := listens.ReceiveWithTimeout(5 * time.Second).(redis.Subscription); !ok {
				t.Fatal("not subscribed")
			}
			b.must(b.one(1, ID("a")))
			serial := ulid.MustParseStrict(b.status("a").Serial)
			s.Do("SADD", k.Waited, serial[:]) // as Wait does
			s.Do("SET", "{"+b.name+"}."+suffix, "not shunt's")
			b.receive(1, func(ctx context.Context, _ int) error { return SetResult(ctx, []byte("r")) })
			m, ok := listens.ReceiveWithTimeout(5 * time.Second).(redis.Message)
			if o, is := store.ParseEnd(string(m.Data), "a"); !ok || !is || o.Kind != store.OutcomeAcked ||
				string(o.Result) != "r" {
				t.Errorf("told %q", m.Data)
			}
		})
	}
}

// waiting are the ids of what lies in prepare and delay, '-' for none.
func (b *bench) waiting() (ids []string) {
	b.t.Helper()
	for _, state := range []State{StatePrepare, StateDelay} {
		es, err := b.List(context.Background(), b.name, state, 0, 0)
		b.must(err)
		for _, e := range es {
			id := e.ID
			if id == "" {
				id = "-"
			}
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// While Redis refuses to mark a message, and answers other workers, nobody asks it again and again.
func TestRefusedMarkRests(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL())
	refuses := p.On(redistest.ByName("HSET", ".running")(b.name), 0, redistest.ReplyError("MISCONF a test"))
	b.receive(16, func(context.Context, int) error { return nil })
	p.Slow(2*time.Millisecond, 0, 0) // so that many are under way at once
	b.must(b.one(0, ID("a")))
	b.enqueue(1, 200)
	b.wait(EventAcked, 199, 10*time.Second)
	before, marks := p.Commands(), refuses.Struck()
	time.Sleep(500 * time.Millisecond) // in which there were hundreds
	if n, m := p.Commands()-before, refuses.Struck()-marks; n > 200 || m > 4 {
		t.Errorf("%d commands, %d of them marks", n, m)
	}
	refuses.Remove()
	b.wait(EventAcked, 200, 10*time.Second)
}

// What Enqueue has said to be a duplicate is not enqueued by an earlier sending of it, which Redis gets late.
func TestLateEnqueueOfADuplicate(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, c := range map[string]struct {
		match func(*bench) redistest.Match
		opts  []Option
	}{
		"enter": {(*bench).entering, nil},
		"enqueue": {func(b *bench) redistest.Match { return redistest.ByScript(store.Enqueue)(b.name) },
			[]Option{In(time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, s.Addr())
			b := newBench(t, s.URL())
			w := newBench(t, p.URL(), func(q *Queue) { q.ReplyTimeout = time.Second })
			w.name = b.name
			b.must(b.one(1, ID("a")))
			late := make(chan struct{})
			rule := p.On(c.match(b), 1, redistest.Call(func() { <-late }))
			if err := w.one(2, append(c.opts, ID("a"))...); !errors.Is(err, ErrDuplicate) {
				t.Errorf("it is enqueued although its id is taken: %v", err)
			}
			var doubled, last atomic.Bool
			b.receive(1, func(_ context.Context, i int) error {
				doubled.Store(doubled.Load() || i == 2)
				last.Store(i == 3)
				return nil
			})
			b.wait(EventAcked, 1, 5*time.Second)
			close(late)
			if err := rule.Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			b.must(b.one(3, ID("b"), In(300*time.Millisecond)))
			b.until(5*time.Second, "the last is handled", last.Load)
			if doubled.Load() {
				t.Error("what Enqueue has refused is handled")
			}
		})
	}
}
