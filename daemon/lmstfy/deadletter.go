package lmstfy

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/shuntmq/shunt"
)

// deadPage is how many dead letters are respawned at once.
const deadPage = 100

func (a *API) deadLetter(c *call) {
	n, err := a.count(c, shunt.StateDead)
	head := ""
	if err == nil && n > 0 {
		var es []shunt.Entry
		if es, err = c.pool.List(c.r.Context(), c.channel(), shunt.StateDead, n-1, 1); len(es) > 0 {
			head = jobID(es[0].ID, es[0].Serial)
		}
	}
	if err != nil {
		c.failed("peek at the dead letters", err)
		return
	}
	_ = c.answer(http.StatusOK, message{"namespace": c.ns, "queue": c.queue, "deadletter_size": n,
		"deadletter_head": head})
}

// limited reads limit.
func (c *call) limited() (limit int64, ok bool) {
	if limit, ok = c.signed("limit", 1); !ok || limit <= 0 {
		_ = c.answer(http.StatusBadRequest, failure("invalid limit"))
		return 0, false
	}
	return limit, true
}

func (a *API) deleteDead(c *call) {
	limit, ok := c.limited()
	if !ok {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	f := shunt.Filter{Limit: int(min(limit, 1<<31-1))}
	if _, err := c.pool.DeleteAllDead(ctx, c.channel(), f); err != nil {
		c.failed("delete dead letters", err)
		return
	}
	c.nothing()
}

func (a *API) respawn(c *call) {
	limit, ok := c.limited()
	if !ok {
		return
	}
	ttl, ok := c.signed("ttl", int64(a.Defaults.TTL))
	if !ok || ttl < 0 {
		_ = c.answer(http.StatusBadRequest, failure("invalid ttl"))
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	o := order{tries: 1, ttl: min(time.Duration(min(ttl, int64(maxTTL/time.Second)))*time.Second, maxTTL)}
	n, err := a.revive(ctx, c, o, limit)
	a.Metrics.respawned(c, n)
	if err != nil {
		c.failed("respawn dead letters", err)
		return
	}
	_ = c.answer(http.StatusOK, message{"msg": "respawned", "count": n})
}

// revive publishes the oldest dead letters anew, and deletes them then. It ends where all that were dead at first are
// through. One whose id is another job's by now stays dead, and is passed over.
func (a *API) revive(ctx context.Context, c *call, o order, limit int64) (revived int, err error) {
	n, err := a.count(c, shunt.StateDead)
	kept := 0 // of the oldest ones
	for left, looks := int(min(limit, int64(n))), n; left > 0 && looks > 0 && err == nil; {
		size := min(left, looks, deadPage)
		var es []shunt.Entry
		es, err = c.pool.List(ctx, c.channel(), shunt.StateDead, max(0, n-kept-size), size)
		if err != nil || len(es) == 0 {
			break
		}
		slices.Reverse(es)
		var some, stay int
		some, stay, err = a.reviveSome(ctx, c, o, es)
		revived, left, looks, kept = revived+some, left-len(es)+stay, looks-len(es), kept+stay
		if err == nil {
			n, err = a.count(c, shunt.StateDead)
		}
	}
	return revived, err
}

func (a *API) reviveSome(ctx context.Context, c *call, o order, es []shunt.Entry) (revived, kept int, err error) {
	ms := make([]shunt.IMessage, len(es))
	for i, e := range es {
		o.attrs = attributesOf(e.Headers)
		id := e.ID
		if id == "" {
			id = newJobID(false)
		}
		m := o.message(c.channel(), id, e.Payload)
		if e.Type != "" {
			m = shunt.With(m, shunt.Type(e.Type))
		}
		ms[i] = m
	}
	err = c.pool.EnqueueAll(ctx, ms)
	var some *shunt.EnqueueError
	if err != nil && (!errors.As(err, &some) || len(some.Unknown) > 0) {
		return 0, 0, err
	}
	over, errs := make([]shunt.Entry, 0, len(es)), []error(nil)
	for i, e := range es {
		failed := error(nil)
		if some != nil {
			failed = some.Failed[i]
		}
		again := false
		if errors.Is(failed, shunt.ErrDuplicate) {
			again, failed = a.respawned(ctx, c, e)
		} else if failed == nil {
			revived++
			again = true
		}
		switch {
		case failed != nil:
			errs = append(errs, failed)
		case again:
			over = append(over, e)
		default:
			kept++
		}
	}
	_, deleting := c.pool.DeleteDead(ctx, c.channel(), over...)
	return revived, kept, errors.Join(append(errs, deleting)...)
}

// respawned says whether who has a dead letter's id is the same job: a respawn that a fault has ended has published it.
func (a *API) respawned(ctx context.Context, c *call, dead shunt.Entry) (bool, error) {
	e, err := c.pool.Peek(ctx, shunt.ByID(c.channel(), dead.ID))
	if errors.Is(err, shunt.ErrNotFound) {
		return false, nil
	}
	living := e.State != shunt.StateDead && e.State != shunt.StateDone
	return err == nil && living && bytes.Equal(e.Payload, dead.Payload), err
}
