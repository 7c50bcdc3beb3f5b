package shunt

import (
	"context"
	"errors"
	"runtime"
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
		q.deliver(0, n-1)
		q.deliver(n-1, n, In(200*time.Millisecond))
		shutdown := q.receive(16, func(_ context.Context, i int) error { seen.add(i); return nil })
		q.until(20*time.Second, "all acked", func() bool { return q.count(Acked) >= n })
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
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) {
			q.Backoff = func(int) time.Duration { return 0 }
			q.MaxAttempts = 3
			q.Grace = 50 * time.Millisecond
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
		q.deliver(0, 8, Timeout(100*time.Millisecond))
		q.wait(Acked, 6, 10*time.Second)
		q.wait(Rejected, 2, 10*time.Second)
		q.wait(Orphaned, 1, 10*time.Second)
		close(block)
		if got := attempts[1].Load(); got != 3 {
			t.Errorf("%d attempts of one that always fails", got)
		}
		es, err := q.List(context.Background(), q.name, Dead, 0, 0)
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
		q.wait(Rejected, 4, 10*time.Second)
		if n, err := q.Purge(context.Background(), q.name, Dead); n != 2 || err != nil {
			t.Error(n, err)
		}
	})
}

// A reply that was lost leaves its message in a live receiver's list; another handler runs on for long.
func TestLostReply(t *testing.T) {
	for _, command := range []string{"RPOPLPUSH", "BRPOPLPUSH", "LREM"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			q := newBench(t, p.URL())
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
			q.deliver(0, 1)
			q.until(5*time.Second, "long one runs", func() bool { return seen.distinct() == 1 })
			q.deliver(1, 11)
			q.wait(Acked, 10, 5*time.Second)
			r := p.On(redistest.Command(command, q.name), 1, redistest.CutAfter)
			began := time.Now()
			q.deliver(11, 111)
			q.until(10*time.Second, "all handled", func() bool { return seen.distinct() == 111 })
			took := time.Since(began)
			if r.Struck() == 0 {
				t.Fatal("the fault never struck")
			}
			if took > 5*time.Second {
				t.Errorf("recovered after %v", took)
			}
			close(long)
			q.until(5*time.Second, "acked", func() bool { return q.count(Acked)+q.count(DoneOrLost) >= 111 })
			if err := shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			t.Logf("took %v, extra %d, succeeded %d", took, seen.extra(), q.count(Succeeded))
			if q.count(Succeeded) == 0 {
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
