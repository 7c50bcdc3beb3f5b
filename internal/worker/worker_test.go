package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// BenchmarkStep is a message taken, handled by nothing, and acked, on a real server.
func BenchmarkStep(b *testing.B) {
	for _, prefetch := range []int{1, 64} {
		for _, workers := range []int{1, 64} {
			b.Run(
				fmt.Sprintf("prefetch=%d/workers=%d", prefetch, workers),
				func(b *testing.B) { benchmarkStep(b, prefetch, workers) },
			)
		}
	}
}

func benchmarkStep(b *testing.B, prefetch, workers int) {
	b.ReportAllocs()
	s := redistest.Shared(b)
	keys := store.KeysOf(redistest.Name(b))
	for left := b.N; left > 0; left -= 1000 {
		fill(s, keys, min(left, 1000))
	}
	var n atomic.Int64
	all := make(chan struct{})
	r := testPool(b, s, keys, workers, func(c *Config) {
		c.Prefetch = prefetch
		c.Handle = func(it *Item) *custody.Verdict {
			if n.Add(1) == int64(b.N) {
				close(all)
			}
			return custody.Ack
		}
	})
	b.ResetTimer()
	r.Start()
	<-all
	b.StopTimer()
	r.StopTaking()
	if returned, still, err := r.End(); returned != 0 || still != 0 || err != nil {
		b.Errorf("%d returned, %d still run, %v", returned, still, err)
	}
	if left := s.Do("LLEN", keys.Prepare); left != int64(0) {
		b.Errorf("%v left", left)
	}
}

// fill enqueues n messages.
func fill(s *redistest.Server, keys *store.Keys, n int) {
	args := []any{keys.Prepare}
	for range n {
		e := element.Element{Serial: element.NewSerial(), Payload: make([]byte, 128)}
		args = append(args, e.Encode())
	}
	s.Do("LPUSH", args...)
}

// testPool makes a pool of one channel that has joined and is to be started.
func testPool(tb testing.TB, s *redistest.Server, keys *store.Keys, workers int, change func(*Config)) *Pool {
	return newTestPool(tb, s.URL(), []*store.Keys{keys}, workers, change)
}

// How many messages a worker takes at once is told by what its handler took lately.
func TestWant(t *testing.T) {
	for _, c := range []struct {
		mean time.Duration // of the handler
		size int           // of an element
		want int
		less bool // one less now and then
	}{
		{0, 0, 1, false}, // not known yet
		{time.Microsecond, 200, 64, false},
		{20 * time.Microsecond, 200, 50, false},
		{100 * time.Microsecond, 200, 10, false}, // all within 1 ms
		{400 * time.Microsecond, 200, 4, true},   // four within 25 ms
		{6 * time.Millisecond, 200, 4, true},
		{7 * time.Millisecond, 200, 3, true},
		{11 * time.Millisecond, 200, 2, true},
		{13 * time.Millisecond, 200, 1, false},
		{time.Minute, 200, 1, false},
		{time.Microsecond, 64 << 10, 4, false}, // within PrefetchBytes
		{time.Microsecond, 1 << 20, 1, false},
	} {
		s := &worker{
			r:    &Pool{conf: &Config{Prefetch: 64, PrefetchBytes: 256 << 10}, Sites: []*lane.Site{{}}},
			pace: pace{mean: c.mean, size: c.size, limit: 64},
		}
		seen := make(map[int]int)
		for range 100 {
			seen[s.pace.want(s.r)]++
		}
		if c.less && (seen[c.want] < 20 || seen[c.want]+seen[c.want-1] != 100) || !c.less && seen[c.want] != 100 {
			t.Errorf(
				"a handler of %v, elements of %d bytes: %v, want %d, one less: %v",
				c.mean,
				c.size,
				seen,
				c.want,
				c.less,
			)
		}
		s.r.conf.Prefetch = 1
		if got := s.pace.want(s.r); got != 1 {
			t.Errorf("with Prefetch 1: %d", got)
		}
		s.pace.limit, s.r.conf.Prefetch = 2, 64
		if got := s.pace.want(s.r); got > 2 {
			t.Errorf("slow start at 2: %d", got)
		}
	}
}

// Slow start: a worker asks for as many as came lately, and for four times as many when all of these came.
func TestSlowStart(t *testing.T) {
	in := &lane.Lane{Keys: &store.Keys{Name: "c"}}
	s := &worker{r: &Pool{conf: &Config{Prefetch: 64}, Lanes: []*lane.Lane{in}}, pace: pace{limit: 1}}
	element := (&element.Element{Serial: element.NewSerial(), Payload: []byte("payload")}).Encode()
	for i, c := range []struct{ asked, came, want int }{
		{1, 1, 4}, {4, 4, 16}, {16, 16, 64}, {64, 64, 64}, {64, 63, 63}, {63, 63, 64}, {64, 3, 3}, {3, 3, 12}, {3, 2,
			2}, {2, 0, 1}, {1, 0, 1},
	} {
		replies := make([]link.Reply, c.asked)
		for n := range c.came {
			replies[n].Bulk = element
		}
		s.items = s.items[:0]
		took := takes{worker: s, site: new(lane.Site), n: c.asked, from: s.r.Lanes, batch: new(takeBatch)}
		empty, trouble := took.receive(replies, int64(i))
		if empty != (c.came == 0) || trouble != nil || len(s.items) != c.came {
			t.Errorf("%d of %d came: %d, empty %v, %v", c.came, c.asked, len(s.items), empty, trouble)
		}
		if s.pace.limit != c.want {
			t.Errorf("%d of %d came: asks for %d, want %d", c.came, c.asked, s.pace.limit, c.want)
		}
	}
}

// A place is left vacant because there is an orphan too many, unless that orphan ends meanwhile. No order of the two
// loses the place.
func TestOrphans(t *testing.T) {
	for range 50_000 {
		var o orphans
		o.add(new(worker), 1)
		s := new(worker)
		var back *worker
		ended := make(chan struct{})
		go func() {
			back = o.end()
			close(ended)
		}()
		n, left := o.add(s, 1)
		<-ended
		if left != (back == s) || left != (n == 2) || o.count() != 1 {
			t.Fatalf("%d orphans, then %d; left vacant %v, had back %v", n, o.count(), left, back == s)
		}
	}
}

// What has not begun is handed back at the end, so nothing may begin then: a worker that was about to claim had asked
// before.
func TestNothingBeginsAfterStop(t *testing.T) {
	s := redistest.Shared(t)
	keys := store.KeysOf(redistest.Name(t))
	r := testPool(t, s, keys, 1, func(*Config) {})
	w := r.workers[0]
	w.now = time.Now()
	w.items, w.passed = []*Item{{Lane: r.Lanes[0]}}, allLanes
	w.mu.Lock()
	claimed := make(chan *Item)
	go func() { claimed <- w.start() }()
	time.Sleep(20 * time.Millisecond) // so that it stands before mu; if it does not, there is nothing to see
	r.StopTaking()
	w.mu.Unlock()
	if it := <-claimed; it != nil {
		t.Error("a message was begun that End may have handed back")
	}
}

// A handler that returns while the last verdicts are sent has a verdict, too, and it is the one that holds.
func TestVerdictDuringEnd(t *testing.T) {
	redistest.Leaks(t)
	s := redistest.Shared(t)
	keys := store.KeysOf(redistest.Name(t))
	fill(s, keys, 2)
	var r *Pool
	running := make(chan *Item, 2)
	var last *Item
	goOn := map[bool]chan struct{}{false: make(chan struct{}), true: make(chan struct{})} // by whether it is the last
	var mu sync.Mutex
	decided := func(it *Item) bool {
		it.worker.mu.Lock()
		defer it.worker.mu.Unlock()
		return it.state == decided
	}
	until := func(what string, is func() bool) {
		for end := time.Now().Add(5 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Error(what)
				return
			}
		}
	}
	acked := 0
	r = testPool(t, s, keys, 2, func(c *Config) {
		c.Prefetch = 1
		c.Handle = func(it *Item) *custody.Verdict {
			mu.Lock()
			is := last == nil
			if is {
				last = it
			}
			mu.Unlock()
			running <- it
			<-goOn[is]
			return custody.Ack
		}
		c.Every = true
		c.Emit = func(evs ...event.Event) {
			for _, e := range evs {
				if e.Kind != event.Acked {
					continue
				}
				if acked++; acked == 1 { // by the verdicts that End sends: the other handler returns now
					close(goOn[true])
					until("the last verdict does not come", func() bool { return decided(last) })
				}
			}
		}
	})
	r.Start()
	first := <-running
	if other := <-running; first == last {
		first = other
	}
	r.StopTaking()
	r.Sites[0].Enter() // so that nothing is sent before the first verdict is there
	r.CancelHandlers()
	ended := make(chan struct{})
	var returned, still int
	var err error
	go func() {
		returned, still, err = r.End()
		close(ended)
	}()
	<-r.PoolCtx.Done() // after the grace
	close(goOn[false])
	until("the first verdict does not come", func() bool { return decided(first) })
	r.Sites[0].Leave()
	<-ended
	if left := s.Do("LLEN", keys.Prepare); acked != 2 || returned != 0 || still != 0 || err != nil || left != int64(0) {
		t.Errorf("%d acked, %d returned, %d still run, %v in prepare, %v", acked, returned, still, left, err)
	}
}

// Two may want the gate alone, and the first to have had it ends its pause: that of the second goes on.
func TestSeizedPauses(t *testing.T) {
	s := redistest.Shared(t)
	keys := store.KeysOf(redistest.Name(t))
	r := testPool(t, s, keys, 1, func(*Config) {})
	if !r.Sites[0].CloseGate(context.Background()) {
		t.Fatal("not seized")
	}
	second := make(chan struct{})
	go func() {
		r.Sites[0].CloseGate(context.Background())
		close(second)
	}()
	time.Sleep(20 * time.Millisecond) // so that it waits; if it does not, there is nothing to see
	r.Sites[0].OpenGate()
	<-second
	if !r.Sites[0].Pausing() {
		t.Error("it has the gate, and nobody is told")
	}
	r.Sites[0].OpenGate()
}

// Suspects that were found before a worker has parked wake nobody: it looks before it sleeps.
func TestParkLooksForSuspects(t *testing.T) {
	s := redistest.Shared(t)
	keys := store.KeysOf(redistest.Name(t))
	r := testPool(t, s, keys, 1, func(*Config) {})
	r.Suspects(r.Lanes[0])
	parked := make(chan struct{})
	go func() {
		r.workers[0].park(0)
		close(parked)
	}()
	select {
	case <-parked:
	case <-time.After(5 * time.Second):
		t.Error("it sleeps")
		r.StopTaking()
		<-parked
	}
}

// The watcher gives a lost handler up, and its worker holds something besides: it looked at what it had just removed.
func TestWatcherGivesUpBesideAnother(t *testing.T) {
	s := redistest.Shared(t)
	keys := store.KeysOf(redistest.Name(t))
	r := testPool(t, s, keys, 1, func(c *Config) { c.Handle = func(*Item) *custody.Verdict { return custody.Ack } })
	w := r.workers[0]
	lostOne := &Item{Lane: r.Lanes[0], state: lost, batch: new(takeBatch)}
	lostOne.worker, lostOne.Started, lostOne.timeout = w, time.Now().Add(-time.Hour), -1
	lostOne.cancel(custody.ErrLeaseLost)
	lostOne.more().giveUp = time.Second
	other := &Item{Lane: r.Lanes[0], batch: new(takeBatch)}
	w.items = []*Item{lostOne, other}
	r.watcher.look()
	w.mu.Lock()
	if len(w.items) > 0 && w.items[0] == lostOne || r.orphans.count() != 1 {
		t.Errorf("%d held, %d orphans", len(w.items), r.orphans.count())
	}
	w.mu.Unlock()
	r.StopTaking()
	r.CancelHandlers()
	r.orphanEnded()
	r.End()
}

// Where the wall clock has gone on without the monotonic one, as while the machine is suspended, a beat tells at once
// whether the lease is lost.
func TestSuspensionBeats(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	keys := store.KeysOf(redistest.Name(t))
	r := newTestPool(t, p.URL(), []*store.Keys{keys}, 1, func(*Config) {})
	beats := p.On(redistest.ByScript(store.Beat)(keys.Name), 0, redistest.Pass)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Sites[0].Beat()
	}()
	defer func() { r.end(); <-ended }()
	redistest.Until(t, 5*time.Second, "it beats", func() bool { return beats.Struck() == 1 })
	redistest.Until(t, 5*time.Second, "the beat is answered", func() bool { return !r.Sites[0].Fence().At.IsZero() })
	suspended := r.Sites[0].Lease.Length * 3 / 4
	if r.watcher.leases(time.Now()); beats.Struck() != 1 {
		t.Error("it beats without a reason")
	}
	now := time.Now()
	*(*uint64)(unsafe.Pointer(&now)) += uint64(suspended/time.Second) << 30 // the seconds of the wall clock
	if ahead := now.UnixNano() - time.Now().UnixNano(); ahead < int64(suspended/2) || time.Until(now) > time.Minute {
		t.Fatalf("the clocks differ by %v and %v", time.Duration(ahead), time.Until(now))
	}
	r.watcher.leases(now)
	redistest.Until(t, 5*time.Second, "it beats again", func() bool { return beats.Struck() == 2 })
}
