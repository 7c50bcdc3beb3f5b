package crowd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

type call struct{ n, size, answer int }

// sent are the calls of a Crowd whose sendings each take a second, as they went.
type sent struct {
	*Crowd[call]
	mu   sync.Mutex
	sent [][]int
}

func newSent(wait time.Duration) *sent {
	s := new(sent)
	s.Crowd = &Crowd[call]{Base: context.Background(), Timeout: time.Minute, Most: 8, Bytes: 100,
		Size: func(c *call) int { return c.size },
		Send: func(ctx context.Context, _ *store.Keys, calls []*call) {
			var some []int
			for _, c := range calls {
				c.answer, some = 2*c.n, append(some, c.n)
			}
			s.mu.Lock()
			s.sent = append(s.sent, some)
			s.mu.Unlock()
			link.Sleep(ctx, wait)
		}}
	return s
}

// A call that comes alone goes at once. What comes while two are under way goes together, in order and so many at most.
// Who leaves before goes not, and who leaves meanwhile is not waited for.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSent(time.Second)
		k := store.KeysOf("c")
		ctx, cancel := context.WithCancel(context.Background())
		early, leave := context.WithCancel(ctx)
		late, leaveLate := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer leaveLate()
		var all sync.WaitGroup
		join := func(of context.Context, k *store.Keys, n int, want link.Class) {
			all.Go(func() {
				c, err := s.Join(of, k, call{n: n})
				if link.Classify(err) != want || err == nil && c.answer != 2*n || err != nil && c != (call{}) {
					t.Errorf("%d: %+v, %v", n, c, err)
				}
			})
			synctest.Wait()
		}
		join(ctx, k, 0, link.Done)
		join(ctx, k, 1, link.Done)
		join(ctx, store.KeysOf("other"), 100, link.Done)
		for n := 2; n < 22; n++ {
			switch n {
			case 3, 8:
				join(early, k, n, link.NotExecuted)
			case 4:
				join(late, k, n, link.Unknown)
			default:
				join(ctx, k, n, link.Done)
			}
		}
		leave()
		synctest.Wait()
		all.Wait()
		synctest.Wait()
		cancel()
		slices.SortFunc(s.sent, func(a, b []int) int { return a[0] - b[0] })
		want := [][]int{{0}, {1}, {2, 4, 5, 6, 7, 9, 10, 11}, {12, 13, 14, 15, 16, 17, 18, 19}, {20, 21}, {100}}
		if !slices.EqualFunc(s.sent, want, slices.Equal) {
			t.Errorf("sent as %v", s.sent)
		}
		s.Crowd.mu.Lock()
		defer s.Crowd.mu.Unlock()
		if len(s.of) != 0 {
			t.Errorf("%d channels are remembered", len(s.of))
		}
	})
}

// A call without a deadline leaves with the timeout, also from behind sendings that do not end.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSent(time.Hour)
		k := store.KeysOf("c")
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for n := range 2 {
			all.Go(func() { _, _ = s.Join(ctx, k, call{n: n}) })
		}
		synctest.Wait()
		began := time.Now()
		_, err := s.Join(context.Background(), k, call{n: 2})
		if took := time.Since(began); link.Classify(err) != link.NotExecuted || took != time.Minute ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %v", err, took)
		}
		cancel()
		all.Wait()
		if len(s.sent) != 2 {
			t.Errorf("sent as %v", s.sent)
		}
	})
}

// Several have as long as the most patient of them; the others leave.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSent(time.Hour)
		k := store.KeysOf("c")
		first, end := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for n := range 2 {
			all.Go(func() { _, _ = s.Join(first, k, call{n: n}) })
		}
		synctest.Wait()
		for n, d := range []time.Duration{2 * time.Second, 8 * time.Second, 5 * time.Second} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), d)
				defer cancel()
				began := time.Now()
				_, err := s.Join(ctx, k, call{n: 2 + n})
				if took := time.Since(began); took != d || link.Classify(err) != link.Unknown && d < 8*time.Second {
					t.Errorf("%v after %v, not %v", err, took, d)
				}
			})
			synctest.Wait() // in this order
		}
		synctest.Wait()
		end()
		synctest.Wait()
		began := time.Now()
		all.Wait()
		synctest.Wait()
		s.Crowd.mu.Lock()
		defer s.Crowd.mu.Unlock()
		if took := time.Since(began); took != 8*time.Second || len(s.of) != 0 {
			t.Errorf("sent until %v", took)
		}
	})
}

// A call that is picked alone ends with its caller, and with the Crowd's user.
func TestPickedAlone(t *testing.T) {
	for _, user := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSent(time.Hour)
			k := store.KeysOf("c")
			var close context.CancelFunc
			s.Base, close = context.WithCancel(s.Base)
			first, end := context.WithCancel(context.Background())
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			for n, of := range []context.Context{first, first, ctx} {
				all.Go(func() { _, _ = s.Join(of, k, call{n: n}) })
				synctest.Wait()
			}
			end()
			synctest.Wait()
			began := time.Now()
			if user {
				close()
			} else {
				cancel()
			}
			synctest.Wait()
			s.Crowd.mu.Lock()
			if took := time.Since(began); took != 0 || len(s.of) != 0 || len(s.sent) != 3 {
				t.Errorf("sent as %v; %d channels are remembered", s.sent, len(s.of))
			}
			s.Crowd.mu.Unlock()
			all.Wait()
			close()
			cancel()
		})
	}
}

// Who leaves just when the next are sent is not sent.
func TestLeaveAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSent(0)
		k := store.KeysOf("c")
		ctx, cancel := context.WithCancel(context.Background())
		send, hold := s.Send, make(chan struct{})
		s.Send = func(of context.Context, k *store.Keys, calls []*call) {
			send(of, k, calls)
			<-hold
			cancel()
		}
		var all sync.WaitGroup
		for n := range 2 {
			all.Go(func() { _, _ = s.Join(context.Background(), k, call{n: n}) })
		}
		synctest.Wait()
		all.Go(func() {
			if _, err := s.Join(ctx, k, call{n: 2}); link.Classify(err) != link.NotExecuted {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(hold)
		all.Wait()
	})
}

// An answer that comes just as the context ends is the call's.
func TestAnswerAtTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := newSent(0)
	for range 100 { // which of the two a select sees first is chance
		m := &member[call]{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		m.done <- struct{}{}
		if err := s.wait(ctx, new(gathering[call]), m); err != nil {
			t.Fatal(err)
		}
	}
}

// Where no goroutine may begin, as while a Queue is closed, each goes by itself, in order.
func TestBeginRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSent(time.Second)
		k := store.KeysOf("c")
		s.Begin = func() error { return link.ErrClosed }
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() {
				if c, err := s.Join(context.Background(), k, call{n: n}); err != nil || c.answer != 2*n {
					t.Errorf("%+v, %v", c, err)
				}
			})
			synctest.Wait()
		}
		began := time.Now()
		all.Wait()
		for n, some := range s.sent {
			if n/2 != some[0]/2 { // two go at the same time
				t.Errorf("sent as %v", s.sent)
				break
			}
		}
		if took := time.Since(began); len(s.sent) != 20 || took != 10*time.Second || len(s.of) != 0 {
			t.Errorf("sent as %v, in %v; %d channels are remembered", s.sent, took, len(s.of))
		}
	})
}

// Those that go together are no larger than they may be, and none overtakes another.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 150), 2, 60).Draw(r, "sizes")
		synctest.Test(t, func(t *testing.T) {
			s := newSent(time.Second)
			k := store.KeysOf("c")
			var all sync.WaitGroup
			for n, size := range sizes {
				all.Go(func() {
					if _, err := s.Join(context.Background(), k, call{n: n, size: size}); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			all.Wait()
			slices.SortFunc(s.sent, func(a, b []int) int { return a[0] - b[0] }) // two go at the same time
			var order []int
			for _, some := range s.sent {
				sum := 0
				for _, n := range some {
					sum += sizes[n]
				}
				if len(some) > s.Most || len(some) > 1 && sum > s.Bytes {
					t.Errorf("%v together have %d bytes", some, sum)
				}
				order = append(order, some...)
			}
			if len(order) != len(sizes) || !slices.IsSorted(order) {
				t.Errorf("sent as %v", s.sent)
			}
		})
	})
}

// Calls whose size does not matter go together.
func TestNoSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSent(time.Second)
		k := store.KeysOf("c")
		s.Size, s.Bytes = nil, 0
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() { _, _ = s.Join(context.Background(), k, call{n: n}) })
			synctest.Wait()
		}
		all.Wait()
		if len(s.sent) != 3 || len(s.sent[2]) != s.Most {
			t.Errorf("sent as %v", s.sent)
		}
	})
}

// End comes when all that a goroutine had to do is done, and the next one has begun: who waits for all that have begun
// waits for these too.
func TestEndIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSent(time.Second)
		k := store.KeysOf("c")
		var counted []int // the number of those that have begun and not ended, after each change
		var mu sync.Mutex
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			counted = append(counted, by)
			if len(counted) > 1 {
				counted[len(counted)-1] += counted[len(counted)-2]
			}
		}
		s.Begin, s.End = func() error { count(1); return nil }, func() { count(-1) }
		ctx, cancel := context.WithCancel(context.Background())
		first := s.Send
		s.Send = func(of context.Context, k *store.Keys, calls []*call) {
			if calls[0].n == 0 { // it is under way all the while
				<-ctx.Done()
				return
			}
			first(of, k, calls)
		}
		var all sync.WaitGroup
		for n := range 20 {
			all.Go(func() { _, _ = s.Join(context.Background(), k, call{n: n}) })
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		cancel()
		all.Wait()
		synctest.Wait()
		if want := []int{1, 2, 1, 2, 1, 0}; !slices.Equal(counted, want) {
			t.Errorf("counted as %v, want %v", counted, want)
		}
	})
}
