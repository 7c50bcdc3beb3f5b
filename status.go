package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Status is what is known of a message with an ID. Its State is Prepare while it waits, also in suspect, or due and not
// promoted yet; Delay; Doing; or Done when it is over, dead included, while its outcome or its ID is kept. The dead
// letter itself is found by List.
type Status struct {
	ID         string
	Serial     string
	State      State
	Attempt    int // Doing and Done: the last one, counted from 1; else how many have failed
	EnqueuedAt time.Time
	DueAt      time.Time // Delay, by the server's clock
	StartedAt  time.Time // Doing, by the clock of the process that handles it
	Receiver   string    // Doing: the name of the incarnation that holds it, another one after a handover
	Worker     int       // Doing: the number of its worker
	Cancelled  bool      // Doing: Cancel was called, and the handler has not ended yet
	Failure    string    // of the last attempt
	Outcome    Outcome   // Done, where its outcome is kept

	// UniqueUntil is when the ID will be free, of a message that is Done but still takes it, as UniqueFor asked.
	UniqueUntil time.Time
}

// Outcome is how a message ended.
type Outcome struct {
	// Acked, Rejected (it went to dead), Expired or, of one that somebody waited for, Cancelled; empty: not known
	Kind      EventKind
	EndedAt   time.Time
	KeptUntil time.Time // when the server forgets it
	Attempt   int
	Failure   string
	Result    []byte // as SetResult set it
}

// Status tells what is known of the message with that id: of the living one, else of the last whose end is kept. It is
// one look, however many messages wait. ErrNotFound: there is none; nor is one that has expired.
func (q *Queue) Status(ctx context.Context, channel, id string) (Status, error) {
	if err := checkID(id); err != nil {
		return Status{}, err
	}
	k := store.KeysOf(channel)
	a, err := store.RunStatus(ctx, asker{q}, k, id)
	if err != nil {
		return Status{}, err
	}
	held := statusOf(id, a.Record, a.Holder, a.Now)
	held.Cancelled = held.State == StateDoing && a.Cancelled
	switch {
	case held.Serial != "" && held.State != StateDone: // without a Serial: no record, or one that cannot be read
		return held, nil
	case a.Outcome.Serial != ulid.ULID{}:
		return ended(id, a.Outcome), nil
	case held.UniqueUntil.After(a.Now): // only its id is taken
		return held, nil
	}
	return Status{}, fmt.Errorf("shunt: status of %q on %q: %w", id, channel, ErrNotFound)
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
	case holder.Receiver != "":
		s.State, s.Receiver, s.Worker = StateDoing, holder.Receiver, holder.Worker
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

// Cancel ends the message with that id. A ready or delayed message is not handled once Cancel has returned, and its id
// is free. If a worker handles the message, in whichever process, the handler's context ends with ErrCancelled as
// cause. If the handler then returns an error the message is dropped, and if nil it is acked. Until then its id stays
// taken. Cancel returns the message's status as it was before the call. ErrNotFound: no live message has that id.
func (q *Queue) Cancel(ctx context.Context, channel, id string) (Status, error) {
	if err := checkID(id); err != nil {
		return Status{}, err
	}
	k := store.KeysOf(channel)
	// Status tells which message it is: so a script that is sent twice cannot end another message of the same id.
	before, err := q.Status(ctx, channel, id)
	if err == nil && before.State == StateDone {
		err = ErrNotFound
	}
	if err != nil {
		return Status{}, fmt.Errorf("shunt: cancel %q on %q: %w", id, channel, err)
	}
	serial, _ := ulid.ParseStrict(before.Serial)
	a, err := store.RunCancel(ctx, asker{q}, k, id, serial, &q.conf.Bounds)
	switch {
	case err != nil:
		return Status{}, fmt.Errorf("shunt: cancel %q on %q: %w", id, channel, err)
	case a.Found:
		return statusOf(id, a.Record, a.Holder, time.Time{}), nil
	case a.Twice: // the first one has done it
		return before, nil
	}
	return Status{}, fmt.Errorf("shunt: cancel %q on %q: %w", id, channel, ErrNotFound)
}

// Postpone gives the message with that id another due time, In or At; without one, or with one that is past, it is due
// now. ErrRunning: a worker handles it. ErrWaiting: it waits to be taken, and the new time is ahead. ErrNotFound: there
// is none.
func (q *Queue) Postpone(ctx context.Context, channel, id string, to Option) error {
	if err := checkID(id); err != nil {
		return err
	}
	var d draft
	if err := to(&d); err != nil {
		return err
	}
	if e := &d.Element; e.Extra != nil || e.Headers() != nil || e.Timeout() != 0 || e.MaxAttempts() != 0 {
		return fmt.Errorf("shunt: postpone %q on %q: want In or At", id, channel)
	}
	return q.postpone(ctx, channel, id, &d)
}

// Promote makes the message with that id due now, wherever it waits; one that is not delayed stays as it is. The errors
// are those of Postpone.
func (q *Queue) Promote(ctx context.Context, channel, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	return q.postpone(ctx, channel, id, &draft{})
}

func (q *Queue) postpone(ctx context.Context, channel, id string, d *draft) error {
	k := store.KeysOf(channel)
	mode, ms := d.Due.When(time.Now())
	if mode == store.Now {
		mode, ms = store.At, 0
	}
	soon := mode == store.At && ms <= time.Now().UnixMilli()
	before, err := q.Status(ctx, channel, id) // as for Cancel
	if err == nil && before.State == StateDone {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("shunt: postpone %q on %q: %w", id, channel, err)
	}
	serial, _ := ulid.ParseStrict(before.Serial)
	var raw []byte
	for again, known := false, false; ; known = true {
		p, err := store.RunPostpone(ctx, asker{q}, k, id, serial, mode, ms, raw, known)
		if err != nil {
			return err
		}
		again = again || p.Twice
		switch {
		case again && soon && (len(p.Record) == 0 || p.Result == store.BeingHandled): // the first one has done it
			return nil
		case len(p.Record) == 0:
			err = ErrNotFound
		case p.Result == store.Postponed:
			return nil
		case p.Result == store.BeingHandled:
			err = ErrRunning
		case p.Result == store.WaitsAlready:
			err = ErrWaiting
		}
		if err != nil {
			return fmt.Errorf("shunt: postpone %q on %q: %w", id, channel, err)
		}
		// It is one of many that are due at the same time: it is looked for from here, and handed to the script.
		e, err := q.dueAt(ctx, k, statusOf(id, p.Record, store.Handling{}, time.Time{}))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		raw = e.raw // without one: it is not there any more
	}
}

// dueAt looks for a message among all that are due at the same time.
func (q *Queue) dueAt(ctx context.Context, k *store.Keys, s Status) (Entry, error) {
	const page = 1000
	return q.find(s, func(n int) ([]Entry, error) {
		all, err := store.DueAt(ctx, asker{q}, k, s.DueAt, n, page)
		return scoredEntries(k.Name, all, dueAt), err
	})
}

// find is the message among pages of others; the last page is empty.
func (q *Queue) find(s Status, page func(n int) ([]Entry, error)) (Entry, error) {
	for n := 0; ; n++ {
		es, err := page(n)
		if err != nil {
			return Entry{}, err
		}
		for _, e := range es {
			if e.Serial == s.Serial {
				return e, nil
			}
		}
		if len(es) == 0 {
			return Entry{}, ErrNotFound
		}
	}
}

// Peek shows the message with that id, with its payload, as it lies in Redis. Among n others that are ready it looks at
// up to n, a thousand at a time from the taking end. While the list moves Peek may miss it, and returns ErrNotFound.
func (q *Queue) Peek(ctx context.Context, channel, id string) (Entry, error) {
	s, err := q.Status(ctx, channel, id)
	if err != nil {
		return Entry{}, err
	}
	const page = 1000
	k := store.KeysOf(channel)
	pages := func(list string) func(n int) ([]Entry, error) { // List leaves out what is cancelled, perhaps a whole page
		return func(n int) ([]Entry, error) {
			raws, err := store.ListPage(ctx, asker{q}, k, list, n*page, page)
			return entriesOf(channel, raws), err
		}
	}
	var e Entry
	switch s.State {
	case StateDelay:
		if e, err = q.dueAt(ctx, k, s); err == nil {
			return e, nil
		}
		fallthrough // it has just been promoted
	case StatePrepare:
		if e, err = q.find(s, pages(k.Prepare)); err != nil {
			e, err = q.find(s, pages(k.Suspect))
		}
	case StateDoing:
		e, err = q.find(s, func(n int) ([]Entry, error) {
			if n > 0 {
				return nil, nil
			}
			return q.held(ctx, k)
		})
	default:
		return doneEntry(channel, s), nil
	}
	if err != nil {
		return Entry{}, fmt.Errorf("shunt: peek at %q on %q: %w", id, channel, err)
	}
	return e, nil
}
