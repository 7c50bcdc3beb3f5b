package shunt

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
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
	t.Parallel()
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
	t.Parallel()
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

// A take of several channels is a script only where the one that had something last has nothing more. Then the worker
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
		// Where it is the third message's own EXISTS that they come before, 100 starts in its place.
		got := [5]int{<-starts, <-starts, <-starts, <-starts, <-starts}
		if got != [5]int{0, 1, 2, 100, 101} && (command != "EXISTS" || got != [5]int{0, 1, 100, 2, 101}) {
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
	q.wait(EventAcked, 1, 4*time.Second) // at once: what is refused for long is tried again after 4.5 s at the earliest
	q.wait(EventAcked, 200, 20*time.Second)
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
	t.Parallel()
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

// The reply to the release of a lower channel's message was lost, and nobody took the incarnation for broken.
func TestLostReleaseBeforeHigher(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	seen := newTally()
	ks := q.ranks(2, func(_ context.Context, _, i int) error { seen.add(i); return nil })
	ctx := context.Background()
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	if _, err := q.ReceiveOrdered(ctx, 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	strikes(t, blocks, 2)
	on := func(i int, script *link.Script, act redistest.Action) *redistest.Rule {
		return p.On(redistest.ByScript(script)(ks[i].channel), 1, act)
	}
	on(
		0,
		store.Take,
		redistest.Call(func() { s.TryDo("LPUSH", store.KeysOf(ks[0].channel).Prepare, "100", "101", "102") }),
	)
	lost := on(1, store.Release, redistest.CutAfter)
	if err := q.Enqueue(ctx, ks[1].Message(1)); err != nil {
		t.Fatal(err)
	}
	strikes(t, lost, 1)
	q.until(5*time.Second, "all handled", func() bool { return seen.distinct() == 4 })
	for i, k := range ks {
		if err := q.Enqueue(ctx, k.Message(2+i)); err != nil {
			t.Fatal(err)
		}
	}
	q.until(5*time.Second, "it goes on", func() bool { return seen.distinct() == 6 })
	for _, k := range ks {
		q.until(5*time.Second, "nothing is left", func() bool { _, n := q.leaves(k.channel); return n == 0 })
	}
}

// A slow handler in the midst of a batch: what came after it was released the oldest first, so that the newest was
// next.
func TestReleasedKeepOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	const n = 2000
	var order []int
	done := make(chan struct{})
	q.enqueue(0, n)
	q.receive(1, func(_ context.Context, i int) error {
		order = append(order, i)
		if i%300 == 299 {
			time.Sleep(100 * time.Millisecond)
		}
		if len(order) == n {
			close(done)
		}
		return nil
	})
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("not all handled")
	}
	for i, got := range order {
		if got != i {
			t.Fatalf("place %d: %v", i, order[max(0, i-3):min(n, i+20)])
		}
	}
	if q.count(EventReleased) == 0 {
		t.Error("nothing was released")
	}
}

// A key of a higher channel that is not shunt's: a worker with a lower channel's message asked for it again and again.
func TestBrokenHigherChannel(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Grace = 2 * time.Second })
	seen := newTally()
	ks := q.ranks(2, func(_ context.Context, _, i int) error { seen.add(i); return nil })
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	shutdown, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1])
	if err != nil {
		t.Fatal(err)
	}
	strikes(t, blocks, 2)
	broken := store.KeysOf(ks[0].channel).Prepare
	s.Do("SET", broken, "x")
	p.ResetCounts()
	s.Do("LPUSH", store.KeysOf(ks[1].channel).Prepare, "1")
	q.wait(EventReceiverError, 1, 5*time.Second)
	time.Sleep(500 * time.Millisecond)
	if n := p.Commands(); n > 50 {
		t.Errorf("%d commands in half a second", n)
	}
	ended, cancel := context.WithCancel(context.Background()) // a clean end would wait for what a WRONGTYPE costs: 5 s
	cancel()
	if err := shutdown(ended); err != nil {
		t.Error(err)
	}
	s.Do("DEL", broken)
	if left, n := q.leaves(ks[1].channel); n+seen.distinct() != 1 {
		t.Errorf("left: %v, handled: %d", left, seen.distinct())
	}
}

// The same key, while the lower channel has messages: when the higher one was asked again, 5 s later, the worker
// stopped for good.
func TestBrokenHigherChannelIsLeftOut(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	seen := newTally()
	ks := q.ranks(2, func(_ context.Context, _, i int) error { seen.add(i); time.Sleep(time.Millisecond); return nil })
	s.Do("SET", store.KeysOf(ks[0].channel).Prepare, "x")
	var ms []IMessage
	for i := range 9000 {
		ms = append(ms, ks[1].Message(i))
	}
	if err := q.EnqueueAll(context.Background(), ms); err != nil {
		t.Fatal(err)
	}
	if _, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	q.until(
		link.MaxTrouble+5*time.Second,
		"the channel is asked again",
		func() bool { return q.count(EventReceiverError) >= 2 },
	)
	n := seen.distinct()
	q.until(5*time.Second, "messages are handled after that", func() bool { return seen.distinct() > n+100 })
	s.Do("DEL", store.KeysOf(ks[0].channel).Prepare)
}

// A script that was refused as a whole counted against the first channel, so that the others' messages started before
// its.
func TestRefusedScriptIsNoChannels(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	starts := make(chan int, 20)
	ks := q.ranks(3, func(_ context.Context, rank, _ int) error { starts <- rank; return nil })
	r := p.On(
		redistest.ByScript(store.Take)(ks[0].channel),
		1,
		redistest.ReplyError("NOPERM this user has no permissions to access one of the keys used as arguments"),
	)
	if _, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1], ks[2]); err != nil {
		t.Fatal(err)
	}
	strikes(t, r, 1)
	s.Do(
		"EVAL",
		"for k = 1, 2 do for i = 1, 10 do redis.call('LPUSH', KEYS[k], '7') end end",
		2,
		store.KeysOf(ks[0].channel).Prepare,
		store.KeysOf(ks[1].channel).Prepare,
	)
	q.wait(EventAcked, 20, 15*time.Second)
	for i := range 20 {
		if rank := <-starts; rank != i/10 {
			t.Fatalf("start %d is of rank %d", i, rank)
		}
	}
}

// What a waiter brought of a higher channel, while its worker asked for one of a lower, was in that worker's list and
// started after it.
func TestHigherInHandStartsFirst(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL())
	source := newBench(t, s.URL())
	starts := make(chan int, 3)
	ks := q.ranks(2, func(_ context.Context, rank, _ int) error { starts <- rank; return nil })
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	if _, err := q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1]); err != nil {
		t.Fatal(err)
	}
	strikes(t, blocks, 2)
	for deadline := time.Now().Add(5 * time.Second); strings.Count(string(s.Do("CLIENT", "LIST").([]byte)),
		"cmd=brpoplpush") < 2; {
		if time.Now().After(deadline) {
			t.Fatal("no two waiters block")
		}
	}
	ask := p.On(redistest.ByScript(store.Take)(ks[0].channel), 1, redistest.Delay(1500*time.Millisecond))
	enqueue := func(rank int) {
		t.Helper()
		if err := source.Enqueue(context.Background(), ks[rank].Message(1)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(1)
	strikes(t, ask, 1)
	enqueue(0) // a waiter brings it
	enqueue(0) // and this one the worker has to ask for, although it has asked already
	if got := [3]int{<-starts, <-starts, <-starts}; got != [3]int{0, 0, 1} {
		t.Errorf("the ranks %v have started", got)
	}
}

// What a lower channel had brought was started after two thirds of the term, and its timeout ran while the higher ones
// were asked.
func TestAskedHigherLate(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"in time": time.Second, "too late": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			askedHigherLate(t, takes)
		})
	}
}

func askedHigherLate(t *testing.T, takes time.Duration) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 3 * time.Second })
	began := time.Now()
	started := make(chan [2]time.Duration, 1)
	ks := q.ranks(2, func(ctx context.Context, _, _ int) error {
		end, _ := ctx.Deadline()
		started <- [2]time.Duration{time.Since(began), time.Until(end)}
		return nil
	})
	beats := redistest.ByScript(store.Beat)(ks[0].channel)
	var last atomic.Int64 // when a beat came, since began
	p.On(beats, 0, redistest.Call(func() { last.Store(int64(time.Since(began))) }))
	blocks := p.On(redistest.Command("BRPOPLPUSH"), 0, redistest.Pass)
	q.starts(func() (Shutdown, error) { return q.ReceiveOrdered(context.Background(), 1, ks[0], ks[1]) })
	strikes(t, blocks, 2) // which wait for a beat
	p.On(beats, 0, redistest.ReplyError("TRYAGAIN not now"))
	beaten := time.Duration(last.Load())
	time.Sleep(time.Second)
	p.On(redistest.ByScript(store.Take)(ks[0].channel), 1, redistest.Delay(takes))
	if err := q.Enqueue(context.Background(), ks[1].Message(1), Timeout(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	at := <-started // when the term of 4 s is over, the next incarnation starts it
	if at[0] > 2967*time.Millisecond+beaten && at[0] < 4*time.Second || at[1] < 10*time.Second-takes/2 {
		t.Errorf("started after %v, and the last good beat came after %v; of a timeout of 10s %v was left",
			at[0], beaten, at[1])
	}
	t.Logf("the last beat after %v, started after %v with %v", beaten, at[0], at[1])
}
