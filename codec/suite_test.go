package codec

import (
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a Queue under test with what happened to it.
type bench struct {
	*shunt.Queue
	t    testing.TB
	name string // of its channel

	mu     sync.Mutex
	events []shunt.Event
}

func newBench(t testing.TB, url, channel string, c *Chain) *bench {
	t.Helper()
	pool, err := shunt.NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, name: channel}
	b.Queue = &shunt.Queue{Pool: pool, Backoff: func(int) time.Duration { return 10 * time.Millisecond },
		Events: func(e shunt.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, e)
		}}
	if c != nil {
		b.Payloads = payloads(t, c)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		pool.Close()
	})
	return b
}

func payloads(t testing.TB, c *Chain) shunt.Payloads {
	t.Helper()
	p, err := c.Payloads()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (b *bench) count(kind shunt.EventKind) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			b.t.Fatalf("not yet: %s", what)
		}
	}
}

// wait waits for n events of a kind.
func (b *bench) wait(kind shunt.EventKind, n int) {
	b.t.Helper()
	b.until(string(kind), func() bool { return b.count(kind) >= n })
}

// receive handles the bench's channel, and returns what was handled.
func (b *bench) receive(handle func(text string) error) (handled func() []string, shutdown shunt.Shutdown) {
	b.t.Helper()
	var mu sync.Mutex
	var all []string
	k := shunt.Define(b.name, func(_ context.Context, text string) error {
		mu.Lock()
		all = append(all, text)
		mu.Unlock()
		return handle(text)
	})
	shutdown, err := b.Receive(b.t.Context(), k, 4)
	if err != nil {
		b.t.Fatal(err)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(slices.Values(all))
	}, shutdown
}

func (b *bench) enqueue(text string, opts ...shunt.Option) shunt.Ref {
	b.t.Helper()
	var r shunt.Ref
	m := shunt.Define[string](b.name, nil).Message(text)
	if err := b.Enqueue(b.t.Context(), m, append(opts, shunt.RefTo(&r))...); err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) list(state shunt.State) []shunt.Entry {
	b.t.Helper()
	es, err := b.List(b.t.Context(), b.name, state, 0, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return es
}

func done(string) error { return nil }

// key is one of the tests' keys.
func key(id string) Key { return Key{ID: id, Secret: []byte("0123456789abcdef0123456789abc." + id)} }

// objects are the names in a store.
func objects(t testing.TB, d Lister) (names []string) {
	t.Helper()
	err := d.List(t.Context(), func(o Object) error { names = append(names, o.Name); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// troubled is a Store that fails while it has an error.
type troubled struct {
	*Dir
	mu  sync.Mutex
	err error
}

func (s *troubled) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *troubled) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *troubled) Put(ctx context.Context, name string, body []byte) error {
	if err := s.trouble(); err != nil {
		return err
	}
	return s.Dir.Put(ctx, name, body)
}

func (s *troubled) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := s.trouble(); err != nil {
		return nil, err
	}
	return s.Dir.Get(ctx, name)
}

func (s *troubled) Delete(ctx context.Context, name string) error {
	if err := s.trouble(); err != nil {
		return err
	}
	return s.Dir.Delete(ctx, name)
}
