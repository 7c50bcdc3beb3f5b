package shunt

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// Cancel ends a message. A ready or delayed one is not handled once Cancel has returned, and its id is free. If a
// worker handles the message, in whichever process, the handler's context ends with ErrCancelled as cause. If the
// handler then returns an error the message is dropped, and if nil it is acked. Until then its id stays taken. Cancel
// returns the message's status as it was before the call. ErrNotFound: there is no such message, or it is over or dead.
//
// If the message is leased, it ends when its holder settles it by Fail or Release, or its lease ends. A holder whose
// lease has ended may still begin the message, whatever Cancel returns: it has to look at EndsAt.
//
// Of a message without an ID that is being handled nothing is noted in Redis: the cancellation is published once. Where
// nobody listens, and of one that is leased, Cancel returns ErrRunning. A receiver that misses it handles the message
// to its end.
func (q *Queue) Cancel(ctx context.Context, r Ref) (Status, error) {
	if err := r.check(); err != nil {
		return Status{}, err
	}
	s, err := q.cancel(ctx, store.KeysOf(r.Channel), r)
	if err != nil {
		return Status{}, r.failed("cancel", err)
	}
	return s, nil
}

func (q *Queue) cancel(ctx context.Context, k *store.Keys, r Ref) (Status, error) {
	return q.cancelBy(ctx, k, r, store.RunCancel)
}

// cancelBy cancels by RunCancel, or by RunCancelWaiting.
func (q *Queue) cancelBy(
	ctx context.Context, k *store.Keys, r Ref,
	run func(context.Context, store.Asker, *store.Keys, string, ulid.ULID, *store.Bounds) (store.CancelAnswer, error),
) (Status, error) {
	// The status tells which message it is: so a script that is sent twice cannot end another message of the same id.
	before, serial, err := q.lives(ctx, k, r)
	if err != nil {
		return before, err
	}
	if serial == (ulid.ULID{}) {
		return q.cancelBySerial(ctx, k, r)
	}
	a, err := run(ctx, asker{q: q}, k, r.ID, serial, &q.conf.Bounds)
	switch {
	case err != nil:
		return before, err
	case a.Found:
		s := statusOf(r.ID, a.Record, a.Holder, time.Time{})
		if a.Gone { // of others who meets them tells
			q.counter.count(k.Name, func(to meter.Adder) { to.Add(meter.Cancelled, 1) })
		}
		return s, nil
	case a.Twice: // the first one has done it
		return before, nil
	}
	return before, ErrNotFound
}

// cancelBySerial cancels a message that has no ID, or of whose ID the caller does not know, or that has lost it.
func (q *Queue) cancelBySerial(ctx context.Context, k *store.Keys, r Ref) (before Status, err error) {
	err = q.alter(ctx, k, r, func(e Entry) (_ change, err error) {
		if e.ID != "" && r.ID == "" {
			before, err = q.cancel(ctx, k, e.Ref())
			return done, err
		}
		before = statusOfEntry(e)
		switch serial := r.ulid(); {
		case e.State == StateDead || e.State == StateDone:
			return done, &overError{e.State}
		case e.State == StateLeased, e.State == StateDoing && serial == ulid.ULID{}: // nobody who has it could be asked
			return done, ErrRunning
		case e.State == StateDoing:
			heard, err := store.CancelHint(ctx, asker{q: q}, k, serial)
			if err == nil && !heard {
				err = fmt.Errorf("%w, and no receiver has heard of the cancellation: try again", ErrRunning)
			}
			return done, err
		}
		c, err := q.remove(ctx, k, e)
		if err == nil && c == done {
			q.counter.count(k.Name, func(to meter.Adder) { to.Add(meter.Cancelled, 1) })
		}
		return c, err
	})
	return before, err
}

// remove removes a message that waits or is dead. A bare payload may have twins, which must not go with it: so its
// command is sent but once.
func (q *Queue) remove(ctx context.Context, k *store.Keys, e Entry) (change, error) {
	key, set := holds(k, e.State)
	was, twice, err := store.Remove(ctx, asker{q: q, once: e.Serial == ""}, k, key, set, e.raw)
	if was && err == nil {
		q.overs.removed(e)
	}
	return changed(was, twice), err
}
