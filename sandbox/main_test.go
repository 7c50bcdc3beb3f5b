package sandbox

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a Queue and a Pool under test, with what happened.
type bench struct {
	*shunt.Queue
	pool    *Pool
	t       testing.TB
	channel string

	mu     sync.Mutex
	events []shunt.Event
	more   chan struct{} // closed and replaced with each event
}

// newBench makes a Queue on the shared server. Pool and Queue are closed with the test.
func newBench(t testing.TB, p *Pool, set ...func(*shunt.Queue)) *bench {
	t.Helper()
	redis, err := shunt.NewPool(redistest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, pool: p, channel: redistest.Name(t), more: make(chan struct{})}
	b.Queue = &shunt.Queue{Pool: redis, Events: b.note, Grace: 5 * time.Second,
		Backoff: func(int) time.Duration { return 0 }}
	for _, f := range set {
		f(b.Queue)
	}
	t.Cleanup(func() {
		b.Close()
		closePool(t, p)
		redis.Close()
		if t.Failed() {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, e := range b.events[:min(len(b.events), 60)] {
				t.Log(e.Time.Format("05.000"), e.Kind, e.Serial, e.Attempt, e.Err)
			}
		}
	})
	return b
}

// closePool gives the children in the middle of a message a second.
func closePool(t testing.TB, p *Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func (b *bench) note(e shunt.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
	close(b.more)
	b.more = make(chan struct{})
}

// count counts the events of a kind.
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

// wait waits for n events of a kind, and returns the text of the last one's error.
func (b *bench) wait(kind shunt.EventKind, n int) string {
	b.t.Helper()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		b.mu.Lock()
		more, text, have := b.more, "", 0
		for _, e := range b.events {
			if e.Kind == kind {
				have, text = have+1, fmt.Sprint(e.Err)
			}
		}
		b.mu.Unlock()
		if have >= n {
			return text
		}
		select {
		case <-more:
		case <-late.C:
			b.t.Fatalf("%d events %s after 30 s, want %d", have, kind, n)
		}
	}
}

func (b *bench) receive(workers int) shunt.Shutdown {
	b.t.Helper()
	shutdown, err := b.Receive(context.Background(), b.pool.Message(b.channel), workers)
	if err != nil {
		b.t.Fatal(err)
	}
	return shutdown
}

func (b *bench) enqueue(payload string, opts ...shunt.Option) {
	b.t.Helper()
	if err := b.Enqueue(context.Background(), shunt.Raw(b.channel, []byte(payload)), opts...); err != nil {
		b.t.Fatal(err)
	}
}

// ask enqueues a payload with an ID, and returns its result.
func (b *bench) ask(payload string, opts ...shunt.Option) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	opts = append([]shunt.Option{shunt.ID(redistest.Name(b.t))}, opts...)
	o, err := b.EnqueueAndWait(ctx, shunt.Raw(b.channel, []byte(payload)), opts...)
	if err != nil {
		b.t.Fatalf("%q: %v", payload, err)
	}
	if o.Kind != shunt.EventAcked {
		b.t.Fatalf("%q: %+v", payload, o)
	}
	return string(o.Result)
}

// contains wants every part in a text.
func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not have %q", text, part)
		}
	}
}

// lines is a Pool.Stderr that a test waits on.
type lines struct{ c chan string }

func newLines() *lines { return &lines{make(chan string, 1000)} }

func (l *lines) Write(b []byte) (int, error) {
	select {
	case l.c <- strings.TrimSpace(string(b)):
	default: // far more than the test looks at
	}
	return len(b), nil
}

// next is the next line that begins with a word, without that.
func (l *lines) next(t testing.TB, word string) string {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case line := <-l.c:
			if rest, ok := strings.CutPrefix(line, word+" "); ok {
				return rest
			}
		case <-late:
			t.Fatalf("no line %q on standard error", word)
		}
	}
}
