package worker

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// rare is what most handlings do without.
type rare struct {
	result []byte
	then   []Follow
	giveUp time.Duration // since Started: when a handler whose context has ended loses its slot; zero while that goes on
}

// more is it.rare, made if need be. The slot's mu is held.
func (it *Item) more() *rare {
	if it.rare == nil {
		it.rare = new(rare)
	}
	return it.rare
}

// proper is a context of the context package.
type proper struct {
	context.Context
	end context.CancelCauseFunc
}

// Key is the context key under which a handler's context gives its Item.
type Key struct{}

// begin makes an item the one that is handled now. s.mu is held.
func (s *worker) begin(it *Item, turn int32) {
	it.state, it.slot, it.generation, it.Started = running, s, turn, s.now
	it.timeout = cmp.Or(it.Timeout(), s.r.conf.Timeout)
	if s.r.lease.lost.Load() { // whoever ended the others' contexts has not seen this one
		it.cancel(ErrLeaseLost)
	} else if s.r.handlerCtx.Err() != nil {
		it.cancel(ErrShutdown)
	} else if it.cancelled {
		it.cancel(ErrCancelled)
	}
}

// causes are why a context ends; an item has the number of its own.
var causes = [...]error{nil, context.Canceled, ErrTimeout, ErrDeadline, ErrCancelled, ErrShutdown, ErrLeaseLost}

// cancel ends the context; the first cause counts.
func (it *Item) cancel(cause error) {
	it.cause.CompareAndSwap(0, int32(slices.Index(causes[:], cause)))
	if inner := it.inner.Load(); inner != nil {
		inner.end(it.Cause())
	}
}

// Cause is why the context has ended; nil while it has not.
func (it *Item) Cause() error { return causes[it.cause.Load()] }

// proper is the context of the context package that knows how to end what is derived from it.
func (it *Item) proper() *proper {
	inner := it.inner.Load()
	if inner == nil {
		inner = new(proper)
		inner.Context, inner.end = context.WithCancelCause(it.slot.r.conf.Values)
		if !it.inner.CompareAndSwap(nil, inner) {
			inner = it.inner.Load()
		}
		if cause := it.Cause(); cause != nil { // whoever cancels looks for inner after that
			inner.end(cause)
		}
	}
	return inner
}

// Deadline is when the handler's context ends by its timeout, or by its message's deadline.
func (it *Item) Deadline() (end time.Time, ok bool) {
	until := it.until
	if it.timeout >= 0 {
		end, ok = it.Started.Add(it.timeout), true
	}
	if until != nil && (!ok || until.Before(end)) {
		end, ok = *until, true
	}
	return end, ok
}

// Done is closed when the context has ended.
func (it *Item) Done() <-chan struct{} { return it.proper().Done() }

// Err tells a timeout as the context package does. A context derived from it says Canceled then, because the package does not let
// others end one for a deadline; its Cause is the same.
func (it *Item) Err() error {
	switch it.Cause() {
	case nil:
		return nil
	case ErrTimeout, ErrDeadline:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// Value gives the receiver's values, and the Item itself for Key.
func (it *Item) Value(key any) any {
	if key == (Key{}) {
		return it
	}
	return it.proper().Value(key)
}

// Decoded takes in the message, and the timeout that it asks for: zero for the one that holds without.
func (it *Item) Decoded(message any, timeout time.Duration) {
	it.slot.mu.Lock()
	it.message, it.timeout = message, cmp.Or(timeout, it.timeout)
	it.slot.mu.Unlock()
	if end, ok := it.Deadline(); ok {
		it.slot.r.watcher.note(end)
	}
}

// Finish files what came of the handler. It is called on the handler's goroutine, once, also where that is ending.
func (it *Item) Finish(err error) {
	s, r := it.slot, it.slot.r
	it.cancel(context.Canceled)
	now := time.Now()
	if err != nil {
		s.mu.Lock()
		it.judged = true // so that it is not given up meanwhile: its user may be slow to answer
		s.mu.Unlock()
	}
	v := r.conf.Judge(it, it.message, err)
	took, size := now.Sub(it.Started), len(it.Raw)
	if !s.decide(it, it.generation, v, took) {
		it.orphan = true
		r.orphanEnded()
		return
	}
	s.now = now
	s.learn(took, size)
}

// SetResult sets what is kept of the message once it is acked.
func (it *Item) SetResult(result []byte) {
	it.slot.mu.Lock()
	it.more().result = result
	it.slot.mu.Unlock()
}

// Then adds to what is enqueued with the ack.
func (it *Item) Then(fs []Follow) {
	it.slot.mu.Lock()
	it.more().then = append(it.more().then, fs...)
	it.slot.mu.Unlock()
}

// Receiver is the incarnation that holds the message.
func (it *Item) Receiver() string { return it.slot.r.live.Load().Name }

// Worker is the number of the worker that handles it.
func (it *Item) Worker() int { return it.slot.n }
