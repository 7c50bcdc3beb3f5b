package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Element is the whole message as it lies in Redis, to be kept elsewhere: ParseElement reads it. It is nil where the
// entry does not have all, as of Browse with a part of the payload, and not to be written to.
func (e Entry) Element() []byte { return e.raw }

// ParseElement is the entry of an Element of the channel that it lay in. at is its DueAt or DiedAt, of StateDelay or
// StateDead, else zero.
func ParseElement(channel string, s State, raw []byte, at time.Time) (Entry, error) {
	if err := store.CheckChannel(channel); err != nil {
		return Entry{}, err
	}
	if key, _ := holds(store.KeysOf(channel), s); key == "" {
		return Entry{}, fmt.Errorf("shunt: an element of state %q: want %s, %s, %s or %s", s, StatePrepare,
			StateSuspect, StateDelay, StateDead)
	}
	if _, err := element.Decode(raw); err != nil {
		return Entry{}, fmt.Errorf("shunt: an element for %q: %w", channel, err)
	}
	return entryOf(channel, s, bytes.Clone(raw)).scored(at), nil
}

// Copy is a message that enqueues what the entry has once more: its payload, ID, type, headers, attempts, recoveries
// and failure, and what the options of its enqueue have said. It is due at DueAt, and what was to expire has as long
// to go as the entry had by this clock, at least 1 ms. What was taken before does not expire. The serial is new, and
// with it EnqueuedAt. The channel is e.Channel, which may be set to another one. What options of this enqueue say goes
// before what the entry has. What is past its Deadline is enqueued all the same: a receiver moves it to dead. So is
// what was postponed beyond its Expire: it expires. Without its Element an entry has no copy, which Enqueue says.
//
// Where Queue.Payloads decodes, a copy is decoded and encoded anew, as that Queue does; what cannot be decoded is not
// enqueued. Elsewhere an encoded payload is copied as it lies, with its EncodingHeader.
func (e Entry) Copy() IMessage {
	return With(Raw(e.Channel, e.Payload), func(d *draft) error {
		el, err := element.Decode(e.raw)
		if e.raw == nil || err != nil {
			return errors.Join(errors.New("shunt: a copy of an entry without its Element: list it whole"), err)
		}
		switch x := el.Extra; {
		case x == nil || x.Expires == 0:
		case el.IsFirst(): // that is a time; of an enqueue it is how long
			x.Expires = max(1, x.Expires-time.Now().UnixMilli())
		default: // it was taken, so it does not expire any more
			x.Expires, x.ToDead = 0, false
		}
		given := d.Element.Extra != nil && d.Element.Extra.Expires != 0
		d.Element.Like(&el)
		if el.Extra != nil {
			d.deadline = el.Extra.Deadline
			d.Element.Extra.Late = !given
		}
		was := payloadOf(e.lay, &el)
		d.copied = &was
		if e.State == StateDelay && d.Due == (store.Due{}) {
			d.Due = store.Due{At: e.DueAt}
		}
		return nil
	})
}

// Renewed is the entry as RetryDead would put it back, for a Copy that begins anew: without attempts and recoveries,
// and with neither expiry nor Deadline. The last failure stays. An entry without its Element stays as it is.
func (e Entry) Renewed() Entry {
	if e.raw == nil {
		return e
	}
	n := entryOf(e.Channel, StatePrepare, revived(e.raw))
	n.lay = e.lay
	return n
}

// RestoreDead puts dead letters, as ParseElement or List gives them, into dead with the times at which they died, and
// returns how many were not there already. A second call changes nothing. It drops none for MaxDead: the next message
// that dies does. They keep their serials; an ID that one has had is not taken by it.
func (q *Queue) RestoreDead(ctx context.Context, channel string, dead ...Entry) (n int, err error) {
	if err := store.CheckChannel(channel); err != nil {
		return 0, err
	}
	for i, e := range dead {
		if e.State != StateDead || e.raw == nil || e.DiedAt.IsZero() {
			return 0, fmt.Errorf("shunt: restore to dead of %q: entry %d has state %q, died at %v and %d bytes of "+
				"Element: want dead letters, whole", channel, i, e.State, e.DiedAt, len(e.raw))
		}
	}
	k := store.KeysOf(channel)
	for some := range slices.Chunk(dead, 100) {
		all := make([]store.Scored, len(some))
		for i, e := range some {
			all[i] = store.Scored{Raw: e.raw, At: e.DiedAt}
		}
		added, err := store.AddDead(ctx, asker{q: q}, k, all)
		if n += added; err != nil {
			return n, err
		}
	}
	return n, nil
}
