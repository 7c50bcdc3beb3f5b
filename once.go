package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/store"
)

// Once names an enqueue that must not be done twice, though its caller may not know whether it was done.
type Once struct {
	Channel string // of all messages
	// Key names the enqueue on its channel: 1 to 255 bytes. It has nothing to do with IDs.
	Key string
	// For is how long the key is kept after the enqueue, by the server's clock: 1 ms to a year, default 24 h.
	For time.Duration
	// Note is kept with the key, up to 255 bytes: a hash of the request, say, by which another one under the same key
	// is told apart.
	Note string
	// Always notes the key also where all messages were refused: so a later call enqueues none of them.
	Always bool
}

// OnceResult is what became of an enqueue under a key.
type OnceResult struct {
	// Before says that an earlier call has done it. This one has changed nothing, whatever its messages are.
	Before bool
	Note   string // as that call gave it
	// Refs name the messages, in their order, by serial; the zero Ref stands for one that was refused. Before: there
	// are as many as that call had, without IDs.
	Refs []Ref
	// Errs are, not Before, why messages were refused: each nil or a *DuplicateError.
	Errs []error
}

func (o *Once) check(n int) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("shunt: Once."+format, args...))
		}
	}
	check(len(o.Key) > 0 && len(o.Key) <= 255, "Key has %d bytes: want 1 to 255", len(o.Key))
	check(len(o.Note) <= 255, "Note has %d bytes: want up to 255", len(o.Note))
	check(o.For == 0 || o.For >= time.Millisecond && o.For <= 365*24*time.Hour,
		"For is %v: want 1ms to 8760h, or 0 for 24h", o.For)
	if n == 0 || n > store.OnceMost {
		errs = append(errs, fmt.Errorf("shunt: EnqueueOnce of %d messages: want 1 to %d", n, store.OnceMost))
	}
	return errors.Join(append(errs, store.CheckChannel(o.Channel))...)
}

// EnqueueOnce enqueues up to 100 messages of one channel in one step with a note that it has. While the note is kept,
// another call with its key enqueues nothing, and tells what the first one did: whatever has become of the messages,
// whichever process calls, and though the first one was killed before it knew. So after ErrUnknown, or a crash, call it
// again with the same key.
//
// A message whose ID is taken is refused, beside others. Where all are, nothing is noted, but for Always. The error is
// nil for those.
// Any other error but ErrUnknown says that nothing was enqueued. It costs one script, and some 300 bytes in Redis for
// each key while it is kept.
func (q *Queue) EnqueueOnce(ctx context.Context, o Once, ms ...IMessage) (res OnceResult, err error) {
	if err := q.open(ctx); err != nil {
		return res, err
	}
	next := func(ctx context.Context, ms []IMessage) (err error) {
		res, err = q.enqueueOnce(ctx, o, ms)
		return err
	}
	if q.conf.WrapEnqueue == nil {
		return res, next(ctx, ms)
	}
	err = q.wrapped(ctx, append([]IMessage(nil), ms...), next)
	return res, err
}

func (q *Queue) enqueueOnce(ctx context.Context, o Once, ms []IMessage) (res OnceResult, err error) {
	if err := o.check(len(ms)); err != nil {
		return res, err
	}
	if o.For == 0 {
		o.For = 24 * time.Hour
	}
	now := time.Now()
	ds := make([]draft, len(ms))
	all := make([]store.OnceMessage, len(ms))
	var failed failures
	for i, m := range ms {
		if err = q.newDraft(ctx, &ds[i], m, nil, now); err == nil && ds[i].Keys.Name != o.Channel {
			err = fmt.Errorf("shunt: the message is for channel %q, not for %q", ds[i].Keys.Name, o.Channel)
		}
		if err != nil {
			failed.add(err, i)
			continue
		}
		e := &ds[i].Element
		all[i] = store.OnceMessage{ID: e.ID(), Raw: e.Encode()}
		all[i].Mode, all[i].MS = ds[i].Due.When(now)
		if e.Extra != nil {
			all[i].Expires = e.Extra.TTL()
		}
	}
	if err := failed.err(); err != nil {
		return res, err
	}
	k, err := q.keysFor(o.Channel)
	if err != nil {
		return res, err
	}
	a, err := store.RunOnce(ctx, asker{q: q}, k, o.Key, o.For, o.Note, o.Always, all)
	if err != nil {
		return res, q.explain(err, "enqueue once to", o.Channel)
	}
	if a.Before && !ownOnce(ds, a.Serials) {
		res.Before, res.Note = true, a.Note
		for _, serial := range a.Serials {
			res.Refs = append(res.Refs, onceRef(o.Channel, serial))
		}
		return res, nil
	}
	return q.onced(k, o, ds, a), nil
}

// ownOnce says whether a row is that of this very call, which was sent twice. One that has no serial is anybody's.
func ownOnce(ds []draft, serials []ulid.ULID) (own bool) {
	if len(ds) != len(serials) {
		return false
	}
	for i, serial := range serials {
		if serial != (ulid.ULID{}) && serial != ds[i].Element.Serial {
			return false
		}
		own = own || serial != (ulid.ULID{})
	}
	return own
}

func onceRef(channel string, serial ulid.ULID) Ref {
	if serial == (ulid.ULID{}) {
		return Ref{}
	}
	return BySerial(channel, serial.String())
}

// onced is the result of the call that has enqueued.
func (q *Queue) onced(k *store.Keys, o Once, ds []draft, a store.OnceAnswer) OnceResult {
	res := OnceResult{Note: o.Note, Refs: make([]Ref, len(ds)), Errs: make([]error, len(ds))}
	n, bytes := 0, 0
	for i := range ds {
		e := &ds[i].Element
		switch {
		case a.Before && a.Serials[i] == (ulid.ULID{}): // what the first sending was told is lost
			res.Errs[i] = &DuplicateError{Channel: o.Channel, Status: Status{ID: e.ID()}}
		case !a.Before && a.Refused[i] != nil:
			res.Errs[i] = &DuplicateError{Channel: o.Channel,
				Status: statusOf(e.ID(), a.Refused[i], store.Handling{}, time.Time{})}
		default:
			res.Refs[i] = Ref{Channel: o.Channel, ID: e.ID(), Serial: e.Serial.String()}
			n, bytes = n+1, bytes+e.Size()
		}
	}
	switch {
	case n == 1 && len(ds) == 1:
		d := &ds[0]
		ev := event.Event{Kind: event.Enqueued, Channel: k.Name, Serial: d.Element.Serial, ID: d.Element.ID(), N: 1,
			Bytes: bytes}
		if d.Due.Later() {
			at := d.Due.At
			if at.IsZero() {
				at = time.Now().Add(d.Due.In)
			}
			ev.Due = event.TimeOf(at)
		}
		q.emit(ev)
	case n > 0:
		q.emit(event.Event{Kind: event.Enqueued, Channel: k.Name, N: n, Bytes: bytes})
	}
	return res
}
