package shunttest

import (
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/inside"
)

// Handling is what became of one message that was handled once.
type Handling struct {
	Channel string
	Serial  string // empty for a bare payload
	Attempt int    // counted from 1
	// Message is what Unmarshal made and Resolve was called on; nil if it failed. A test may look at its fields.
	Message shunt.IMessage
	// Verdict is shunt.EventAcked, EventRetried, EventRejected or EventUndecodable, of which the last two went to dead.
	// It is EventCancelled or EventExpired, or EventLateVerdict if the lease was lost.
	Verdict shunt.EventKind
	// Err is what Resolve or the middleware returned; a *shunt.PanicError after a panic.
	Err error
	// Wait is how long a retried message has to wait: what its RetryAfter or Backoff asked for, rounded up to a
	// millisecond. Only Handle sets it.
	Wait time.Duration
	// Result is what shunt.SetResult set, if the message was acked and had an ID and Retain. Only Handle sets it.
	Result []byte
	// Enqueued is what came into any channel meanwhile, also by shunt.Then, in the order of the channels' names and
	// within each in Queue.Enqueued's. Only Handle sets it.
	Enqueued []Enqueue
}

// String tells it in a few words, for the text of a failure.
func (h Handling) String() string {
	s := fmt.Sprintf("%s at attempt %d", h.Verdict, h.Attempt)
	if h.Verdict == shunt.EventRetried && h.Wait > 0 {
		s += fmt.Sprintf(", to wait %v", h.Wait)
	}
	if h.Err != nil {
		s += fmt.Sprintf(": %v", h.Err)
	}
	return s
}

// Option is how a message comes to its handler in Handle.
type Option func(*coming) error

type coming struct {
	attempt int
	age     time.Duration
	failure string
	options []shunt.Option
}

// Attempt says that it is the n-th handling of the message, 1 to 255; the default is 1.
func Attempt(n int) Option {
	return func(c *coming) error {
		if n < 1 || n > 255 {
			return fmt.Errorf("Attempt(%d): want 1 to 255", n)
		}
		c.attempt = n
		return nil
	}
}

// Age says how long ago the message was enqueued: its shunt.Info's Enqueued, and the time in its serial. The default is
// now.
func Age(d time.Duration) Option {
	return func(c *coming) error {
		if d < 0 {
			return fmt.Errorf("Age(%v): want 0 or more", d)
		}
		c.age = d
		return nil
	}
}

// Failure is what the attempt before failed with: shunt.Info's Failure.
func Failure(text string) Option {
	return func(c *coming) error { c.failure = text; return nil }
}

// With says what the enqueue asked for: shunt.Header, shunt.Timeout, shunt.ID and the like; but not when it is due or
// expires, for it is handled at once.
func With(options ...shunt.Option) Option {
	return func(c *coming) error { c.options = append(c.options, options...); return nil }
}

// Handle has one message handled once, at once, and tells what became of it. prototype is what Receive would be given:
// it has the dependencies, and Unmarshal is called on it; m only gives the payload. The message goes through all that
// it meets in production: Marshal, Redis, Unmarshal, the Queue's Wrap, Resolve with a context that shunt.FromContext
// knows, and a verdict by the message's and the Queue's MaxAttempts and Backoff. A message that cannot be decoded is
// given as shunt.Raw.
//
// It does not touch the Queue's channels, and leaves nothing there but what the handler enqueues: it runs on a Redis of
// its own. Of the Queue's Events func it calls those of the message. The test ends if the handler takes longer than
// Patience, or called t.FailNow itself.
func (q *Queue) Handle(prototype, m shunt.IMessage, opts ...Option) Handling {
	q.t.Helper()
	if prototype == nil || m == nil {
		q.t.Fatalf("shunttest: Handle wants a prototype and a message: one is nil")
	}
	out, err := q.handle(prototype, m, opts)
	if err != nil {
		q.t.Fatalf("shunttest: Handle: %v", err)
	}
	if q.t.Failed() && exited(out.Err) {
		q.t.FailNow()
	}
	return out
}

// exited says whether the handler's goroutine was ended by runtime.Goexit, as t.FailNow does.
func exited(err error) bool {
	var p *shunt.PanicError
	return errors.As(err, &p) && p.Goexit
}

func (q *Queue) handle(prototype, m shunt.IMessage, opts []Option) (out Handling, err error) {
	e, err := q.element(m, opts)
	if err != nil {
		return out, err
	}
	channel := m.Channel()
	if p := prototype.Channel(); p != channel {
		return out, fmt.Errorf("the prototype's channel is %q and the message's %q", p, channel)
	}
	before, err := q.enqueued(channelsOf(q.redis)...)
	if err != nil {
		return out, err
	}
	s, err := newStage(q, channel, e)
	if err != nil {
		return out, err
	}
	defer s.close()
	if out, err = s.play(prototype); err != nil {
		return out, err
	}
	after, err := q.enqueued(channelsOf(q.redis)...)
	out.Enqueued = without(after, before)
	return out, err
}

// element is m as it lies in Redis when it comes so.
func (q *Queue) element(m shunt.IMessage, opts []Option) (e element.Element, err error) {
	c := coming{attempt: 1}
	for _, o := range opts {
		if err := o(&c); err != nil {
			return e, err
		}
	}
	door, err := inside.Open(q.desk)
	if err != nil {
		return e, err
	}
	_, e, in, at, err := door.Encode(m, c.options)
	if err != nil {
		return e, err
	}
	if in > 0 || !at.IsZero() {
		return e, errors.New("shunt.In and shunt.At have no meaning here: the message is handled at once")
	}
	if e.Extra != nil && e.Extra.Expires != 0 {
		return e, errors.New("shunt.Expire has no meaning here: the message is handled at once")
	}
	e.Attempts = int16(c.attempt - 1)
	e.SetFailure(c.failure)
	e.Serial = element.NewSerialAt(time.Now().Add(-c.age))
	return e, nil
}

// without is what of all is not among some; bare payloads, which have no serial, are told by their bytes and number.
func without(all, some []Enqueue) (rest []Enqueue) {
	id := func(d *Enqueue) string { return d.Channel + " " + d.Serial + " " + string(d.Payload) }
	known := make(map[string]int)
	for i := range some {
		known[id(&some[i])]++
	}
	for i := range all {
		if k := id(&all[i]); known[k] > 0 {
			known[k]--
		} else {
			rest = append(rest, all[i])
		}
	}
	return rest
}
