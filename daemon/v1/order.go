package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	maxID     = 255
	maxMillis = int64(100 * 365 * 24 * time.Hour / time.Millisecond) // as far as shunt looks ahead
	// typeHeader is the header of a message that has the Content-Type of its payload.
	typeHeader = "content-type"
)

// order is a message that a client wants published.
type order struct {
	id      string
	payload []byte
	opts    []shunt.Option
	same    []string // what it asks for, as text: two orders that are the same have the same
}

// add takes in an option that is given.
func (o *order) add(name, value string, opt shunt.Option) {
	o.opts, o.same = append(o.opts, opt), append(o.same, name+"="+strconv.Quote(value))
}

// options reads what a publish asks for beside its payload. timed: it may have a time of its own.
func (o *order) options(f *fields, timed bool) {
	if o.id = f.short("id", maxID); o.id != "" {
		o.add("id", o.id, shunt.ID(o.id))
	}
	if name := f.short("type", 255); name != "" {
		o.add("type", name, shunt.Type(name))
	}
	headers := f.pairs("headers")
	for _, key := range slices.Sorted(maps.Keys(headers)) {
		o.add("header "+strconv.Quote(key), headers[key], shunt.Header(key, headers[key]))
	}
	ms := func(name string, option func(time.Duration) shunt.Option) time.Duration {
		n := f.integer(name, -1, 1, maxMillis)
		d := time.Duration(max(n, 0)) * time.Millisecond
		if n > 0 {
			o.add(name, strconv.FormatInt(n, 10), option(d))
		}
		return d
	}
	var delay time.Duration
	var at, deadline time.Time
	if timed {
		if f.has("delay_ms") && f.has("at") {
			f.fault("at", "it is given beside delay_ms: want one")
		}
		if n := f.integer("delay_ms", 0, 0, maxMillis); n > 0 {
			delay = time.Duration(n) * time.Millisecond
			o.add("delay_ms", strconv.FormatInt(n, 10), shunt.In(delay))
		}
		if at = f.instant("at"); !at.IsZero() {
			o.add("at", at.UTC().Format(time.RFC3339Nano), shunt.At(at))
		}
		deadline = f.instant("deadline")
		o.deadline(f, deadline, delay, at)
	}
	expire := ms("expire_ms", shunt.Expire)
	if expire > 0 && expire <= delay {
		f.fault("expire_ms", "it ends before delay_ms")
	}
	if f.has("expire_ms") && !at.IsZero() && time.Until(at) > expire && expire > 0 {
		f.fault("expire_ms", "it ends before at")
	}
	retain, unique := ms("retain_ms", shunt.Retain), ms("unique_ms", shunt.UniqueFor)
	if o.id == "" && retain > 0 {
		f.fault("retain_ms", "it goes with an id, by which the outcome is found")
	}
	if o.id == "" && unique > 0 {
		f.fault("unique_ms", "it goes with an id")
	}
	if n := f.integer("max_attempts", 0, 1, 255); n > 0 {
		o.add("max_attempts", strconv.FormatInt(n, 10), shunt.MaxAttempts(int(n)))
	}
}

func (o *order) deadline(f *fields, deadline time.Time, delay time.Duration, at time.Time) {
	due := time.Now().Add(delay)
	if !at.IsZero() {
		due = at
	}
	switch {
	case deadline.IsZero():
	case !deadline.After(time.Now()):
		f.fault("deadline", "it has passed")
	case !deadline.After(due):
		f.fault("deadline", "it is not after the time when the message is due")
	default:
		o.add("deadline", deadline.UTC().Format(time.RFC3339Nano), shunt.Deadline(deadline))
	}
}

// message is the order for a channel. ref is set to what names it.
func (o *order) message(channel string, ref *shunt.Ref) shunt.IMessage {
	opts := o.opts
	if ref != nil {
		opts = append(slices.Clip(opts), shunt.RefTo(ref))
	}
	return shunt.With(shunt.Raw(channel, o.payload), opts...)
}

// sum tells orders apart.
func sum(os []*order) string {
	h := sha256.New()
	for _, o := range os {
		fmt.Fprintf(h, "%d %s\n%d\n", len(o.same), strings.Join(o.same, "\n"), len(o.payload))
		_, _ = h.Write(o.payload)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// orderOf reads one message of a body. queue: it may name its queue, which is read into the result.
func (c *call) orderOf(raw json.RawMessage, at string, most int64, queue bool) (o *order, in string) {
	f := c.objectOf(raw, at+"/")
	if f == nil {
		return nil, ""
	}
	o = new(order)
	if queue {
		if in, _ = f.string("queue"); c.queueFault(in) != "" {
			f.fault("queue", "%s", c.queueFault(in))
		}
	}
	o.payload, _ = f.bytes("payload")
	if int64(len(o.payload)) > most {
		f.fault("payload", "it has %d bytes: want at most %d", len(o.payload), most)
	}
	o.options(f, true)
	f.end()
	return o, in
}

// millis is a duration in ms for an answer, rounded up.
func millis(d time.Duration) int64 { return int64(math.Ceil(float64(d) / float64(time.Millisecond))) }
