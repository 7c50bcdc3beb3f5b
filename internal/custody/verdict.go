package custody

import (
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/store"
)

// Causes of a handler's ended context, and reasons of a verdict; shunt exports and explains them.
var (
	ErrTimeout   = errors.New("shunt: the handler's timeout has passed")
	ErrLeaseLost = errors.New("shunt: the lease was lost: another receiver may handle the message")
	ErrShutdown  = errors.New("shunt: the receiver is shutting down")
	ErrCancelled = errors.New("shunt: the message was cancelled")
	ErrDeadline  = errors.New("shunt: the message's deadline has passed")
	ErrExpired   = errors.New("shunt: the message expired before it was taken")
)

// Verdict is what becomes of a message; it is not written to any more.
type Verdict struct {
	store.Verdict       // its Failure is Err's text, which a user's method made: it is not asked for under a lock
	Undecodable   bool  // Rejected, because it could not be decoded
	Err           error // why, for an Event
}

var (
	// Ack is the verdict on most messages.
	Ack = new(Verdict)
	// Release is the verdict on what was not begun.
	Release = &Verdict{Verdict: store.Verdict{Fate: store.Released}}
)

// Keep is Ack with what the handler has left: a result, and what follows.
func Keep(result []byte, then []store.Followup) *Verdict {
	if result == nil && then == nil {
		return Ack
	}
	return &Verdict{Verdict: store.Verdict{Result: result, Then: then}}
}

// IsUnhandled says that the verdict hands a message back of which no handler has said anything.
func (v *Verdict) IsUnhandled() bool { return v.Fate == store.Released && v.Err == nil }

var kinds = [...]event.Kind{
	store.Acked: event.Acked, store.Cancelled: event.Cancelled, store.Expired: event.Expired,
	store.Retried: event.Retried, store.Rejected: event.Rejected, store.Released: event.Released,
}

// Kind is the Event of the verdict.
func (v *Verdict) Kind() event.Kind {
	switch {
	case v.Undecodable:
		return event.Undecodable
	case v.Snoozed:
		return event.Snoozed
	}
	return kinds[v.Fate]
}

// The errors by which a handler says more than that it has failed.
type (
	rejection   struct{ error }
	undecodable struct{ error }
	delayed     struct {
		error
		after time.Duration
	}
	snoozed struct{ after time.Duration }
)

func (r rejection) Unwrap() error   { return r.error }
func (u undecodable) Unwrap() error { return u.error }
func (d delayed) Unwrap() error     { return d.error }
func (s snoozed) Error() string     { return fmt.Sprintf("shunt: snoozed for %v", s.after) }

// Reject marks an error after which the message goes to dead at once.
func Reject(err error) error { return rejection{err} }

// Undecodable marks an error of a payload that cannot be read.
func Undecodable(err error) error { return undecodable{err} }

// RetryAfter marks an error after which the message is tried again after d.
func RetryAfter(d time.Duration, err error) error { return delayed{err, d} }

// Snooze is the error after which the message is looked at again after d, and no attempt is counted.
func Snooze(d time.Duration) error { return snoozed{d} }

// Rejects says whether an error sends its message to dead at once.
func Rejects(err error) bool {
	var r rejection
	return errors.As(err, &r)
}

// Delays says after which time an error has its message tried again, where it says so.
func Delays(err error) (after time.Duration, delays bool) {
	var d delayed
	delays = errors.As(err, &d)
	return d.after, delays
}

// Policy is what a message's type and its Queue want of it when it has failed. Its funcs are asked only where they
// count.
type Policy struct {
	MaxAttempts func() int // 0: no bound
	Backoff     func(attempt int) time.Duration
	MaxSize     int // of an element
}

// Decide is the verdict on a message whose handler has failed with err. cause is why its context had ended; nil: it had
// not.
func (h *Held) Decide(p Policy, cause, err error) *Verdict {
	v := &Verdict{Err: err}
	switch cause {
	case ErrLeaseLost, ErrShutdown:
		v.Fate = store.Released // that was not the message's fault, so it is no attempt
		return v
	case ErrCancelled:
		v.Fate = store.Cancelled
		return v
	}
	if (cause == ErrTimeout || cause == ErrDeadline) && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // which is what the context said, most often
		v.Err = err
	}
	var u undecodable
	var z snoozed
	attempt, most := h.Attempt(), p.MaxAttempts()
	after, delays := Delays(err)
	v.Fate = store.Retried
	switch {
	case errors.As(err, &u):
		v.Fate, v.Undecodable = store.Rejected, true
	case Rejects(err), cause == ErrDeadline:
		v.Fate = store.Rejected
	case errors.As(err, &z):
		v.Wait, v.Snoozed, v.Err = z.after, true, nil
	case most > 0 && attempt >= most:
		v.Fate = store.Rejected
	case delays:
		v.Wait = min(after, store.MaxWait)
	default:
		v.Wait = p.Backoff(attempt)
	}
	h.write(v, err, p.MaxSize)
	return v
}

// write writes the element that follows a failed one.
func (h *Held) write(v *Verdict, err error, maxSize int) {
	e, _ := element.Decode(h.Raw) // anew, for the handler may have written to what it was given
	if v.Snoozed {
		e = e.Unhandled()
	} else {
		e = e.Next(err)
	}
	if h.Newer { // its header cannot be written here, so it goes whole behind one of our own
		e = element.Element{Serial: element.NewSerial(), Payload: h.Raw}
		e.SetFailure(element.FailureText(err))
	}
	v.Failure = e.Failure()
	v.Next = e.EncodeWithin(max(len(h.Raw), maxSize))
}

// Refuse is the verdict that a message goes to dead unhandled.
func (h *Held) Refuse(why error, maxSize int) *Verdict {
	e, _ := element.Decode(h.Raw)
	e.SetFailure(why.Error())
	next := e.EncodeWithin(max(len(h.Raw), maxSize))
	return &Verdict{Verdict: store.Verdict{Fate: store.Rejected, Refused: true, Next: next, Failure: why.Error()},
		Err: why}
}
