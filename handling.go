package shunt

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/worker"
)

// handling is one handler's run, as its receiver sees it.
type handling struct {
	*worker.Item
	r        *receiver
	decoding bool // Unmarshal has been called and has not returned: it may have called runtime.Goexit
}

// undecodable marks an error of Unmarshal.
type undecodable struct{ error }

func (u undecodable) Unwrap() error { return u.error }

var errExited error = undecodable{errors.New("shunt: Unmarshal called runtime.Goexit")}

// run decodes the message and calls its handler.
func (h *handling) run() error {
	m, err := h.unmarshal()
	if err != nil {
		return err
	}
	var timeout time.Duration
	if t, ok := m.(Timeouter); ok && h.Timeout() == 0 {
		guard("Timeout", func() error { timeout = t.Timeout(); return nil }, func(e error) { err = e })
		if err != nil {
			return err
		}
	}
	h.Decoded(m, timeout)
	return h.r.handler(h.Item, m)
}

func (h *handling) unmarshal() (m IMessage, err error) {
	if h.Newer {
		return nil, undecodable{element.ErrNewerVersion}
	}
	h.decoding = true
	guard("Unmarshal", func() (err error) {
		m, err = h.r.channels[h.Channel.Index].prototype.Unmarshal(h.Payload)
		return err
	}, func(e error) { err = e })
	h.decoding = false
	if err == nil && isNil(m) {
		err = errors.New("shunt: Unmarshal returned no message and no error")
	}
	if err != nil {
		return nil, undecodable{err}
	}
	return m, nil
}

// judge makes a verdict of what the handler returned. It runs on the handler's goroutine, or the watcher's for one that was given up.
func (h handling) judge(m IMessage, err error) *worker.Verdict {
	if err == nil {
		return worker.Ack
	}
	if h.Newer { // an error of ours: no user is asked, and no other text may stand in dead
		return h.verdict(m, err)
	}
	v, bad := ask(h, &h.r.hungErrors, 3*answerTime, "the handler's error", nil, func() *worker.Verdict { return h.verdict(m, err) }) // which asks for two more
	if bad != nil {
		return h.verdict(m, bad) // a method of err's failed: one of a nil pointer, perhaps
	}
	return v
}

// verdict is judge's of an error.
func (h handling) verdict(m IMessage, err error) *worker.Verdict {
	it := h.Item
	v := &worker.Verdict{Err: err}
	cause := h.Cause()
	switch cause {
	case ErrLeaseLost, ErrShutdown:
		v.Kind = worker.Released // that was not the message's fault, so it is no attempt
		return v
	case ErrCancelled:
		v.Kind = worker.Cancelled
		return v
	}
	var u undecodable
	var r rejection
	var d delayed
	attempt := it.Attempt()
	most := h.maxAttempts(m)
	switch {
	case errors.As(err, &u):
		v.Kind = worker.Undecodable
	case errors.As(err, &r), most > 0 && attempt >= most, cause == ErrDeadline:
		v.Kind = worker.Rejected
	case errors.As(err, &d):
		v.Kind, v.Wait = worker.Retried, min(d.after, maxWait)
	default:
		v.Kind, v.Wait = worker.Retried, h.backoff(m, attempt)
	}
	e, _ := element.Decode(it.Raw) // anew, for the handler may have written to what it was given
	e = e.Next(err)
	if it.Newer { // its header cannot be written here, so it goes whole behind one of our own
		e = element.Element{Serial: element.NewSerial(), Payload: it.Raw}
		e.SetFailure(element.FailureText(err))
	}
	v.Next, v.Failure = e.Encode(), e.Failure()
	return v
}

// maxAttempts is 0 where there is no bound.
func (h handling) maxAttempts(msg IMessage) int {
	n := h.MaxAttempts()
	if m, ok := msg.(MaxAttempter); n == 0 && ok {
		n, _ = ask(h, &h.r.hungMethods, answerTime, "MaxAttempts", n, m.MaxAttempts)
	}
	if n = cmp.Or(n, h.r.conf.MaxAttempts); n < 0 || n > 255 {
		return 0
	}
	return n
}

func (h handling) backoff(m IMessage, attempt int) time.Duration {
	wait := sidekiqBackoff(attempt) // what holds if the user's func fails
	if b, ok := m.(Backoffer); ok {
		wait, _ = ask(h, &h.r.hungMethods, answerTime, "Backoff", wait, func() time.Duration { return b.Backoff(attempt) })
	} else if f := h.r.conf.Backoff; f != nil {
		wait, _ = ask(h, &h.r.hungMethods, answerTime, "Queue.Backoff", wait, func() time.Duration { return f(attempt) })
	}
	return min(max(wait, 0), maxWait)
}

// maxWait keeps a due time within what a score holds exactly.
const maxWait = 100 * 365 * 24 * time.Hour

// answerTime is how long a worker waits for a method of the user's that a verdict depends on.
const answerTime = time.Second

// ask runs such a method. It has a goroutine of its own, because this may be one that is ending already, which could not survive another
// runtime.Goexit, and because it may hang: its worker waits no longer than the limit, and where as many hang as there are workers
// none is asked. What fails leaves the default and is told.
func ask[T any](h handling, hung *atomic.Int32, limit time.Duration, what string, otherwise T, f func() T) (T, error) {
	type answer struct {
		value T
		err   error
	}
	a := answer{value: otherwise}
	if n := hung.Load(); int(n) >= h.r.Live().Workers {
		a.err = fmt.Errorf("shunt: %s is not asked while %d such calls have not returned, so its default holds", what, n)
	} else {
		given, over := make(chan answer, 1), new(atomic.Bool) // whoever sets it second counts
		go func() {
			a := answer{value: otherwise}
			defer func() {
				given <- a
				if over.Swap(true) {
					hung.Add(-1)
				}
			}()
			guard(what, func() error { a.value = f(); return nil }, func(err error) { a.err = err })
		}()
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case a = <-given:
		case <-late.C:
			hung.Add(1)
			if over.Swap(true) {
				hung.Add(-1)
			}
			a.err = fmt.Errorf("shunt: %s has not returned within %v, so its default holds", what, limit)
		}
	}
	if a.err != nil {
		h.r.q.events.emit(Event{Kind: EventReceiverError, Channel: h.Channel.Name, Serial: h.SerialString(), Err: a.err})
	}
	return a.value, a.err
}

// infoOf is what FromContext gives.
func infoOf(it *worker.Item) Info {
	i := Info{Channel: it.Channel.Name, Serial: it.SerialString(), ID: it.ID(), Attempt: it.Attempt(), Recoveries: int(it.Recoveries), Headers: it.Headers(),
		Failure: it.Failure(), Receiver: it.Receiver(), Worker: it.Worker()}
	if !it.Bare {
		i.EnqueuedAt = element.EnqueuedAt(it.Serial)
	}
	return i
}
