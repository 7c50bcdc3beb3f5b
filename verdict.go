package shunt

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/worker"
)

// Reject wraps err so that the message goes to dead at once, with err's text, whatever attempts it has left.
func Reject(err error) error {
	if err == nil {
		err = errors.New("rejected")
	}
	return custody.Reject(err)
}

// RetryAfter wraps err so that the message is tried again after d instead of its backoff; zero or less means
// at once. It counts as an attempt.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("to be tried again")
	}
	return custody.RetryAfter(d, err)
}

// leastSnooze keeps a handler that is never ready from spinning.
const leastSnooze = 100 * time.Millisecond

// Snooze is the verdict of a handler that cannot handle its message yet: it is looked at again after d, 100 ms at
// least, and no attempt is counted. So MaxAttempts does not end that; Deadline does.
func Snooze(d time.Duration) error { return custody.Snooze(min(max(d, leastSnooze), store.MaxWait)) }

// handling is one handler's run, as its receiver sees it.
type handling struct {
	*worker.Item
	r *receiver
}

var errExited = custody.Undecodable(errors.New("shunt: Unmarshal called runtime.Goexit"))

// handle decodes a message, runs its handler and returns the verdict. It guards what runs for every message. A panic
// becomes an error here. runtime.Goexit cannot be stopped, and the worker meets it with judge.
func (r *receiver) handle(it *worker.Item) (v *custody.Verdict) {
	h := handling{it, r}
	var m IMessage
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			v = h.judge(m, panicked("Queue.Wrap", p))
		}
	}()
	m, err := h.decode()
	if err == nil {
		err = r.handler(it, m)
	}
	returned = true
	if err == nil {
		return custody.Ack
	}
	return h.judge(m, err)
}

// judge is the verdict on a message whose handler has not returned: it called runtime.Goexit, or did not end in time.
func (r *receiver) judge(it *worker.Item, message any, err error) *custody.Verdict {
	h := handling{it, r}
	m, decoded := message.(IMessage)
	switch {
	case err != worker.ErrExited:
		return h.verdictOf(m, err)
	case !decoded:
		err = errExited
	default:
		err = panicked("the handler", nil)
	}
	return h.verdictOf(m, err)
}

// decode makes the message, and tells the pool of it and of its timeout.
func (h handling) decode() (m IMessage, err error) {
	if h.Newer {
		return nil, custody.Undecodable(element.ErrNewerVersion)
	}
	prototype, err := h.r.channels[h.Lane.Index].prototype(h.Lane.Name, h.Type())
	if err != nil {
		return nil, custody.Undecodable(err)
	}
	payload := h.Payload
	if h.r.conf.Payloads.Decode != nil {
		h.Decoded(nil, 0) // its timeout runs
		if payload, err = h.r.q.decode(h.Item, payloadOf(h.Lane.Name, &h.Element)); err != nil {
			return nil, err
		}
	} else if encoding := h.Headers()[EncodingHeader]; encoding != "" { // another receiver may have what it needs
		return nil, fmt.Errorf("shunt: the payload is encoded as %.80q, and this receiver decodes nothing: set "+
			"Queue.Payloads", encoding)
	}
	guard("Unmarshal", func() (err error) {
		m, err = unmarshal(h.r.conf.Codec, prototype, payload)
		return err
	}, func(e error) { err = e })
	if err == nil && isNil(m) {
		err = errors.New("shunt: Unmarshal returned no message and no error")
	}
	if err != nil {
		return nil, custody.Undecodable(err)
	}
	var timeout time.Duration
	if t, ok := timeouter(m); ok && h.Timeout() == 0 {
		h.Decoded(m, 0) // for judge, if this ends the goroutine
		guard("Timeout", func() error { timeout = t.Timeout(); return nil }, func(e error) { err = e })
	}
	h.Decoded(m, timeout)
	return m, err
}

// judge makes a verdict of a handler's error, on its goroutine.
func (h handling) judge(m IMessage, err error) *custody.Verdict {
	h.Returned()
	return h.verdictOf(m, err)
}

// verdictOf makes a verdict of an error. Its user is asked for what it depends on.
func (h handling) verdictOf(m IMessage, err error) *custody.Verdict {
	if h.Newer { // an error of ours: no user is asked, and no other text may stand in dead
		return h.verdict(m, err)
	}
	made := func() *custody.Verdict { return h.verdict(m, err) } // which asks for two more
	v, bad := ask(h, &h.r.hungErrors, 3*answerTime, "the handler's error", nil, made)
	if bad != nil {
		return h.verdict(m, bad) // a method of err's failed: one of a nil pointer, perhaps
	}
	return v
}

// verdict is what err says, and else the message's attempts.
func (h handling) verdict(m IMessage, err error) *custody.Verdict {
	return h.Decide(custody.Policy{
		MaxAttempts: func() int { return h.maxAttempts(m) },
		Backoff:     func(attempt int) time.Duration { return h.backoff(m, attempt) },
		MaxSize:     h.r.conf.MaxSize,
	}, err)
}

// maxAttempts is 0 where there is no bound.
func (h handling) maxAttempts(msg IMessage) int {
	n := h.MaxAttempts()
	if m, ok := offers[MaxAttempter](msg); n == 0 && ok {
		n, _ = ask(h, &h.r.hungMethods, answerTime, "MaxAttempts", n, m.MaxAttempts)
		if n > 255 {
			h.complain(fmt.Errorf("shunt: MaxAttempts returned %d, so its default holds: want 1 to 255, or negative "+
				"for no bound", n))
			n = 0
		}
	}
	return boundOf(n, h.r.conf.MaxAttempts)
}

// boundOf is how often a message is handled, by its own bound or else the Queue's; 0: there is none.
func boundOf(own, queue int) int {
	n := cmp.Or(own, queue)
	if n < 0 || n > 255 { // an element of an older version may have more
		return 0
	}
	return n
}

func (h handling) backoff(m IMessage, attempt int) time.Duration {
	wait := sidekiqBackoff(attempt) // what holds if the user's func fails
	if b, ok := offers[Backoffer](m); ok {
		wait, _ = ask(h, &h.r.hungMethods, answerTime, "Backoff", wait,
			func() time.Duration { return b.Backoff(attempt) })
	} else if f := h.r.conf.Backoff; f != nil {
		wait, _ = ask(h, &h.r.hungMethods, answerTime, "Queue.Backoff", wait,
			func() time.Duration { return f(attempt) })
	}
	return min(max(wait, 0), store.MaxWait)
}

// answerTime is how long a worker waits for a method of the user's that a verdict depends on.
const answerTime = time.Second

// ask runs such a method on a goroutine of its own. The goroutine here may be ending already, and could not survive
// another runtime.Goexit. The method may hang too, so its worker waits no longer than the limit. Where as many calls
// hang as there are workers, ask makes none. A failure leaves the default, and an Event reports it.
func ask[T any](h handling, hung *atomic.Int32, limit time.Duration, what string, otherwise T, f func() T) (T, error) {
	type answer struct {
		value T
		err   error
	}
	a := answer{value: otherwise}
	if n := hung.Load(); int(n) >= h.r.pool.Workers() {
		a.err = fmt.Errorf("shunt: %s is not asked while %d such calls have not returned, so its default holds", what,
			n)
	} else {
		given, over := make(chan answer, 1), new(atomic.Bool) // the side that sets it second counts
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
		h.complain(a.err)
	}
	return a.value, a.err
}

// complain reports a fault of a method of the user's, beside the handler.
func (h handling) complain(err error) {
	h.r.q.emit(event.Event{Kind: event.ReceiverError, Channel: h.Lane.Name, Serial: h.Serial, Err: err})
}
