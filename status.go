package shunt

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Status is what is known of one message. Of a message with an ID its State is Prepare while it waits, also in suspect;
// Delay; Doing; Leased; or Done when it is over, dead included, while its outcome or its ID is
// kept. Of one without an ID, and of a dead letter of which nothing else is kept, it is the State in which the message
// lies.
type Status struct {
	ID         string    `json:"id,omitempty"` // empty where it has none
	Serial     string    `json:"serial,omitempty"`
	State      State     `json:"state"`
	Attempt    int       `json:"attempt"` // Doing, Leased, Done: the last one, from 1; else how many have failed
	EnqueuedAt time.Time `json:"enqueued_at,omitzero"`
	DueAt      time.Time `json:"due_at,omitzero"`     // Delay, by the server's clock
	StartedAt  time.Time `json:"started_at,omitzero"` // Doing and Leased, by the clock of the process that handles it
	// Receiver is, in Doing, the name of the incarnation that holds it, another one after a handover.
	Receiver string `json:"receiver,omitempty"`
	Worker   int    `json:"worker,omitempty"` // Doing: the number of its worker
	// Cancelled is set in Doing and Leased: Cancel was called, and the message is not settled yet.
	Cancelled bool    `json:"cancelled,omitempty"`
	Failure   string  `json:"failure,omitempty"` // of the last attempt
	Outcome   Outcome `json:"outcome,omitzero"`  // Done, where its outcome is kept

	// UniqueUntil is when the ID will be free, of a message that is Done but still takes it, as UniqueFor asked.
	UniqueUntil time.Time `json:"unique_until,omitzero"`
}

// Outcome is how a message ended.
type Outcome struct {
	// Acked, Rejected (it went to dead), Expired or, of one that somebody waited for, Cancelled; empty: not known
	Kind      EventKind `json:"kind"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	KeptUntil time.Time `json:"kept_until,omitzero"` // when the server forgets it
	Attempt   int       `json:"attempt"`
	Failure   string    `json:"failure,omitempty"`
	Result    []byte    `json:"result,omitempty"` // as SetResult set it
}

// Status tells what is known of a message. By an ID it is one look, however many messages wait: at the living one, else
// at the last whose end is kept, else at the dead letters. ErrNotFound: there is none; nor is one that has expired.
func (q *Queue) Status(ctx context.Context, r Ref) (Status, error) {
	if err := r.check(); err != nil {
		return Status{}, err
	}
	s, err := q.status(ctx, store.KeysOf(r.Channel), r)
	if err != nil {
		return Status{}, r.failed("status of", err)
	}
	return s, nil
}

func (q *Queue) status(ctx context.Context, k *store.Keys, r Ref) (Status, error) {
	if r.ID != "" {
		s, err := q.statusByID(ctx, k, r.ID)
		if err == nil && (r.Serial == "" || r.Serial == s.Serial) || err != nil && !errors.Is(err, ErrNotFound) {
			return s, err
		}
	}
	var e Entry
	var err error
	if r.Serial != "" {
		e, err = q.locate(ctx, k, r)
	} else {
		e, err = q.deadByID(ctx, k, r.ID)
	}
	if err != nil {
		return Status{}, err
	}
	if r.ID == "" && e.ID != "" { // its record knows more
		if s, err := q.statusByID(ctx, k, e.ID); err == nil && s.Serial == e.Serial {
			return s, nil
		}
	}
	return statusOfEntry(e), nil
}

// statusOfEntry is what an entry says of a message that no record tells of.
func statusOfEntry(e Entry) Status {
	s := Status{ID: e.ID, Serial: e.Serial, State: e.State, Attempt: e.Attempts, EnqueuedAt: e.EnqueuedAt,
		DueAt: e.DueAt, Receiver: e.Receiver, Worker: e.Worker, Failure: e.Failure}
	if e.State == StateDoing || e.State == StateLeased {
		s.Attempt++
	}
	return s
}

// statusByID is what is known of an id: of the living message that has it, else of the last whose end is kept.
func (q *Queue) statusByID(ctx context.Context, k *store.Keys, id string) (Status, error) {
	a, err := store.RunStatus(ctx, asker{q: q}, k, id)
	if err != nil {
		return Status{}, err
	}
	held := statusOf(id, a.Record, a.Holder, a.Now)
	held.Cancelled = a.Holder.Some() && a.Cancelled
	if r, ok := element.ParseRecord(a.Record); ok && r.State == 'd' && held.State == StatePrepare &&
		!a.NextDue.IsZero() && r.At >= a.NextDue.UnixMilli() { // it is due, and nobody has promoted it yet
		held.State, held.DueAt = StateDelay, time.UnixMilli(r.At)
	}
	switch {
	case held.Serial != "" && held.State != StateDone: // without a Serial: no record, or one that cannot be read
		return held, nil
	case a.Outcome.Serial != ulid.ULID{}:
		s := ended(id, a.Outcome)
		if held.Serial == s.Serial && held.UniqueUntil.After(a.Now) {
			s.UniqueUntil = held.UniqueUntil
		}
		return s, nil
	case held.UniqueUntil.After(a.Now): // only its id is taken
		return held, nil
	}
	return Status{}, ErrNotFound
}

// statusOf reads the record of an id, and the holder of its message. Where now is zero, due messages are not told from
// delayed ones.
func statusOf(id string, record []byte, holder store.Handling, now time.Time) Status {
	s := Status{ID: id}
	r, ok := element.ParseRecord(record)
	if !ok {
		return s
	}
	s.Serial, s.EnqueuedAt = r.Serial.String(), element.EnqueuedAt(r.Serial)
	s.Attempt, s.Failure = r.Attempts, r.Failure
	at := time.UnixMilli(r.At)
	switch {
	case holder.Some():
		s.State, s.Receiver, s.Worker = StateDoing, holder.Receiver, holder.Worker
		if holder.Lease != "" {
			s.State = StateLeased
		}
		s.Attempt, s.StartedAt = holder.Attempt, holder.StartedAt
	case r.State == 'u':
		s.State, s.UniqueUntil = StateDone, at
	case r.Expires > 0 && !now.IsZero() && !now.Before(time.UnixMilli(r.Expires)): // over, wherever it lies
		s.State = StateDone
	case r.State == 'd' && (now.IsZero() || at.After(now)):
		s.State, s.DueAt = StateDelay, at
	default:
		s.State = StatePrepare
	}
	return s
}

// outcomes are the Kinds of Outcome.
var outcomes = map[store.OutcomeKind]EventKind{
	store.OutcomeAcked: EventAcked, store.OutcomeRejected: EventRejected,
	store.OutcomeCancelled: EventCancelled, store.OutcomeExpired: EventExpired,
}

// ended is the status of a message that is over.
func ended(id string, o store.Outcome) Status {
	if o.Serial == (ulid.ULID{}) { // it cannot be read
		return Status{ID: id, State: StateDone}
	}
	return Status{
		ID: id, Serial: o.Serial.String(), State: StateDone, EnqueuedAt: element.EnqueuedAt(o.Serial),
		Attempt: o.Attempt, Failure: o.Failure, Outcome: outcomeOf(o),
	}
}

func outcomeOf(o store.Outcome) Outcome {
	return Outcome{Kind: outcomes[o.Kind], EndedAt: o.EndedAt, KeptUntil: o.KeptUntil, Attempt: o.Attempt,
		Failure: o.Failure, Result: o.Result}
}

// Peek shows a message with its payload, as it lies in Redis, or what is kept of it. Among n others it looks at up to
// n, a thousand at a time. ErrNotFound: there is none.
func (q *Queue) Peek(ctx context.Context, r Ref) (Entry, error) {
	if err := r.check(); err != nil {
		return Entry{}, err
	}
	e, err := q.find(ctx, store.KeysOf(r.Channel), r)
	if err != nil {
		return Entry{}, r.failed("peek at", err)
	}
	return e, nil
}
