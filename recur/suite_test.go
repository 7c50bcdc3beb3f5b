package recur

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a Queue and its Timetable under test, with what happened and what was handled.
type bench struct {
	*shunt.Queue
	*Timetable
	t       testing.TB
	channel string
	kind    *shunt.Kind[string]

	mu     sync.Mutex
	events []shunt.Event
	got    []handled
}

// handled is a message as its handler met it.
type handled struct {
	name string
	tick time.Time // zero: none
	at   time.Time
}

// newBench makes a Queue on the server or proxy at url; it is closed with the test. Benches that share a channel are
// given it.
func newBench(t testing.TB, url, channel string) *bench {
	t.Helper()
	pool, err := shunt.NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, channel: channel}
	b.Queue = &shunt.Queue{Pool: pool, Events: func(e shunt.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}}
	b.Timetable = &Timetable{Queue: b.Queue}
	b.kind = shunt.Define(channel, func(ctx context.Context, name string) error {
		h := handled{name: name, at: time.Now()}
		h.tick, _ = Tick(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.got = append(b.got, h)
		return nil
	})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		pool.Close()
		if t.Failed() {
			t.Log(b.story())
		}
	})
	return b
}

func (b *bench) story() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s strings.Builder
	for i, e := range b.events {
		if i < 40 || i > len(b.events)-40 {
			fmt.Fprintf(&s, "%s %s %s n=%d %v\n", e.Time.Format("05.000"), e.Kind, e.Serial, e.N, e.Err)
		}
	}
	return s.String()
}

// run runs the bench's channel until the test ends.
func (b *bench) run() shunt.Shutdown {
	b.t.Helper()
	shutdown, err := b.Run(b.t.Context(), b.channel)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.end(shutdown) })
	return shutdown
}

// still is a runner of the bench's channel that has read the table, and is not run.
func (b *bench) still() *runner {
	b.t.Helper()
	engine, err := queues.Open(b.Queue)
	if err != nil {
		b.t.Fatal(err)
	}
	r := newRunner(engine, b.channel, b.t.Context(), b.t.Context())
	if err := r.readTable(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) end(shutdown shunt.Shutdown) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := shutdown(ctx); err != nil {
		b.t.Errorf("shutdown: %v", err)
	}
}

func (b *bench) receive() {
	b.t.Helper()
	if _, err := b.Receive(context.Background(), b.kind, 2); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) add(name string, s Spec, opts ...Option) {
	b.t.Helper()
	if err := b.Add(context.Background(), name, s, b.kind.Message(name), opts...); err != nil {
		b.t.Fatal(err)
	}
}

// entry is the one of a name.
func (b *bench) entry(name string) Entry {
	b.t.Helper()
	es, err := b.Timetable.List(context.Background(), b.channel)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range es {
		if e.Name == name {
			return e
		}
	}
	b.t.Fatalf("no %q among %v", name, es)
	return Entry{}
}

// handled are those of a name, in the order of their ticks being handled.
func (b *bench) handled(name string) (hs []handled) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.got {
		if h.name == name {
			hs = append(hs, h)
		}
	}
	return hs
}

// sum adds up the N of the events of a kind.
func (b *bench) sum(kind shunt.EventKind) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			n += max(e.N, 1)
		}
	}
	return n
}

// missed says whether an Event told that the ticks of a name were missed from first on.
func (b *bench) missed(name string, first time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.events, func(e shunt.Event) bool {
		return e.Kind == MissedTicks && e.DueAt.Equal(first) && strings.Contains(e.Err.Error(), fmt.Sprintf("%q", name))
	})
}

// until waits for a condition.
func (b *bench) until(limit time.Duration, what string, ok func() bool) {
	b.t.Helper()
	poll, bound := time.NewTicker(2*time.Millisecond), time.NewTimer(limit)
	defer poll.Stop()
	defer bound.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-bound.C:
			b.t.Fatalf("after %v: not yet: %s", limit, what)
		}
	}
}

// set rewrites the record of a message as it is in Redis, behind everybody's back.
func (b *bench) set(s redistest.Backend, name string, f func(*record)) {
	b.t.Helper()
	key := store.KeysOf(b.channel).Recur
	raw, _ := s.Do("HGET", key, name).([]byte)
	r, err := parseRecord(string(raw))
	if err != nil {
		b.t.Fatalf("%q: %v", raw, err)
	}
	f(&r)
	s.Do("HSET", key, name, r.head()+r.body)
}

// once fails unless every tick of a name's interval, from the first to the last that was handled, is there once. Where
// a handler may have met a message again, at least once is enough.
func (b *bench) once(name string, every time.Duration, again bool) {
	b.t.Helper()
	var n map[int64]int
	// one worker may be ahead of the other
	b.until(5*time.Second, "all ticks between the first and the last", func() bool {
		n = make(map[int64]int)
		var first, last int64
		for _, h := range b.handled(name) {
			tick := h.tick.UnixMilli()
			n[tick]++
			if first == 0 || tick < first {
				first = tick
			}
			last = max(last, tick)
		}
		return len(n) == 0 || int64(len(n)) == (last-first)/every.Milliseconds()+1
	})
	for tick, n := range n {
		if n > 1 && !again {
			b.t.Errorf("tick %v came %d times", time.UnixMilli(tick), n)
		}
	}
}
