package recur

import (
	"context"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/store"
)

// Enqueue enqueues a recurring message at once, paused or not, beside its ticks. nil means that Redis has it.
//
// ErrNotFound: the channel has no recurring message of that name. shunt.ErrDuplicate: nothing was enqueued, because the
// ID of the message is taken. shunt.ErrUnknown: Redis may have the message.
func (t *Timetable) Enqueue(ctx context.Context, channel, name string) error {
	fail := func(err error) error { return fmt.Errorf("recur: enqueue %q of channel %q: %w", name, channel, err) }
	engine, err := queues.Open(t.Queue)
	if err != nil {
		return err
	}
	k := store.KeysOf(channel)
	for {
		read, err := readOne(ctx, engine, k, name)
		switch {
		case err != nil:
			return fail(err)
		case read.unreadable != nil:
			return fail(read.unreadable)
		case read.record == nil:
			return fail(ErrNotFound)
		}
		e, then := read.record.message(0, read.now.UnixMilli()), read.record.written()
		then.count++
		firing := store.RecurFiring{Name: name, Head: read.head, Next: then.head(), Elements: [][]byte{e.Encode()}}
		firing.ID, firing.Expires = identity(&e)
		replies, twice, err := store.FireRecur(ctx, engine, k, firing)
		if err != nil {
			return fail(err)
		}
		n := replies[0].Enqueued
		if replies[0].HeadChanged {
			own := replies[0].Head == firing.Next // an earlier sending was executed
			switch {
			case own && e.ID() == "":
				n = 1
			case own, twice: // with an id it may have been refused; by another's head nobody knows which came first
				return fail(shunt.ErrUnknown)
			default:
				continue // another process has written
			}
		}
		emitEnqueued(engine, channel, n, []element.Element{e})
		if n == 0 {
			return fail(shunt.ErrDuplicate)
		}
		return nil
	}
}

// message is the element that is enqueued for a tick, 0 for none, at now. All times are ms by the server's clock.
func (rec *record) message(tick, now int64) element.Element {
	e := rec.element
	e.Serial = element.NewSerial()
	if e.Extra != nil && e.Extra.Expires != 0 {
		x := *e.Extra
		x.Expires += now // Add was given a time after the enqueue
		e.Extra = &x
	}
	if tick != 0 {
		e.Detach()
		e.SetHeader(tickHeader, time.UnixMilli(tick).In(rec.spec.in).Format(tickFormat))
	}
	return e
}

// identity is the id of an element, and when the element expires.
func identity(e *element.Element) (id string, expires time.Time) {
	if e.Extra != nil && e.Extra.Expires != 0 {
		expires = time.UnixMilli(e.Extra.Expires)
	}
	return e.ID(), expires
}

// emitEnqueued reports that n of some elements of one message were enqueued. The others were refused, because their id
// is taken.
func emitEnqueued(engine engine, channel string, n int, elements []element.Element) {
	if len(elements) == 0 { // the policy skips the ticks that were missed
		return
	}
	ev := event.Event{Kind: event.Enqueued, Channel: channel, ID: elements[0].ID(), N: n,
		Bytes: n * elements[0].Size()}
	if len(elements) == 1 {
		ev.Serial = elements[0].Serial
	}
	if n > 0 {
		engine.Emit(ev)
	}
	if n < len(elements) {
		ev.Kind, ev.N = event.Duplicate, len(elements)-n
		engine.Emit(ev)
	}
}

// The header that carries the tick of a message.
const (
	tickHeader = "shunt-tick"
	tickFormat = time.RFC3339Nano
)

// Tick is the tick for which a handler's message was enqueued, in the offset of its Spec's zone. ctx is the handler's
// context. It is false for a message that was enqueued for no tick.
func Tick(ctx context.Context) (time.Time, bool) {
	i, ok := shunt.FromContext(ctx)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(tickFormat, i.Headers[tickHeader])
	return t, err == nil
}
