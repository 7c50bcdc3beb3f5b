package worker

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/store"
)

// Context is the context that an item is to its handler, and the state of one handling. The watcher keeps its deadline,
// so no message costs a timer. Only a handler that asks its own context for more than whether it has ended pays for a
// full context.
type Context struct {
	Started time.Time     // the handler
	worker  *worker       // where the handler was called; nil while it was not
	message any           // what Decoded was given
	timeout time.Duration // negative: none
	until   *time.Time    // the message's deadline, by the clock here
	rare    *rare
	inner   atomic.Pointer[proper]
	cause   atomic.Int32 // why the context has ended: one of causes
}

// rare is what most messages do without.
type rare struct {
	result []byte
	then   []store.Followup
	// since Started: when a handler whose context has ended loses its place; zero while that goes on
	giveUp  time.Duration
	refused time.Time // since when Redis has refused the verdict for what waiting does not mend
}

// more is c.rare, made if need be. The worker's mu is held.
func (c *Context) more() *rare {
	if c.rare == nil {
		c.rare = new(rare)
	}
	return c.rare
}

// proper is a context of the context package.
type proper struct {
	context.Context
	end context.CancelCauseFunc
}

// Key is the context key under which a handler's context gives its Item.
type Key struct{}

// begin makes an item the one that is handled now. s.mu is held.
func (s *worker) begin(it *Item) {
	it.move(begin)
	it.worker, it.Started = s, s.now
	it.timeout = cmp.Or(it.Timeout(), s.r.conf.Timeout)
	if why := it.allEnd(); why != nil { // the contexts of the others ended before this one was there
		it.cancel(why)
	} else if it.cancelled {
		it.cancel(custody.ErrCancelled)
	}
}

// allEnd is why the contexts of all handlers end, or are about to; nil: they do not.
func (it *Item) allEnd() error {
	switch {
	case it.Lane.Site.Lease.Lost():
		return custody.ErrLeaseLost
	case it.worker.r.handlerCtx.Err() != nil:
		return custody.ErrShutdown
	}
	return nil
}

// causes are why a context ends; an item has the number of its own.
var causes = [...]error{nil, context.Canceled, custody.ErrTimeout, custody.ErrDeadline, custody.ErrCancelled,
	custody.ErrShutdown, custody.ErrLeaseLost}

// cancel ends the context; the first cause counts.
func (c *Context) cancel(cause error) {
	c.cause.CompareAndSwap(0, int32(slices.Index(causes[:], cause)))
	if inner := c.inner.Load(); inner != nil {
		inner.end(c.Cause())
	}
}

// Cause is why the context has ended; nil while it has not.
func (c *Context) Cause() error { return causes[c.cause.Load()] }

// proper is the context of the context package that knows how to end what is derived from c.
func (c *Context) proper() *proper {
	inner := c.inner.Load()
	if inner == nil {
		inner = new(proper)
		inner.Context, inner.end = context.WithCancelCause(c.worker.r.conf.Values)
		if !c.inner.CompareAndSwap(nil, inner) {
			inner = c.inner.Load()
		}
		if cause := c.Cause(); cause != nil { // cancel looks for inner after that
			inner.end(cause)
		}
	}
	return inner
}

// Deadline is when the handler's context ends by its timeout, or by its message's deadline.
func (c *Context) Deadline() (end time.Time, ok bool) {
	until := c.until
	if c.timeout >= 0 {
		end, ok = c.Started.Add(c.timeout), true
	}
	if until != nil && (!ok || until.Before(end)) {
		end, ok = *until, true
	}
	return end, ok
}

// Done is closed when the context has ended.
func (c *Context) Done() <-chan struct{} { return c.proper().Done() }

// Err tells a timeout as the context package does. A context derived from it says Canceled then, because the
// package does not let others end one for a deadline; its Cause is the same.
func (c *Context) Err() error {
	switch c.Cause() {
	case nil:
		return nil
	case custody.ErrTimeout, custody.ErrDeadline:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// Value gives the receiver's values.
func (c *Context) Value(key any) any { return c.proper().Value(key) }

// Value gives the Item itself for Key.
func (it *Item) Value(key any) any {
	if key == (Key{}) {
		return it
	}
	return it.Context.Value(key)
}

// Decoded takes in the message, and the timeout that it asks for: zero for the one that holds without.
func (c *Context) Decoded(message any, timeout time.Duration) {
	c.worker.mu.Lock()
	c.message, c.timeout = message, cmp.Or(timeout, c.timeout)
	c.worker.mu.Unlock()
	if end, ok := c.Deadline(); ok {
		c.worker.r.watcher.note(end)
	}
}

// Returned says that the handler has returned. It comes before the user is asked for what a verdict depends on, so that
// the watcher does not take the handler for one that hangs. Where all contexts are about to end, a handler may hear of
// that by another message's before its own ends: it has failed for the same cause.
func (it *Item) Returned() {
	it.worker.mu.Lock()
	if it.move(conclude) {
		it.took = time.Since(it.Started)
	}
	it.worker.mu.Unlock()
	it.cancel(cmp.Or(it.allEnd(), context.Canceled))
}

// SetResult sets what is kept of the message once it is acked.
func (c *Context) SetResult(result []byte) {
	c.worker.mu.Lock()
	c.more().result = result
	c.worker.mu.Unlock()
}

// Then adds to what is enqueued with the ack. False: with these there were more than most, n in all, so none is added.
func (c *Context) Then(fs []store.Followup, most int) (n int, ok bool) {
	c.worker.mu.Lock()
	defer c.worker.mu.Unlock()
	more := c.more()
	if n = len(more.then) + len(fs); n > most {
		return n, false
	}
	more.then = append(more.then, fs...)
	return n, true
}

// Receiver is the incarnation that holds the message.
func (it *Item) Receiver() string { return it.receiver() }

// Worker is the number of the worker that handles the message.
func (c *Context) Worker() int { return c.worker.n }
