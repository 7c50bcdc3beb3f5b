package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/store"
)

// failed says what was attempted on the message, and why it failed.
func (r Ref) failed(what string, err error) error {
	if r.ID != "" {
		return fmt.Errorf("shunt: %s %q on %q: %w", what, r.ID, r.Channel, err)
	}
	return fmt.Errorf("shunt: %s %s on %q: %w", what, r.Serial, r.Channel, err)
}

// errMoves says that a message was somewhere else whenever it was to be changed.
var errMoves = errors.New("the message moved each time when it was to be changed: try again")

// overError says that a message is not to be cancelled or moved any more.
type overError struct{ state State }

func (e *overError) Error() string {
	if e.state == StateDead {
		return "the message is dead: Retry gives it back, Delete removes it"
	}
	return "the message is over"
}

func (e *overError) Is(target error) bool { return target == ErrNotFound }

// change is what a change of a message came to.
type change uint8

const (
	moved   change = iota // it was not there any more, and nothing was done
	perhaps               // so it was, but a first command, whose reply was lost, may have done it
	done
)

// changed says what became of a change that was sent once, or twice.
func changed(was, twice bool) change {
	switch {
	case was:
		return done
	case twice:
		return perhaps
	}
	return moved
}

// alter calls do for the message that r names, where it lies; again where it has moved meanwhile.
func (q *Queue) alter(ctx context.Context, k *store.Keys, r Ref, do func(e Entry) (change, error)) error {
	tried := false
	for range 3 {
		e, err := q.find(ctx, k, r)
		if tried && errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		c, err := do(e)
		if err != nil || c == done {
			return err
		}
		tried = tried || c == perhaps
	}
	return errMoves
}

// bring is alter for what brings a message to prepare. Where a first command may have done that, a message that is
// being handled by now, or is over, says that it has.
func (q *Queue) bring(ctx context.Context, k *store.Keys, r Ref, do func(e Entry) (change, error)) error {
	tried := false
	return q.alter(ctx, k, r, func(e Entry) (change, error) {
		c, err := do(e)
		if tried && (errors.Is(err, ErrRunning) || errors.Is(err, ErrNotFound)) {
			return done, nil
		}
		tried = tried || c == perhaps
		return c, err
	})
}

// lives looks at the record of r's ID. serial is zero where r has no ID, or the message has lost it: then it is found
// by its serial alone.
func (q *Queue) lives(ctx context.Context, k *store.Keys, r Ref) (s Status, serial ulid.ULID, err error) {
	if r.ID == "" {
		return s, serial, nil
	}
	s, err = q.statusByID(ctx, k, r.ID)
	if err == nil && s.State == StateDone {
		err = ErrNotFound
	}
	if r.Serial != "" && (errors.Is(err, ErrNotFound) || err == nil && s.Serial != r.Serial) {
		return s, serial, nil
	}
	if err != nil {
		return s, serial, err
	}
	serial, _ = ulid.ParseStrict(s.Serial)
	return s, serial, nil
}

// Postpone gives a message another due time, In or At. With one that is past it is due now.
// ErrRunning: a worker handles it. ErrWaiting: it waits to be taken, and the new time is ahead. ErrNotFound: there is
// no such message, or it is over or dead.
func (q *Queue) Postpone(ctx context.Context, r Ref, to Option) error {
	if err := r.check(); err != nil {
		return err
	}
	if to == nil {
		return r.failed("postpone", errors.New("the option is nil: want In or At"))
	}
	var d draft
	if err := to(&d); err != nil {
		return err
	}
	e, timed := &d.Element, d.rivals.in || d.rivals.at
	if !timed || e.Extra != nil || e.Headers() != nil || e.Timeout() != 0 || e.MaxAttempts() != 0 {
		return r.failed("postpone", errors.New("want In or At"))
	}
	if err := q.postpone(ctx, r, &d); err != nil {
		return r.failed("postpone", err)
	}
	return nil
}

// Promote makes a message due now, wherever it waits; one that is not delayed stays as it is. The errors are those of
// Postpone.
func (q *Queue) Promote(ctx context.Context, r Ref) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := q.postpone(ctx, r, &draft{}); err != nil {
		return r.failed("promote", err)
	}
	return nil
}

// dueTime is when a postponed message is to be due.
type dueTime struct {
	mode store.Mode
	ms   int64
	soon bool // now, or in the past
}

func (q *Queue) postpone(ctx context.Context, r Ref, d *draft) error {
	k := store.KeysOf(r.Channel)
	var to dueTime
	to.mode, to.ms = d.Due.When(time.Now())
	if to.mode == store.Now {
		to.mode, to.ms = store.At, 0
	}
	to.soon = to.mode == store.At && to.ms <= time.Now().UnixMilli()
	_, serial, err := q.lives(ctx, k, r) // as for Cancel
	switch {
	case err != nil:
		return err
	case serial == (ulid.ULID{}):
		return q.postponeBySerial(ctx, k, r, to)
	}
	return q.postponeByID(ctx, k, r.ID, serial, to)
}

func (q *Queue) postponeByID(ctx context.Context, k *store.Keys, id string, serial ulid.ULID, to dueTime) error {
	var raw []byte
	for again, known := false, false; ; known = true {
		p, err := store.RunPostpone(ctx, asker{q: q}, k, id, serial, to.mode, to.ms, raw, known)
		if err != nil {
			return err
		}
		again = again || p.Twice
		switch {
		case again && to.soon && (len(p.Record) == 0 || p.Result == store.BeingHandled): // the first one has done it
			return nil
		case len(p.Record) == 0:
			return ErrNotFound
		case p.Result == store.Postponed:
			return nil
		case p.Result == store.BeingHandled:
			return ErrRunning
		case p.Result == store.WaitsAlready:
			return ErrWaiting
		}
		// It is one of many that are due at the same time: it is looked for from here, and handed to the script.
		due := statusOf(id, p.Record, store.Handling{}, time.Time{}).DueAt
		e, _, err := q.seek(ctx, k, StateDelay, store.Sought{Identity: string(serial[:]), At: due})
		if err != nil {
			return err
		}
		raw = e.raw // without one: it is not there any more
	}
}

// postponeBySerial is cancelBySerial for Postpone.
func (q *Queue) postponeBySerial(ctx context.Context, k *store.Keys, r Ref, to dueTime) error {
	return q.bring(ctx, k, r, func(e Entry) (change, error) {
		if serial := e.Ref(); e.ID != "" && r.ID == "" {
			if err := q.postponeByID(ctx, k, e.ID, serial.ulid(), to); !errors.Is(err, ErrNotFound) {
				return done, err
			}
		}
		switch e.State {
		case StateDead, StateDone:
			return done, &overError{e.State}
		case StateDoing, StateLeased:
			return done, ErrRunning
		case StateDelay:
			p, err := store.RunPostpone(ctx, asker{q: q}, k, "", ulid.ULID{}, to.mode, to.ms, e.raw, true)
			return changed(p.Result == store.Postponed, p.Twice && to.soon), err
		}
		if !to.soon {
			return done, ErrWaiting
		}
		return done, nil
	})
}

// Retry has a message handled again, or now. A dead one goes back into its channel as RetryDead has it. A delayed one
// is due now, with the attempts that it has. One that waits to be taken stays as it is. ErrRunning: a worker handles
// it. ErrDuplicate: it is dead, and another message has its ID by now. ErrNotFound: there is no such message, or it is
// over.
func (q *Queue) Retry(ctx context.Context, r Ref) error {
	if err := r.check(); err != nil {
		return err
	}
	k := store.KeysOf(r.Channel)
	err := q.bring(ctx, k, r, func(e Entry) (change, error) {
		switch e.State {
		case StateDead:
			n, twice, err := q.revive(ctx, k, []Entry{e})
			if err == nil && n == 0 && e.ID != "" {
				if s, taken := q.statusByID(ctx, k, e.ID); taken == nil && s.Serial != e.Serial {
					return done, ErrDuplicate
				}
			}
			return changed(n == 1, twice), err
		case StateDone:
			return done, &overError{e.State}
		}
		return done, q.postpone(ctx, e.Ref(), &draft{}) // which knows itself what was lost
	})
	if err != nil {
		return r.failed("retry", err)
	}
	return nil
}

// Delete removes a message for good: a dead letter, what is kept of a message that is over, or, as Cancel does, one
// that waits or is delayed. The id is free then, whatever UniqueFor asked. ErrRunning: a worker handles it, and Cancel
// ends its handler. ErrNotFound: there is no such message.
func (q *Queue) Delete(ctx context.Context, r Ref) error {
	if err := r.check(); err != nil {
		return err
	}
	k := store.KeysOf(r.Channel)
	err := q.alter(ctx, k, r, func(e Entry) (change, error) {
		ref := e.Ref()
		switch e.State {
		case StateDoing, StateLeased:
			return done, ErrRunning
		case StateDone:
			_, err := store.RunDrop(ctx, asker{q: q}, k, e.ID, ref.ulid())
			return done, err
		case StateDead:
			if e.ID != "" { // what is kept beside it
				if _, err := store.RunDrop(ctx, asker{q: q}, k, e.ID, ref.ulid()); err != nil {
					return done, err
				}
			}
		default:
			if e.ID != "" {
				s, err := q.cancelBy(ctx, k, ref, store.RunCancelWaiting)
				if err == nil && (s.State == StateDoing || s.State == StateLeased) { // somebody was faster
					err = ErrRunning
				}
				return done, err
			}
		}
		return q.remove(ctx, k, e)
	})
	if err != nil {
		return r.failed("delete", err)
	}
	return nil
}
