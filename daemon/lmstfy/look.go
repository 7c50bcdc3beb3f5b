package lmstfy

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/shuntmq/shunt"
)

// peekPages is how far a peek looks past cancelled jobs, in pages of 100.
const peekPages = 10

func (a *API) peek(c *call) {
	if !c.room() {
		return
	}
	ctx := c.r.Context()
	for page := range peekPages {
		offset, limit := 0, 1 // mostly the first one is it
		if page > 0 {
			offset, limit = 1+(page-1)*100, 100
		}
		es, err := c.pool.List(ctx, c.channel(), shunt.StatePrepare, offset, limit)
		if err != nil {
			c.failed("peek", err)
			return
		}
		if len(es) > 0 {
			_ = c.answer(http.StatusOK, c.peeked(es[0]))
			return
		}
		if page == 0 {
			if n, err := a.count(c, shunt.StatePrepare); err != nil {
				c.failed("peek", err)
				return
			} else if n == 0 {
				break
			}
		}
	}
	_ = c.answer(http.StatusNotFound, failure("the queue is empty"))
}

func (a *API) job(c *call) {
	id := c.r.PathValue("id")
	if len(id) > maxName {
		_ = c.answer(http.StatusNotFound, failure("job not found"))
		return
	}
	if !c.room() {
		return
	}
	r := refOf(c.channel(), id)
	e, err := c.pool.Peek(c.r.Context(), r)
	if err == nil && inHands(e.State) && r.ID != "" { // a Go handler may have it, and an ack may have ended it
		if s, gone := c.pool.Status(c.r.Context(), r); gone == nil && s.Cancelled {
			err = shunt.ErrNotFound
		}
	}
	switch {
	case errors.Is(err, shunt.ErrNotFound) || err == nil && e.State == shunt.StateDone:
		_ = c.answer(http.StatusNotFound, failure("job not found"))
	case err != nil:
		c.failed("peek", err)
	default:
		_ = c.answer(http.StatusOK, c.peeked(e))
	}
}

// count is how many messages of the call's channel are in some states.
func (a *API) count(c *call, states ...shunt.State) (n int, err error) {
	stats, err := c.pool.Stats(c.r.Context(), c.channel())
	for _, s := range states {
		n += stats[s].Count
	}
	return n, err
}

// size counts what can be taken now.
func (a *API) size(c *call) { a.sized(c, shunt.StatePrepare, shunt.StateSuspect) }

func (a *API) deadSize(c *call) { a.sized(c, shunt.StateDead) }

func (a *API) sized(c *call, states ...shunt.State) {
	n, err := a.count(c, states...)
	if err != nil {
		c.failed("count", err)
		return
	}
	_ = c.answer(http.StatusOK, message{"namespace": c.ns, "queue": c.queue, "size": n})
}

// destroy deletes what is ready. What is delayed or being handled stays.
func (a *API) destroy(c *call) {
	ctx, cancel := c.detached()
	defer cancel()
	if _, err := c.pool.Purge(ctx, c.channel(), shunt.StatePrepare, shunt.StateSuspect); err != nil {
		c.failed("destroy", err)
		return
	}
	c.nothing()
}

// signed reads a parameter of 64 bits with a sign.
func (c *call) signed(name string, otherwise int64) (n int64, ok bool) {
	text, given := c.query[name]
	if !given {
		return otherwise, true
	}
	n, err := strconv.ParseInt(text[0], 10, 64)
	return n, err == nil
}
