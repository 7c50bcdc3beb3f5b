package worker

import (
	"cmp"
	"context"
	"time"
)

// Handling is one handler's run, and its context. The context's deadline is the watcher's to keep, so that no message costs a timer.
type Handling struct {
	context.Context // cancelled with the cause
	cancel          context.CancelCauseFunc
	r               *Pool
	slot            *slot
	Item            *Item
	Started         time.Time
	Undecodable     error // Handle's, for a goroutine that ends with it: the outcome in place of what ended it

	// Written under the slot's mu.
	message  any
	deadline time.Time // zero: none
	giveUp   time.Time // when a handler whose context has ended loses its slot; zero while that goes on
}

// Key is the context key under which a handler's context gives its Handling.
type Key struct{}

func newHandling(s *slot, it *Item) *Handling {
	h := &Handling{r: s.r, slot: s, Item: it, Started: time.Now()}
	h.Context, h.cancel = context.WithCancelCause(s.r.conf.Values)
	h.deadline = h.After(cmp.Or(it.Timeout, s.r.conf.Timeout))
	return h
}

// After is the end of a timeout; zero where there is none.
func (h *Handling) After(timeout time.Duration) time.Time {
	if timeout < 0 {
		return time.Time{}
	}
	return h.Started.Add(timeout)
}

// Deadline is when the handler's context ends by its timeout.
func (h *Handling) Deadline() (time.Time, bool) { return h.deadline, !h.deadline.IsZero() }

// Err tells a timeout as the context package does.
func (h *Handling) Err() error {
	err := h.Context.Err()
	if err != nil && context.Cause(h.Context) == ErrTimeout {
		return context.DeadlineExceeded
	}
	return err
}

// Value gives the receiver's values, and the Handling itself for Key.
func (h *Handling) Value(key any) any {
	if key == (Key{}) {
		return h
	}
	return h.Context.Value(key)
}

// Decoded takes in the message, and the deadline that it asks for.
func (h *Handling) Decoded(message any, deadline time.Time) {
	h.slot.mu.Lock()
	h.message, h.deadline = message, deadline
	h.slot.mu.Unlock()
	if !deadline.IsZero() {
		h.r.watcher.note(deadline)
	}
}

// Receiver is the incarnation that holds the message.
func (h *Handling) Receiver() string { return h.r.live.Load().Name }

// Worker is the number of the worker that handles it.
func (h *Handling) Worker() int { return h.slot.n }
