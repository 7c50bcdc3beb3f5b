package v1

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
)

const (
	maxBatch     = 100
	replayHeader = "Idempotency-Replayed"
	keyHeader    = "Idempotency-Key"
)

// publishedJSON is a message that was published.
type publishedJSON struct {
	Serial  string   `json:"serial,omitempty"`
	ID      string   `json:"id,omitempty"`
	Ref     string   `json:"ref,omitempty"`
	Problem *problem `json:"problem,omitempty"` // it was not
}

func publishedOf(r shunt.Ref) publishedJSON {
	return publishedJSON{Serial: r.Serial, ID: r.ID, Ref: r.String()}
}

// publish takes the body as it is.
func (a *API) publish(c *call) {
	f, o := c.parameters(true), new(order)
	o.options(f, true)
	f.end()
	key := c.idempotencyKey()
	kind := c.header("Content-Type")
	if c.bad() {
		return
	}
	var ok bool
	if o.payload, ok = a.read(c, a.Budget.Limits().MaxBody); !ok {
		return
	}
	if kind != "" && kind != "application/x-www-form-urlencoded" && len(kind) <= 255 && !f.has(headerPart+typeHeader) {
		o.add("content-type", kind, shunt.Header(typeHeader, kind)) // that one is curl's default
	}
	ctx, cancel := c.detached()
	defer cancel()
	done, err := c.enqueue(ctx, key, []*order{o})
	switch {
	case errors.Is(err, errReused):
		c.refuse(keyReused, "")
	case err != nil:
		c.failed("publish", err)
	case done[0].Problem != nil:
		c.refuseWith(done[0].Problem)
	default:
		named := "serial:" + done[0].Serial
		if done[0].ID != "" {
			named = "id:" + done[0].ID
		}
		c.w.Header().Set("Location", "/v1/"+c.ns+"/"+c.queue+"/messages/"+url.PathEscape(named))
		a.Metrics.published(1)
		_ = c.answer(http.StatusCreated, done[0])
	}
}

func (a *API) publishBatch(c *call) {
	c.noParameters()
	key, most := c.idempotencyKey(), a.Budget.Limits().MaxBody
	if c.bad() {
		return
	}
	raw, empty, ok := a.json(c, maxBatch*most*4/3+1<<20)
	if !ok {
		return
	}
	if empty {
		raw = []byte("null")
	}
	var os []*order
	for i, one := range c.arrayOf(raw, "", 1, maxBatch) {
		o, _ := c.orderOf(one, index("", i), most, false)
		os = append(os, o)
	}
	if c.bad() {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	done, err := c.enqueue(ctx, key, os)
	if errors.Is(err, errReused) {
		c.refuse(keyReused, "")
		return
	}
	if err != nil {
		c.failed("publish a batch", err)
		return
	}
	status, n, away := http.StatusCreated, 0, 0
	for _, d := range done {
		if d.Problem == nil {
			n++
			continue
		}
		if status = http.StatusMultiStatus; d.Problem.Status == http.StatusServiceUnavailable {
			away++
		}
	}
	if away == len(done) {
		c.refuseWith(gravest(done))
		return
	}
	c.useless = n == 0
	a.Metrics.published(n)
	_ = c.answer(status, map[string]any{"messages": done})
}

// gravest is the problem of a batch of which nothing is known to be published: what is in doubt comes first, for other
// problems say that it may be repeated.
func gravest(done []publishedJSON) *problem {
	doubt := problemPrefix + unknownOutcome.name
	i := slices.IndexFunc(done, func(d publishedJSON) bool { return d.Problem.Type == doubt })
	return done[max(i, 0)].Problem
}

// idempotencyKey is the request's key, empty where it has none.
func (c *call) idempotencyKey() string {
	if _, given := c.r.Header[keyHeader]; !given {
		return ""
	}
	key := c.header(keyHeader)
	if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		c.fault("header", keyHeader, "want 1 to 255 printable characters of ASCII")
	}
	return key
}

// errReused says that a key stands for another request.
var errReused = errors.New("v1: the key was used for another request")

// enqueue publishes, once where there is a key.
func (c *call) enqueue(ctx context.Context, key string, os []*order) ([]publishedJSON, error) {
	refs, ms := make([]shunt.Ref, len(os)), make([]shunt.IMessage, len(os))
	for i, o := range os {
		ms[i] = o.message(c.channel(), &refs[i])
	}
	if key != "" {
		return c.enqueueOnce(ctx, key, os, ms)
	}
	var errs map[int]error
	if len(ms) == 1 {
		if err := c.pool.Enqueue(ctx, ms[0]); err != nil {
			errs = map[int]error{0: err}
		}
	} else if err := c.pool.EnqueueAll(ctx, ms); err != nil {
		var some *shunt.EnqueueError
		if !errors.As(err, &some) {
			return nil, err
		}
		errs = some.Failed
		for i, err := range some.Unknown {
			errs[i] = err
		}
	}
	done := make([]publishedJSON, len(os))
	for i := range os {
		if err := errs[i]; err == nil {
			done[i] = publishedOf(refs[i])
		} else {
			done[i].ID = os[i].id
			done[i].Problem = c.problemOf("publish", err)
		}
	}
	return done, nil
}

func (c *call) problemOf(what string, err error) *problem {
	p, told := problemOf(c.channel(), err)
	if !told {
		c.complain(what, err)
	}
	return p
}

// enqueueOnce enqueues under a key. What an earlier request has done with it is told as that request was told.
func (c *call) enqueueOnce(ctx context.Context, key string, os []*order, ms []shunt.IMessage) ([]publishedJSON, error) {
	note := sum(os)
	res, err := c.pool.EnqueueOnce(ctx, shunt.Once{Channel: c.channel(), Key: key, Note: note}, ms...)
	if err != nil {
		return nil, err
	}
	if res.Before {
		if res.Note != note || len(res.Refs) != len(os) {
			return nil, errReused
		}
		c.w.Header().Set(replayHeader, "true")
	}
	done := make([]publishedJSON, len(os))
	for i, r := range res.Refs {
		switch {
		case r != (shunt.Ref{}):
			r.ID = os[i].id
			done[i] = publishedOf(r)
		case res.Before:
			done[i] = publishedJSON{ID: os[i].id, Problem: duplicate.problem("")}
		default:
			done[i] = publishedJSON{ID: os[i].id, Problem: c.problemOf("publish", res.Errs[i])}
		}
	}
	return done, nil
}

// followers reads the messages that an ack publishes. They take a token that may publish.
func (c *call) followers(f *fields, most int64) (ms []shunt.IMessage) {
	for i, one := range f.array("then", 0, maxBatch) {
		if o, queue := c.orderOf(one, index(f.at+"then", i), most, true); o != nil {
			ms = append(ms, o.message(c.ns+"/"+queue, nil))
		}
	}
	return ms
}

// mayFollow says whether the token may publish what follows verdicts, and counts it as one request to publish. Else it
// has answered.
func (a *API) mayFollow(c *call, vs ...*verdict) bool {
	for _, v := range vs {
		if len(v.then) > 0 {
			return c.may(access.Publish) && a.admitted(c, "produce")
		}
	}
	return true
}
