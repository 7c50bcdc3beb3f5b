package shunt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

// delivery is a message on its way into its channel.
type delivery struct {
	in    time.Duration
	at    time.Time
	later bool

	element lists.Element
	channel string
	keys    *lists.Keys
}

const (
	chunkElements = 1000    // of one command of DeliverAll
	chunkTracked  = 100     // of one script: some 0.5 ms
	chunkBytes    = 1 << 20 // likewise, unless one element alone is larger
	chunkChannels = 8       // channels that DeliverAll delivers to at once
)

// Deliver puts a message into its channel, now or, with In and At, later. nil means that Redis has it. ErrUnknown means that it
// may have it, and Deliver does not try again by itself: delivering is not idempotent, but for a message with an ID or Expire. Any
// other error means that it has it not.
// While Redis is away Deliver waits for it until ctx ends, or for DeliverTimeout where ctx has no deadline.
func (q *Queue) Deliver(ctx context.Context, m IMessage, opts ...Option) error {
	if err := q.open(ctx); err != nil {
		return err
	}
	d, err := q.newDelivery(m, opts, time.Now())
	if err != nil {
		return err
	}
	var due time.Time
	if d.tracked() {
		due, err = q.putOne(ctx, d)
	} else {
		raw := [1][]byte{d.element.Encode()}
		due, err = q.put(ctx, &d, raw[:])
	}
	if err == nil && q.events.on() {
		q.events.emit(Event{Kind: Delivered, Channel: d.channel, Serial: d.element.Name(), ID: d.element.ID(), N: 1, Due: due})
	}
	return err
}

// DeliverAll puts many messages into their channels, of which there may be several, with the same options for each. Those of
// one channel keep their order and go in chunks of up to 1,000 elements or 1 MB, of those with an ID or Expire up to 100, to 8 channels at
// once; each chunk is there as a whole or not at all, but for those whose ID is taken. All are marshalled before the first is sent, so it
// takes the memory of all payloads.
// Its error is a *DeliveryError that says what became of each message by its index, or what Deliver says of a closed or
// misconfigured Queue. Where ctx has no deadline each chunk has DeliverTimeout.
func (q *Queue) DeliverAll(ctx context.Context, ms []IMessage, opts ...Option) error {
	if err := q.open(ctx); err != nil {
		return err
	}
	var failed failures
	byChannel := make(map[string][]*chunk, 1)
	now := time.Now()
	for i, m := range ms {
		d, err := q.newDelivery(m, opts, now)
		if err != nil {
			failed.add(err, i)
			continue
		}
		of := byChannel[d.channel]
		if n := len(of); n == 0 || !of[n-1].add(i, &d) {
			c := newChunk(d)
			c.add(i, &d)
			byChannel[d.channel] = append(of, c)
		}
	}
	var g errgroup.Group
	g.SetLimit(chunkChannels)
	for _, of := range byChannel {
		g.Go(func() error {
			for _, c := range of {
				n := len(c.raws)
				var due time.Time
				var taken []error
				var err error
				if c.elements != nil {
					due, taken, err = q.putTracked(ctx, &c.delivery, c.elements, c.raws)
				} else {
					due, err = q.put(ctx, &c.delivery, c.raws)
				}
				if err != nil {
					failed.add(err, c.indexes...)
					continue
				}
				for j, err := range taken {
					if err != nil {
						failed.add(err, c.indexes[j])
						n--
					}
				}
				if n > 0 {
					q.events.emit(Event{Kind: Delivered, Channel: c.channel, N: n, Due: due})
				}
				if !c.later && c.elements == nil { // which may have been sent more than once
					c.free()
				}
			}
			return nil
		})
	}
	g.Wait()
	return failed.err()
}

// failures gathers what becomes a DeliveryError.
type failures struct {
	mu  sync.Mutex
	all *DeliveryError
}

func (f *failures) add(err error, indexes ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = &DeliveryError{Failed: make(map[int]error), Unknown: make(map[int]error)}
	}
	of := f.all.Failed
	if errors.Is(err, ErrUnknown) {
		of = f.all.Unknown
	}
	for _, i := range indexes {
		of[i] = err
	}
}

func (f *failures) err() error {
	if f.all == nil {
		return nil
	}
	return f.all
}

// chunk is what one command of DeliverAll carries; its delivery is its first message's.
type chunk struct {
	delivery
	indexes  []int
	raws     [][]byte // the elements, parts of bytes
	bytes    []byte
	elements []*lists.Element // likewise, where they are tracked
}

// chunks are those that the link is done with.
var chunks = sync.Pool{New: func() any { return new(chunk) }}

func newChunk(first delivery) *chunk {
	c := chunks.Get().(*chunk)
	c.delivery = first
	return c
}

func (c *chunk) free() {
	if cap(c.bytes) > 2*chunkBytes {
		return
	}
	clear(c.raws)
	*c = chunk{indexes: c.indexes[:0], raws: c.raws[:0], bytes: c.bytes[:0]}
	chunks.Put(c)
}

func (c *chunk) add(i int, d *delivery) bool {
	e, from := &d.element, len(c.bytes)
	if len(c.raws) >= chunkElements || from > 0 && from+e.Size() > chunkBytes || d.in != c.in || !d.at.Equal(c.at) || d.tracked() != c.tracked() {
		return false
	}
	if d.tracked() {
		if len(c.raws) >= chunkTracked {
			return false
		}
		own := *e
		c.elements = append(c.elements, &own)
	}
	c.bytes = e.Append(c.bytes) // what it outgrows stays whole for the elements before
	c.indexes, c.raws = append(c.indexes, i), append(c.raws, c.bytes[from:])
	return true
}

// newDelivery makes the element, and checks all that can be checked before Redis is asked.
func (q *Queue) newDelivery(m IMessage, opts []Option, now time.Time) (d delivery, err error) {
	for own := []Option(nil); ; {
		w, ok := m.(*with)
		if !ok || w == nil {
			if own != nil {
				opts = append(slices.Clip(opts), own...)
			}
			break
		}
		m, own = w.IMessage, append(slices.Clip(w.opts), own...)
	}
	if isNil(m) {
		return d, errors.New("shunt: the message is nil")
	}
	guard("Channel", func() error { d.channel = m.Channel(); return nil }, func(e error) { err = e })
	if err == nil {
		d.keys, err = q.keysFor(d.channel)
	}
	if err != nil {
		return d, err
	}
	if len(opts) > 0 {
		if d, err = d.with(opts); err != nil {
			return d, err
		}
	}
	if n, ok := m.(Identifier); ok && d.element.ID() == "" {
		if err := d.identify(n); err != nil {
			return d, err
		}
	}
	if d.element.Extra != nil {
		if err := d.checkExtra(now); err != nil {
			return d, err
		}
	}
	guard("Marshal", func() (err error) { d.element.Payload, err = m.Marshal(); return err }, func(e error) { err = e })
	if err != nil {
		return d, fmt.Errorf("shunt: marshal a message for %q: %w", d.channel, err)
	}
	d.element.Serial = lists.NewSerialAt(now)
	if n := d.element.Size(); n > q.conf.MaxSize {
		return d, fmt.Errorf("%w: a message for %q has %d bytes, %d are allowed: deliver a reference to what is large", ErrTooLarge, d.channel, n, q.conf.MaxSize)
	}
	return d, nil
}

// with is the delivery that the options make of d.
func (d delivery) with(opts []Option) (delivery, error) {
	for _, o := range opts {
		if err := o(&d); err != nil {
			return d, err
		}
	}
	return d, nil
}

// identify takes the name that a message gives itself.
func (d *delivery) identify(n Identifier) (err error) {
	var id string
	guard("MessageID", func() error { id = n.MessageID(); return nil }, func(e error) { err = e })
	if err != nil || id == "" {
		return err
	}
	return ID(id)(d)
}

// tracked says whether a script has to bring it: a plain one is not more than its element.
func (d *delivery) tracked() bool {
	x := d.element.Extra
	return x != nil && (x.ID != "" || x.Expires != 0)
}

// put brings elements into d's channel in one step. It tells the due time of those for later.
func (q *Queue) put(ctx context.Context, d *delivery, raws [][]byte) (due time.Time, err error) {
	var limit time.Duration
	if _, ok := ctx.Deadline(); !ok {
		limit = q.conf.DeliverTimeout
	}
	if d.later {
		return q.putLater(ctx, limit, d, raws)
	}
	_, err = q.ask(ctx, limit, d, func(c *link.Call) {
		c.Add("LPUSH", d.keys.Prepare)
		c.AddElements(raws...)
	})
	return due, explain(err, "deliver to", d.channel)
}

func (q *Queue) putLater(ctx context.Context, limit time.Duration, d *delivery, raws [][]byte) (due time.Time, err error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	began, doubt := time.Now(), false
	mode, ms := d.when(began)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		v, err := q.ask(ctx, 0, d, func(c *link.Call) {
			c.AddScript(lists.Later, 1, d.keys.Delay, mode, ms)
			c.AddElements(raws...)
		})
		if err == nil {
			at, err := redis.Int64(v, nil)
			if at == 0 && err == nil {
				err = ErrUnknown // it was sent before, and its time has come since
			}
			return time.UnixMilli(at), explain(err, "deliver later to", d.channel)
		}
		if doubt && link.Classify(err) != link.Unknown { // the first one may have been executed all the same
			err = &link.Error{Class: link.Unknown, Err: err}
		}
		doubt = true
		// The element is unique and the script adds it once, so it may be sent again, but only while its due time is surely
		// ahead: afterwards it may have been promoted, and even handled.
		if mode == "at" {
			mode = "again"
		}
		left := d.in - time.Since(began)
		if link.Classify(err) != link.Unknown || ctx.Err() != nil || mode == "in" && left < time.Second {
			return due, explain(err, "deliver later to", d.channel)
		}
		link.Sleep(ctx, link.Jitter(wait))
		left = min(d.in, maxWait) - time.Since(began)
		if mode == "in" {
			ms = left.Milliseconds()
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, began.Add(d.in-time.Second/2))
			defer cancel()
		}
	}
}

// when is the due time as scripts take it: now, in so many ms, or at that ms since 1970.
func (d *delivery) when(now time.Time) (mode string, ms int64) {
	switch {
	case !d.later:
		return "now", 0
	case d.at.IsZero():
		return "in", (min(d.in, maxWait) + time.Millisecond - 1).Milliseconds()
	}
	at := d.at
	if far := now.Add(maxWait); at.After(far) {
		at = far
	}
	return "at", ceilMilli(at)
}

// ceilMilli is the first whole millisecond that is not before t.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// calls are those whose replies have all come: the link is done with them.
var calls = sync.Pool{New: func() any { return link.NewCall() }}

// ask sends one command of a delivery, again and again while it is surely not executed and that may change, until ctx ends or, where
// limit is not 0, for so long.
func (q *Queue) ask(ctx context.Context, limit time.Duration, d *delivery, fill func(*link.Call)) (any, error) {
	s := q.serverOf(d.channel)
	began, left := time.Now(), limit
	over := func() error {
		if limit > 0 && left <= 0 {
			return context.DeadlineExceeded
		}
		return ctx.Err()
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		c := calls.Get().(*link.Call)
		c.Reset()
		fill(c)
		err := s.Data.Within(ctx, left, c)
		var r link.Reply
		if err == nil {
			r = c.Replies[0]
			err = r.Err
			calls.Put(c)
		}
		if err == nil || link.Classify(err) != link.NotExecuted || errors.Is(err, link.ErrClosed) || link.Code(err) == "OOM" {
			return r.Any(), err
		}
		if limit > 0 {
			left = limit - time.Since(began)
		}
		if over() != nil {
			return nil, late(over(), cmp.Or(s.Why(), err))
		}
		if link.Code(err) == "NOSCRIPT" && wait < time.Second {
			wait = time.Second // at once, with its text, but only once
			continue
		}
		if limit > 0 {
			link.Sleep(ctx, min(link.Jitter(wait), left))
			left = limit - time.Since(began)
		} else {
			link.Sleep(ctx, link.Jitter(wait))
		}
		if over() != nil {
			return nil, late(over(), err)
		}
	}
}

// late is the error of a command that was not sent in time, with what had kept it.
func late(over, why error) error {
	return &link.Error{Class: link.NotExecuted, Err: fmt.Errorf("%w (%w)", why, over)}
}

// explain gives an error of the link the name that users know it by, and what was attempted.
func explain(err error, what, channel string) error {
	switch {
	case err == nil:
		return nil
	case link.Classify(err) == link.Unknown && !errors.Is(err, ErrUnknown):
		err = fmt.Errorf("%w (%w)", ErrUnknown, err)
	case errors.Is(err, link.ErrClosed):
		err = ErrClosed
	case link.Code(err) == "OOM":
		err = fmt.Errorf("%w (%w)", ErrFull, err)
	case link.Code(err) == "WRONGTYPE":
		err = fmt.Errorf("a key of the channel holds something that is not shunt's: see docs/lifecycle.md for the keys: %w", err)
	}
	return fmt.Errorf("shunt: %s %q: %w", what, channel, err)
}
