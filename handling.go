package shunt

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/lists"
)

// handling is one handler's run, and its context. The context's deadline is the watcher's to keep, so that no message costs a timer.
type handling struct {
	context.Context // cancelled with the cause
	cancel          context.CancelCauseFunc
	r               *receiver
	slot            *slot
	it              *item
	started         time.Time
	undecodable     error // from Unmarshal; the handler's goroutine's

	// Written under the slot's mu.
	message  IMessage
	deadline time.Time // zero: none
	giveUp   time.Time // when a handler whose context has ended loses its slot; zero while that goes on
}

// undecodable marks an error of Unmarshal.
type undecodable struct{ error }

func (u undecodable) Unwrap() error { return u.error }

func newHandling(s *slot, it *item) *handling {
	h := &handling{r: s.r, slot: s, it: it, started: time.Now()}
	h.Context, h.cancel = context.WithCancelCause(s.r.values)
	h.deadline = h.after(or(it.Timeout, s.r.conf.Timeout))
	return h
}

func (h *handling) after(timeout time.Duration) time.Time {
	if timeout < 0 {
		return time.Time{}
	}
	return h.started.Add(timeout)
}

// Deadline is when the handler's context ends by its timeout.
func (h *handling) Deadline() (time.Time, bool) { return h.deadline, !h.deadline.IsZero() }

// Err tells a timeout as the context package does.
func (h *handling) Err() error {
	err := h.Context.Err()
	if err != nil && context.Cause(h.Context) == ErrTimeout {
		return context.DeadlineExceeded
	}
	return err
}

// Value gives the receiver's values, and the handling itself for FromContext.
func (h *handling) Value(key any) any {
	if key == (infoKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// run decodes the message and calls its handler.
func (h *handling) run() error {
	m, err := h.unmarshal()
	h.undecodable = err
	if err != nil {
		return err
	}
	deadline := h.deadline
	if t, ok := m.(Timeouter); ok && h.it.Timeout == 0 {
		if d := t.Timeout(); d != 0 {
			deadline = h.after(d)
		}
	}
	h.slot.mu.Lock()
	h.message, h.deadline = m, deadline
	h.slot.mu.Unlock()
	if !deadline.IsZero() {
		h.r.watcher.note(deadline)
	}
	return h.r.handler(h, m)
}

func (h *handling) unmarshal() (m IMessage, err error) {
	if h.it.newer != nil {
		return nil, undecodable{h.it.newer}
	}
	// Set for the case that Unmarshal calls runtime.Goexit, after which nothing here runs but deferred calls.
	h.undecodable = undecodable{errors.New("shunt: Unmarshal called runtime.Goexit")}
	guard("Unmarshal", func() (err error) {
		m, err = h.it.in.prototype.Unmarshal(h.it.Payload)
		return err
	}, func(e error) { err = e })
	if err == nil && isNil(m) {
		err = errors.New("shunt: Unmarshal returned no message and no error")
	}
	if err != nil {
		return nil, undecodable{err}
	}
	return m, nil
}

// judge makes a verdict of what the handler returned. It runs on the handler's goroutine, or the watcher's for one that was given up.
func (h *handling) judge(m IMessage, err error) verdict {
	it := h.it
	v := verdict{kind: Acked, err: err, took: time.Since(h.started)}
	if err == nil {
		return v
	}
	if cause := context.Cause(h.Context); cause == ErrLeaseLost || cause == ErrShutdown {
		v.kind = Released // that was not the message's fault, so it is no attempt
		return v
	}
	var u undecodable
	var r rejection
	var d delayed
	attempt := it.Attempts + 1
	most := h.maxAttempts(m)
	switch {
	case errors.As(err, &u):
		v.kind = Undecodable
	case errors.As(err, &r), most > 0 && attempt >= most:
		v.kind = Rejected
	case errors.As(err, &d):
		v.kind, v.wait = Retried, d.after
	default:
		v.kind, v.wait = Retried, h.backoff(m, attempt)
	}
	e := it.Element.Next(err)
	if it.newer != nil { // its header cannot be written here, so it goes whole behind one of our own
		e = lists.Element{Serial: lists.NewSerial(), Failure: lists.FailureText(err), Payload: it.raw}
	}
	v.next = e.Encode()
	return v
}

// maxAttempts is 0 where there is no bound.
func (h *handling) maxAttempts(msg IMessage) int {
	n := h.it.MaxAttempts
	if m, ok := msg.(MaxAttempter); n == 0 && ok {
		h.ask("MaxAttempts", func() { n = m.MaxAttempts() })
	}
	if n = or(n, h.r.conf.MaxAttempts); n < 0 || n > 255 {
		return 0
	}
	return n
}

func (h *handling) backoff(m IMessage, attempt int) time.Duration {
	wait := sidekiqBackoff(attempt) // what holds if the user's func fails
	if b, ok := m.(Backoffer); ok {
		h.ask("Backoff", func() { wait = b.Backoff(attempt) })
	} else if f := h.r.conf.Backoff; f != nil {
		h.ask("Queue.Backoff", func() { wait = f(attempt) })
	}
	return min(max(wait, 0), maxWait)
}

// maxWait keeps a due time within what a score holds exactly.
const maxWait = 100 * 365 * 24 * time.Hour

// ask runs a method of the user's that a verdict depends on. It has a goroutine of its own, because this may be one that is
// ending already, which could not survive another runtime.Goexit. A failure leaves the default and is told.
func (h *handling) ask(what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		guard(what, func() error { f(); return nil }, func(err error) {
			if err != nil {
				h.r.q.events.emit(Event{Kind: Trouble, Channel: h.it.in.Channel, Serial: h.it.Name(), Err: err})
			}
		})
	}()
	<-done
}

func (h *handling) info() Info {
	it := h.it
	i := Info{Channel: it.in.Channel, Serial: it.Name(), Attempt: it.Attempts + 1, Recoveries: it.Recoveries, Headers: it.Headers,
		Failure: it.Failure, Receiver: h.r.live.Load().Name, Worker: h.slot.n}
	if !it.Bare {
		i.Delivered = lists.DeliveredAt(it.Serial)
	}
	return i
}
