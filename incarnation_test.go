package shunt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// rewind kills a server that had saved its state at the first release, and starts it again with that.
func rewind(t *testing.T, opts func(i int) []Option) {
	s := redistest.Start(t, "save 3600 1000000")
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	seen := newTally()
	goOn, saved := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	save := sync.OnceFunc(func() { s.TryDo("SAVE"); close(saved) })
	p.On(redistest.ByScript(store.Release)(b.name), 0, redistest.Call(save))
	var ms []IMessage
	for i := range 400 {
		ms = append(ms, With(b.kind(nil).Message(i), opts(i)...))
	}
	// a backlog: no worker parks, so the waiter has no connection
	if err := b.EnqueueAll(context.Background(), ms); err != nil {
		t.Fatal(err)
	}
	b.receive(1, func(_ context.Context, i int) error {
		seen.add(i)
		if i == 300 {
			<-goOn
		}
		return nil
	})
	select {
	case <-saved:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was released")
	}
	b.until(5*time.Second, "released", func() bool { return b.sum(EventReleased) >= 1 })
	time.Sleep(100 * time.Millisecond) // so that nothing is owed an answer
	s.Kill()
	s.Restart()
	b.wait(EventHandedOver, 1, 20*time.Second)
	release()
	b.until(15*time.Second, "all are handled", func() bool { return seen.distinct() == 400 })
	b.until(10*time.Second, "nothing is left", func() bool { _, n := b.leaves(b.name); return n == 0 })
}

// Redis came back with an older state, in which the list of a living receiver has what it had put back long ago.
func TestRestartWithOlderState(t *testing.T) {
	t.Parallel()
	t.Run("plain", func(t *testing.T) { t.Parallel(); rewind(t, func(int) []Option { return nil }) })
	t.Run("with ids", func(t *testing.T) {
		t.Parallel()
		rewind(t, func(i int) []Option { return []Option{ID(fmt.Sprint("id", i))} })
	})
}

// All workers were busy, and a retry was executed, when Redis came back with a state from before it: no look at idle
// workers finds that.
func TestRestartUnderBusyWorkers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "save 3600 1000000")
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) {
		q.Lease, q.Prefetch, q.Backoff = 2*time.Second, 1, func(int) time.Duration { return 300 * time.Millisecond }
	})
	long, busy := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(long) })
	defer release()
	var handled atomic.Int32
	p.On(redistest.ByScript(store.Retry)(b.name), 1, redistest.Call(func() { s.TryDo("SAVE") }))
	b.enqueue(0, 2)
	b.receive(1, func(ctx context.Context, i int) error {
		switch {
		case i == 0 && handled.Add(1) == 1:
			return errors.New("again")
		case i == 1:
			close(busy)
			<-long // it ignores its context
		}
		return nil
	})
	b.wait(EventRetried, 1, 5*time.Second)
	<-busy
	s.Kill()
	s.Restart()
	b.wait(EventHandedOver, 1, 15*time.Second)
	other := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	other.name = b.name
	other.receive(1, func(_ context.Context, i int) error {
		if i == 0 {
			handled.Add(1)
		}
		return nil
	})
	other.until(
		10*time.Second,
		"it is handled again while the worker is busy",
		func() bool { return handled.Load() >= 2 },
	)
}

// A key that is not shunt's at receivers.dead let no handover end, and that held up all else.
func TestForeignDeadReceivers(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	seen := newTally()
	b.receive(4, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.enqueue(0, 10)
	b.until(5*time.Second, "ten", func() bool { return seen.distinct() == 10 })
	k := store.KeysOf(b.name)
	s.Do("SET", k.DeadReceivers, "foreign")
	p.On(
		redistest.Command("BRPOPLPUSH", k.Prepare),
		1,
		redistest.CutAfter,
	) // a take of unknown outcome asks for a handover
	redistest.Until(t, 10*time.Second, "it goes on", func() bool {
		_ = b.Enqueue(context.Background(), b.kind(nil).Message(10+seen.distinct()))
		time.Sleep(20 * time.Millisecond)
		return seen.distinct() > 20
	})
	if n := s.Do("ZCARD", k.Receivers).(int64); n > 4 {
		t.Errorf("%d among the living", n)
	}
	began := time.Now()
	err := b.Close()
	if took := time.Since(began); took > 5*time.Second || err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Close took %v: %v", took, err)
	}
}

// An element whose take broke the connection each time was put back where it was taken next, for ever; nobody suspected
// it.
func TestPoisonTake(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "client-output-buffer-limit normal 1mb 0 0")
	b := newBench(t, s.URL(), func(q *Queue) { q.Lease = 2 * time.Second })
	ctx := context.Background()
	var handled sync.Map
	var n atomic.Int32
	k := Define(b.name, func(_ context.Context, v string) error {
		if _, twice := handled.LoadOrStore(v, true); !twice {
			n.Add(1)
		}
		return nil
	})
	var ms []IMessage
	for i := range 500 {
		ms = append(ms, k.Message(fmt.Sprint("small", i)))
	}
	poison := k.Message(strings.Repeat("x", 3<<20))
	for _, err := range []error{b.EnqueueAll(ctx, ms), b.Enqueue(ctx, poison), b.EnqueueAll(ctx, renamed(k, 500))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Receive(ctx, k, 8); err != nil {
		t.Fatal(err)
	}
	b.until(
		45*time.Second,
		"the innocent are handled, and the poison is dead",
		func() bool { return n.Load() == 1000 && b.sum(EventPoisoned) == 1 },
	)
	keys := store.KeysOf(b.name)
	if dead := s.Do("ZCARD", keys.Dead).(int64); dead != 1 {
		t.Errorf("%d dead", dead)
	}
}

func renamed(k *Kind[string], n int) (ms []IMessage) {
	for i := range n {
		ms = append(ms, k.Message(fmt.Sprint("later", i)))
	}
	return ms
}

// Close ends within its bound whatever Redis does.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	refuse := func(script interface{ Digest() string }, text string) func(*testing.T, *bench, *redistest.Proxy) {
		return func(_ *testing.T, b *bench, p *redistest.Proxy) {
			p.On(redistest.ByScript(script)(b.name), 0, redistest.ReplyError(text))
			p.CutAll()
		}
	}
	for name, fault := range map[string]func(t *testing.T, b *bench, p *redistest.Proxy){
		"Redis away": func(_ *testing.T, _ *bench, p *redistest.Proxy) { p.Refuse(true); p.CutAll() },
		"a black hole": func(t *testing.T, _ *bench,
			p *redistest.Proxy) {
			p.Hole(true)
			t.Cleanup(func() { p.Hole(false) })
		},
		"register refused":   refuse(store.Register, "TRYAGAIN not now"),
		"handover refused":   refuse(store.Handover, "CLUSTERDOWN Hash slot not served"),
		"supersede refused":  refuse(store.Supersede, "NOPERM no"),
		"unregister refused": refuse(store.Unregister, "CLUSTERDOWN Hash slot not served"),
		"verdicts refused": func(_ *testing.T, b *bench, p *redistest.Proxy) {
			p.On(redistest.ByScript(store.Retry)(b.name), 0, redistest.ReplyError("OOM command not allowed"))
		},
		"handover cut each time": func(_ *testing.T, b *bench, p *redistest.Proxy) {
			p.On(redistest.ByScript(store.Handover)(b.name), 0, redistest.CutBefore)
			p.CutAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := redistest.NewProxy(t, redistest.Shared(t).Addr())
			b := newBench(t, p.URL(), func(q *Queue) {
				q.Grace, q.ReplyTimeout, q.Lease = 500*time.Millisecond, time.Second, 4*time.Second
				q.Backoff = func(int) time.Duration { return time.Hour }
			})
			begun, end := make(chan struct{}), make(chan struct{})
			b.idles(p, 4, func(_ context.Context, i int) error {
				if i == 0 {
					close(begun)
					<-end
				}
				return errors.New("it failed")
			})
			b.enqueue(0, 1)
			<-begun
			fault(t, b, p)
			time.Sleep(300 * time.Millisecond)
			close(end)
			began := time.Now()
			err := b.Close()
			took := time.Since(began)
			t.Logf("Close took %v: %v", took, err)
			if took > b.Queue.ReplyTimeout+b.Queue.Grace+time.Second {
				t.Errorf("Close took %v: %v", took, err)
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("an error of a context that nobody gave: %v", err)
			}
		})
	}
}
