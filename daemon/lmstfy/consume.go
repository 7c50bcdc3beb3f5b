package lmstfy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
)

const (
	maxCount   = 100
	maxQueues  = 64                     // as PullOptions has it
	maxAnswer  = 4 << 20                // bytes of jobs, beyond which a consume takes no more
	minLease   = 500 * time.Millisecond // of a ttr of 0: else it may be over before the job is handed over
	maxLease   = 7 * 24 * time.Hour
	noJob      = "no job available"
	smallBody  = 64 << 10 // of a request that needs none
	retryAfter = time.Second
)

// demand is what a consume asks for.
type demand struct {
	channels []string
	ttr      time.Duration
	wait     time.Duration
	count    int
}

func (a *API) demanded(c *call) (d demand, ok bool) {
	ttr, goodTTR := c.number("ttr", uint64(a.Defaults.TTR), 32)
	timeout, goodTimeout := c.number("timeout", uint64(a.Defaults.Timeout), 32)
	count, goodCount := c.number("count", 1, 32)
	for _, queue := range strings.Split(c.queue, ",") {
		if queue != "" && !slices.Contains(d.channels, c.ns+"/"+queue) {
			d.channels = append(d.channels, c.ns+"/"+queue)
		}
	}
	text := ""
	switch {
	case !goodTTR:
		text = "invalid ttr"
	case !goodTimeout:
		text = "invalid timeout"
	case !goodCount || count == 0 || count > maxCount:
		text = "invalid count"
	case len(d.channels) == 0:
		text = "invalid queue name(s)"
	case len(d.channels) > maxQueues:
		text = "too many queues, cannot exceed 64"
	default:
		d.ttr = min(max(time.Duration(ttr)*time.Second, minLease), maxLease)
		d.wait = min(time.Duration(timeout)*time.Second, a.Budget.Limits().MaxWait)
		d.count = int(count)
		return d, true
	}
	_ = c.answer(http.StatusBadRequest, failure(text))
	return d, false
}

func (a *API) consume(c *call) {
	d, ok := a.demanded(c)
	if !ok || !a.drained(c) || !c.room() {
		return
	}
	jobs, err := a.take(c, d)
	switch {
	case len(jobs) > 0 && c.r.Context().Err() == nil && !a.trustedStill(c):
		a.giveBack(c, jobs)
		_ = c.answer(http.StatusUnauthorized, failure("invalid token"))
	case c.r.Context().Err() != nil:
		a.giveBack(c, jobs)
	case len(jobs) > 0:
		if err := a.deliver(c, d, jobs); err != nil {
			a.giveBack(c, jobs)
		}
	case errors.Is(err, errStopping):
		c.w.Header().Set("Connection", "close")
		_ = c.answer(http.StatusNotFound, message{"msg": noJob})
	case errors.Is(err, errBusy) || errors.Is(err, errStopped):
		c.later(http.StatusServiceUnavailable, retryAfter, failure(err.Error()))
	case err != nil && d.count == 1:
		c.failed("consume", err)
	default:
		if err != nil {
			c.complain("consume", err)
		}
		_ = c.answer(http.StatusNotFound, message{"msg": noJob})
	}
}

var (
	errBusy    = errors.New("too many waiting requests, please retry later")
	errStopped = errors.New("the server stops, please retry later")
)

// trustedStill says whether the token was not deleted while the request waited.
func (a *API) trustedStill(c *call) bool {
	if a.Open {
		return true
	}
	_, token := c.given()
	_, err := a.Access.Check(c.r.Context(), c.poolName, c.ns, token)
	return !errors.Is(err, access.ErrInvalid)
}

// drained reads what the request should not have: net/http watches a connection only when the body has been read.
func (a *API) drained(c *call) bool {
	if c.r.Body == http.NoBody {
		return true
	}
	_, ok := a.body(c, smallBody)
	c.body.Release()
	return ok
}

// take pulls what is there, and waits for a first job where nothing is. Where too many wait already, it does not.
func (a *API) take(c *call, d demand) (jobs []*shunt.Leased, err error) {
	if a.stopped.Err() != nil {
		return nil, errStopped
	}
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(a.stopped, func() { cancel(errStopping) })()
	end := time.Now().Add(d.wait)
	waits := d.wait > 0 && a.Budget.Wait()
	if waits {
		defer a.Budget.Done()
	}
	for size := 0; len(jobs) < d.count && size < maxAnswer; { // one Pull takes of one channel alone
		o := shunt.PullOptions{Channels: d.channels, Max: d.count - len(jobs), Lease: d.ttr}
		if waits && len(jobs) == 0 {
			o.Wait = max(0, time.Until(end))
		}
		some, err := a.pull(ctx, c.pool, o)
		if len(jobs) == 0 && len(some) > 0 { // whose ttr runs while further ones are asked for
			var end context.CancelFunc
			ctx, end = context.WithDeadline(ctx, some[0].EndsAt.Add(-d.ttr/2))
			defer end()
		}
		switch {
		case err != nil && len(jobs) == 0:
			return nil, stopping(ctx, err)
		case len(some) == 0 && o.Wait > 0 && time.Now().Before(end): // not before the client's time is over
			continue
		case len(some) == 0 && len(jobs) == 0 && d.wait > 0 && !waits:
			return nil, errBusy
		case len(some) == 0:
			return jobs, nil
		}
		for _, l := range some {
			size += len(l.Payload)
		}
		jobs = append(jobs, some...)
	}
	return jobs, nil
}

// stopping tells an error of the server's stop from others.
func stopping(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errStopping {
		return errStopping
	}
	return err
}

// deliver writes the answer. The error says that the client cannot have it.
func (a *API) deliver(c *call, d demand, jobs []*shunt.Leased) error {
	var v any
	all := make([]jobJSON, len(jobs))
	for i, l := range jobs {
		all[i] = c.consumed(l)
	}
	if v = all; d.count == 1 {
		v = all[0]
	}
	a.delivered.keep(c.poolName, jobs) // before the answer, upon which the ack may come
	err := c.answer(http.StatusOK, v)
	if err == nil {
		a.Metrics.consumed(c, all)
	}
	return err
}

// giveBack releases what could not be handed over.
func (a *API) giveBack(c *call, jobs []*shunt.Leased) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	rs := make([]shunt.Receipt, len(jobs))
	for i, l := range jobs {
		rs[i] = l.Receipt
	}
	if err := a.release(ctx, c.pool, rs); err != nil && !errors.Is(err, shunt.ErrLeaseLost) {
		c.complain("release what could not be handed over", err)
	}
}

// ack is done, whoever says so.
func (a *API) ack(c *call) {
	ctx, cancel := c.detached()
	defer cancel()
	id := c.r.PathValue("id")
	if err := a.end(ctx, c, id); err != nil {
		c.failed("ack", err)
		return
	}
	a.Metrics.ended(c, id)
	c.nothing()
}

// endTries is how often a job is looked for that moves meanwhile.
const endTries = 3

// end removes a job in whichever state it is. One that is not there is no error.
func (a *API) end(ctx context.Context, c *call, id string) error {
	if len(id) > maxName {
		return nil // no job has such an id
	}
	if l := a.delivered.take(c.poolName, c.channel(), id); l != nil && l.Ack(ctx) == nil {
		return nil
	}
	r := refOf(c.channel(), id)
	for range endTries {
		l, err := c.pool.LeasedBy(ctx, r)
		if err == nil {
			err = l.Ack(ctx)
		}
		if errors.Is(err, shunt.ErrLeaseLost) { // it was delivered again just now
			continue
		}
		if errors.Is(err, shunt.ErrNotFound) {
			_, err = c.pool.Cancel(ctx, r)
		}
		if errors.Is(err, shunt.ErrNotFound) {
			err = c.pool.Delete(ctx, r) // it may be dead
		}
		switch {
		case errors.Is(err, shunt.ErrNotFound):
			return nil
		case errors.Is(err, shunt.ErrRunning): // it was pulled just now, or a Go handler has it, which was told
			continue
		}
		return err
	}
	return nil
}
