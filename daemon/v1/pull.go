package v1

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	maxPull   = 1000
	maxQueues = 64      // as PullOptions has it
	maxAnswer = 4 << 20 // bytes of payloads, beyond which a pull takes no more
	minLease  = 10      // ms
	maxLease  = int64(7 * 24 * time.Hour / time.Millisecond)
	maxWaitMS = int64(24 * time.Hour / time.Millisecond)

	octets = "application/octet-stream"
	asJSON = "application/json"
)

// demand is what a pull asks for.
type demand struct {
	shunt.PullOptions
	raw bool // the message is the body
}

func (a *API) demanded(c *call) (d demand, ok bool) {
	f := c.parameters(false)
	if c.r.Method == http.MethodPost {
		if len(f.text) == 0 || onlyToken(f) { // else the parameters say what is wanted
			if f, ok = a.object(c); !ok {
				return d, false
			}
		} else if !a.none(c) {
			return d, false
		}
	} else if !a.none(c) {
		return d, false
	}
	for i, queue := range c.queuesOf(f) {
		switch name := c.ns + "/" + queue; {
		case c.queueFault(queue) != "":
			f.fault("queues", "item %d: %s", i, c.queueFault(queue))
		case slices.Contains(d.Channels, name):
			f.fault("queues", "item %d: %s is named twice", i, queue)
		default:
			d.Channels = append(d.Channels, name)
		}
	}
	d.Max = int(f.integer("max", 1, 1, maxPull))
	d.Lease = time.Duration(f.integer("lease_ms", 30_000, minLease, maxLease)) * time.Millisecond
	d.Wait = time.Duration(f.integer("wait_ms", 0, 0, maxWaitMS)) * time.Millisecond
	d.Wait = min(d.Wait, a.Budget.Limits().MaxWait)
	f.end()
	if c.bad() {
		return d, false
	}
	accept := c.r.Header["Accept"]
	if _, isJSON := accepts(accept, asJSON); !isJSON {
		if d.raw = d.Max == 1; !d.raw {
			c.refuse(notAcceptable, "several messages can be given as application/json alone")
			return d, false
		}
	}
	return d, true
}

func onlyToken(f *fields) bool {
	for name := range f.text {
		if !f.read[name] {
			return false
		}
	}
	return true
}

// queuesOf reads the queues: an array of texts, or a parameter with commas.
func (c *call) queuesOf(f *fields) (queues []string) {
	if f.text != nil {
		if value, ok := f.string("queues"); ok {
			queues = strings.Split(value, ",")
		}
		if len(queues) < 1 || len(queues) > maxQueues {
			f.fault("queues", "it names %d: want 1 to %d, with commas", len(queues), maxQueues)
			return nil
		}
		return queues
	}
	for i, raw := range f.array("queues", 1, maxQueues) {
		if raw[0] != '"' {
			f.fault("queues", "item %d: want text", i)
			continue
		}
		name, _ := strconv.Unquote(string(raw)) // a queue's name needs no escapes
		queues = append(queues, name)
	}
	return queues
}

var (
	errBusy    = errors.New("v1: too many requests wait")
	errStopped = errors.New("v1: the server stops, and takes no more")
)

func (a *API) pulled(c *call) {
	d, ok := a.demanded(c)
	c.body.Release() // of which nothing is needed while it waits
	if !ok || !c.room() {
		return
	}
	ms, err := a.take(c, d.PullOptions)
	c.useless = true
	switch {
	case c.r.Context().Err() != nil:
		a.giveBack(c, ms)
	case len(ms) > 0 && !a.trustedStill(c):
		a.giveBack(c, ms)
		c.refuse(invalidToken, "")
	case len(ms) > 0:
		if err := c.deliver(d, ms); err != nil {
			a.giveBack(c, ms)
			return
		}
		c.useless = false
		a.Metrics.pulled(len(ms))
	case errors.Is(err, errBusy):
		c.refuse(busy, "too many requests wait")
	case errors.Is(err, errStopped):
		c.refuse(stopping, "")
	case err != nil && !errors.Is(err, errStopping):
		c.failed("pull", err)
	default:
		if err != nil {
			c.w.Header().Set("Connection", "close")
		}
		if d.raw {
			c.nothing()
		} else {
			_ = c.answer(http.StatusOK, map[string]any{"messages": []leasedJSON{}})
		}
	}
}

// take pulls what is there, and waits for a first message where nothing is. Where too many wait already, it does not.
func (a *API) take(c *call, o shunt.PullOptions) (ms []*shunt.Leased, err error) {
	if a.stopped.Err() != nil {
		return nil, errStopped
	}
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(a.stopped, func() { cancel(errStopping) })()
	wait, most := o.Wait, o.Max
	end := time.Now().Add(wait)
	waits := wait > 0 && a.Budget.Wait()
	if waits {
		defer a.Budget.Done()
	}
	for size := 0; len(ms) < most && size < maxAnswer; { // one Pull takes of one channel, and 256 KB
		if o.Max, o.Wait = most-len(ms), 0; waits && len(ms) == 0 {
			o.Wait = max(0, time.Until(end))
		}
		some, err := a.pull(ctx, c.pool, o)
		if len(ms) == 0 && len(some) > 0 { // whose leases run while further ones are asked for
			var end context.CancelFunc
			ctx, end = context.WithDeadline(ctx, some[0].EndsAt.Add(-o.Lease/2))
			defer end()
		}
		switch {
		case err != nil && len(ms) == 0:
			return nil, stopped(ctx, err)
		case len(some) == 0 && o.Wait > 0 && time.Now().Before(end): // not before the client's time is over
			continue
		case len(some) == 0 && len(ms) == 0 && wait > 0 && !waits:
			return nil, errBusy
		case len(some) == 0:
			return ms, nil
		}
		for _, l := range some {
			size += len(l.Payload)
		}
		ms = append(ms, some...)
	}
	return ms, nil
}

// stopped tells an error of the server's stop from others.
func stopped(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == errStopping {
		return errStopping
	}
	return err
}

// deliver writes the answer. The error says that the client cannot have it.
func (c *call) deliver(d demand, ms []*shunt.Leased) error {
	if d.raw {
		return c.deliverRaw(ms[0])
	}
	all := make([]leasedJSON, len(ms))
	for i, l := range ms {
		all[i] = leasedOf(l)
	}
	return c.answer(http.StatusOK, map[string]any{"messages": all})
}

// deliverRaw writes a message as the body, and what else it has as headers.
func (c *call) deliverRaw(l *shunt.Leased) error {
	j, h := leasedOf(l), c.w.Header()
	set := func(name, value string) {
		if value != "" {
			h[headerPrefix+name] = []string{url.PathEscape(value)} // names as they are, for those of messages
		}
	}
	h[headerPrefix+"Receipt"] = []string{string(l.Receipt)} // it may stand in a header as it is
	set("Queue", j.Queue)
	set("Serial", j.Serial)
	set("Id", j.ID)
	set("Type", j.Type)
	set("Attempt", strconv.Itoa(j.Attempt))
	if j.EnqueuedAt != nil {
		h[headerPrefix+"Enqueued-At"] = []string{j.EnqueuedAt.Format(time.RFC3339Nano)}
	}
	if j.LeaseEndsAt != nil {
		h[headerPrefix+"Lease-Ends-At"] = []string{j.LeaseEndsAt.Format(time.RFC3339Nano)}
	}
	for key, value := range l.Headers {
		if isToken(key) { // others are in JSON alone
			set("Header-"+http.CanonicalHeaderKey(key), value)
		}
	}
	kind := l.Headers[typeHeader]
	if kind == "" || strings.ContainsFunc(kind, func(r rune) bool { return r < ' ' || r > '~' }) {
		kind = octets
	}
	return c.send(http.StatusOK, kind, l.Payload)
}

// isToken says whether a text may be part of the name of a header.
func isToken(s string) bool {
	for i := range len(s) {
		if b := s[i]; b <= ' ' || b >= 127 || strings.IndexByte("\"(),/:;<=>?@[\\]{}", b) >= 0 {
			return false
		}
	}
	return s != ""
}

// giveBack releases what could not be handed over.
func (a *API) giveBack(c *call, ms []*shunt.Leased) {
	if len(ms) == 0 {
		return
	}
	ctx, cancel := c.detached()
	defer cancel()
	rs := make([]shunt.Receipt, len(ms))
	for i, l := range ms {
		rs[i] = l.Receipt
	}
	if err := a.release(ctx, c.pool, rs); err != nil && !errors.Is(err, shunt.ErrLeaseLost) {
		c.complain("release what could not be handed over", err)
	}
}

// index is the JSON pointer of an item.
func index(at string, i int) string { return fmt.Sprintf("%s/%d", at, i) }
