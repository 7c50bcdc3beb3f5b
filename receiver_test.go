package shunt

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestReceiveEachOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		seen := newTally()
		n := 2000
		q.enqueue(0, n-1)
		q.enqueue(n-1, n, In(200*time.Millisecond))
		shutdown := q.receive(16, func(_ context.Context, i int) error { seen.add(i); return nil })
		q.until(20*time.Second, "all acked", func() bool { return q.count(EventAcked) >= n })
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if seen.distinct() != n || seen.extra() != 0 {
			t.Errorf("%d distinct, %d extra", seen.distinct(), seen.extra())
		}
		if left := keysLeft(t, b, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) {
			q.Backoff = func(int) time.Duration { return 0 }
			q.MaxAttempts = 3
			q.Grace = 500 * time.Millisecond
		})
		var attempts [8]atomic.Int32
		block := make(chan struct{})
		q.receive(4, func(ctx context.Context, i int) error {
			n := attempts[i].Add(1)
			info, ok := FromContext(ctx)
			if want := int(n-1)%3 + 1; i > 1 && want != info.Attempt { // revived ones begin anew
				t.Errorf("%d: attempt %d, want %d", i, info.Attempt, want)
			}
			if !ok || info.Channel != q.name {
				t.Errorf("%d: info %+v at attempt %d", i, info, n)
			}
			switch i {
			case 0:
				return Reject(errors.New("never"))
			case 1:
				return errors.New("always")
			case 2:
				if n == 1 {
					return RetryAfter(30*time.Millisecond, errors.New("once"))
				}
			case 3:
				if n == 1 {
					panic("oh")
				}
			case 4:
				if n == 1 {
					runtime.Goexit()
				}
			case 5: // ignores its context
				if n == 1 {
					<-block
				}
			case 6: // heeds it
				if n == 1 {
					<-ctx.Done()
					if !errors.Is(ctx.Err(), context.DeadlineExceeded) || context.Cause(ctx) != ErrTimeout {
						t.Errorf("ended with %v, cause %v", ctx.Err(), context.Cause(ctx))
					}
					return ctx.Err()
				}
			}
			return nil
		})
		q.enqueue(0, 8, Timeout(500*time.Millisecond))
		q.wait(EventAcked, 6, 10*time.Second)
		q.wait(EventRejected, 2, 10*time.Second)
		q.wait(EventOrphaned, 1, 10*time.Second)
		close(block)
		if got := attempts[1].Load(); got != 3 {
			t.Errorf("%d attempts of one that always fails", got)
		}
		es, err := q.List(context.Background(), q.name, StateDead, 0, 0)
		if err != nil || len(es) != 2 {
			t.Fatal(es, err)
		}
		for _, e := range es {
			if e.Failure != "never" && e.Failure != "always" {
				t.Errorf("%+v", e)
			}
		}
		if n, err := q.RetryDead(context.Background(), q.name, es...); n != 2 || err != nil {
			t.Error(n, err)
		}
		q.wait(EventRejected, 4, 10*time.Second)
		if n, err := q.Purge(context.Background(), q.name, StateDead); n != 2 || err != nil {
			t.Error(n, err)
		}
	})
}

// A deferred panic does not stop a runtime.Goexit: recovered, the goroutine ends all the same, and its place must not.
func TestGoexitThenPanic(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
	q.receive(1, func(ctx context.Context, i int) error {
		if info, _ := FromContext(ctx); info.Attempt == 1 {
			defer func() { panic("oh") }()
			runtime.Goexit()
		}
		return nil
	})
	q.enqueue(0, 3)
	q.wait(EventAcked, 3, 5*time.Second)
}

// A Backoff that does not return holds up its worker for a second, or not at all where its handler was given up. Then
// the default holds.
func TestHangingBackoff(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"its handler returns": false, "its handler hangs, too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			block := make(chan struct{})
			q := newBench(t, s.URL(), func(q *Queue) {
				q.Grace = 500 * time.Millisecond
				q.Backoff = func(int) time.Duration { <-block; return 0 }
			})
			defer close(block)
			var next time.Time
			q.receive(1, func(_ context.Context, i int) error {
				switch {
				case i == 1:
					next = time.Now()
					return nil
				case deaf:
					<-block
				}
				return errors.New("oh")
			})
			q.enqueue(0, 2, Timeout(500*time.Millisecond))
			q.wait(EventAcked, 1, 10*time.Second)
			q.wait(EventRetried, 1, 10*time.Second)
			q.wait(EventReceiverError, 1, 5*time.Second)
			if n := q.count(EventOrphaned); n > 0 != deaf {
				t.Errorf("%d orphans", n)
			}
			if late := next.Sub(q.when(EventReceiverError)); deaf && late >= 0 {
				t.Errorf("the worker has waited for the verdict, and %v more", late)
			}
			if left, n := q.leaves(q.name); n != 1 || left[StateDelay].Count != 1 {
				t.Errorf("left: %+v", left)
			}
		})
	}
}

// Where as many calls hang as there are workers, no more are made: each would leave a goroutine behind.
func TestHangingBackoffs(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	block := make(chan struct{})
	var asked atomic.Int32
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Backoff = func(int) time.Duration { asked.Add(1); <-block; return 0 }
	})
	defer close(block)
	q.receive(2, func(context.Context, int) error { return errors.New("oh") })
	q.enqueue(0, 20)
	q.wait(EventRetried, 20, 10*time.Second)
	if n := asked.Load(); n < 2 || n > 3 { // two may ask at once where one hangs
		t.Errorf("asked %d times", n)
	}
	q.wait(EventReceiverError, 20, 5*time.Second)
}

// A Grace of next to nothing is for the handler's context: what it returned holds.
func TestTinyGrace(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Grace = 1
		q.Backoff = func(int) time.Duration { time.Sleep(time.Millisecond); return 0 }
	})
	q.receive(2, func(ctx context.Context, i int) error {
		if info, _ := FromContext(ctx); i < 10 || info.Attempt == 2 {
			return Reject(errors.New("never"))
		}
		return errors.New("oh")
	})
	q.enqueue(0, 20)
	q.wait(EventRejected, 20, 10*time.Second)
	if n := q.count(EventReceiverError) + q.count(EventOrphaned); n > 0 || q.count(EventRetried) != 10 {
		t.Errorf("%d times trouble, %d retried", n, q.count(EventRetried))
	}
}

// moody is an error whose text can be had once.
type moody struct {
	asked *atomic.Int32
	block chan struct{}
}

func (m moody) Error() string {
	if m.asked.Add(1) > 1 {
		<-m.block
	}
	return "moody"
}

// An error's text is asked for once, and where nothing is held.
func TestErrorIsAskedOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
	block := make(chan struct{})
	defer close(block)
	q.receive(1, func(ctx context.Context, i int) error {
		if info, _ := FromContext(ctx); info.Attempt == 1 {
			return moody{new(atomic.Int32), block}
		}
		return nil
	})
	q.must(q.one(1, ID("a")))
	q.wait(EventAcked, 1, 5*time.Second)
}

// A reply that was lost leaves its message in a live receiver's list; another handler runs on for long.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"RPOPLPUSH", "BRPOPLPUSH", "LREM"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			q := newBench(t, p.URL(), func(q *Queue) { q.Prefetch = 16 })
			seen := newTally()
			long := make(chan struct{})
			shutdown := q.receive(4, func(ctx context.Context, i int) error {
				seen.add(i)
				if i == 0 {
					<-long
					return ctx.Err()
				}
				return nil
			})
			q.enqueue(0, 1)
			q.until(5*time.Second, "long one runs", func() bool { return seen.distinct() == 1 })
			q.enqueue(1, 11)
			q.wait(EventAcked, 10, 5*time.Second)
			r := p.On(redistest.Command(command, q.name), 1, redistest.CutAfter)
			began := time.Now()
			n := 111
			q.enqueue(11, n)
			q.until(10*time.Second, "all handled", func() bool { return seen.distinct() == n })
			for ; r.Struck() == 0 && n < 120; n++ { // the waiter came when nothing was left, and blocks
				q.enqueue(n, n+1)
				q.until(10*time.Second, "all handled", func() bool { return seen.distinct() == n+1 })
			}
			took := time.Since(began)
			if r.Struck() == 0 {
				t.Fatal("the fault never struck")
			}
			if took > 5*time.Second {
				t.Errorf("recovered after %v", took)
			}
			close(long)
			q.until(
				5*time.Second,
				"acked",
				func() bool { return q.count(EventAcked)+q.count(EventUnconfirmedVerdict) >= n },
			)
			if err := shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			t.Logf("took %v, extra %d, succeeded %d", took, seen.extra(), q.count(EventHandedOver))
			if q.count(EventHandedOver) == 0 {
				t.Error("no new incarnation")
			}
			st, err := q.Stats(context.Background(), q.name)
			if err != nil {
				t.Fatal(err)
			}
			for _, state := range States {
				if st[state].Count != 0 {
					t.Errorf("%s: %d left", state, st[state].Count)
				}
			}
			if extra := seen.extra(); extra > 4*16 {
				t.Errorf("%d duplicates", extra)
			}
		})
	}
}

// An idle receiver costs next to nothing, and ends at once.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	shutdown := q.receive(64, func(context.Context, int) error { return nil })
	redistest.Until(
		t,
		5*time.Second,
		"the waiter waits",
		func() bool { return p.Count(redistest.Command("BRPOPLPUSH")) > 0 },
	)
	time.Sleep(time.Second)
	p.ResetCounts()
	used := cpu(t)
	time.Sleep(*idle)
	n, used := p.Commands(), cpu(t)-used
	t.Logf(
		"idle for %v: %.2f commands a second, %.2f %% of a core (with the proxy and whatever else is tested)",
		*idle,
		float64(n)/idle.Seconds(),
		100*used.Seconds()/idle.Seconds(),
	)
	if float64(n) > 1.1*idle.Seconds()+2 { // a beat each 3.3 s, a sweep and an audit each 5 s, a block each 3 s
		t.Errorf("%d commands in %v:\n%s", n, *idle, p.Log())
	}
	var took time.Duration
	for range 5 { // one in five may meet a machine that is busy elsewhere
		began := time.Now()
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if took = time.Since(began); took <= 100*time.Millisecond {
			break
		}
		shutdown = q.receive(64, func(context.Context, int) error { return nil })
	}
	t.Logf("shutdown took %v", took)
	if took > 100*time.Millisecond {
		t.Errorf("shutdown took %v", took)
	}
	if left := keysLeft(t, s, q.name); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	q.Close()
	redistest.Until(t, 5*time.Second, "no connection is left", func() bool { return s.Connections() == 0 })
}

var idle = flag.Duration("idle", 10*time.Second, "how long TestIdle looks on; the stated bar is 30s")

// A busy receiver ends as soon as its handlers do, and what it had not begun is there for others.
func TestShutdownBusy(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		q.enqueue(0, 200)
		seen := newTally()
		release := make(chan struct{})
		var blocked atomic.Int32
		shutdown := q.receive(8, func(_ context.Context, i int) error {
			seen.add(i)
			if i >= 100 && i < 200 && seen.add(1000) <= 8 {
				blocked.Add(1)
				<-release
			}
			return nil
		})
		q.until(5*time.Second, "8 run", func() bool { return blocked.Load() == 8 })
		done := make(chan error, 3)
		for range 3 {
			go func() { done <- shutdown(context.Background()) }()
		}
		select {
		case <-done:
			t.Error("it did not wait")
		case <-time.After(100 * time.Millisecond):
		}
		began := time.Now()
		close(release)
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > time.Second+100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		delete(seen.n, 1000)
		es, err := q.List(context.Background(), q.name, StatePrepare, 0, 0)
		if err != nil || len(es) != 200-seen.distinct() {
			t.Errorf("%d are back, %d were handled: %v", len(es), seen.distinct(), err)
		}
		shutdown = q.receive(8, func(_ context.Context, i int) error { seen.add(i); return nil })
		q.until(5*time.Second, "all", func() bool { return q.count(EventAcked) == 200 })
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if seen.extra() != 0 {
			t.Errorf("%d duplicates", seen.extra())
		}
		if left := keysLeft(t, b, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// After the context's end handlers are cancelled, and after the grace what they hold is handed back in order.
func TestShutdownHurried(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) { q.Grace = time.Second })
		q.enqueue(0, 10)
		block := make(chan struct{})
		var running atomic.Int32
		shutdown := q.receive(4, func(ctx context.Context, i int) error {
			running.Add(1)
			if i == 0 {
				<-ctx.Done()
				if context.Cause(ctx) != ErrShutdown {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				return ctx.Err()
			}
			<-block
			return nil
		})
		q.until(5*time.Second, "4 run", func() bool { return running.Load() == 4 })
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := shutdown(ctx)
		took := time.Since(began)
		var e *ShutdownError
		if !errors.As(err, &e) || e.Returned != 4 || e.Running != 3 {
			t.Errorf("%v", err)
		}
		if took < q.Grace || took > 2*q.Grace {
			t.Errorf("took %v", took)
		}
		if again := shutdown(context.Background()); !errors.Is(again, err) && again.Error() != err.Error() {
			t.Errorf("second: %v", again)
		}
		es, err := q.List(context.Background(), q.name, StatePrepare, 0, 0)
		if err != nil || len(es) != 10 {
			t.Fatalf("%d are back: %v", len(es), err)
		}
		for _, e := range es {
			if e.Attempts != 0 || e.Recoveries != 0 {
				t.Errorf("%+v", e)
			}
		}
		close(block)
		if left := keysLeft(t, b, q.name); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
	})
}

// What goes back is taken again in the order in which it was taken, whichever workers held it.
func TestShutdownOrder(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		for range 20 {
			if putsBackInOrder(t, b) {
				return
			}
		}
		t.Error("never within the stall time")
	})
}

// putsBackInOrder says whether what had not begun was back before the stall time was over, after which workers release
// on their own.
func putsBackInOrder(t *testing.T, b redistest.Backend) bool {
	q := newBench(t, b.URL(), func(q *Queue) { q.Grace, q.Prefetch = 200*time.Millisecond, 5 })
	q.enqueue(0, 200)
	var blocked atomic.Int32
	var first atomic.Pointer[time.Time]
	block := make(chan struct{})
	defer close(block)
	shutdown := q.receive(3, func(_ context.Context, i int) error {
		if i >= 100 {
			now := time.Now()
			first.CompareAndSwap(nil, &now)
			blocked.Add(1)
			<-block
		}
		return nil
	})
	for blocked.Load() < 3 {
		runtime.Gosched()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	err := shutdown(ended)
	if back := q.when(EventReleased).Sub(*first.Load()); back <= 0 || back > 40*time.Millisecond {
		return false
	}
	var e *ShutdownError
	if !errors.As(err, &e) || e.Returned != 3 || e.Running != 3 {
		t.Error(err)
	}
	es, err := q.List(context.Background(), q.name, StatePrepare, 0, 0)
	if err != nil || len(es) != 100 {
		t.Errorf("%d are back: %v", len(es), err)
	}
	last := -1
	for i, e := range es { // the three that had begun are next, then what had not
		n, _ := strconv.Atoi(string(e.Payload))
		if i == 3 {
			last = -1
		}
		if n <= last {
			t.Errorf("place %d: %d after %d", i, n, last)
		}
		last = n
	}
	return true
}

func TestShutdownInside(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	var shutdown Shutdown
	ready := make(chan struct{})
	got := make(chan error, 4)
	shutdown = q.receive(2, func(ctx context.Context, i int) error {
		<-ready
		got <- shutdown(ctx)
		got <- shutdown(context.Background())
		got <- q.Close()
		return nil
	})
	close(ready)
	q.enqueue(0, 1)
	for range 3 {
		if err := <-got; !errors.Is(err, ErrInHandler) {
			t.Error(err)
		}
	}
	q.wait(EventAcked, 1, 5*time.Second)
	if err := shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

// Close lets handlers enqueue until they end, and nobody else.
func TestClose(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	started, finish := make(chan struct{}), make(chan struct{})
	result := make(chan error, 1)
	q.receive(2, func(ctx context.Context, i int) error {
		close(started)
		<-finish
		result <- q.Enqueue(ctx, q.kind(nil).Message(7))
		return nil
	})
	q.enqueue(0, 1)
	<-started
	closed := make(chan error, 1)
	go func() { closed <- q.Close() }()
	redistest.Until(t, 5*time.Second, "new enqueues are refused", func() bool {
		return errors.Is(q.Enqueue(context.Background(), q.kind(nil).Message(1)), ErrClosed)
	})
	close(finish)
	if err := <-result; err != nil {
		t.Errorf("a handler's enqueue: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	k := q.kind(func(context.Context, int) error { return nil })
	if _, err := q.Receive(context.Background(), k, 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// Close waits for one receiver after another, but none takes anything meanwhile.
func TestCloseStopsAll(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	begun, block := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(block) })
	defer release()
	q.receive(1, func(context.Context, int) error { close(begun); <-block; return nil })
	q.enqueue(0, 1)
	<-begun
	for range 7 {
		q.receive(1, func(context.Context, int) error { return nil })
	}
	q.mu.Lock()
	rs := slices.Collect(maps.Keys(q.receivers))
	q.mu.Unlock()
	closed := make(chan error, 1)
	go func() { closed <- q.Close() }()
	q.until(5*time.Second, "all have stopped", func() bool {
		return !slices.ContainsFunc(rs, func(r *receiver) bool { return !r.pool.Stopped() })
	})
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// The end of Receive's context is the first step of shutdown: nothing more is taken. Handlers, which have its values,
// run on until they end, or until the context that shutdown is called with does.
func TestReceiveContextEnds(t *testing.T) {
	type key struct{}
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		for _, hurried := range []bool{false, true} {
			t.Run(fmt.Sprintf("hurried=%t", hurried), func(t *testing.T) {
				t.Parallel()
				redistest.Leaks(t)
				q := newBench(t, b.URL())
				handler, over := make(chan context.Context, 1), make(chan struct{})
				release := sync.OnceFunc(func() { close(over) })
				defer release()
				ctx, end := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
				defer end()
				shutdown, err := q.Receive(ctx, q.kind(func(ctx context.Context, _ int) error {
					handler <- ctx
					select {
					case <-over:
					case <-ctx.Done():
					}
					return ctx.Err()
				}), 2)
				if err != nil {
					t.Fatal(err)
				}
				q.enqueue(0, 1)
				h := <-handler
				end()
				q.until(5*time.Second, "it takes no more", func() bool {
					q.Queue.mu.Lock()
					defer q.Queue.mu.Unlock()
					for r := range q.receivers {
						return r.pool.Stopped()
					}
					return false
				})
				q.enqueue(1, 2)
				if h.Err() != nil || h.Value(key{}) != "value" {
					t.Errorf("the handler's context: error %v, value %v", h.Err(), h.Value(key{}))
				}
				left := 1
				if hurried {
					hurry, cancel := context.WithCancel(context.Background())
					cancel()
					var e *ShutdownError
					if err := shutdown(hurry); !errors.As(err, &e) || e.Returned != 1 || e.Running != 0 {
						t.Errorf("shutdown: %v", err)
					}
					if context.Cause(h) != ErrShutdown {
						t.Errorf("cause %v", context.Cause(h))
					}
					left = 2
				} else {
					release()
					q.wait(EventStopped, 1, 5*time.Second) // nobody has called shutdown
					if err := shutdown(context.Background()); err != nil {
						t.Errorf("shutdown: %v", err)
					}
					q.wait(EventAcked, 1, 5*time.Second)
				}
				if es, err := q.List(context.Background(), q.name, StatePrepare, 0, 0); len(es) != left || err != nil {
					t.Errorf("%d are left, want %d: %v", len(es), left, err)
				}
				if left := keysLeft(t, b, q.name); len(left) != 1 {
					t.Errorf("left: %v", left)
				}
			})
		}
	})
}

// Wrap is called once a Receive, however many channels and messages it has; what it returns is around each Resolve.
func TestWrap(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		var wraps, inside, outside atomic.Int32
		q := newBench(t, b.URL(), func(q *Queue) {
			q.Wrap = func(next Handler) Handler {
				wraps.Add(1)
				return func(ctx context.Context, m IMessage) error {
					outside.Add(1)
					return next(ctx, m)
				}
			}
		})
		q.enqueue(0, 50)
		if n := wraps.Load(); n != 0 {
			t.Errorf("called %d times by enqueues", n)
		}
		ks := q.ranks(2, func(context.Context, int, int) error { inside.Add(1); return nil })
		for _, k := range ks {
			if err := q.Enqueue(t.Context(), k.Message(1)); err != nil {
				t.Fatal(err)
			}
		}
		q.receive(4, func(context.Context, int) error { inside.Add(1); return nil })
		q.wait(EventAcked, 50, 5*time.Second)
		if n := wraps.Load(); n != 1 {
			t.Errorf("called %d times by Receive", n)
		}
		if _, err := q.ReceiveOrdered(t.Context(), 4, ks[0], ks[1]); err != nil {
			t.Fatal(err)
		}
		q.wait(EventAcked, 52, 5*time.Second)
		if n := wraps.Load(); n != 2 {
			t.Errorf("called %d times by Receive and ReceiveOrdered", n)
		}
		if inside.Load() != 52 || outside.Load() != 52 {
			t.Errorf("%d handled, %d through what Wrap returned, want 52", inside.Load(), outside.Load())
		}
	})
}

// oddError is an error whose method fails on a nil pointer.
type oddError struct{ text string }

func (e *oddError) Error() string { return e.text }

// What is wrong with a handler's error stays that message's affair.
func TestOddError(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.MaxAttempts = 1 })
	q.receive(1, func(_ context.Context, i int) error {
		if i == 0 {
			return (*oddError)(nil)
		}
		return nil
	})
	q.enqueue(0, 2)
	q.wait(EventRejected, 1, 5*time.Second)
	q.wait(EventAcked, 1, 5*time.Second)
}

// A step takes first and acks behind it. The other way round, the list would be empty in between, and made anew each
// time.
func TestTakesComeBeforeAcks(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	q.enqueue(0, 40)
	q.receive(1, func(context.Context, int) error { return nil })
	q.wait(EventAcked, 40, 5*time.Second)
	var order []string
	for _, line := range p.Log() {
		for _, name := range []string{"RPOPLPUSH", "LREM"} {
			if fields := strings.Fields(line); len(fields) > 1 && fields[1] == name {
				order = append(order, name)
			}
		}
	}
	if i := slices.Index(order, "LREM"); i < 2 {
		t.Errorf("%d takes before the first ack: %v", i, order[:min(len(order), 12)])
	}
}
