package worker

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Handling is one handler's run, and its context. The context's deadline is the watcher's to keep, so that no message costs a timer;
// and what a context proper costs is paid only by a handler that asks its own for more than whether it has ended.
type Handling struct {
	slot    *slot
	turn    int32 // of the goroutine that it runs on
	orphan  bool  // Finish's: the goroutine has lost its slot
	Item    *Item
	Started time.Time

	// Written under the slot's mu.
	message any
	timeout time.Duration // negative: none
	rare    *rare

	mu    sync.Mutex
	cause error   // why the context has ended; nil while it has not
	inner *proper // the context proper
}

// rare is what most handlings do without.
type rare struct {
	result []byte
	then   []Follow
	giveUp time.Duration // since Started: when a handler whose context has ended loses its slot; zero while that goes on
}

// more is h.rare, made if need be. The slot's mu is held.
func (h *Handling) more() *rare {
	if h.rare == nil {
		h.rare = new(rare)
	}
	return h.rare
}

// proper is a context of the context package.
type proper struct {
	context.Context
	end context.CancelCauseFunc
}

// Key is the context key under which a handler's context gives its Handling.
type Key struct{}

// begin makes an item's handling.
func (s *slot) begin(it *Item, turn int32, now time.Time) {
	h := &it.handling
	h.slot, h.turn, h.Item, h.Started = s, turn, it, now
	h.timeout = cmp.Or(it.Timeout, s.r.conf.Timeout)
}

// cancel ends the context; the first cause counts.
func (h *Handling) cancel(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause = cause
	}
	if h.inner != nil {
		h.inner.end(h.cause)
	}
}

// Cause is why the context has ended; nil while it has not.
func (h *Handling) Cause() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// proper is the context of the context package that knows how to end what is derived from it.
func (h *Handling) proper() *proper {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inner == nil {
		ctx, end := context.WithCancelCause(h.slot.r.conf.Values)
		h.inner = &proper{ctx, end}
		if h.cause != nil {
			end(h.cause)
		}
	}
	return h.inner
}

// Deadline is when the handler's context ends by its timeout, or by its message's deadline.
func (h *Handling) Deadline() (end time.Time, ok bool) {
	until := h.Item.until
	if h.timeout >= 0 {
		end, ok = h.Started.Add(h.timeout), true
	}
	if until != nil && (!ok || until.Before(end)) {
		end, ok = *until, true
	}
	return end, ok
}

// Done is closed when the context has ended.
func (h *Handling) Done() <-chan struct{} { return h.proper().Done() }

// Err tells a timeout as the context package does. A context derived from it says Canceled then, because the package does not let
// others end one for a deadline; its Cause is the same.
func (h *Handling) Err() error {
	switch h.Cause() {
	case nil:
		return nil
	case ErrTimeout, ErrDeadline:
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// Value gives the receiver's values, and the Handling itself for Key.
func (h *Handling) Value(key any) any {
	if key == (Key{}) {
		return h
	}
	return h.proper().Value(key)
}

// Decoded takes in the message, and the timeout that it asks for: zero for the one that holds without.
func (h *Handling) Decoded(message any, timeout time.Duration) {
	h.slot.mu.Lock()
	h.message, h.timeout = message, cmp.Or(timeout, h.timeout)
	h.slot.mu.Unlock()
	if end, ok := h.Deadline(); ok {
		h.slot.r.watcher.note(end)
	}
}

// Finish files what came of the handler. It is called on the handler's goroutine, once; exits says that the goroutine ends with the call.
func (h *Handling) Finish(err error, exits bool) {
	s, r := h.slot, h.slot.r
	h.cancel(context.Canceled)
	now := time.Now()
	v := r.conf.Judge(h, h.message, err)
	took, size := now.Sub(h.Started), len(h.Item.Raw)
	if !s.decide(h.Item, h.turn, v, took) {
		h.orphan = true
		r.orphanEnded()
		return
	}
	s.now = now
	s.learn(took, size)
	if exits {
		s.mu.Lock()
		s.spawn()
		s.mu.Unlock()
	}
}

// SetResult sets what is kept of the message once it is acked.
func (h *Handling) SetResult(result []byte) {
	h.slot.mu.Lock()
	h.more().result = result
	h.slot.mu.Unlock()
}

// Then adds to what is delivered with the ack.
func (h *Handling) Then(fs []Follow) {
	h.slot.mu.Lock()
	h.more().then = append(h.more().then, fs...)
	h.slot.mu.Unlock()
}

// Ack is the verdict on success.
func (h *Handling) Ack() *Verdict {
	h.slot.mu.Lock()
	defer h.slot.mu.Unlock()
	if h.rare == nil || h.rare.result == nil && h.rare.then == nil {
		return Ack
	}
	return &Verdict{Kind: Acked, Result: h.rare.result, Then: h.rare.then}
}

// Receiver is the incarnation that holds the message.
func (h *Handling) Receiver() string { return h.slot.r.live.Load().Name }

// Worker is the number of the worker that handles it.
func (h *Handling) Worker() int { return h.slot.n }
