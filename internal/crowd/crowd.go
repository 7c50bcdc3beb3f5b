// Package crowd has concurrent calls of one kind go together: a script costs Redis about as much as three messages in
// it.
package crowd

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Crowd has concurrent calls to one channel go together: while two sendings are under way the rest waits, and goes in
// the next one. A call that comes alone goes at once.
type Crowd[T any] struct {
	Base    context.Context // ends what the Crowd sends on a goroutine of its own
	Timeout time.Duration   // of a call whose context has no deadline
	Most    int             // calls that go together
	Size    func(*T) int    // nil: it does not matter
	Bytes   int             // the size of those that go together, unless one alone is larger
	// Send does what some calls ask for, and notes in each what came of it. For one call ctx ends with its caller's.
	Send func(ctx context.Context, k *store.Keys, calls []*T)
	// Begin and End count a goroutine that sends; nil: nobody counts. Where Begin fails each caller sends by itself.
	Begin func() error
	End   func()

	mu      sync.Mutex
	of      map[*store.Keys]*gathering[T] // while something is under way
	members sync.Pool                     // whose callers have their answers
}

const atOnce = 2 // sendings of one channel that are under way

type gathering[T any] struct {
	underWay int
	waiting  []*member[T]
}

// member is one call.
type member[T any] struct {
	call  T
	ctx   context.Context
	limit time.Time // until when it may take
	timer *time.Timer
	done  chan struct{} // of capacity 1
	leads bool          // its caller sends it by itself
	alone [1]*T
}

// Join makes a call, with others if some come at once, and gives it back with what came of it. Its error is one of the
// link: of what was not executed, because ctx had ended before it was sent, or of unknown outcome, if ctx ended while
// it was under way. With an error the call that Join gives is the zero one: the sending may still write to the other.
func (c *Crowd[T]) Join(ctx context.Context, k *store.Keys, call T) (T, error) {
	m, _ := c.members.Get().(*member[T])
	if m == nil {
		m = &member[T]{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		m.timer.Stop()
		m.alone[0] = &m.call
	}
	m.call, m.ctx = call, ctx
	g, leads := c.enter(ctx, k, m)
	if !leads {
		if err := c.wait(ctx, g, m); err != nil {
			var none T
			return none, err
		}
	}
	if m.leads {
		defer c.next(k, g)
		c.Send(ctx, k, m.alone[:])
	}
	m.timer.Stop()
	call = m.call
	var none T
	m.call, m.ctx, m.leads = none, nil, false
	c.members.Put(m)
	return call, nil
}

// enter has a call lead a sending of its own, or wait for others. Who waits may be told to lead at any time, so leads
// is not read from m.
func (c *Crowd[T]) enter(ctx context.Context, k *store.Keys, m *member[T]) (g *gathering[T], leads bool) {
	c.mu.Lock()
	if g = c.of[k]; g == nil {
		if c.of == nil {
			c.of = make(map[*store.Keys]*gathering[T])
		}
		g = new(gathering[T])
		c.of[k] = g
	}
	if leads = g.underWay < atOnce; leads {
		g.underWay++
		c.mu.Unlock()
		runtime.Gosched() // callers that were woken with it come along
		c.mu.Lock()
		if m.leads = len(g.waiting) == 0; m.leads {
			c.mu.Unlock()
			return g, true
		}
	}
	var has bool
	if m.limit, has = ctx.Deadline(); !has {
		m.limit = time.Now().Add(c.Timeout)
		m.timer.Reset(c.Timeout)
	}
	g.waiting = append(g.waiting, m)
	c.mu.Unlock()
	if leads {
		c.next(k, g)
	}
	return g, false
}

// wait waits until a call that is to go with others has its answer, or leads.
func (c *Crowd[T]) wait(ctx context.Context, g *gathering[T], m *member[T]) error {
	why := error(context.DeadlineExceeded)
	select {
	case <-m.done:
		return nil
	case <-m.timer.C: // runs where ctx has no deadline
	case <-ctx.Done():
		why = ctx.Err()
	}
	m.timer.Stop()
	c.mu.Lock()
	i := slices.Index(g.waiting, m)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		return &link.Error{Class: link.NotExecuted, Err: why}
	}
	select {
	case <-m.done: // both came at once
		return nil
	default:
		return &link.Error{Class: link.Unknown, Err: why}
	}
}

// next gives the place of a sending that is over to those who wait, if any.
func (c *Crowd[T]) next(k *store.Keys, g *gathering[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	some := c.pick(g)
	switch {
	case len(some) == 0:
		if g.underWay--; g.underWay == 0 { // who still waits there is about to leave
			delete(c.of, k)
		}
	case c.Begin == nil || c.Begin() == nil:
		go c.send(k, g, some)
	default:
		g.waiting = slices.Insert(g.waiting, 0, some[1:]...)
		some[0].leads = true
		some[0].done <- struct{}{}
	}
}

// pick takes out as many calls as go together. None overtakes one that was too large. mu is held.
func (c *Crowd[T]) pick(g *gathering[T]) (some []*member[T]) {
	bytes, full := 0, false
	g.waiting = slices.DeleteFunc(g.waiting, func(m *member[T]) bool {
		if m.ctx.Err() != nil { // it is just about to leave
			return false
		}
		size := 0
		if c.Size != nil {
			size = c.Size(&m.call)
		}
		if full = full || len(some) == c.Most || len(some) > 0 && bytes+size > c.Bytes; !full {
			some = append(some, m)
			bytes += size
		}
		return !full
	})
	return some
}

// send sends some calls, which have as long as the most patient of them: the others leave by themselves.
func (c *Crowd[T]) send(k *store.Keys, g *gathering[T], some []*member[T]) {
	calls, limit := make([]*T, len(some)), some[0].limit
	for i, m := range some {
		calls[i] = &m.call
		if m.limit.After(limit) {
			limit = m.limit
		}
	}
	ctx, cancel := context.WithDeadline(c.Base, limit)
	if len(some) == 1 { // it ends with its caller, too
		defer context.AfterFunc(some[0].ctx, cancel)()
	}
	c.Send(ctx, k, calls)
	cancel()
	for _, m := range some {
		m.done <- struct{}{}
	}
	c.next(k, g)
	if c.End != nil {
		c.End()
	}
}
