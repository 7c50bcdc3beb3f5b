package shunttest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/store"
)

// queues opens and copies Queues.
var queues = inside.To[*shunt.Queue, shunt.IMessage, shunt.Option]()

// Option changes how a message comes to its handler in Handle.
type Option func(*arrival) error

// arrival is how a message comes to its handler.
type arrival struct {
	attempt int
	age     time.Duration
	failure string
	options []shunt.Option
}

// Attempt makes it the n-th handling of the message: 1 to 255, default 1.
func Attempt(n int) Option {
	return func(a *arrival) error {
		if n < 1 || n > 255 {
			return fmt.Errorf("Attempt(%d): want 1 to 255", n)
		}
		a.attempt = n
		return nil
	}
}

// Age sets how long ago the message was enqueued, for Enqueued of its shunt.Info and the time in its serial. The
// default is 0.
func Age(d time.Duration) Option {
	return func(a *arrival) error {
		if d < 0 {
			return fmt.Errorf("Age(%v): want 0 or more", d)
		}
		a.age = d
		return nil
	}
}

// Failure sets the text of the error with which the attempt before ended, for Failure of the message's shunt.Info.
func Failure(text string) Option {
	return func(a *arrival) error { a.failure = text; return nil }
}

// With sets the options of the enqueue, such as shunt.Header, shunt.Timeout and shunt.ID. shunt.In, shunt.At and
// shunt.Expire are an error, because the message is handled at once.
func With(options ...shunt.Option) Option {
	return func(a *arrival) error { a.options = append(a.options, options...); return nil }
}

// element is m as it lies in Redis when it arrives so, or with plain as it is before Payloads.Encode.
func (q *Queue) element(m shunt.IMessage, opts []Option, plain bool) (e element.Element, err error) {
	a := arrival{attempt: 1}
	for _, o := range opts {
		if err := o(&a); err != nil {
			return e, err
		}
	}
	engine, err := queues.Open(q.own)
	if err != nil {
		return e, err
	}
	draft, err := engine.Draft(m, a.options)
	if err != nil {
		return e, err
	}
	e = draft.Element
	if draft.Due.Later() {
		return e, errors.New("shunt.In and shunt.At have no meaning here: the message is handled at once")
	}
	if e.Extra != nil && e.Extra.Expires != 0 {
		return e, errors.New("shunt.Expire has no meaning here: the message is handled at once")
	}
	e.Attempts = int16(a.attempt - 1)
	e.SetFailure(a.failure)
	e.Serial = element.NewSerialAt(time.Now().Add(-a.age))
	if plain {
		return e, nil
	}
	draft.Element = e
	err = engine.Encode(context.Background(), &draft)
	return draft.Element, err
}

// isOf says whether an element has that serial.
func isOf(serial, raw string) bool { return store.SerialOf([]byte(raw)).String() == serial }
