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
	Base    context.Context // what is sent for several ends with it
	Timeout time.Duration   // of a call whose context has no deadline
	Most    int             // calls that go together
	Size    func(*T) int    // nil: it does not matter
	Bytes   int             // the size of those that go together, unless one alone is larger
	// Send does what some calls ask for, and notes in each what came of it. Of one that comes alone ctx is its own.
	Send func(ctx context.Context, k *store.Keys, calls []*T)
	// Begin and End count a goroutine that sends for several; nil: nobody does. Begin's error is why there is none.
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
	err   error         // it was not sent
	done  chan struct{} // of capacity 1
	alone [1]*T
}

// Join makes a call, with others if some come at once, and gives it back with what came of it. Its error is one of the
// link: of what was not executed, because ctx had ended before it was sent, or of unknown outcome, if ctx ended while
// it was under way for several. What it holds then is the zero value: the sending goes on with the other.
func (c *Crowd[T]) Join(ctx context.Context, k *store.Keys, call T) (T, error) {
	m, _ := c.members.Get().(*member[T])
	if m == nil {
		m = &member[T]{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		m.timer.Stop()
		m.alone[0] = &m.call
	}
	m.call, m.ctx = call, ctx
	c.mu.Lock()
	g := c.of[k]
	if g == nil {
		if c.of == nil {
			c.of = make(map[*store.Keys]*gathering[T])
		}
		g = new(gathering[T])
		c.of[k] = g
	}
	leads := g.underWay < atOnce
	if leads {
		g.underWay++
		c.mu.Unlock()
		runtime.Gosched() // callers that were woken with it come along
		c.mu.Lock()
		if len(g.waiting) == 0 {
			c.mu.Unlock()
			defer c.next(k, g)
			c.Send(ctx, k, m.alone[:])
			return c.answered(m)
		}
	}
	var over <-chan time.Time
	var has bool
	if m.limit, has = ctx.Deadline(); !has {
		m.limit = time.Now().Add(c.Timeout)
		m.timer.Reset(c.Timeout)
		over = m.timer.C
	}
	g.waiting = append(g.waiting, m)
	c.mu.Unlock()
	if leads {
		c.next(k, g)
	}
	return c.wait(ctx, g, m, over)
}

// wait waits until a call that is to go with others has its answer.
func (c *Crowd[T]) wait(ctx context.Context, g *gathering[T], m *member[T], over <-chan time.Time) (none T, err error) {
	why := error(context.DeadlineExceeded)
	select {
	case <-m.done:
		return c.answered(m)
	case <-over:
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
		return none, &link.Error{Class: link.NotExecuted, Err: why}
	}
	select {
	case <-m.done: // both came at once
		return c.answered(m)
	default:
		return none, &link.Error{Class: link.Unknown, Err: why}
	}
}

// answered gives a call back with what came of it.
func (c *Crowd[T]) answered(m *member[T]) (T, error) {
	call, err := m.call, m.err
	m.timer.Stop()
	var none T
	m.call, m.ctx, m.err = none, nil, nil
	c.members.Put(m)
	return call, err
}

// next sends those who wait, or gives the sending's place back.
func (c *Crowd[T]) next(k *store.Keys, g *gathering[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	some := c.pick(g)
	for len(some) > 0 && c.Begin != nil {
		err := c.Begin()
		if err == nil {
			break
		}
		for _, m := range some {
			m.err = &link.Error{Class: link.NotExecuted, Err: err}
			m.done <- struct{}{}
		}
		some = c.pick(g)
	}
	if len(some) > 0 {
		go c.send(k, g, some)
	} else if g.underWay--; g.underWay == 0 { // who still waits there is about to leave
		delete(c.of, k)
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
