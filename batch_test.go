package shunt

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/worker"
)

// gather starts a receiver of batches; g shows what waits in it.
func (b *bench) gather(workers int, batch Batch) (g *batcher, shutdown Shutdown) {
	b.t.Helper()
	g, err := newGatherer(context.Background(), workers, batch)
	if err != nil {
		b.t.Fatal(err)
	}
	shutdown, err = b.Queue.receive(context.Background(), workers*g.MaxSize, []IMessage{b.kind(nil)}, nil, g)
	if err != nil {
		b.t.Fatal(err)
	}
	return g, shutdown
}

// untilWaiting waits until n members wait for a call.
func (b *bench) untilWaiting(g *batcher, n int) {
	b.t.Helper()
	b.until(5*time.Second, fmt.Sprintf("%d wait", n), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.waiting) == n
	})
}

// batches notes the sizes of calls.
type batches struct {
	mu    sync.Mutex
	sizes []int
}

func (c *batches) add(n int) (before int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sizes = append(c.sizes, n)
	return len(c.sizes) - 1
}

func (c *batches) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.sizes)
}

func number(m IMessage) int { return m.(*Kind[int]).Value() }

// at is the index of a number's message, or -1.
func at(ms []IMessage, n int) int {
	for i, m := range ms {
		if number(m) == n {
			return i
		}
	}
	return -1
}

func TestBatchArguments(t *testing.T) {
	t.Parallel()
	q := &Queue{}
	handle := func(context.Context, []IMessage) []error { return nil }
	for _, c := range []struct {
		workers int
		batch   Batch
		want    string
	}{
		{1, Batch{}, "Handle is nil"},
		{1, Batch{MaxSize: 1001, Handle: handle}, "MaxSize is 1001"},
		{1, Batch{MaxSize: -1, Handle: handle}, "MaxSize is -1"},
		{1, Batch{MaxWait: -1, Handle: handle}, "MaxWait is -1ns"},
		{1, Batch{MaxWait: 6 * time.Minute, Handle: handle}, "MaxWait is 6m0s"},
		{0, Batch{Handle: handle}, "0 workers of batches of 100"},
		{101, Batch{Handle: handle}, "101 workers of batches of 100"},
		{1 << 62, Batch{MaxSize: 4, Handle: handle}, "workers of batches of 4"},
		{100, Batch{Handle: handle}, "Pool is nil"}, // the Queue's own complaint: the rest is right
		{10, Batch{MaxSize: 1000, MaxWait: 5 * time.Minute, Handle: handle}, "Pool is nil"},
	} {
		if _, err := q.ReceiveBatch(context.Background(), Define[int]("c", nil), c.workers, c.batch); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%d workers, %+v: %v, want %q", c.workers, c.batch, err, c.want)
		}
	}
}

// Messages that are there come in full batches, whose calls do not wait for time; what is left over waits for it.
func TestBatchGathers(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		const within = 4 * time.Second // full batches take some hundredths of it
		var c batches
		seen := newTally()
		_, shutdown := q.gather(
			2,
			Batch{MaxSize: 100, MaxWait: within, Handle: func(_ context.Context, ms []IMessage) []error {
				for _, m := range ms {
					seen.add(number(m))
				}
				c.add(len(ms))
				return nil
			}},
		)
		began := time.Now()
		q.enqueue(0, 303)
		q.wait(EventAcked, 300, 10*time.Second)
		if took := time.Since(began); took >= within {
			t.Errorf("full batches took %v", took)
		}
		q.wait(EventAcked, 303, 10*time.Second)
		if took := time.Since(began); took < within {
			t.Errorf("the last came after %v", took)
		}
		if got := c.String(); got != "[100 100 100 3]" {
			t.Errorf("calls of %s", got)
		}
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if seen.distinct() != 303 || seen.extra() != 0 {
			t.Errorf("%d distinct, %d extra", seen.distinct(), seen.extra())
		}
		if left := keysLeft(t, b, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Each member has a verdict of its own, and a context that tells of it.
func TestBatchVerdicts(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
		type key struct{}
		q.Wrap = func(next Handler) Handler {
			return func(ctx context.Context, m IMessage) error {
				return next(context.WithValue(ctx, key{}, number(m)),
					m)
			}
		}
		seen := newTally()
		q.gather(
			1,
			Batch{
				MaxSize: 5,
				MaxWait: 300 * time.Millisecond,
				Handle: func(ctx context.Context, ms []IMessage) []error {
					if _, ok := FromContext(ctx); ok {
						t.Error("one message's info for all")
					}
					if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Minute {
						t.Errorf("deadline %v, %v", end, ok)
					}
					verdicts := make([]error, len(ms))
					for i, m := range ms {
						mine := MemberContext(ctx, i)
						info, ok := FromContext(mine)
						want := seen.add(number(m)) // the attempt
						first := want == 1
						if n := number(m); !ok || info.Attempt != want || info.Headers["of"] != "batch" ||
							mine.Value(key{}) != n {
							t.Errorf("%d: %+v, %v", n, info, mine.Value(key{}))
						}
						switch n := number(m); {
						case first && n == 1:
							verdicts[i] = errors.New("again")
						case n == 2:
							verdicts[i] = Reject(errors.New("never"))
						case first && n == 3:
							verdicts[i] = RetryAfter(10*time.Millisecond, errors.New("later"))
						}
					}
					for _, i := range []int{-1, len(ms)} {
						if MemberContext(ctx, i) != ctx {
							t.Errorf("there is no member %d", i)
						}
					}
					return verdicts
				},
			},
		)
		q.enqueue(0, 5, Header("of", "batch"), Timeout(time.Minute))
		q.wait(EventAcked, 4, 10*time.Second)
		for kind, want := range map[EventKind]int{EventAcked: 4, EventRetried: 2, EventRejected: 1} {
			if got := q.count(kind); got != want {
				t.Errorf("%d %s, want %d", got, kind, want)
			}
		}
		es, err := q.List(context.Background(), q.name, StateDead, 0, 0)
		if err != nil || len(es) != 1 || es[0].Failure != "never" || string(es[0].Payload) != "2" {
			t.Errorf("dead: %+v, %v", es, err)
		}
	})
}

// What is wrong with a call is every member's error, and nobody waits for ever.
func TestBatchFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func() []error
		want  func(err error) bool
	}{
		{"too few", func() []error { return []error{nil, nil} },
			func(err error) bool { return strings.Contains(err.Error(), "2 verdicts on 5 messages") }},
		{"none", func() []error { return []error{} }, func(err error) bool {
			return strings.Contains(err.Error(),
				"0 verdicts on 5 messages")
		}},
		{"panic", func() []error { panic("oh") }, func(err error) bool {
			var p *PanicError
			return errors.As(err, &p) && p.Value == "oh" && p.What == "Batch.Handle"
		}},
		{"Goexit", func() []error { runtime.Goexit(); return nil }, func(err error) bool {
			var p *PanicError
			return errors.As(err, &p) && p.Goexit
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				t.Parallel()
				redistest.Leaks(t)
				q := newBench(t, b.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
				var calls batches
				_, shutdown := q.gather(
					1,
					Batch{MaxSize: 5, MaxWait: time.Minute, Handle: func(context.Context, []IMessage) []error {
						if calls.add(0) < 2 {
							return c.fault()
						}
						return nil
					}},
				)
				q.enqueue(0, 5)
				q.wait(EventAcked, 5, 10*time.Second)
				q.mu.Lock()
				retried := 0
				for _, e := range q.events {
					if e.Kind == EventRetried {
						retried++
						if !c.want(e.Err) {
							t.Errorf("retried for %v", e.Err)
						}
					}
				}
				q.mu.Unlock()
				if retried != 10 {
					t.Errorf("%d retried, want 10", retried)
				}
				if err := shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A shutdown does not wait for a batch to fill.
func TestBatchShutdown(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		var c batches
		var inside []error
		var shutdown Shutdown
		g, s := q.gather(
			2,
			Batch{MaxSize: 5, MaxWait: time.Minute, Handle: func(ctx context.Context, ms []IMessage) []error {
				c.add(len(ms))
				elsewhere := make(chan error)
				go func() { elsewhere <- shutdown(ctx) }()
				inside = []error{<-elsewhere, shutdown(context.Background())}
				return nil
			}},
		)
		shutdown = s
		q.enqueue(0, 3)
		q.untilWaiting(g, 3)
		began := time.Now()
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		q.wait(EventAcked, 3, 5*time.Second) // they are told by another goroutine
		if got := c.String(); got != "[3]" {
			t.Errorf("calls of %s", got)
		}
		for _, err := range inside {
			if !errors.Is(err, ErrInHandler) {
				t.Errorf("from inside: %v", err)
			}
		}
		if left := keysLeft(t, b, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// At shutdown's deadline both those in a call and those that wait for a place go back, as no attempt.
func TestBatchShutdownHurried(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL()) // a Grace of a second, in which who waits for a place is to leave
		block, begun, cause := make(chan struct{}), make(chan int, 1), make(chan error, 1)
		defer close(block)
		g, shutdown := q.gather(
			1,
			Batch{
				MaxSize: 4,
				MaxWait: 200 * time.Millisecond,
				Handle: func(ctx context.Context, ms []IMessage) []error {
					begun <- len(ms)
					<-ctx.Done()
					cause <- context.Cause(ctx)
					<-block
					return nil
				},
			},
		)
		q.enqueue(0, 3)
		in := <-begun
		q.enqueue(3, 4)
		q.untilWaiting(g, 4-in)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := shutdown(ctx)
		var e *ShutdownError
		if !errors.As(err, &e) || e.Returned != 4 || e.Running != in {
			t.Errorf("%v, with %d in the call", err, in)
		}
		if err := <-cause; err != ErrShutdown {
			t.Errorf("cause %v", err)
		}
		es, err := q.List(context.Background(), q.name, StatePrepare, 0, 0)
		if err != nil || len(es) != 4 {
			t.Errorf("%d are back: %v", len(es), err)
		}
		for _, e := range es {
			if e.Attempts != 0 || e.Recoveries != 0 {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A call that ignores its ended context gives its place to another, at most once a worker.
func TestBatchOrphaned(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) {
			q.Grace = 50 * time.Millisecond
			q.Backoff = func(int) time.Duration { return time.Hour }
		})
		block := make(chan struct{})
		release := sync.OnceFunc(func() { close(block) })
		defer release()
		g, shutdown := q.gather(
			1,
			Batch{MaxSize: 2, MaxWait: 1, Handle: func(ctx context.Context, ms []IMessage) []error {
				if number(ms[0]) < 2 {
					<-ctx.Done()
					if ctx.Err() != context.DeadlineExceeded || context.Cause(ctx) != ErrTimeout {
						t.Errorf("ended with %v, cause %v", ctx.Err(), context.Cause(ctx))
					}
					<-block
				}
				return nil
			}},
		)
		for i := range 2 {
			q.enqueue(i, i+1, Timeout(time.Second)) // from the take on: one over before is in no call
			q.wait(EventOrphaned, i+1, 10*time.Second)
			q.wait(EventRetried, i+1, 10*time.Second)
		}
		q.enqueue(2, 3)
		q.untilWaiting(g, 1) // though there is a worker for it
		release()
		q.wait(EventAcked, 1, 10*time.Second)
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if g.running != 0 || g.overdue != 0 {
			t.Errorf("at the end %d run, %d of them overdue", g.running, g.overdue)
		}
	})
}

// A lease that is lost ends a call, and makes no attempt of it.
func TestBatchLeaseLost(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		begun := make(chan struct{})
		var c batches
		g, _ := q.gather(
			1,
			Batch{MaxSize: 3, MaxWait: time.Minute, Handle: func(ctx context.Context, ms []IMessage) []error {
				if c.add(len(ms)) == 0 {
					close(begun)
					<-ctx.Done()
					if ctx.Err() != context.Canceled || context.Cause(ctx) != ErrLeaseLost {
						t.Errorf("ended with %v, cause %v", ctx.Err(), context.Cause(ctx))
					}
					return []error{ctx.Err(), ctx.Err(), ctx.Err()}
				}
				for i := range ms {
					if info, _ := FromContext(MemberContext(ctx, i)); info.Attempt != 1 {
						t.Errorf("%+v", info)
					}
				}
				return nil
			}},
		)
		q.enqueue(0, 3)
		<-begun
		g.r.pool.Sites[0].LoseLease(ErrLeaseLost)
		q.wait(EventAcked, 3, 10*time.Second)
	})
}

// The end of one member's context alone is its own affair: before the call it leaves, in the call it stays for its
// verdict.
func TestBatchMemberAlone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
		gone := errors.New("gone")
		var cancels [4]context.CancelCauseFunc
		q.Wrap = func(next Handler) Handler {
			return func(ctx context.Context, m IMessage) error {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				cancels[number(m)] = cancel
				return next(ctx, m)
			}
		}
		g, _ := q.gather(
			1,
			Batch{MaxSize: 3, MaxWait: time.Minute, Handle: func(ctx context.Context, ms []IMessage) []error {
				if at(ms, 0) >= 0 {
					t.Error("one that had left")
				}
				cancels[1](gone)
				<-MemberContext(ctx, at(ms, 1)).Done()
				select {
				case <-ctx.Done():
					t.Errorf("it ended for all: %v", context.Cause(ctx))
				case <-time.After(100 * time.Millisecond):
				}
				return nil
			}},
		)
		q.enqueue(0, 1)
		q.untilWaiting(g, 1)
		cancels[0](gone)
		q.wait(EventRetried, 1, 5*time.Second)
		q.untilWaiting(g, 0)
		q.enqueue(1, 4)
		q.wait(EventAcked, 3, 5*time.Second)
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, e := range q.events {
			if e.Kind == EventRetried && e.Err != gone {
				t.Errorf("retried for %v", e.Err)
			}
		}
	})
}

// Who is cancelled is so alone; a message's deadline ends the call.
func TestBatchCancelled(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return time.Hour } })
		ctx := context.Background()
		q.gather(1, Batch{MaxSize: 2, MaxWait: time.Minute, Handle: func(ctx context.Context, ms []IMessage) []error {
			verdicts := make([]error, 2)
			if i := at(ms, 1); i >= 0 {
				if _, err := q.Cancel(context.Background(), ByID(q.name, "1")); err != nil {
					t.Error(err)
				}
				one := MemberContext(ctx, i)
				<-one.Done()
				select {
				case <-ctx.Done():
					t.Errorf("it ended for all: %v", context.Cause(ctx))
				case <-time.After(100 * time.Millisecond):
				}
				if context.Cause(one) != ErrCancelled {
					t.Errorf("cause %v", context.Cause(one))
				}
				verdicts[i] = one.Err()
				return verdicts
			}
			<-ctx.Done()
			if context.Cause(ctx) != ErrDeadline || ctx.Err() != context.DeadlineExceeded {
				t.Errorf("ended with %v, cause %v", ctx.Err(), context.Cause(ctx))
			}
			verdicts[at(ms, 2)] = ctx.Err()
			return verdicts
		}})
		q.enqueue(0, 1)
		q.enqueue(1, 2, ID("1"))
		q.wait(EventCancelled, 1, 10*time.Second)
		q.wait(EventAcked, 1, 10*time.Second)
		q.enqueue(2, 3, Deadline(time.Now().Add(2*time.Second))) // its call is to begin before
		q.enqueue(3, 4)
		q.wait(EventRejected, 1, 10*time.Second)
		q.wait(EventAcked, 2, 10*time.Second)
		es, err := q.List(ctx, q.name, StateDead, 0, 0)
		if err != nil || len(es) != 1 || string(es[0].Payload) != "2" {
			t.Errorf("dead: %+v, %v", es, err)
		}
	})
}

// One whose context has ended, and who has not left yet, is no part of a call: it would end it for all.
func TestBatchEndedBefore(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	k := Define[int]("c", nil)
	sizes := make(chan int, 1)
	g, err := newGatherer(
		context.Background(),
		1,
		Batch{MaxSize: 3, MaxWait: time.Minute, Handle: func(ctx context.Context, ms []IMessage) []error {
			sizes <- len(ms)
			return nil
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	g.serve(&receiver{conf: &config{}, pool: worker.NewPool(3, nil, worker.Config{})})
	ended, end := context.WithCancel(context.Background())
	end()
	g.waiting = []*member{{ctx: ended, m: k}}
	var joined errgroup.Group
	for range 3 {
		joined.Go(func() error { return g.join(context.Background(), k) })
	}
	if err := joined.Wait(); err != nil {
		t.Error(err)
	}
	if n := <-sizes; n != 3 {
		t.Errorf("a call of %d, want 3", n)
	}
}

// A message whose own time is over before its batch is full is handled before that, with all that wait by then.
func TestBatchOfShortTime(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	for name, own := range map[string]func() Option{
		"a deadline": func() Option { return Deadline(time.Now().Add(2 * time.Second)) },
		"a timeout":  func() Option { return Timeout(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, s.URL(), func(q *Queue) { q.MaxAttempts = 1 })
			var calls batches
			g, _ := b.gather(1, Batch{MaxSize: 3, MaxWait: time.Minute, Handle: func(_ context.Context,
				ms []IMessage) []error {
				calls.add(len(ms))
				return nil
			}})
			b.must(b.one(1))
			b.untilWaiting(g, 1)
			b.must(b.one(2, own()))
			b.until(5*time.Second, "both are acked, or one is dead", func() bool {
				return b.count(EventAcked) == 2 || b.count(EventRejected) > 0
			})
			if got := calls.String(); got != "[2]" || b.count(EventAcked) != 2 {
				t.Errorf("calls of %s, %d acked", got, b.count(EventAcked))
			}
		})
	}
}

// A receiver that a handler starts does not take that handler's message for its own.
func TestBatchInHandler(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	other := Define[int](q.name+".other", nil)
	q.receive(1, func(ctx context.Context, _ int) error {
		_, err := q.ReceiveBatch(
			context.WithoutCancel(ctx),
			other,
			1,
			Batch{MaxSize: 1, Handle: func(ctx context.Context, _ []IMessage) []error {
				if info, ok := FromContext(ctx); ok {
					t.Errorf("%+v", info)
				}
				if info, _ := FromContext(MemberContext(ctx, 0)); info.Channel != other.Channel() {
					t.Errorf("%+v", info)
				}
				return nil
			}},
		)
		return errors.Join(err, q.Enqueue(ctx, other.Message(1)))
	})
	q.enqueue(0, 1)
	q.wait(EventAcked, 2, 5*time.Second)
}

// A suspect has a call of its own, at once.
func TestBatchSuspectAlone(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		var c batches
		g, shutdown := q.gather(
			1,
			Batch{MaxSize: 10, MaxWait: time.Minute, Handle: func(_ context.Context, ms []IMessage) []error {
				c.add(len(ms))
				return nil
			}},
		)
		q.enqueue(0, 2)
		q.untilWaiting(g, 2)
		e := element.Element{Serial: element.NewSerial(), Recoveries: 2, Payload: []byte("7")}
		b.Do("LPUSH", "{"+q.name+"}.prepare", e.Encode())
		q.wait(EventAcked, 1, 5*time.Second)
		q.untilWaiting(g, 2)
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if got := c.String(); got != "[1 2]" {
			t.Errorf("calls of %s", got)
		}
	})
}

// Under load each message is handled once, in about as few calls as there can be, and no more at once than workers.
func TestBatchLoad(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) { q.Backoff = func(int) time.Duration { return 0 } })
		const n, most, workers = 5000, 50, 4
		var c batches
		var running atomic.Int32
		seen, failed := newTally(), newTally()
		_, shutdown := q.gather(
			workers,
			Batch{
				MaxSize: most,
				MaxWait: 500 * time.Millisecond,
				Handle: func(_ context.Context, ms []IMessage) []error {
					if now := running.Add(1); now > workers {
						t.Errorf("%d calls at once", now)
					}
					defer running.Add(-1)
					if n := c.add(len(ms)); n/workers == 10 {
						time.Sleep(4 * worker.Stall) // after which what a worker had not begun would be released
					}
					verdicts := make([]error, len(ms))
					for i, m := range ms {
						if number(m)%10 == 0 && failed.add(number(m)) == 1 {
							verdicts[i] = errors.New("the first time")
						} else {
							seen.add(number(m))
						}
					}
					return verdicts
				},
			},
		)
		for i := 0; i < n; i += 500 {
			q.enqueue(i, i+500)
		}
		q.wait(EventAcked, n, 60*time.Second)
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if seen.distinct() != n || seen.extra() != 0 {
			t.Errorf("%d distinct, %d extra", seen.distinct(), seen.extra())
		}
		if n := q.count(EventReleased); n > 0 {
			t.Errorf("%d released: workers held more than they could offer", n)
		}
		least := (n + n/10 + most - 1) / most
		if got := len(c.sizes); got < least || got > least*3/2 {
			t.Errorf("%d calls, %d would do: %s", got, least, &c)
		}
		if left := keysLeft(t, b, q.name); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// A Timeout that is over before a batch is due would let no message be handled: it is refused.
func TestBatchTimeoutBelowWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL(), func(q *Queue) { q.Timeout = 300 * time.Millisecond })
	handle := func(context.Context, []IMessage) []error { return nil }
	if _, err := b.ReceiveBatch(context.Background(), b.kind(nil), 1, Batch{Handle: handle}); err == nil ||
		!strings.Contains(err.Error(), "MaxWait") {
		t.Errorf("error %v", err)
	}
	if _, err := b.ReceiveBatch(context.Background(), b.kind(nil), 1, Batch{MaxWait: 100 * time.Millisecond,
		Handle: handle}); err != nil {
		t.Error(err)
	}
}
