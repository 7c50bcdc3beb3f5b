package worker

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// All verdicts of a batch come true, each in its own way.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 1, 4, func(_ *Item, n int) error {
		switch n % 10 {
		case 1:
			return retry(time.Hour)
		case 2:
			return errReject
		}
		return nil
	}, func(c *Config) { c.Bounds.MaxDead = 5 })
	f.enqueue(0, 0, 100)
	for i := 100; i < 150; i++ {
		f.enqueue(0, i, i+1, f.withID(0, string(rune('a'+i)), element.Extra{Retain: int64(i % 2 * 60000)}))
	}
	f.until(
		10*time.Second,
		"all are over",
		func() bool { return f.count(event.Acked)+f.count(event.Retried)+f.count(event.Rejected) == 150 },
	)
	k := f.keys[0]
	for key, want := range map[string]int{k.Delay: 15, k.Dead: 5} {
		if n := f.length("ZCARD", key); n != want {
			t.Errorf("%s has %d, want %d", key, n, want)
		}
	}
	if ids, done := f.length("HLEN", k.IDs), f.length("HLEN", k.Done)-1; ids != 5 || done != 25-5 {
		t.Errorf("%d ids and %d outcomes", ids, done)
	}
	if f.count(event.Trimmed) != 10 {
		t.Errorf("%d trimmed", f.count(event.Trimmed))
	}
	f.stop()
	if n := f.length("LLEN", k.Doing(f.Sites[0].Live(), 0)); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// What follows a message is enqueued with its ack, unless its id is taken.
func TestFollow(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 2, 1, nil)
	follow := func(n byte, id string) store.Followup {
		e := element.Element{Serial: element.NewSerial(), Payload: []byte{n}}
		if id != "" {
			e.Extra = &element.Extra{ID: id}
		}
		return store.Followup{Keys: f.keys[1], Mode: "in", MS: 3600_000, Element: e, Raw: e.Encode()}
	}
	f.handles(func(it *Item, _ int) error {
		it.Then([]store.Followup{follow('1', ""), follow('2', "a"), follow('3', "a")}, 3)
		return nil
	})
	f.enqueue(0, 0, 1)
	f.until(5*time.Second, "it is acked", func() bool { return f.count(event.Acked) == 1 })
	if f.count(event.Enqueued) != 2 || f.count(event.Duplicate) != 1 || f.length("ZCARD", f.keys[1].Delay) != 2 {
		t.Errorf(
			"%d enqueued, %d duplicates, %d in delay",
			f.count(event.Enqueued),
			f.count(event.Duplicate),
			f.length("ZCARD", f.keys[1].Delay),
		)
	}
}

// A message that is cancelled is not handled, or its handler is ended.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 1, 1, nil)
	running := make(chan *Item)
	f.handles(func(it *Item, n int) error {
		running <- it
		<-it.Done()
		return it.Cause()
	})
	f.enqueue(0, 0, 1)
	it := <-running
	if all := f.Tracked(f.Lanes[0]); len(all) != 0 {
		t.Errorf("%v are tracked without an id", all)
	}
	f.Cancel(f.Lanes[0], it.Serial)
	f.until(5*time.Second, "its handler ends", func() bool { return f.count(event.Cancelled) == 1 })

	e := element.Element{}
	f.enqueue(
		0,
		1,
		2,
		f.withID(0, "b", element.Extra{Expires: time.Now().Add(time.Hour).UnixMilli()}),
		func(o *element.Element) {
			e = *o
			f.s.Do("SADD", f.keys[0].Cancelled, string(o.Serial[:]))
		},
	)
	f.until(5*time.Second, "it is not begun", func() bool { return f.count(event.Cancelled) == 2 })
	if f.seen(1, 2) != 0 || e.ID() != "b" {
		t.Error("it was handled")
	}
}

// What has expired, or is past its deadline, is not handled.
func TestTooLate(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 1, 1, func(*Item, int) error { return nil })
	past := time.Now().Add(-time.Minute).UnixMilli()
	f.enqueue(0, 0, 1, f.withID(0, "a", element.Extra{Expires: past}))
	f.enqueue(0, 1, 2, func(e *element.Element) { e.Extra = &element.Extra{Expires: past, ToDead: true} })
	f.enqueue(0, 2, 3, f.withID(0, "c", element.Extra{Deadline: past}))
	f.until(5*time.Second, "all are over", func() bool {
		return f.count(event.Expired) == 1 &&
			f.count(event.Rejected) == 2
	})
	if f.seen(0, 3) != 0 || f.length("ZCARD", f.keys[0].Dead) != 2 || f.length("HLEN", f.keys[0].IDs) != 0 {
		t.Errorf(
			"%d handled, %d dead, %d ids",
			f.seen(0, 3),
			f.length("ZCARD", f.keys[0].Dead),
			f.length("HLEN", f.keys[0].IDs),
		)
	}
}

// A handler that ends its goroutine has a verdict, and its worker goes on.
func TestExit(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	f := newFake(t, s, s.URL(), 1, 1, func(_ *Item, n int) error {
		if n == 0 {
			runtime.Goexit()
		}
		return nil
	})
	f.enqueue(0, 0, 3)
	f.until(5*time.Second, "all are over", func() bool {
		return f.count(event.Rejected) == 1 &&
			f.count(event.Acked) == 2
	})
}

// A handler that ignores its ended context loses its place after a grace: its verdict is made, and its worker has a
// fresh goroutine.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	goOn := make(chan struct{})
	var late atomic.Int32
	f := newFake(t, s, s.URL(), 1, 1, func(it *Item, n int) error {
		if n == 0 {
			it.Decoded(n, 50*time.Millisecond)
			<-goOn
			late.Add(1)
		}
		return errors.New("ends")
	}, func(c *Config) { c.Grace = 100 * time.Millisecond })
	f.enqueue(0, 0, 2)
	f.until(5*time.Second, "both are over", func() bool {
		return f.count(event.Rejected) == 2 &&
			f.count(event.Orphaned) == 1
	})
	close(goOn)
	f.until(5*time.Second, "it returns", func() bool { return late.Load() == 1 })
	f.stop()
	if f.count(event.Rejected) != 2 || f.count(event.TimedOut) != 1 {
		t.Errorf("%d rejected, %d timed out", f.count(event.Rejected), f.count(event.TimedOut))
	}
}

// In strict order what a higher channel has starts first, and a channel that cannot be read is left out.
func TestStrictOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	var order []int
	f := newFake(t, s, s.URL(), 3, 1, nil, func(c *Config) { c.Order = NewOrder(nil) })
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	f.handles(func(_ *Item, n int) error {
		f.mu.Lock()
		order = append(order, n)
		f.mu.Unlock()
		begun <- struct{}{}
		<-goOn
		return nil
	})
	f.enqueue(2, 20, 25)
	<-begun
	f.enqueue(1, 10, 15)
	f.enqueue(0, 0, 5)
	close(goOn)
	f.until(5*time.Second, "all are over", func() bool { return f.count(event.Acked) == 15 })
	f.mu.Lock()
	// A waiter has the first message of each channel, and may bring it at any time: so these do not count.
	got := slices.DeleteFunc(slices.Clone(order), func(n int) bool { return n%10 == 0 })
	if !slices.IsSortedFunc(got, func(a, b int) int { return a/10 - b/10 }) || len(got) != 12 {
		t.Errorf("order %v", order)
	}
	f.mu.Unlock()
	s.Do("SET", f.keys[0].Prepare, "foreign")
	f.enqueue(1, 15, 18)
	f.until(5*time.Second, "the others go on", func() bool { return f.seen(15, 18) == 3 })
	if n, retryAt, why := f.Lanes[0].MayTake(time.Now()); n > 0 || retryAt.IsZero() || why == nil {
		t.Errorf("the foreign one may be taken from: %d, %v, %v", n, retryAt, why)
	}
	s.Do("DEL", f.keys[0].Prepare)
}

// Large elements come one at a time, on a connection of their own; a full Redis gives what it has all the same.
func TestLargeAndFull(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := newFake(t, s, s.URL(), 1, 2, func(it *Item, _ int) error { return errReject })
	big := func(e *element.Element) { _ = e.SetHeader("k", string(make([]byte, 10<<10))) }
	f.enqueue(0, 0, 4, func(e *element.Element) {
		for _, k := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			_ = e.SetHeader(k, string(make([]byte, 10<<10)))
		}
	}, big)
	f.until(5*time.Second, "the large are over", func() bool { return f.count(event.Rejected) == 4 })
	if !f.Sites[0].Large.On() {
		t.Error("nothing large was seen")
	}
	f.enqueue(0, 4, 50)
	f.until(5*time.Second, "the small are over", func() bool { return f.count(event.Rejected) == 50 })
	goOn := make(chan struct{})
	f.mu.Lock()
	f.handle = func(*Item, int) error { <-goOn; return nil }
	f.mu.Unlock()
	f.enqueue(0, 50, 60)
	s.Do("CONFIG", "SET", "maxmemory", "1")
	close(goOn)
	f.until(10*time.Second, "a full one is emptied", func() bool { return f.count(event.Acked) == 10 })
	s.Do("CONFIG", "SET", "maxmemory", "0")
}

// A lost reply ends the incarnation, and what was in hand goes on in the next.
func TestLostReply(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	for _, c := range []struct {
		name  string
		match func(channel string) redistest.Match
	}{{"take", redistest.ByName("RPOPLPUSH", ".prepare")}, {"retry", redistest.ByScript(store.Retry)}, {"ack",
		redistest.ByName("LREM", ".doing")}} {
		t.Run(c.name, func(t *testing.T) {
			p := redistest.NewProxy(t, s.Addr())
			f := newFake(t, s, p.URL(), 1, 2, func(_ *Item, n int) error {
				if n%2 == 1 {
					return retry(time.Hour)
				}
				return nil
			}, func(c *Config) { c.Prefetch = 1 })
			rule := p.On(c.match(f.keys[0].Name), 2, redistest.CutAfter)
			f.enqueue(0, 0, 20)
			f.until(10*time.Second, "it strikes", func() bool { return rule.Struck() > 0 })
			f.until(10*time.Second, "all are over", func() bool {
				return f.length("ZCARD", f.keys[0].Delay) == 10 && f.length("LLEN", f.keys[0].Prepare) == 0 &&
					f.seen(0, 20) == 20 && f.count(event.HandedOver) > 0
			})
			f.stop()
		})
	}
}

// What has begun when the patience ends goes back to the taking end.
func TestShutdownPutsBack(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := newFake(
		t,
		s,
		s.URL(),
		1,
		1,
		func(it *Item, _ int) error { <-it.Done(); return it.Cause() },
		func(c *Config) { c.Grace = time.Second },
	)
	f.enqueue(0, 0, 5)
	f.until(5*time.Second, "one runs", func() bool { return f.seen(0, 5) == 1 })
	f.StopTaking()
	f.CancelHandlers()
	if returned, still, err := f.End(); returned != 1 || still != 0 || err != nil {
		t.Errorf("%d returned, %d still run, %v", returned, still, err)
	}
	if n := f.length("LLEN", f.keys[0].Prepare); n != 5 {
		t.Errorf("%d in prepare", n)
	}
}

// A handler that fails once the handlers' contexts are to end has no attempt counted, though its own has not ended yet:
// what tells it may have come by another message's, as in a batch.
func TestFailsBeforeItsContextIsEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fake){
		"shutdown":   func(f *fake) { f.CancelHandlers() },
		"lost lease": func(f *fake) { f.Sites[0].LoseLease(custody.ErrLeaseLost) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			told := make(chan struct{})
			f := newFake(t, s, s.URL(), 1, 2, func(it *Item, _ int) error {
				if it.Worker() == 0 {
					<-it.Done()
				} else {
					<-told
				}
				return errReject
			}, func(c *Config) { c.Prefetch = 1 })
			f.enqueue(0, 0, 2)
			f.until(5*time.Second, "both run", func() bool { return f.runningNow() == 2 })
			f.StopTaking()
			ended := make(chan struct{})
			go func() { f.End(); close(ended) }()
			f.until(5*time.Second, "what has not begun is back", f.isCleared)
			f.workers[0].mu.Lock() // whoever ends the contexts, one after another, waits here
			go end(f)
			site := f.Sites[0]
			f.until(5*time.Second, "they are to end", func() bool {
				return f.handlerCtx.Err() != nil || site.Lease.Lost()
			})
			close(told)
			f.until(5*time.Second, "one has returned", func() bool {
				s := f.workers[1]
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.items) == 0 || !s.items[0].atWork()
			})
			f.workers[0].mu.Unlock()
			<-ended
			if n := f.length("ZCARD", f.keys[0].Dead); n > 0 {
				t.Errorf("%d in dead: their attempts count", n)
			}
		})
	}
}

// Once no handler runs a shutdown has ReplyTimeout, also where the last one has ended only just now.
func TestBudgetOfTheEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	keys, runs, ends := store.KeysOf(redistest.Name(t)), make(chan bool), make(chan bool)
	r := newTestPool(t, s.URL(), []*store.Keys{keys}, 1, func(c *Config) {
		c.Handle = func(*Item) *custody.Verdict { runs <- true; <-ends; return custody.Ack }
		c.Emit = func(...event.Event) {}
	})
	r.Start()
	fill(s, keys, 1)
	<-runs
	e, unseen, ended := &ending{r}, new(quiet), new(quiet)
	if got := e.budget(unseen, false); got != StartTimeout {
		t.Errorf("%v while a handler runs", got)
	}
	if got := e.budget(unseen, true); got != time.Second {
		t.Errorf("%v while a handler runs, beyond the caller's time", got)
	}
	close(ends)
	for began := time.Now(); r.runningNow() > 0 && time.Since(began) < 5*time.Second; {
		time.Sleep(time.Millisecond)
	}
	if got := e.budget(unseen, false); got != r.conf.ReplyTimeout {
		t.Errorf("%v at the end of the last handler", got)
	}
	at := time.Now().Add(time.Second - r.conf.ReplyTimeout)
	ended.ended.Store(&at)
	if got := e.budget(ended, false); got > time.Second || got == 0 {
		t.Errorf("%v with a second left", got)
	}
	r.StopTaking()
	r.End()
}

// What still waits for Redis when the time of a shutdown is over waits no more. It did so behind the shutdown, and left
// connections open.
func TestNothingWaitsBehindTheEnd(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := newTestPool(t, s.URL(), []*store.Keys{store.KeysOf(redistest.Name(t))}, 1, func(*Config) {})
	waits, over := make(chan struct{}), make(chan struct{})
	p.Start(func() {
		close(waits)
		<-p.LastCtx.Done()
		close(over)
	})
	<-waits
	p.StopTaking()
	p.CancelHandlers() // the caller waits no longer
	if returned, still, err := p.End(); returned+still > 0 || err != nil {
		t.Errorf("%d returned, %d still run, %v", returned, still, err)
	}
	select {
	case <-over:
	case <-time.After(5 * time.Second):
		t.Error("it waits on")
	}
}
