package worker

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// fake is a receiver as small as a pool needs one: payloads are numbers, and a func is their handler.
type fake struct {
	*Pool
	t      testing.TB
	s      *redistest.Server
	keys   []*store.Keys
	handle func(it *Item, n int) error

	mu      sync.Mutex
	handled map[int]int // times, by number
	events  []event.Event
	more    chan struct{} // closed and replaced with each event
}

// retry is an error that says how long to wait.
type retry time.Duration

func (retry) Error() string { return "again" }

var (
	errReject  = errors.New("never")
	errRelease = errors.New("not here")
)

// newFake makes a pool of so many channels on the server at url, and starts it; it ends with the test.
func newFake(
	t testing.TB,
	s *redistest.Server,
	url string,
	channels, workers int,
	handle func(*Item, int) error,
	change ...func(*Config),
) *fake {
	t.Helper()
	f := &fake{t: t, s: s, handle: handle, handled: make(map[int]int), more: make(chan struct{})}
	for range channels {
		f.keys = append(f.keys, store.KeysOf(redistest.Name(t)))
	}
	f.Pool = newTestPool(t, url, f.keys, workers, func(c *Config) {
		c.Handle, c.Judge, c.Emit, c.Every = f.run, f.judge, f.note, true
		for _, set := range change {
			set(c)
		}
	})
	f.Start()
	t.Cleanup(f.stop)
	return f
}

// stop ends the pool; it may be called twice.
func (f *fake) stop() {
	if f.Stopped() {
		return
	}
	f.StopTaking()
	patience := time.AfterFunc(5*time.Second, f.CancelHandlers)
	defer patience.Stop()
	if _, still, err := f.End(); still != 0 || err != nil {
		f.t.Errorf("end: %d handlers still run, %v", still, err)
	}
}

// handles gives a pool whose handler needs the pool its handler, before anything is enqueued.
func (f *fake) handles(with func(it *Item, n int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = with
}

func (f *fake) run(it *Item) *custody.Verdict {
	n, err := strconv.Atoi(string(it.Payload))
	it.Decoded(n, 0)
	if err == nil {
		f.mu.Lock()
		f.handled[n]++
		handle := f.handle
		f.mu.Unlock()
		err = handle(it, n)
	}
	if err == nil {
		return custody.Ack
	}
	it.Returned()
	return f.judge(it, n, err)
}

func (f *fake) judge(it *Item, _ any, err error) *custody.Verdict {
	v := &custody.Verdict{Err: err}
	var wait retry
	switch {
	case err == errRelease || it.Cause() == custody.ErrLeaseLost || it.Cause() == custody.ErrShutdown:
		v.Fate = store.Released
		return v
	case it.Cause() == custody.ErrCancelled:
		v.Fate = store.Cancelled
		return v
	case errors.As(err, &wait):
		v.Fate, v.Wait = store.Retried, time.Duration(wait)
	default:
		v.Fate = store.Rejected
	}
	e, _ := element.Decode(it.Raw)
	e = e.Next(err)
	v.Next, v.Failure = e.Encode(), e.Failure()
	return v
}

func (f *fake) note(evs ...event.Event) {
	f.mu.Lock()
	f.events = append(f.events, evs...)
	close(f.more)
	f.more = make(chan struct{})
	f.mu.Unlock()
}

// enqueue puts numbers into a channel's prepare; change may alter their elements.
func (f *fake) enqueue(channel, from, to int, change ...func(*element.Element)) {
	args := []any{f.keys[channel].Prepare}
	for i := from; i < to; i++ {
		e := element.Element{Serial: element.NewSerial(), Payload: strconv.AppendInt(nil, int64(i), 10)}
		for _, c := range change {
			c(&e)
		}
		args = append(args, e.Encode())
	}
	f.s.Do("LPUSH", args...)
}

// withID gives a message an id, as enqueue by id does.
func (f *fake) withID(channel int, id string, extra element.Extra) func(*element.Element) {
	return func(e *element.Element) {
		x := extra
		x.ID = id
		e.Extra = &x
		k := f.keys[channel]
		f.s.Do("HSET", k.IDs, id, string(e.Serial[:])+"p 0 0 "+strconv.FormatInt(x.Expires, 10)+" \n")
	}
}

// count counts the events of a kind.
func (f *fake) count(kind event.Kind) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e.Kind == kind {
			n += max(1, e.N)
		}
	}
	return n
}

// seen is how many of the numbers from one to below another were handled.
func (f *fake) seen(from, to int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := from; i < to; i++ {
		if f.handled[i] > 0 {
			n++
		}
	}
	return n
}

// until waits for a condition; it looks after each event, and now and then for what no Event says.
func (f *fake) until(limit time.Duration, what string, ok func() bool) {
	f.t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		more := f.more
		f.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-more:
		case <-time.After(5 * time.Millisecond):
		case <-deadline.C:
			f.mu.Lock()
			events := f.events
			f.mu.Unlock()
			for _, e := range events[max(0, len(events)-30):] {
				f.t.Logf("%s %s attempt %d, n %d, worker %d, %v", e.Kind, e.Channel, e.Attempt, e.N, e.Worker, e.Err)
			}
			f.t.Fatalf("after %v: not yet: %s", limit, what)
		}
	}
}

// length is of a list or a sorted set.
func (f *fake) length(command, key string) int {
	n, _ := f.s.Do(command, key).(int64)
	return int(n)
}

// noPromoter is a lane's promoter that promotes nothing.
type noPromoter struct{}

func (noPromoter) ScheduledHere(time.Duration) {}
func (noPromoter) Yield()                      {}

// newTestPool makes a pool that has joined and is to be started.
func newTestPool(tb testing.TB, url string, keys []*store.Keys, workers int, change func(*Config)) *Pool {
	pool, err := link.NewPool(url)
	if err != nil {
		tb.Fatal(err)
	}
	node := link.NewNode(pool, link.Settings{DialTimeout: time.Second, MaxBackoff: time.Second})
	server := &link.Server{
		Node:  node,
		Data:  link.New(node, 3*time.Second, true),
		Pulse: link.New(node, time.Second, false),
	}
	tb.Cleanup(func() {
		server.Data.Close()
		server.Pulse.Close()
		pool.Close()
	})
	conf := Config{
		Lease:         10 * time.Minute,
		Grace:         time.Second,
		Timeout:       time.Minute,
		ReplyTimeout:  3 * time.Second,
		Prefetch:      64,
		PrefetchBytes: 256 << 10,
		MaxSize:       1 << 20,
		Values:        context.Background(),
		Judge:         func(*Item, any, error) *custody.Verdict { return custody.Ack },
	}
	change(&conf)
	var lanes []*lane.Lane
	for _, k := range keys {
		lanes = append(lanes, lane.New(k, server, noPromoter{}))
	}
	r := NewPool(workers, lanes, conf)
	if err := r.Join(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return r
}
