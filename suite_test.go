package shunt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a Queue under test with all that happened to it.
type bench struct {
	*Queue
	t    testing.TB
	name string // of its channel

	mu     sync.Mutex
	events []Event
	more   chan struct{} // closed and replaced with each event
}

// newBench makes a Queue on the server or proxy at url; it is closed with the test.
func newBench(t testing.TB, url string, set ...func(*Queue)) *bench {
	t.Helper()
	pool, err := NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, name: redistest.Name(t), more: make(chan struct{})}
	b.Queue = &Queue{Pool: pool, Events: b.note}
	for _, f := range set {
		f(b.Queue)
	}
	t.Cleanup(func() {
		done := make(chan error, 1)
		go func() { done <- b.Close() }()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("Close hangs")
		}
		pool.Close()
		if t.Failed() {
			t.Log(b.story())
		}
	})
	return b
}

func (b *bench) note(e Event) {
	b.mu.Lock()
	b.events = append(b.events, e)
	close(b.more)
	b.more = make(chan struct{})
	b.mu.Unlock()
}

// story is what happened, for a failed test.
func (b *bench) story() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	for i, e := range b.events {
		if i > 30 && i < len(b.events)-30 {
			continue
		}
		fmt.Fprintf(
			&s,
			"%s %s %s attempt=%d n=%d worker=%d %v\n",
			e.Time.Format("05.000"),
			e.Kind,
			e.Serial,
			e.Attempt,
			e.N,
			e.Worker,
			e.Err,
		)
	}
	return s.String()
}

// count counts the events of a kind.
func (b *bench) count(kind EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// when is the time of the first event of a kind.
func (b *bench) when(kind EventKind) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			return e.Time
		}
	}
	return time.Time{}
}

// sum adds up the N of the events of a kind.
func (b *bench) sum(kind EventKind) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, e := range b.events {
		if e.Kind == kind {
			n += e.N
		}
	}
	return n
}

// until waits for a condition; it looks after each event, and now and then.
func (b *bench) until(limit time.Duration, what string, ok func() bool) {
	b.t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		b.mu.Lock()
		more := b.more
		b.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-more:
		case <-time.After(5 * time.Millisecond): // for what no Event tells
		case <-deadline.C:
			b.t.Fatalf("after %v: not yet: %s", limit, what)
		}
	}
}

// wait waits for n events of a kind.
func (b *bench) wait(kind EventKind, n int, limit time.Duration) {
	b.t.Helper()
	b.until(limit, fmt.Sprintf("%d %s", n, kind), func() bool { return b.count(kind) >= n })
}

// receive starts a receiver that is shut down with the test.
func (b *bench) receive(workers int, handle func(context.Context, int) error) Shutdown {
	b.t.Helper()
	return b.starts(func() (Shutdown, error) { return b.Receive(context.Background(), b.kind(handle), workers) })
}

// starts starts a receiver. A dial has a sixth of the lease, so at a short one it may need another try.
func (b *bench) starts(receive func() (Shutdown, error)) Shutdown {
	b.t.Helper()
	for tries := 1; ; tries++ {
		shutdown, err := receive()
		if err == nil {
			return shutdown
		}
		if tries == 10 || !timedOut(err) {
			b.t.Fatal(err)
		}
	}
}

// timedOut says that an error may come from a machine that was away for a second.
func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func (b *bench) kind(handle func(context.Context, int) error) *Kind[int] {
	return Define(b.name, handle)
}

// enqueue puts the numbers from..to-1 into the bench's channel.
func (b *bench) enqueue(from, to int, opts ...Option) {
	b.t.Helper()
	k := b.kind(nil)
	var ms []IMessage
	for i := from; i < to; i++ {
		ms = append(ms, k.Message(i))
	}
	if err := b.EnqueueAll(context.Background(), ms, opts...); err != nil {
		b.t.Fatal(err)
	}
}

// tally counts handlings by number.
type tally struct {
	mu sync.Mutex
	n  map[int]int
}

func newTally() *tally { return &tally{n: make(map[int]int)} }

func (c *tally) add(i int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[i]++
	return c.n[i]
}

func (c *tally) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.n)
}

func (c *tally) extra() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, v := range c.n {
		n += v - 1
	}
	return n
}

// keysLeft are the channel's keys that exist, but its counts: they come with a flush.
func keysLeft(t testing.TB, b redistest.Backend, channel string) []string {
	t.Helper()
	var left []string
	vs, _ := b.Do("KEYS", "{"+strings.NewReplacer("[", "\\[", "]", "\\]").Replace(channel)+"}*").([]any)
	for _, v := range vs {
		if key := string(v.([]byte)); key != store.KeysOf(channel).Counts {
			left = append(left, key)
		}
	}
	return left
}

// unlessAway fails the test with what try finds wrong. It tries again, at most twice, only where this process stood
// still meanwhile for longer than such a test can spare.
func unlessAway(t *testing.T, try func() string) {
	t.Helper()
	for tries := 1; ; tries++ {
		began := time.Now()
		wrong := try()
		if wrong == "" {
			return
		}
		away := redistest.StoodStill(began)
		if away == 0 || tries == 3 {
			t.Fatalf("%s; the process stood still for %v at most", wrong, away)
		}
	}
}

// idles starts a receiver behind the proxy and waits until it waits for a message.
func (b *bench) idles(p *redistest.Proxy, workers int, handle func(context.Context, int) error) Shutdown {
	b.t.Helper()
	blocks := p.On(redistest.ByName("BRPOPLPUSH", ".prepare")(b.name), 1, redistest.Pass)
	shutdown := b.receive(workers, handle)
	strikes(b.t, blocks, 1)
	return shutdown
}

// strikes waits for a rule.
func strikes(t testing.TB, r *redistest.Rule, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.Wait(ctx, n); err != nil {
		t.Fatal(err)
	}
}

// members are a sorted set's.
func members(t *testing.T, s *redistest.Server, key any) []string {
	t.Helper()
	ms, err := redis.Strings(s.Do("ZRANGE", key, 0, -1), nil)
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// passes waits until so much time has passed on the server's clock. A worker handles what had expired just before its
// take: on a loaded machine that may be some 100 ms before.
func (b *bench) passes(s redistest.Backend, d time.Duration) {
	b.t.Helper()
	end := store.ServerTime(s.Do("TIME")).Add(d)
	b.until(d+5*time.Second, "its time is over", func() bool { return store.ServerTime(s.Do("TIME")).After(end) })
}
