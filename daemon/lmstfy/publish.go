package lmstfy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// maxBulk bounds the jobs of one bulk.
const maxBulk = 64

// order is what a publish asks for.
type order struct {
	delay, ttl time.Duration // ttl 0: none
	tries      int
	versioned  bool
	attrs      map[string]string
}

// ordered reads the parameters, in the interface's order.
func (a *API) ordered(c *call) (o order, ok bool) {
	d := &a.Defaults
	delay, goodDelay := c.number("delay", uint64(d.Delay), 32)
	ttl, goodTTL := c.number("ttl", uint64(d.TTL), 32)
	tries, goodTries := c.number("tries", uint64(d.Tries), 16)
	text := ""
	switch {
	case !goodDelay:
		text = "invalid delay"
	case !goodTTL:
		text = "invalid ttl"
	case ttl > 0 && ttl < delay:
		text = "ttl is shorter than delay"
	case !goodTries:
		text = "invalid tries"
	case tries == 0:
		text = "tries shouldn't be zero"
	default:
		o.delay, o.ttl = min(time.Duration(delay)*time.Second, maxDelay), min(time.Duration(ttl)*time.Second, maxTTL)
		if ttl > 0 && o.ttl == o.delay {
			o.ttl += time.Second
		}
		o.tries = int(tries)
		return o, true
	}
	_ = c.answer(http.StatusBadRequest, failure(text))
	return o, false
}

// attributes reads the Job-Attr headers.
func (o *order) attributes(c *call) (ok bool) {
	if o.versioned = strings.EqualFold(c.r.Header.Get("Enable-Job-Version"), "YES"); !o.versioned {
		return true
	}
	o.attrs = make(map[string]string)
	for name, values := range c.r.Header {
		const prefix = "Job-Attr-"
		if len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) || values[0] == "" {
			continue
		}
		key, value := name[len(prefix):], values[0]
		o.attrs[strings.ToLower(key[:min(len(key), maxAttrKey)])] = value[:min(len(value), maxAttrValue)]
	}
	if len(o.attrs) > maxAttrs {
		_ = c.answer(http.StatusBadRequest, failure("too many attributes, cannot exceed 16"))
		return false
	}
	return true
}

// message is the job with an id of its own.
func (o *order) message(channel, id string, body []byte) shunt.IMessage {
	most := o.tries
	if most > 255 {
		most = -1
	}
	opts := append(make([]shunt.Option, 0, 7+len(o.attrs)), shunt.ID(id), shunt.In(o.delay), shunt.MaxAttempts(most),
		shunt.Header(triesHeader, strconv.Itoa(o.tries)))
	if o.ttl > 0 {
		until := time.Now().Add(o.ttl)
		opts = append(opts, shunt.Expire(o.ttl), shunt.Deadline(until),
			shunt.Header(untilHeader, strconv.FormatInt(until.UnixMilli(), 10)))
	}
	for key, value := range o.attrs {
		opts = append(opts, shunt.Header(attrHeader+key, value))
	}
	return shunt.With(shunt.Raw(channel, body), opts...)
}

func (c *call) channel() string { return c.ns + "/" + c.queue }

// published answers the publish of one job.
type published struct {
	JobID string `json:"job_id"`
	Msg   string `json:"msg"`
}

// oneJob reads a request to publish one job.
func (a *API) oneJob(c *call) (o order, body []byte, ok bool) {
	if o, ok = a.ordered(c); !ok {
		return o, nil, false
	}
	if body, ok = a.body(c, a.Budget.Limits().MaxBody); !ok {
		return o, nil, false
	}
	return o, body, o.attributes(c)
}

func (a *API) publish(c *call) {
	o, body, ok := a.oneJob(c)
	if !ok {
		return
	}
	id := newJobID(o.versioned)
	// The client's leaving does not end it; the pool's EnqueueTimeout does.
	if err := c.pool.Enqueue(context.WithoutCancel(c.r.Context()), o.message(c.channel(), id, body)); err != nil {
		c.failed("publish", err)
		return
	}
	a.Metrics.published(c, 1)
	_ = c.answer(http.StatusCreated, published{id, "published"})
}

// republish puts a job in the place of another: in one step where the other is delivered and not acked. Else the new
// one is there first: so a fault leaves both, and never none.
func (a *API) republish(c *call) {
	old := c.r.PathValue("id")
	o, body, ok := a.oneJob(c)
	if !ok {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	id := newJobID(o.versioned)
	// Where the reply to the one step is lost, and the new job is done at once, its id tells that it was published.
	m := shunt.With(o.message(c.channel(), id, body), shunt.UniqueFor(2*redisTimeout))
	if !a.replaced(ctx, c, old, m) {
		if err := c.pool.Enqueue(ctx, m); err != nil && !errors.Is(err, shunt.ErrDuplicate) { // that is itself
			c.failed("republish", err)
			return
		}
		if err := a.end(ctx, c, old); err != nil {
			_ = a.end(ctx, c, id) // the client is told that nothing was published
			c.failed("delete for a republish", err)
			return
		}
	}
	a.Metrics.published(c, 1)
	_ = c.answer(http.StatusCreated, published{id, "published"})
}

// replaced says whether a message was published in the step that acked another.
func (a *API) replaced(ctx context.Context, c *call, old string, m shunt.IMessage) bool {
	l := a.delivered.take(c.poolName, c.channel(), old)
	if l == nil && len(old) <= maxName {
		l, _ = c.pool.LeasedBy(ctx, refOf(c.channel(), old))
	}
	return l != nil && l.Then(ctx, m) == nil && l.Ack(ctx) == nil
}

func (a *API) bulk(c *call) {
	o, ok := a.ordered(c)
	if !ok {
		return
	}
	most := a.Budget.Limits().MaxBody
	body, ok := a.body(c, maxBulk*most+1<<16)
	if !ok {
		return
	}
	jobs, refusal, status := bulkOf(body, most)
	if refusal != "" {
		_ = c.answer(status, failure(refusal))
		return
	}
	if !o.attributes(c) {
		return
	}
	ids, ms := make([]string, len(jobs)), make([]shunt.IMessage, len(jobs))
	for i, job := range jobs {
		ids[i] = newJobID(o.versioned)
		ms[i] = o.message(c.channel(), ids[i], job)
	}
	ctx, cancel := c.detached()
	defer cancel()
	if err := c.pool.EnqueueAll(ctx, ms); err != nil {
		a.takeBack(c, ids, err)
		c.failed("publish in bulk", err)
		return
	}
	a.Metrics.published(c, len(ids))
	_ = c.answer(http.StatusCreated, message{"msg": "published", "job_ids": ids})
}

// bulkOf reads an array of jobs; each value's text is one.
func bulkOf(body []byte, most int64) (jobs []json.RawMessage, refusal string, status int) {
	status = http.StatusBadRequest
	if err := json.Unmarshal(body, &jobs); err != nil {
		return nil, "request body should be an array of objects", status
	}
	switch {
	case len(jobs) == 0:
		return nil, "no jobs", status
	case len(jobs) > maxBulk:
		return nil, "too many jobs", status
	}
	for _, job := range jobs {
		if int64(len(job)) > most {
			return nil, "job too large", http.StatusRequestEntityTooLarge
		}
	}
	return jobs, "", 0
}

// takeBackEvery is the pause between two tries while Redis is away.
const takeBackEvery = 200 * time.Millisecond

// takeBack cancels those of a bulk that were published although others were not. It has its own time: where Redis has
// gone away within the bulk, that of the bulk is over, and Redis may be back soon.
func (a *API) takeBack(c *call, ids []string, err error) {
	var some *shunt.EnqueueError
	if !errors.As(err, &some) || len(some.Failed) == len(ids) {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	for i, id := range ids {
		if _, failed := some.Failed[i]; failed {
			continue
		}
		for err := a.end(ctx, c, id); err != nil; err = a.end(ctx, c, id) {
			select {
			case <-time.After(takeBackEvery):
				continue
			case <-ctx.Done():
			}
			c.complain("take back what a bulk has published", err)
			return
		}
	}
}
