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

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// enqueue is a message on its way into its channel.
type draft struct {
	in    time.Duration
	at    time.Time
	later bool

	element element.Element
	channel string
	keys    *store.Keys
}

// Enqueue puts a message into its channel, now or, with In and At, later. nil means that Redis has it. ErrUnknown means that it
// may have it, and Enqueue does not try again by itself: enqueuing is not idempotent, but for a message with an ID or Expire. Any
// other error means that it has it not.
// While Redis is away Enqueue waits for it until ctx ends, or for EnqueueTimeout where ctx has no deadline.
func (q *Queue) Enqueue(ctx context.Context, m IMessage, opts ...Option) error {
	if err := q.open(ctx); err != nil {
		return err
	}
	d, err := q.newDraft(m, opts, time.Now())
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
		q.events.emit(Event{Kind: EventEnqueued, Channel: d.channel, Serial: d.element.SerialString(), ID: d.element.ID(), N: 1, Due: due})
	}
	return err
}

// newDraft makes the element, and checks all that can be checked before Redis is asked.
func (q *Queue) newDraft(m IMessage, opts []Option, now time.Time) (d draft, err error) {
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
	d.element.Serial = element.NewSerialAt(now)
	if n := d.element.Size(); n > q.conf.MaxSize {
		return d, fmt.Errorf("%w: a message for %q has %d bytes, %d are allowed: enqueue a reference to what is large", ErrTooLarge, d.channel, n, q.conf.MaxSize)
	}
	return d, nil
}

// with is the enqueue that the options make of d.
func (d draft) with(opts []Option) (draft, error) {
	for _, o := range opts {
		if err := o(&d); err != nil {
			return d, err
		}
	}
	return d, nil
}

// identify takes the name that a message gives itself.
func (d *draft) identify(n Identifier) (err error) {
	var id string
	guard("MessageID", func() error { id = n.MessageID(); return nil }, func(e error) { err = e })
	if err != nil || id == "" {
		return err
	}
	return ID(id)(d)
}

// tracked says whether a script has to bring it: a plain one is not more than its element.
func (d *draft) tracked() bool {
	x := d.element.Extra
	return x != nil && (x.ID != "" || x.Expires != 0)
}

// put brings elements into d's channel in one step. It tells the due time of those for later.
func (q *Queue) put(ctx context.Context, d *draft, raws [][]byte) (due time.Time, err error) {
	var limit time.Duration
	if _, ok := ctx.Deadline(); !ok {
		limit = q.conf.EnqueueTimeout
	}
	if d.later {
		return q.enqueueLater(ctx, limit, d, raws)
	}
	_, err = q.ask(ctx, limit, d, func(c *link.Call) {
		c.Add("LPUSH", d.keys.Prepare)
		c.AddElements(raws...)
	})
	return due, explain(err, "enqueue to", d.channel)
}

func (q *Queue) enqueueLater(ctx context.Context, limit time.Duration, d *draft, raws [][]byte) (due time.Time, err error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	began, doubt := time.Now(), false
	mode, ms := d.when(began)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		v, err := q.ask(ctx, 0, d, func(c *link.Call) {
			c.AddScript(store.Later, 1, d.keys.Delay, mode, ms)
			c.AddElements(raws...)
		})
		if err == nil {
			at, err := redis.Int64(v, nil)
			if at == 0 && err == nil {
				err = ErrUnknown // it was sent before, and its time has come since
			}
			return time.UnixMilli(at), explain(err, "enqueue later to", d.channel)
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
		if link.Classify(err) != link.Unknown || ctx.Err() != nil || errors.Is(err, link.ErrClosed) || mode == "in" && left < time.Second {
			return due, explain(err, "enqueue later to", d.channel)
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
func (d *draft) when(now time.Time) (mode string, ms int64) {
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
	if first := time.UnixMilli(1); at.Before(first) { // all that is past is alike; 0 as a reply says otherwise
		at = first
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
var calls = sync.Pool{New: func() any { c := link.NewCall(); c.KeepWhileDown = true; return c }}

// ask sends one command of an enqueue, again and again while it is surely not executed and that may change, until ctx ends or, where
// limit is not 0, for so long.
func (q *Queue) ask(ctx context.Context, limit time.Duration, d *draft, fill func(*link.Call)) (any, error) {
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
		err := s.Data.DoFor(ctx, left, c)
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
