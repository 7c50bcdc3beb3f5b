package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/worker"
)

// thenMost bounds what one script enqueues: some 2 ms.
const thenMost = 1000

// Then enqueues messages when the handler's message is acked; ctx is the context that the handler got. Both are one
// step in Redis, so none of them is lost or doubled. None is enqueued where the lease was lost or the handler fails.
// Then takes up to 1,000 messages in all, and may be called several times. With gives a message options of its own. A
// message gets the headers that Queue.CarryHeaders names, unless it has its own. One whose ID is taken by then is not
// enqueued, and an EventDuplicate says so, which is logged as a warning. If Then returns an error, it names the fault
// of a message, and takes nothing of this call.
func Then(ctx context.Context, ms ...IMessage) error {
	it, err := itemOf(ctx)
	if err != nil {
		return err
	}
	r, _ := ctx.Value(ownerKey{}).(*receiver)
	if r == nil {
		return errNoHandling
	}
	if r.conf.WrapEnqueue == nil {
		return r.then(ctx, it, ms)
	}
	return r.q.wrapped(ctx, slices.Clone(ms), func(ctx context.Context, ms []IMessage) error {
		return r.then(ctx, it, ms)
	})
}

// then adds what follows a message.
func (r *receiver) then(ctx context.Context, it *worker.Item, ms []IMessage) error {
	fs, err := r.q.followups(ctx, it.Headers(), ms)
	if err != nil {
		return err
	}
	if n, ok := it.Then(fs, thenMost); !ok {
		return tooManyFollow(n)
	}
	return nil
}

// tooManyFollow is the error of a message that so many would follow.
func tooManyFollow(n int) error {
	return fmt.Errorf("shunt: %d messages follow this one: want at most %d in all calls of Then, since one script "+
		"enqueues them: enqueue the rest from a message that follows", n, thenMost)
}

// followups makes what follows a message with some headers.
func (q *Queue) followups(ctx context.Context, headers map[string]string, ms []IMessage) ([]store.Followup, error) {
	now := time.Now()
	fs := make([]store.Followup, 0, len(ms))
	var errs []error
	for i, m := range ms {
		d := new(draft)
		err := q.plainDraft(d, m, nil, now)
		if err == nil {
			err = d.carry(headers, q.conf.CarryHeaders)
		}
		if err == nil {
			err = q.finish(ctx, d)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("message %d: %w", i, err))
			continue
		}
		f := store.Followup{Keys: d.Keys, Element: d.Element, Raw: d.Element.Encode()}
		f.Mode, f.MS = d.Due.When(now)
		if x := d.Element.Extra; x != nil {
			f.Expires = x.Expires
		}
		fs = append(fs, f)
	}
	return fs, errors.Join(errs...)
}

// carry gives the draft the headers of these names that it lacks.
func (d *draft) carry(from map[string]string, names []string) error {
	for _, name := range names {
		v, has := from[name]
		if _, own := d.Element.Headers()[name]; !has || own {
			continue
		}
		if err := d.Element.SetHeader(name, v); err != nil {
			return err
		}
	}
	return nil
}
