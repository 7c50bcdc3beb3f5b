package shunt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// The handover held the gate for as long as Redis was away, and the way down waited for the gate.
func TestShutdownWithRedisAway(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, q *bench, p *redistest.Proxy){
		"in a handover": func(t *testing.T, q *bench, p *redistest.Proxy) {
			ack := redistest.ByName("LREM", ".doing")(q.name)
			p.On(ack, 1, redistest.Call(func() { p.Refuse(true) }))
			p.On(ack, 1, redistest.CutAfter)
			q.enqueue(0, 1)
			q.wait(EventDisconnected, 1, 5*time.Second) // so the handover has dialled
			p.CutAll()
		},
		"idle": func(t *testing.T, q *bench, p *redistest.Proxy) {
			p.Hole(true)
			t.Cleanup(func() { p.Hole(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			q := newBench(t, p.URL(), func(q *Queue) { q.Grace = 200 * time.Millisecond })
			shutdown := q.idles(p, 2, func(context.Context, int) error { return nil })
			leave(t, q, p)
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := shutdown(ctx)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("ctx and Grace are 200 ms each, shutdown took %v: %v", took, err)
			}
			if name == "in a handover" { // whose verdict is unknown to the end
				q.wait(EventUnconfirmedVerdict, 1, 5*time.Second)
			}
			p.Hole(false)
			p.Refuse(false)
		})
	}
}

// A take of a connection that broke was still to be executed when shutdown came. The entry was taken away with its
// lists empty, and nobody looked at them again.
func TestLateTakeAfterShutdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Grace = time.Second })
	shutdown := q.idles(p, 1, func(context.Context, int) error { return nil })
	handover := p.On(redistest.ByScript(store.Register)(q.name), 0, redistest.ReplyError("TRYAGAIN not now"))
	cut := p.On(redistest.ByName("BRPOPLPUSH", ".prepare")(q.name), 1, redistest.CutUnread)
	q.enqueue(0, 1) // ends the block under way
	strikes(t, cut, 1)
	strikes(t, handover, 1) // and nobody unblocks the waiter any more
	k := store.KeysOf(q.name)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := shutdown(ended); err != nil {
		t.Error(err)
	}
	if living, gone := members(t, s, k.Receivers), members(t, s, k.DeadReceivers); len(living) != 0 || len(gone) == 0 {
		t.Errorf("living %v, dead %v", living, gone)
	}
	s.Do("LPUSH", k.Prepare, "1") // the server still blocks for the old take
	redistest.Until(t, time.Second, "it is taken", func() bool { return s.Do("LLEN", k.Prepare).(int64) == 0 })
	seen := newTally()
	other := newBench(t, s.URL())
	other.name = q.name
	other.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	q.until(5*time.Second, "it is found", func() bool { return seen.distinct() == 1 })
}

// Close waited for a receiver whose Receive failed, and that never was to end.
func TestCloseBesideFailingReceive(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	p.Hole(true)
	defer p.Hole(false)
	q := newBench(t, p.URL())
	failed := make(chan error, 1)
	go func() {
		_, err := q.Receive(context.Background(), q.kind(func(context.Context, int) error { return nil }), 1)
		failed <- err
	}()
	redistest.Until(t, 5*time.Second, "Receive is under way", func() bool { return p.Dials() > 0 })
	time.Sleep(100 * time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- q.Close() }()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
		t.Error("Close hangs")
	}
	if err := <-failed; err == nil {
		t.Error("Receive did not fail")
	}
}

// Orphans that ended while shutdown waited for the workers gave their slots fresh goroutines, on a group that was at
// zero.
func TestOrphansEndAtShutdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	for round := range 8 {
		q := newBench(t, s.URL(), func(q *Queue) {
			q.Grace = 20 * time.Millisecond
			q.Backoff = func(int) time.Duration { return time.Hour }
		})
		block := make(chan struct{})
		shutdown := q.receive(2, func(context.Context, int) error { <-block; return nil })
		q.enqueue(0, 4, Timeout(20*time.Millisecond))
		q.wait(EventOrphaned, 4, 5*time.Second)
		time.AfterFunc(time.Duration(round)*100*time.Microsecond, func() { close(block) })
		if err := shutdown(context.Background()); err != nil {
			t.Error(round, err)
		}
		if left, n := q.leaves(q.name); left[StateDelay].Count != 4 || n != 4 {
			t.Errorf("round %d: %v", round, left)
		}
	}
}

// One link was sent away by a Redis that served the other; a shutdown just then gave up after 10 ms, and left its
// entry.
func TestShutdownWhileBeatsAreRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = time.Second })
	shutdown := q.idles(p, 2, func(context.Context, int) error { return nil })
	refused := p.On(
		redistest.ByScript(store.Beat)(q.name),
		0,
		redistest.ReplyError("READONLY You can't write against a read only replica."),
	)
	strikes(t, refused, 2)
	p.Refuse(true) // new connections, so that it stays away
	redistest.Until(t, 5*time.Second, "the link has been sent away", func() bool { return q.server.Why() != nil })
	p.On(redistest.ByScript(store.Unregister)(q.name), 1, redistest.Delay(50*time.Millisecond))
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := members(t, s, store.KeysOf(q.name).Receivers); len(left) > 0 {
		t.Errorf("%v is still among the living", left)
	}
}

// A Redis that has refused to serve a moment ago takes connections, so a shutdown waits for it: it gave up after 10 ms.
func TestShutdownAfterARefusal(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	q := newBench(t, p.URL(), func(q *Queue) { q.Lease = 4 * time.Second })
	shutdown := q.idles(p, 2, func(context.Context, int) error { return nil })
	any := func([][]byte) bool { return true }
	rule := p.On(any, 0, redistest.ReplyError("READONLY You can't write against a read only replica."))
	redistest.Until(t, 10*time.Second, "both links have left", func() bool {
		return q.server.Why() != nil && !q.server.Data.Up() && !q.server.Pulse.Up()
	})
	rule.Remove()
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := members(t, s, store.KeysOf(q.name).Receivers); len(left) > 0 {
		t.Errorf("%v is still among the living", left)
	}
}

// A handler was given up, and the user's Backoff, which is asked then, did not return. Shutdown looked at the verdict
// that was not there yet.
func TestShutdownWhileBackoffBlocks(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	asked, release := make(chan struct{}), make(chan struct{})
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Timeout, q.Grace = 50*time.Millisecond, 50*time.Millisecond
		q.Backoff = func(int) time.Duration { close(asked); <-release; return 0 }
	})
	shutdown := q.receive(1, func(context.Context, int) error { <-release; return nil })
	defer close(release)
	q.enqueue(0, 1)
	<-asked
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var left *ShutdownError
	if err := shutdown(ctx); !errors.As(err, &left) || left.Running != 1 {
		t.Errorf("shutdown: %v", err)
	}
}

// An idle receiver held nothing, and Close took its whole lease, because the goroutine that waits for messages had sent
// a command whose reply could not come. The error named a context that nobody had given.
func TestCloseWithRedisAway(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(s *redistest.Server, p *redistest.Proxy){
		"refused": func(s *redistest.Server, p *redistest.Proxy) { s.Kill(); p.Refuse(true) },
		"stopped": func(s *redistest.Server, _ *redistest.Proxy) { s.Stop() },
		"hole":    func(_ *redistest.Server, p *redistest.Proxy) { p.Hole(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			redistest.Leaks(t)
			p := redistest.NewProxy(t, s.Addr())
			q := newBench(t, p.URL(), func(q *Queue) { q.Lease, q.ReplyTimeout = 10*time.Minute, 3*time.Second })
			q.idles(p, 2, func(context.Context, int) error { return nil })
			q.enqueue(0, 1)
			q.wait(EventAcked, 1, 5*time.Second)
			leave(s, p)
			began := time.Now()
			err := q.Close()
			if took := time.Since(began); took > q.ReplyTimeout+time.Second {
				t.Errorf("Close took %v", took)
			}
			if text := fmt.Sprint(err); strings.Contains(text, "context") ||
				!strings.Contains(text, "Redis did not answer") && !strings.Contains(text, "onnect") {
				t.Errorf("Close: %v", err)
			}
			p.Hole(false)
			if name == "stopped" {
				s.Cont()
			}
		})
	}
}

// Shutdown ends all receivers at once: their handlers share one deadline and one grace, and the Queue goes on.
func TestQueueShutdown(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Grace = 500 * time.Millisecond })
	const receivers = 8
	var running atomic.Int32
	inHandler := make(chan error, receivers)
	release := make(chan struct{})
	defer close(release)
	for i := range receivers {
		k := Define(fmt.Sprint(q.name, i), func(ctx context.Context, n int) error {
			inHandler <- q.Shutdown(ctx)
			running.Add(1)
			<-release // whatever its context says
			return nil
		})
		if _, err := q.Receive(t.Context(), k, 1); err != nil {
			t.Fatal(err)
		}
		if err := q.Enqueue(t.Context(), k.Message(i)); err != nil {
			t.Fatal(err)
		}
		if err := <-inHandler; !errors.Is(err, ErrInHandler) {
			t.Errorf("from inside a handler: %v", err)
		}
	}
	q.until(5*time.Second, "all run", func() bool { return running.Load() == receivers })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := q.Shutdown(ctx)
	if took := time.Since(began); took > 3*q.Grace {
		t.Errorf("%d receivers took %v", receivers, took)
	}
	var left *ShutdownError
	if !errors.As(err, &left) || strings.Count(err.Error(), "1 handlers still running") != receivers {
		t.Errorf("%v", err)
	}
	if err := q.Shutdown(ctx); err != nil {
		t.Errorf("without receivers: %v", err)
	}
	q.receive(1, func(context.Context, int) error { return nil })
	q.enqueue(0, 1)
	q.wait(EventAcked, 1, 5*time.Second)
}
