package recur

import (
	"context"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/store"
)

// Enqueue enqueues a recurring message at once, paused or not, beside its ticks. shunt.ErrDuplicate: its ID is taken,
// so it was not. shunt.ErrUnknown: it may have been.
func (t *Timetable) Enqueue(ctx context.Context, channel, name string) error {
	fail := func(err error) error { return fmt.Errorf("recur: enqueue %q of channel %q: %w", name, channel, err) }
	door, err := inside.Open(t.Queue)
	if err != nil {
		return err
	}
	for {
		now, head, r, err := read(ctx, door, channel, name)
		if err == nil && r == nil {
			err = ErrNotFound
		}
		if err != nil {
			return fail(err)
		}
		e, then := r.message(0, now), r.written()
		then.count++
		f := firingOf(name, head, then.head(), &e)
		f.Elements = [][]byte{e.Encode()}
		results, twice, err := store.RunRecurFire(ctx, door, store.KeysOf(channel), f)
		if err == nil {
			err = results[0].Err
		}
		if err != nil {
			return fail(err)
		}
		n, found := results[0].N, results[0].Head
		if n < 0 {
			switch {
			case found == then.head() && e.ID() == "":
				n = 1 // it was sent twice
			case found == then.head(): // it was, and the first may have found its ID taken
				return fail(shunt.ErrUnknown)
			case !twice:
				continue // another has written
			default: // another has written: before the first, or after it
				return fail(shunt.ErrUnknown)
			}
		}
		emitEnqueued(door, channel, n, e)
		if n == 0 {
			return fail(shunt.ErrDuplicate)
		}
		return nil
	}
}

// message is the element of a tick, or with 0 of none, that is enqueued at now.
func (r *record) message(tick, now int64) element.Element {
	e := r.element
	e.Serial = element.NewSerial()
	if e.Extra != nil && e.Extra.Expires != 0 {
		x := *e.Extra
		x.Expires += now // what Add was given is how long after the draft
		e.Extra = &x
	}
	if tick != 0 {
		e.SetHeader(tickHeader, time.UnixMilli(tick).In(r.spec.in).Format(tickFormat))
	}
	return e
}

// emitEnqueued emits that n of some elements were enqueued, and that the others were not because their id is taken.
func emitEnqueued(door inside.Door, channel string, n int, es ...element.Element) {
	if len(es) == 0 { // the ticks that it missed are skipped
		return
	}
	serial, id := "", es[0].ID() // they are of one message, and so of one id
	if len(es) == 1 {
		serial = es[0].SerialString()
	}
	if n > 0 {
		door.Emit(string(shunt.EventEnqueued), channel, serial, id, n, time.Time{}, nil)
	}
	if n < len(es) {
		door.Emit(string(shunt.EventDuplicate), channel, serial, id, len(es)-n, time.Time{}, nil)
	}
}

// firingOf is a firing without elements. first is the first of them, or where there are none any of the message.
func firingOf(name, old, head string, first *element.Element) store.Firing {
	f := store.Firing{Name: name, Old: old, Head: head, ID: first.ID()}
	if first.Extra != nil {
		f.Expires = first.Extra.Expires
	}
	return f
}
