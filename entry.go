package shunt

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Entry is one message as it lies in Redis. Its JSON has the payload in base64, as every []byte has.
type Entry struct {
	Channel string `json:"channel"`
	State   State  `json:"state"`
	Serial  string `json:"serial,omitempty"` // empty for a bare payload
	ID      string `json:"id,omitempty"`
	Type    string `json:"type,omitempty"` // name of the message's type
	Payload []byte `json:"payload"`
	// PayloadSize is that of the whole payload in bytes: Browse may show less of it.
	PayloadSize int               `json:"payload_size"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attempts    int               `json:"attempts"`             // that are over
	Recoveries  int               `json:"recoveries,omitempty"` // as Info has them
	Failure     string            `json:"failure,omitempty"`    // of the last attempt
	EnqueuedAt  time.Time         `json:"enqueued_at,omitzero"` // by the producer's clock; zero for a bare payload
	// DueAt is, in StateDelay, by the server's clock, as DiedAt and EndedAt are. It is zero in all other states.
	DueAt    time.Time `json:"due_at,omitzero"`
	DiedAt   time.Time `json:"died_at,omitzero"`   // StateDead
	EndedAt  time.Time `json:"ended_at,omitzero"`  // StateDone
	Receiver string    `json:"receiver,omitempty"` // StateDoing: the incarnation that holds it
	Worker   int       `json:"worker,omitempty"`   // StateDoing
	// LeaseEndsAt is, in StateLeased, when the message comes back unless it is settled, by the server's clock.
	LeaseEndsAt time.Time `json:"lease_ends_at,omitzero"`
	Outcome     Outcome   `json:"outcome,omitzero"` // StateDone, which has no payload

	raw []byte // nil where it is over, is not shown as a whole, or came as JSON
	sum string // SHA-1 of a bare payload that is not shown as a whole
	lay string // the channel that it lay in, for Copy to another one
}

// entryOf decodes an element of a channel.
func entryOf(channel string, state State, raw []byte) Entry {
	el, _ := element.Decode(raw)
	e := Entry{
		Channel:    channel,
		State:      state,
		Serial:     el.SerialString(),
		ID:         el.ID(),
		Type:       el.Type(),
		Payload:    el.Payload,
		Headers:    el.Headers(),
		Attempts:   int(el.Attempts),
		Recoveries: int(el.Recoveries),
		Failure:    el.Failure(),
		raw:        raw,
		lay:        channel,
	}
	e.PayloadSize = len(el.Payload)
	if !el.Bare {
		e.EnqueuedAt = element.EnqueuedAt(el.Serial)
	}
	return e
}

func entriesOf(channel string, state State, raws [][]byte) []Entry {
	es := make([]Entry, len(raws))
	for i, raw := range raws {
		es[i] = entryOf(channel, state, raw)
	}
	return es
}

// scored is the entry with its score: when it is due, or died.
func (e Entry) scored(at time.Time) Entry {
	switch e.State {
	case StateDelay:
		e.DueAt = at
	case StateDead:
		e.DiedAt = at
	}
	return e
}

// at is the entry's score.
func (e *Entry) at() time.Time {
	if e.State == StateDelay {
		return e.DueAt
	}
	return e.DiedAt
}

// scoredEntries decodes elements of delay or dead.
func scoredEntries(channel string, state State, all []store.Scored) []Entry {
	es := make([]Entry, len(all))
	for i, s := range all {
		es[i] = entryOf(channel, state, s.Raw).scored(s.At)
	}
	return es
}

// List shows up to limit messages of one state, after offset others; a limit of 0 means all. The first one is the
// message to be taken next, the one due first, the latest dead or the latest done. Doing comes by receiver and worker,
// leased by the end of the lease. What is cancelled is left out but of these two, so there may be fewer than limit.
//
// List locks nothing: it may miss a message that moves meanwhile, or show it twice. So may two calls of which one goes
// on where the other ended: a receiver changes its place with each beat, a lease when it is extended.
func (q *Queue) List(ctx context.Context, channel string, state State, offset, limit int) ([]Entry, error) {
	if offset < 0 || limit < 0 {
		return nil, fmt.Errorf("shunt: list %q: offset %d and limit %d: want 0 or more", channel, offset, limit)
	}
	a, k, n := asker{q: q}, store.KeysOf(channel), min(limit, math.MaxInt-offset)
	if limit == 0 {
		n = -1
	}
	key, _ := holds(k, state)
	switch state {
	case StatePrepare, StateSuspect:
		raws, err := store.ListPage(ctx, a, k, key, offset, n)
		if err != nil {
			return nil, err
		}
		return q.uncancelled(ctx, k, entriesOf(channel, state, raws))
	case StateDelay, StateDead:
		all, err := store.SetPage(ctx, a, k, key, state == StateDead, offset, n)
		if err != nil {
			return nil, err
		}
		return q.uncancelled(ctx, k, scoredEntries(channel, state, all))
	case StateDoing:
		return q.held(ctx, k, &store.Span{Skip: offset, Left: n})
	case StateLeased:
		return q.allLeased(ctx, k, &store.Span{Skip: offset, Left: n})
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

// held lists what the receivers of a channel hold.
func (q *Queue) held(ctx context.Context, k *store.Keys, s *store.Span) ([]Entry, error) {
	known, err := store.Receivers(ctx, asker{q: q}, k)
	if err != nil {
		return nil, err
	}
	var es []Entry
	for _, r := range known {
		if r.Holding <= s.Skip {
			s.Skip -= r.Holding
			continue
		}
		if s.Left == 0 {
			break
		}
		lists, err := store.HeldBy(ctx, asker{q: q}, k, r.Incarnation, s)
		if err != nil {
			return nil, err
		}
		for worker, raws := range lists {
			of := entriesOf(k.Name, StateDoing, raws)
			for i := range of {
				of[i].Receiver, of[i].Worker = r.Name, worker
			}
			es = append(es, of...)
		}
	}
	return es, nil
}

// allLeased lists what the leases of a channel hold, by their ends.
func (q *Queue) allLeased(ctx context.Context, k *store.Keys, s *store.Span) (es []Entry, err error) {
	err = store.EachLeased(ctx, asker{q: q}, k, s, func(_ string, ends time.Time, raws [][]byte) {
		of := entriesOf(k.Name, StateLeased, raws)
		for i := range of {
			of[i].LeaseEndsAt = ends
		}
		es = append(es, of...)
	})
	return es, err
}

// uncancelled leaves out entries that were cancelled and that no worker has met yet.
func (q *Queue) uncancelled(ctx context.Context, k *store.Keys, es []Entry) ([]Entry, error) {
	if !slices.ContainsFunc(es, func(e Entry) bool { return e.ID != "" }) {
		return es, nil
	}
	serials := make([]ulid.ULID, len(es))
	for i, e := range es {
		serials[i], _ = ulid.ParseStrict(e.Serial)
	}
	cancelled, err := store.WereCancelled(ctx, asker{q: q}, k, serials)
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
	return Entry{Channel: channel, State: StateDone, ID: s.ID, Serial: s.Serial, Attempts: s.Attempt,
		Failure: s.Failure, EnqueuedAt: s.EnqueuedAt, EndedAt: s.Outcome.EndedAt, Outcome: s.Outcome}
}
