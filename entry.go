package shunt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Entry is one message as it lies in Redis.
type Entry struct {
	Serial     string // empty for a bare payload
	ID         string
	Payload    []byte
	Headers    map[string]string
	Attempts   int
	Recoveries int
	Failure    string    // of the last attempt
	EnqueuedAt time.Time // by the producer's clock; zero for a bare payload
	DueAt      time.Time // Delay: by the server's clock, as DiedAt and EndedAt are; zero in all other states
	DiedAt     time.Time // Dead
	EndedAt    time.Time // Done
	Receiver   string    // Doing: the incarnation that holds it
	Worker     int       // Doing
	Outcome    Outcome   // Done, which has no payload

	channel string
	raw     []byte
}

// entryOf decodes an element of a channel.
func entryOf(channel string, raw []byte) Entry {
	el, _ := element.Decode(raw)
	e := Entry{
		Serial:     el.SerialString(),
		ID:         el.ID(),
		Payload:    el.Payload,
		Headers:    el.Headers(),
		Attempts:   int(el.Attempts),
		Recoveries: int(el.Recoveries),
		Failure:    el.Failure(),
		channel:    channel,
		raw:        raw,
	}
	if !el.Bare {
		e.EnqueuedAt = element.EnqueuedAt(el.Serial)
	}
	return e
}

func entriesOf(channel string, raws [][]byte) []Entry {
	es := make([]Entry, len(raws))
	for i, raw := range raws {
		es[i] = entryOf(channel, raw)
	}
	return es
}

// scoredEntries decodes elements of delay or dead, whose score is the time that at names.
func scoredEntries(channel string, all []store.Scored, at func(*Entry) *time.Time) []Entry {
	es := make([]Entry, len(all))
	for i, s := range all {
		es[i] = entryOf(channel, s.Raw)
		*at(&es[i]) = s.At
	}
	return es
}

func dueAt(e *Entry) *time.Time  { return &e.DueAt }
func diedAt(e *Entry) *time.Time { return &e.DiedAt }

// List shows up to limit messages of one state, after offset others; a limit of 0 means all. The first one is the
// message to be taken next, the one due first, the latest dead or the latest done. Doing comes by receiver and worker,
// and always whole. What is cancelled is left out, so there may be fewer than limit.
//
// List locks nothing: it may miss a message that moves meanwhile, or show it twice.
func (q *Queue) List(ctx context.Context, channel string, state State, offset, limit int) ([]Entry, error) {
	if offset < 0 || limit < 0 {
		return nil, fmt.Errorf("shunt: list %q: offset %d and limit %d: want 0 or more", channel, offset, limit)
	}
	a, k, n := asker{q}, store.KeysOf(channel), limit
	if limit == 0 {
		n = -1
	}
	switch state {
	case StatePrepare, StateSuspect:
		list := k.Prepare
		if state == StateSuspect {
			list = k.Suspect
		}
		raws, err := store.ListPage(ctx, a, k, list, offset, n)
		if err != nil {
			return nil, err
		}
		return q.uncancelled(ctx, k, entriesOf(channel, raws))
	case StateDelay, StateDead:
		set, at := k.Delay, dueAt
		if state == StateDead {
			set, at = k.Dead, diedAt
		}
		all, err := store.SetPage(ctx, a, k, set, state == StateDead, offset, n)
		if err != nil {
			return nil, err
		}
		return q.uncancelled(ctx, k, scoredEntries(channel, all, at))
	case StateDoing:
		return q.held(ctx, k)
	case StateDone:
		kept, err := store.DonePage(ctx, a, k, offset, n)
		es := make([]Entry, len(kept))
		for i, o := range kept {
			es[i] = doneEntry(channel, ended(o.ID, o.Outcome))
		}
		return es, err
	}
	return nil, fmt.Errorf("shunt: list %q: there is no state %q", channel, state)
}

// held lists what all receivers of a channel hold.
func (q *Queue) held(ctx context.Context, k *store.Keys) ([]Entry, error) {
	known, err := store.Receivers(ctx, asker{q}, k)
	if err != nil {
		return nil, err
	}
	var es []Entry
	for _, r := range known {
		if r.Holding == 0 {
			continue
		}
		lists, err := store.HeldBy(ctx, asker{q}, k, r.Incarnation)
		if err != nil {
			return nil, err
		}
		for worker, raws := range lists {
			of := entriesOf(k.Name, raws)
			for i := range of {
				of[i].Receiver, of[i].Worker = r.Name, worker
			}
			es = append(es, of...)
		}
	}
	return es, nil
}

// uncancelled leaves out entries that were cancelled and that no worker has met yet.
func (q *Queue) uncancelled(ctx context.Context, k *store.Keys, es []Entry) ([]Entry, error) {
	if !slices.ContainsFunc(es, func(e Entry) bool { return e.ID != "" }) {
		return es, nil
	}
	serials := make([]ulid.ULID, len(es))
	for i, e := range es {
		serials[i] = store.SerialOf(e.raw)
	}
	cancelled, err := store.WereCancelled(ctx, asker{q}, k, serials)
	if err != nil {
		return nil, err
	}
	var left []Entry
	for i, e := range es {
		if !cancelled[i] {
			left = append(left, e)
		}
	}
	return left, nil
}

// doneEntry is the entry of a message that is over.
func doneEntry(channel string, s Status) Entry {
	return Entry{ID: s.ID, Serial: s.Serial, Attempts: s.Attempt, Failure: s.Failure, EnqueuedAt: s.EnqueuedAt,
		EndedAt: s.Outcome.EndedAt, Outcome: s.Outcome, channel: channel}
}
