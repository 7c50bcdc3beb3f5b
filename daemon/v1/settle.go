package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
)

const (
	maxVerdicts = 1000
	maxResult   = 1 << 20 // bytes, as shunt has it
	settleMost  = 16      // verdicts of one request that are sent one by one at the same time
)

// verdict is what a client says of one receipt.
type verdict struct {
	receipt shunt.Receipt
	name    string // ack, fail, release or extend
	result  []byte // of an ack
	then    []shunt.IMessage
	why     error // of a fail
	lease   time.Duration
}

// settledJSON is what became of one verdict of a batch.
type settledJSON struct {
	Receipt shunt.Receipt `json:"receipt"`
	OK      bool          `json:"ok"`
	Problem *problem      `json:"problem,omitempty"`
}

// verdictOf reads one verdict. The name is the field verdict where it is empty.
func (c *call) verdictOf(f *fields, name string, most int64) *verdict {
	v := &verdict{name: name}
	if name == "" {
		v.name, _ = f.string("verdict")
	}
	receipt, _ := f.string("receipt")
	v.receipt = shunt.Receipt(receipt)
	switch channel := v.receipt.Channel(); {
	case receipt == "":
		f.fault("receipt", "it is missing")
	case channel == "":
		f.fault("receipt", "it is no receipt: want the text that a pull gave with a message")
	case !strings.HasPrefix(channel, c.ns+"/"):
		f.fault("receipt", "it is of another namespace")
	}
	switch v.name {
	case "ack":
		v.result, _ = f.bytes("result")
		if len(v.result) > maxResult {
			f.fault("result", "it has %d bytes: want at most %d", len(v.result), maxResult)
		}
		v.then = c.followers(f, most)
	case "fail":
		v.why = c.why(f)
	case "release":
	case "extend":
		if !f.has("lease_ms") {
			f.fault("lease_ms", "it is missing")
		}
		v.lease = time.Duration(f.integer("lease_ms", minLease, minLease, maxLease)) * time.Millisecond
	default:
		f.read = nil
		f.fault("verdict", "want ack, fail, release or extend")
		return v
	}
	f.end()
	return v
}

// why reads what a fail says.
func (c *call) why(f *fields) error {
	reason := f.short("reason", 16<<10)
	if reason == "" {
		reason = "failed"
	}
	err, after := errors.New(strings.ToValidUTF8(reason, "?")), f.integer("after_ms", -1, 0, maxMillis)
	snooze, reject := f.integer("snooze_ms", -1, 100, maxMillis), f.flag("reject", false)
	ways := 0
	for _, is := range []bool{f.has("after_ms"), f.has("snooze_ms"), reject} {
		if is {
			ways++
		}
	}
	switch {
	case ways > 1:
		f.fault("reject", "after_ms, snooze_ms and reject say different things: want one at most")
	case after >= 0:
		return shunt.RetryAfter(time.Duration(after)*time.Millisecond, err)
	case snooze >= 0:
		return shunt.Snooze(time.Duration(snooze) * time.Millisecond)
	case reject:
		return shunt.Reject(err)
	}
	return err
}

func (a *API) ack(c *call)        { a.settleOne(c, "ack") }
func (a *API) fail(c *call)       { a.settleOne(c, "fail") }
func (a *API) releaseOne(c *call) { a.settleOne(c, "release") }
func (a *API) extend(c *call)     { a.settleOne(c, "extend") }

// settleOne is one verdict, whose name is the route's. Without a body its fields are parameters or Shunt- headers.
func (a *API) settleOne(c *call, name string) {
	f, most := c.parameters(true), a.Budget.Limits().MaxBody
	if len(f.text) == 0 || onlyToken(f) {
		var ok bool
		if f, ok = a.objectUpTo(c, maxBatch*most*4/3+4*maxResult); !ok {
			return
		}
	} else if !a.none(c) {
		return
	}
	v := c.verdictOf(f, name, most)
	if c.bad() || !a.mayFollow(c, v) {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	if err := v.settle(ctx, c.pool); err != nil {
		c.queue = queueOf(v.receipt.Channel())
		c.failed(name, err)
		return
	}
	a.Metrics.settled(1)
	c.nothing()
}

// settle sends one verdict.
func (v *verdict) settle(ctx context.Context, q *shunt.Queue) error {
	if v.plain() {
		return v.all(ctx, q, v.receipt)
	}
	l, err := q.Leased(ctx, v.receipt)
	if err != nil {
		return err
	}
	if v.name == "fail" {
		return l.Fail(ctx, v.why)
	}
	if len(v.result) > 0 {
		if l.ID == "" {
			return errNoID
		}
		l.Result = v.result
	}
	if len(v.then) > 0 {
		if err := l.Then(ctx, v.then...); err != nil {
			return err
		}
	}
	return l.Ack(ctx)
}

// plain says that the verdict is all in its name, so that many go in one command.
func (v *verdict) plain() bool {
	return v.name == "release" || v.name == "extend" || v.name == "ack" && len(v.result) == 0 && len(v.then) == 0
}

// all sends a plain verdict for some receipts.
func (v *verdict) all(ctx context.Context, q *shunt.Queue, rs ...shunt.Receipt) error {
	switch v.name {
	case "release":
		return q.Release(ctx, rs...)
	case "extend":
		return q.Extend(ctx, v.lease, rs...)
	}
	return q.Ack(ctx, rs...)
}

// settle is many verdicts. The answer says what became of each.
func (a *API) settle(c *call) {
	c.noParameters()
	most := a.Budget.Limits().MaxBody
	raw, empty, ok := a.json(c, maxBatch*most*4/3+4*maxResult)
	if !ok {
		return
	}
	if empty {
		raw = json.RawMessage("null")
	}
	vs := c.verdicts(c.arrayOf(raw, "", 1, maxVerdicts), most)
	if c.bad() || !a.mayFollow(c, vs...) {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	failed := settleAll(ctx, c.pool, vs)
	out, n := make([]settledJSON, len(vs)), 0
	published := 0
	for i, v := range vs {
		out[i] = settledJSON{Receipt: v.receipt, OK: failed[v.receipt] == nil}
		if err := failed[v.receipt]; err != nil {
			out[i].Problem = c.problemOf(v.name, err)
			continue
		}
		if n++; len(v.then) > 0 {
			published++
		}
	}
	a.Metrics.settled(n)
	c.useless = published == 0
	_ = c.answer(http.StatusOK, map[string]any{"outcomes": out})
}

func (c *call) verdicts(raws []json.RawMessage, most int64) (vs []*verdict) {
	seen := make(map[shunt.Receipt]bool)
	for i, raw := range raws {
		f := c.objectOf(raw, index("", i)+"/")
		if f == nil {
			continue
		}
		v := c.verdictOf(f, "", most)
		if v.receipt != "" && seen[v.receipt] {
			f.fault("receipt", "it stands twice in the batch")
		}
		seen[v.receipt], vs = true, append(vs, v)
	}
	return vs
}

// settleAll sends verdicts, those of one kind together. failed has the error of each receipt that failed.
func settleAll(ctx context.Context, q *shunt.Queue, vs []*verdict) (failed map[shunt.Receipt]error) {
	type same struct {
		name  string
		lease time.Duration
	}
	together := make(map[same][]shunt.Receipt)
	as := make(map[same]*verdict)
	var mu sync.Mutex
	failed = make(map[shunt.Receipt]error)
	note := func(r shunt.Receipt, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed[r] = err
	}
	var g errgroup.Group
	g.SetLimit(settleMost)
	for _, v := range vs {
		if v.plain() {
			key := same{v.name, v.lease}
			together[key], as[key] = append(together[key], v.receipt), v
			continue
		}
		g.Go(func() error {
			if err := v.settle(ctx, q); err != nil {
				note(v.receipt, err)
			}
			return nil
		})
	}
	for key, rs := range together {
		g.Go(func() error {
			for r, err := range errorsOf(as[key].all(ctx, q, rs...), rs) {
				note(r, err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return failed
}

// errorsOf are the errors of receipts in a joined one; one that names none is that of all.
func errorsOf(err error, rs []shunt.Receipt) map[shunt.Receipt]error {
	all := make(map[shunt.Receipt]error)
	if err == nil {
		return all
	}
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		joined = joint{err}
	}
	for _, one := range joined.Unwrap() {
		var of *shunt.ReceiptError
		if errors.As(one, &of) {
			all[of.Receipt] = of.Err
			continue
		}
		for _, r := range rs {
			all[r] = one
		}
	}
	return all
}

// joint is an error that is none of several.
type joint struct{ err error }

func (j joint) Unwrap() []error { return []error{j.err} }
