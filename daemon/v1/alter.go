package v1

import (
	"context"
	"net/http"
	"time"

	"github.com/shuntmq/shunt"
)

// cancel answers the status as it was before.
func (a *API) cancel(c *call) {
	r, ok := a.one(c)
	if !ok {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	s, err := c.pool.Cancel(ctx, r)
	if err != nil {
		c.failed("cancel", err)
		return
	}
	_ = c.answer(http.StatusOK, statusOf(c.channel(), s))
}

func (a *API) postpone(c *call) {
	r, _ := c.ref()
	c.noParameters()
	f, ok := a.object(c)
	if !ok {
		return
	}
	delay, at := f.integer("delay_ms", 0, 0, maxMillis), f.instant("at")
	if f.has("delay_ms") == f.has("at") {
		f.fault("delay_ms", "want either delay_ms or at")
	}
	f.end()
	if c.bad() {
		return
	}
	to := shunt.In(time.Duration(delay) * time.Millisecond)
	if f.has("at") {
		to = shunt.At(at)
	}
	c.change("postpone", func(ctx context.Context) error { return c.pool.Postpone(ctx, r, to) })
}

func (a *API) promote(c *call) { a.alter(c, "promote", (*shunt.Queue).Promote) }

func (a *API) retry(c *call) { a.alter(c, "retry", (*shunt.Queue).Retry) }

func (a *API) remove(c *call) { a.alter(c, "delete", (*shunt.Queue).Delete) }

// alter changes one message, and answers 204.
func (a *API) alter(c *call, what string, do func(*shunt.Queue, context.Context, shunt.Ref) error) {
	if r, ok := a.one(c); ok {
		c.change(what, func(ctx context.Context) error { return do(c.pool, ctx, r) })
	}
}

// change does what its client's leaving does not end, and answers 204.
func (c *call) change(what string, do func(context.Context) error) {
	ctx, cancel := c.detached()
	defer cancel()
	if err := do(ctx); err != nil {
		c.failed(what, err)
		return
	}
	c.nothing()
}

// purge deletes all messages of some states.
func (a *API) purge(c *call) {
	c.noParameters()
	f, ok := a.object(c)
	if !ok {
		return
	}
	var states []shunt.State
	for i, raw := range f.array("states", 1, len(shunt.States)) {
		switch s := shunt.State(unquoted(raw)); s {
		case shunt.StatePrepare, shunt.StateDelay, shunt.StateSuspect, shunt.StateDead, shunt.StateDone:
			states = append(states, s)
		default:
			f.fault("states", "item %d: want prepare, delay, suspect, dead or done", i)
		}
	}
	f.end()
	if c.bad() {
		return
	}
	n, err := c.pool.Purge(c.r.Context(), c.channel(), states...)
	if err != nil {
		c.failed("purge", err)
		return
	}
	_ = c.answer(http.StatusOK, map[string]int{"deleted": n})
}
