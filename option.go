package shunt

import (
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Option is what one enqueue wants.
type Option func(*draft) error

// In enqueues the message now, to be due after d, counted on the server's clock from when the enqueue reaches it. Zero
// or less means now; more than 100 years are cut to them. Once due, the message goes behind those that wait already.
func In(d time.Duration) Option {
	return func(v *draft) error {
		v.Due, v.rivals.in = store.Due{In: max(d, 0)}, true
		return v.rivals.check()
	}
}

// At enqueues the message now, to be due at t, judged by the server's clock to the millisecond and never before it. A
// time that is past means now; one more than 100 years ahead is cut to them.
func At(t time.Time) Option {
	return func(v *draft) error {
		v.Due, v.rivals.at = store.Due{At: t}, true
		return v.rivals.check()
	}
}

// RefTo sets *r to the Ref of the message, with its serial, before it is sent: so a message without an ID can be found
// again, and one of unknown outcome looked for. Then's messages have one, too. With gives each message of EnqueueAll
// its own.
func RefTo(r *Ref) Option {
	return func(v *draft) error {
		if r == nil {
			return errors.New("shunt: RefTo(nil): want a pointer to a Ref")
		}
		v.refs = append(v.refs, r)
		return nil
	}
}

// Type gives the message a type name, of up to 255 bytes, as its method MessageType would. It is for Raw, whose payload
// a Mux is to handle.
func Type(name string) Option {
	return func(v *draft) error {
		if len(name) == 0 || len(name) > element.MaxType {
			return fmt.Errorf("shunt: Type(%.40q): a type name has 1 to %d bytes", name, element.MaxType)
		}
		v.Element.SetType(name)
		return nil
	}
}

// Header adds a small pair that travels in the element: 1 to 255 bytes of key, up to 16 KB of value. A later value of a
// key wins.
func Header(key, value string) Option {
	return func(v *draft) error { return v.Element.SetHeader(key, value) }
}

// Expire drops the message, with an Event, if no worker has taken it d after it was enqueued, by the server's clock. d
// is 1 ms or more, and ends after In or At, otherwise Enqueue refuses it. Then does not refuse it, and the message
// expires. One that was taken once does not expire any more. Deadline bounds its handlings.
func Expire(d time.Duration) Option { return expire(d, false) }

// ExpireToDead is Expire for a message that then goes to dead, with ErrExpired as its reason and an EventRejected. A
// worker that meets the message moves it there, or drops it. Until then it is found by its serial, and not by its ID.
func ExpireToDead(d time.Duration) Option { return expire(d, true) }

func expire(d time.Duration, toDead bool) Option {
	return func(v *draft) error {
		if d < time.Millisecond {
			return fmt.Errorf("shunt: Expire(%v): want 1ms or more", d)
		}
		v.extra().Expires, v.extra().ToDead = min(d, store.MaxWait).Milliseconds(), toDead
		v.extra().Late = false
		v.rivals.expire, v.rivals.expireToDead = v.rivals.expire || !toDead, v.rivals.expireToDead || toDead
		return v.rivals.check()
	}
}

// Deadline ends the contexts of the message's handlers at t, with ErrDeadline as cause. From then on the message is not
// handled any more but goes to dead. The server's clock judges that. A t that is past, or before the end of In, is an
// error, by this process's clock. A t more than 100 years ahead is cut to them.
func Deadline(t time.Time) Option {
	return func(v *draft) error {
		now := time.Now()
		if !t.After(now) {
			return fmt.Errorf("shunt: Deadline(%v) has passed", t)
		}
		if far := now.Add(store.MaxWait); t.After(far) {
			t = far
		}
		v.extra().Deadline = t.UnixMilli()
		return nil
	}
}

// ID names the message, with 1 to 255 bytes. The name is taken on its channel for as long as the message lives: until
// it is acked, dead, cancelled or expired. Enqueue of another message of that name is a *DuplicateError. Status,
// Cancel, Postpone and Wait find the message by its name. Enqueue resolves an unknown outcome by itself.
func ID(id string) Option {
	return func(v *draft) error {
		if err := checkID(id); err != nil {
			return err
		}
		v.extra().ID = id
		return nil
	}
}

// UniqueFor keeps the ID taken for d after the message was acked, by the server's clock: 1 ms or more.
func UniqueFor(d time.Duration) Option {
	return func(v *draft) error {
		if d < time.Millisecond {
			return fmt.Errorf("shunt: UniqueFor(%v): want 1ms or more", d)
		}
		v.extra().Unique = min(d, store.MaxWait).Milliseconds()
		return nil
	}
}

// Retain keeps the outcome of a message with an ID for d, 1 ms or more, without its payload. The ID is free meanwhile:
// UniqueFor keeps it taken. That is how and when it
// ended, its last failure, and the result of SetResult. Status and Wait find it, and List with StateDone lists it. The
// outcome of a cancelled message is kept only for those who wait for it, for a minute. Queue.MaxDone and MaxDoneBytes
// bound how many outcomes a channel keeps.
func Retain(d time.Duration) Option {
	return func(v *draft) error {
		if d < time.Millisecond {
			return fmt.Errorf("shunt: Retain(%v): want 1ms or more", d)
		}
		v.extra().Retain = min(d, store.MaxWait).Milliseconds()
		return nil
	}
}

// Timeout bounds each handling of this enqueue, in place of the method and the Queue's field; negative means no bound,
// zero leaves it to them.
func Timeout(d time.Duration) Option {
	return func(v *draft) error {
		v.Element.SetTimeout(d)
		return nil
	}
}

// MaxAttempts bounds how often this enqueue is handled, 1 to 255, in place of the method and the Queue's field.
// Negative means no bound. Zero leaves it to them.
func MaxAttempts(n int) Option {
	return func(v *draft) error {
		if n > 255 {
			return fmt.Errorf("shunt: MaxAttempts(%d): want 1 to 255, or negative for no bound", n)
		}
		v.Element.SetMaxAttempts(n)
		return nil
	}
}

// extra is what the message asks for beyond a plain one.
func (d *draft) extra() *element.Extra {
	if d.Element.Extra == nil {
		d.Element.Extra = new(element.Extra)
	}
	return d.Element.Extra
}

// check says which two options of a list contradict each other.
func (r *rivals) check() error {
	switch {
	case r.in && r.at:
		return errors.New("shunt: In and At name two due times: give one")
	case r.expire && r.expireToDead:
		return errors.New("shunt: Expire and ExpireToDead name two ends: give one")
	}
	return nil
}

// checkExtra says which options do not go together.
func (d *draft) checkExtra(now time.Time) error {
	x := d.Element.Extra
	due := now.Add(d.Due.In)
	if !d.Due.At.IsZero() {
		due = d.Due.At
	}
	switch {
	case x.ID == "" && x.Retain > 0:
		return errors.New("shunt: Retain without an ID, by which it would be found: add ID")
	case x.ID == "" && x.Unique > 0:
		return errors.New("shunt: UniqueFor without an ID: add ID")
	case x.Expires > 0 && !x.Late && d.Due.In.Milliseconds() >= x.Expires: // At is judged by the server's clock
		return fmt.Errorf("shunt: Expire(%v) of a message that is due in %v", time.Duration(x.Expires)*time.Millisecond,
			d.Due.In)
	case x.Deadline > 0 && x.Deadline != d.deadline && due.UnixMilli() >= x.Deadline:
		return fmt.Errorf("shunt: Deadline(%v) of a message that is due at %v", time.UnixMilli(x.Deadline),
			due.Round(time.Millisecond))
	}
	return nil
}

func checkID(id string) error {
	if len(id) == 0 || len(id) > element.MaxID {
		return fmt.Errorf("shunt: the id %.40q has %d bytes: want 1 to %d", id, len(id), element.MaxID)
	}
	return nil
}

// with is a message with options of its own.
type with struct {
	IMessage
	opts []Option
}

// With is the message with options of its own, which win over those of the enqueue. It is for EnqueueAll and Then,
// where each message may have another ID or due time.
func With(m IMessage, opts ...Option) IMessage { return &with{m, opts} }

// Unwrap is the message without the options that With has given it: so middleware of enqueues sees its type.
func Unwrap(m IMessage) IMessage {
	m, _ = unwrap(m)
	return m
}
