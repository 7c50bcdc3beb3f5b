package shunt

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// ranks makes one Kind for each channel, in order, that share a handler.
func (b *bench) ranks(n int, handle func(ctx context.Context, rank, i int) error) []*Kind[int] {
	var ks []*Kind[int]
	for rank := range n {
		ks = append(
			ks,
			Define(
				b.name+"."+string(rune('a'+rank)),
				func(ctx context.Context, i int) error { return handle(ctx, rank, i) },
			),
		)
	}
	return ks
}

// A lower channel's message starts only while the higher ones are empty.
func TestOrderStrict(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		var mu sync.Mutex
		var starts []int
		ctx := context.Background()
		ks := q.ranks(3, func(_ context.Context, rank, i int) error {
			mu.Lock()
			starts = append(starts, rank)
			mu.Unlock()
			return nil
		})
		for i := range 50 {
			for _, k := range ks {
				if err := q.Enqueue(ctx, k.Message(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		shutdown, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1], ks[2])
		if err != nil {
			t.Fatal(err)
		}
		q.wait(EventAcked, 150, 10*time.Second)
		mu.Lock()
		for i, rank := range starts {
			if rank != i/50 {
				t.Errorf("start %d is of rank %d", i, rank)
				break
			}
		}
		starts = nil
		mu.Unlock()
		// Idle, then one of each rank: a single worker waits on all three channels.
		for n, rank := range []int{2, 1, 0, 2, 0, 1} {
			if err := q.Enqueue(ctx, ks[rank].Message(100+n)); err != nil {
				t.Fatal(err)
			}
			q.wait(EventAcked, 151+n, 5*time.Second)
		}
		if err := shutdown(ctx); err != nil {
			t.Error(err)
		}
		for _, k := range ks {
			if left := keysLeft(t, b, k.channel); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	})
}

// While a worker is busy, what comes is started in strict order, whoever brought it.
func TestOrderBusy(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		var mu sync.Mutex
		var starts []int
		running, release := make(chan struct{}, 1), make(chan struct{})
		ctx := context.Background()
		ks := q.ranks(3, func(_ context.Context, rank, i int) error {
			if i == -1 {
				running <- struct{}{}
				<-release
				return nil
			}
			mu.Lock()
			starts = append(starts, rank)
			mu.Unlock()
			return nil
		})
		if _, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1], ks[2]); err != nil {
			t.Fatal(err)
		}
		for round := range 5 {
			if err := q.Enqueue(ctx, ks[2].Message(-1)); err != nil {
				t.Fatal(err)
			}
			<-running
			for _, rank := range []int{2, 1, 0, 2, 1, 0} {
				if err := q.Enqueue(ctx, ks[rank].Message(1)); err != nil {
					t.Fatal(err)
				}
			}
			// Waiters that still block may take one each; they are released, in the end to where they came from.
			redistest.Until(t, 5*time.Second, "all are ready", func() bool {
				n := 0
				for _, k := range ks {
					st, err := q.Stats(ctx, k.channel)
					if err != nil {
						t.Fatal(err)
					}
					n += st[StatePrepare].Count
				}
				return n == 6
			})
			release <- struct{}{}
			q.wait(EventAcked, 7*(round+1), 10*time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		for i, rank := range starts {
			if rank != i%6/2 {
				t.Fatalf("start %d is of rank %d: %v", i, rank, starts)
			}
		}
	})
}

// A take of several channels is a script only where the one that had something last has nothing more: then the worker
// asks the others, and waits for no waiter.
func TestOrderTakes(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	ctx := context.Background()
	var blocks *redistest.Rule
	ks := q.ranks(3, func(_ context.Context, rank, i int) error {
		if n := blocks.Struck(); n > 0 {
			t.Errorf("message %d of rank %d is handled after %d waits", i, rank, n)
		}
		return nil
	})
	for _, k := range ks {
		for i := range 20 {
			if err := q.Enqueue(ctx, k.Message(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	blocks = p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	scripts := p.On(redistest.ByScript(store.Take)(ks[0].channel), 0, redistest.Pass)
	if _, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1], ks[2]); err != nil {
		t.Fatal(err)
	}
	q.wait(EventAcked, 60, 10*time.Second)
	if n := scripts.Struck(); n > 4 { // at first, and when one of them has been emptied
		t.Errorf("%d takes by script", n)
	}
}

// What is enqueued after a message of a higher channel does not start before it, wherever between a worker's two
// commands that is.
func TestOrderOfEnqueues(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	for _, command := range []string{"RPOPLPUSH", "EXISTS"} {
		p := redistest.NewProxy(t, s.Addr())
		q := newBench(t, p.URL())
		ctx := context.Background()
		starts := make(chan int, 5)
		ks := q.ranks(2, func(_ context.Context, _, i int) error { starts <- i; return nil })
		high, low := store.KeysOf(ks[0].channel).Prepare, store.KeysOf(ks[1].channel).Prepare
		for i := range 3 {
			if err := q.Enqueue(ctx, ks[1].Message(i)); err != nil {
				t.Fatal(err)
			}
		}
		p.On(redistest.Command(command, "{"+q.name), 3, redistest.Call(func() { // when the third has been taken
			s.Do("LPUSH", high, "100")
			s.Do("LPUSH", low, "101")
		}))
		if _, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1]); err != nil {
			t.Fatal(err)
		}
		q.wait(EventAcked, 5, 10*time.Second)
		if got := [5]int{<-starts, <-starts, <-starts, <-starts, <-starts}; got != [5]int{0, 1, 2, 100, 101} {
			t.Errorf("enqueued before %s: %v have started", command, got)
		}
	}
}

// Who may not ask whether channels have something takes by script, in order, and is told of it once.
func TestOrderWithoutExists(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	ctx := context.Background()
	var mu sync.Mutex
	var starts []int
	ks := q.ranks(2, func(_ context.Context, rank, _ int) error {
		mu.Lock()
		starts = append(starts, rank)
		mu.Unlock()
		return nil
	})
	p.On(
		redistest.Command("EXISTS", ".a}.prepare"),
		0,
		redistest.ReplyError("NOPERM this user has no permissions to run the 'exists' command"),
	)
	for i := range 100 {
		for _, k := range ks {
			if err := q.Enqueue(ctx, k.Message(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	q.wait(EventAcked, 200, 4*time.Second)
	if n := q.count(EventReceiverError); n != 1 {
		t.Errorf("told of %d times", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(starts) {
		t.Errorf("the ranks started as %v", starts)
	}
}

// Each channel gets its share while all have messages, and what one leaves goes to the others.
func TestOrderWeighted(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL())
		weights := []int{6, 3, 1}
		var n [3]atomic.Int32
		var total atomic.Int32
		ctx := context.Background()
		ks := q.ranks(3, func(_ context.Context, rank, i int) error {
			if total.Add(1) <= 500 {
				n[rank].Add(1)
			}
			return nil
		})
		var shares []Share
		for rank, k := range ks {
			var ms []IMessage
			for i := range 500 {
				ms = append(ms, k.Message(i))
			}
			if err := q.EnqueueAll(ctx, ms); err != nil {
				t.Fatal(err)
			}
			shares = append(shares, Share{k, weights[rank]})
		}
		if _, err := q.ReceiveWeighted(ctx, 4, shares...); err != nil {
			t.Fatal(err)
		}
		q.wait(EventAcked, 1500, 20*time.Second)
		for rank, w := range weights {
			share := float64(n[rank].Load()) / 500
			if math.Abs(share-float64(w)/10) > 0.05 {
				t.Errorf("rank %d had %.3f of the starts, want %.1f", rank, share, float64(w)/10)
			}
		}
	})
}
