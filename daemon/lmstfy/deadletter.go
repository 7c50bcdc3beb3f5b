package lmstfy

import (
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
// through.
func (a *API) revive(ctx context.Context, c *call, o order, limit int64) (revived int, err error) {
	n, err := a.count(c, shunt.StateDead)
	for left := int(min(limit, int64(n))); left > 0 && err == nil; {
		size := min(left, deadPage)
		var es []shunt.Entry
		if es, err = c.pool.List(ctx, c.channel(), shunt.StateDead, max(0, n-size), size); err != nil || len(es) == 0 {
			break
		}
		slices.Reverse(es)
		var some int
		some, err = a.reviveSome(ctx, c, o, es)
		revived, left = revived+some, left-len(es)
		if err == nil {
			n, err = a.count(c, shunt.StateDead)
		}
	}
	return revived, err
}

func (a *API) reviveSome(ctx context.Context, c *call, o order, es []shunt.Entry) (int, error) {
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
	err := c.pool.EnqueueAll(ctx, ms)
	var some *shunt.EnqueueError
	if err != nil && (!errors.As(err, &some) || len(some.Unknown) > 0) {
		return 0, err
	}
	revived, over := 0, make([]shunt.Entry, 0, len(es))
	for i, e := range es {
		failed := error(nil)
		if some != nil {
			failed = some.Failed[i]
		}
		switch {
		case failed == nil:
			revived++
			over = append(over, e)
		case errors.Is(failed, shunt.ErrDuplicate): // respawned before, by one that a fault has ended
			over = append(over, e)
		default:
			err = errors.Join(err, failed)
		}
	}
	if len(over) == len(es) {
		err = nil
	}
	_, deleting := c.pool.DeleteDead(ctx, c.channel(), over...)
	return revived, errors.Join(err, deleting)
}
