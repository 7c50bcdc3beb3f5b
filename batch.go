package shunt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/worker"
)

// Batch says how ReceiveBatch gathers messages, and what handles them.
type Batch struct {
	// MaxSize is how many messages one call of Handle gets: 1 to 1000, default 100.
	MaxSize int
	// MaxWait is how long a message waits at most for others to fill its batch: up to 5 min, default 1 s. One whose
	// timeout or Deadline is near waits for half of that time. A shutdown ends the wait.
	MaxWait time.Duration
	// Handle handles a batch, in place of the messages' Resolve, and returns a verdict for each by its index, as
	// Resolve would. A nil slice acks all. A slice of another length, a panic or a runtime.Goexit is an error of every
	// message. So Handle should catch itself the faults that concern one message alone. Several goroutines may call it
	// at once. Handle may keep the slice.
	//
	// ctx has the values of ReceiveBatch's context, and MemberContext gives that of one message. ctx ends as soon as
	// one message's context ends by its timeout or Deadline, by loss of the lease or by shutdown, with the same cause.
	// It does not end when one message is cancelled. An error that Handle returns after that counts as an attempt only
	// for the messages whose own context has not ended, or has ended by a timeout or a Deadline of their own.
	Handle func(ctx context.Context, ms []IMessage) []error
}

// ReceiveBatch is Receive for messages that are better handled together, such as rows for one INSERT. It gathers up to
// b.MaxSize messages, or those that came within b.MaxWait, for one call of b.Handle. At most workers calls run at once.
// Redis knows no batches: each message is taken, retried, rejected, timed and recovered like any other. A suspect,
// which dying processes held twice, has a call of its own.
//
// A message's timeout, its Took and its middleware begin when it was taken, and include the wait for its batch. The
// innermost Handler of Queue.Wrap is that wait together with the call. While all workers are busy, the next batches
// wait. So a receiver holds up to workers × MaxSize messages, each with a goroutine and a list of its own, whatever
// Prefetch says. That product is at most 10,000. A Handle that ignores its ended context for Queue.Grace loses its
// place to another call, and its messages get the verdict of a handler that does not end. At most twice as many calls
// as workers run.
func (q *Queue) ReceiveBatch(ctx context.Context, prototype IMessage, workers int, b Batch) (Shutdown, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	g, err := newGatherer(ctx, workers, b)
	if err != nil {
		return nil, err
	}
	if err := q.open(context.Background()); err != nil {
		return nil, err
	}
	if t := q.conf.Timeout; t > 0 && t <= g.MaxWait {
		return nil, fmt.Errorf(
			"shunt: Queue.Timeout is %v and Batch.MaxWait %v: a message would time out before its batch is due: "+
				"want a longer Timeout, or a shorter MaxWait", t, g.MaxWait)
	}
	return q.receive(ctx, workers*g.MaxSize, []IMessage{prototype}, nil, g)
}

// MemberContext gives the context of the message ms[i] of a batch, where ctx is that of Batch.Handle. It is
// what FromContext, SetResult and Then want; its values are those that middleware gave it, and its end is that
// message's alone. It is ctx itself where there is no such message.
func MemberContext(ctx context.Context, i int) context.Context {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil || i < 0 || i >= len(c.members) {
		return ctx
	}
	return c.members[i].ctx
}

// batcher makes batches of one receiver's messages. Each message's handler joins it, waits for the call that it becomes
// part of, and returns its own verdict. The call runs on the goroutine of its first member, so the watch over that
// handler covers the call.
type batcher struct {
	Batch
	workers int
	values  context.Context // of calls' contexts
	r       *receiver

	mu      sync.Mutex
	timer   *time.Timer // of the one that is due first
	soonest time.Time   // before which none of those that wait is due
	waiting []*member   // in the order in which they came, but those that are alone come first
	running int         // calls
	overdue int         // of them: those that ignored their ended context for a grace
}

// member is a message in its handler.
type member struct {
	ctx   context.Context
	m     IMessage
	due   time.Time // when it waits no more for others
	alone bool
	call  *call         // once it is part of one; batcher's mu, until ready
	ready chan struct{} // closed: the call is its to run, if it is the first of it, or has ended
	err   error         // its verdict then
}

// call is one call of Handle, and its context.
type call struct {
	context.Context
	g       *batcher
	members []*member // the first one runs it
	over    bool      // batcher's mu
	overdue bool      // batcher's mu
}

// callKey is the context key under which a call's context gives the call.
type callKey struct{}

func newGatherer(ctx context.Context, workers int, b Batch) (*batcher, error) {
	b.MaxSize, b.MaxWait = cmp.Or(b.MaxSize, 100), cmp.Or(b.MaxWait, time.Second)
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("shunt: "+format, args...))
		}
	}
	check(b.MaxSize >= 1 && b.MaxSize <= 1000, "Batch.MaxSize is %d: want 1 to 1000, or 0 for 100", b.MaxSize)
	check(b.MaxWait > 0 && b.MaxWait <= 5*time.Minute, "Batch.MaxWait is %v: want up to 5m, or 0 for 1s", b.MaxWait)
	check(b.Handle != nil, "Batch.Handle is nil")
	check(workers >= 1 && workers <= store.MaxWorkers/max(1, b.MaxSize),
		"%d workers of batches of %d: want at least 1, and a product of at most %d", workers, b.MaxSize,
		store.MaxWorkers)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &batcher{Batch: b, workers: workers, values: context.WithoutCancel(ctx)}, nil
}

// serve readies it for a receiver that has not started.
func (g *batcher) serve(r *receiver) {
	g.r, g.values = r, context.WithValue(g.values, ownerKey{}, r)
	g.timer = time.AfterFunc(g.MaxWait, func() {
		g.mu.Lock()
		g.start()
		g.mu.Unlock()
	})
	context.AfterFunc(r.pool.TakeCtx, func() {
		g.mu.Lock()
		g.timer.Stop()
		g.start()
		g.mu.Unlock()
	})
}

// join is the innermost Handler: it returns the message's verdict. Whose context ends before its call has begun leaves.
func (g *batcher) join(ctx context.Context, m IMessage) error {
	me := &member{ctx: ctx, m: m, due: g.due(ctx), ready: make(chan struct{})}
	if it, ok := ctx.Value(worker.Key{}).(*worker.Item); ok && it.Recoveries >= 2 {
		me.alone = true // a suspect: in company the one that kills its process could not be told from the innocent
	}
	g.mu.Lock()
	if me.alone {
		g.waiting = slices.Insert(g.waiting, 0, me)
	} else {
		g.waiting = append(g.waiting, me)
	}
	if len(g.waiting) == 1 || me.due.Before(g.soonest) {
		g.soonest = me.due
	}
	g.start()
	g.mu.Unlock()
	select {
	case <-me.ready:
	case <-ctx.Done():
		if g.leave(me) {
			return context.Cause(ctx)
		}
		<-me.ready
	}
	if me == me.call.members[0] {
		me.call.run()
	}
	return me.err
}

// due is when a message waits no more for others, where its context is ctx: half of its own time is its handling's.
func (g *batcher) due(ctx context.Context) time.Time {
	now, wait := time.Now(), g.MaxWait
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, end.Sub(now)/2)
	}
	return now.Add(wait)
}

// wait is until the first of those that wait is due. mu is held.
func (g *batcher) wait() time.Duration {
	if d := time.Until(g.soonest); d > 0 {
		return d
	}
	g.soonest = slices.MinFunc(g.waiting, func(a, b *member) int { return a.due.Compare(b.due) }).due
	return time.Until(g.soonest)
}

// leave says whether the member has left: not if it is part of a call.
func (g *batcher) leave(me *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(m *member) bool { return m == me })
	return me.call == nil
}

// start begins the calls that are due, as far as there are places. mu is held.
func (g *batcher) start() {
	for len(g.waiting) > 0 && g.running-min(g.overdue, g.workers) < g.workers {
		first, n := g.waiting[0], len(g.waiting)
		if n < g.MaxSize && !first.alone && !g.r.pool.Stopped() {
			if wait := g.wait(); wait > 0 {
				g.timer.Reset(wait)
				return
			}
		}
		g.waiting = slices.DeleteFunc(g.waiting,
			func(m *member) bool { return m.ctx.Err() != nil }) // one would end the call for all
		if len(g.waiting) < n {
			continue
		}
		n = min(n, g.MaxSize)
		if first.alone {
			n = 1
		}
		c := &call{g: g, members: slices.Clone(g.waiting[:n])}
		g.waiting = slices.Delete(g.waiting, 0, n)
		for _, m := range c.members {
			m.call = c
		}
		g.running++
		close(c.members[0].ready)
	}
}

// run calls Handle, and gives each member its verdict, even if the goroutine ends with it.
func (c *call) run() {
	ctx, cancel := context.WithCancelCause(c.g.values)
	c.Context = ctx
	ms := make([]IMessage, len(c.members))
	stops := []func() bool{context.AfterFunc(ctx, func() { time.AfterFunc(c.g.r.conf.Grace, c.lapse) })}
	for i, m := range c.members {
		ms[i] = m.m
		stops = append(stops, context.AfterFunc(m.ctx, func() {
			if cause := context.Cause(m.ctx); endsAll(cause) {
				cancel(cause)
			}
		}))
	}
	var verdicts []error
	guard("Batch.Handle", func() error {
		verdicts = c.g.Handle(c, ms)
		if n := len(c.members); verdicts != nil && len(verdicts) != n {
			return fmt.Errorf("shunt: Batch.Handle returned %d verdicts on %d messages", len(verdicts), n)
		}
		return nil
	}, func(err error) {
		for _, stop := range stops {
			stop()
		}
		cancel(context.Canceled)
		for i, m := range c.members {
			if m.err = err; err == nil && verdicts != nil {
				m.err = verdicts[i]
			}
		}
		c.end()
	})
}

// endsAll says whether the cause that ended one member's context ends the whole call. A timeout does, because Deadline
// has shown it to the handler, and so do causes that all members meet. A cancellation concerns one member alone.
func endsAll(cause error) bool {
	switch cause {
	case ErrTimeout, ErrDeadline, context.DeadlineExceeded, ErrLeaseLost, ErrShutdown:
		return true
	}
	return false
}

// lapse gives the place of a call to another. Its context ended a grace ago, and its members get verdicts without it.
func (c *call) lapse() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if !c.over {
		c.overdue = true
		c.g.overdue++
		c.g.start()
	}
}

// end lets the members go, and the next call begin.
func (c *call) end() {
	c.g.mu.Lock()
	c.over = true
	c.g.running--
	if c.overdue {
		c.g.overdue--
	}
	c.g.start()
	c.g.mu.Unlock()
	for _, m := range c.members[1:] {
		close(m.ready)
	}
}

// Deadline is the earliest of the members'.
func (c *call) Deadline() (first time.Time, ok bool) {
	for _, m := range c.members {
		if t, has := m.ctx.Deadline(); has && (!ok || t.Before(first)) {
			first, ok = t, true
		}
	}
	return first, ok
}

// Err tells a timeout as the context package does, as an Item's does.
func (c *call) Err() error {
	switch context.Cause(c.Context) {
	case ErrTimeout, ErrDeadline:
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// Value gives the receiver's values, and the call itself for callKey. There is no Item in them, though
// ReceiveBatch may have been called in a handler.
func (c *call) Value(key any) any {
	switch key {
	case callKey{}:
		return c
	case worker.Key{}:
		return nil
	}
	return c.Context.Value(key)
}
