package shunt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/sender"
	"github.com/shuntmq/shunt/internal/store"
)

// Enqueue puts a message into its channel, now or, with In and At, later. nil means that Redis has it. ErrUnknown means
// that Redis may have it. Any other error means that Redis does not have it. With an ID or Expire, Enqueue asks for an
// unknown outcome until it knows. A message that is due later is sent again until 1 s before it is due. A plain message
// is never sent twice, for that could double it.
//
// While Redis is away Enqueue waits for it, until ctx ends, or for EnqueueTimeout where ctx has no deadline. Enqueue
// does not wait for what only a person can mend: a wrong password, database, right or server. A server that this Queue
// has never reached, and whose address nobody serves, counts as wrong.
func (q *Queue) Enqueue(ctx context.Context, m IMessage, opts ...Option) error {
	if err := q.open(ctx); err != nil {
		return err
	}
	if q.conf.WrapEnqueue == nil {
		return q.enqueue(ctx, m, opts)
	}
	return q.wrapped(ctx, []IMessage{under(m, opts)}, func(ctx context.Context, ms []IMessage) error {
		if len(ms) == 1 {
			return q.enqueue(ctx, ms[0], nil)
		}
		return q.enqueueAll(ctx, ms, nil)
	})
}

func (q *Queue) enqueue(ctx context.Context, m IMessage, opts []Option) error {
	d := new(draft)
	err := q.newDraft(ctx, d, m, opts, time.Now())
	if err != nil {
		return err
	}
	due, refused, err := q.sender.Send(ctx, &d.Message)
	if err == nil && refused.Record != nil {
		q.overs.add(d.Keys.Name, &d.Element)
		return duplicate(&d.Message, refused)
	}
	if err != nil {
		if link.Classify(err) != link.Unknown {
			q.overs.add(d.Keys.Name, &d.Element)
		}
		return q.explain(err, d.attempt(), d.Keys.Name)
	}
	bytes := d.Element.Size()
	if q.events.All() {
		q.emit(event.Event{Kind: event.Enqueued, Channel: d.Keys.Name, Serial: d.Element.Serial, ID: d.Element.ID(),
			N: 1, Bytes: bytes, Due: event.TimeOf(due)})
	} else {
		q.counter.count(d.Keys.Name, func(to meter.Adder) {
			to.Add(meter.Enqueued, 1)
			to.Add(meter.EnqueuedBytes, bytes)
		})
	}
	return nil
}

// EnqueueAll puts many messages into their channels, of which there may be several, with the same options for each.
//
// The messages of one channel keep their order. They go in chunks of up to 1,000 elements or 1 MB, to 8 channels at
// once. Messages with an ID or Expire go in chunks of up to 100. Redis has a chunk as a whole or not at all, but for
// messages whose ID is taken. All messages are marshalled before the first is sent, which takes the memory of all
// payloads.
//
// The error is a *EnqueueError, which has the error of each message by its index, or what Enqueue says of a closed or
// misconfigured Queue. Where ctx has no deadline, each chunk has EnqueueTimeout.
func (q *Queue) EnqueueAll(ctx context.Context, ms []IMessage, opts ...Option) error {
	if err := q.open(ctx); err != nil {
		return err
	}
	if q.conf.WrapEnqueue == nil {
		return q.enqueueAll(ctx, ms, opts)
	}
	all := make([]IMessage, len(ms))
	for i, m := range ms {
		all[i] = under(m, opts)
	}
	return q.wrapped(ctx, all, func(ctx context.Context, ms []IMessage) error { return q.enqueueAll(ctx, ms, nil) })
}

// EnqueueHandler enqueues messages, whose options are in them by With; Queue.WrapEnqueue puts middleware around it.
type EnqueueHandler func(ctx context.Context, ms []IMessage) error

// wrapped enqueues through the middleware.
func (q *Queue) wrapped(ctx context.Context, ms []IMessage, next EnqueueHandler) (err error) {
	guard("Queue.WrapEnqueue", func() error {
		h := q.conf.WrapEnqueue(next)
		if h == nil {
			return errors.New("shunt: Queue.WrapEnqueue gave no EnqueueHandler")
		}
		return h(ctx, ms)
	}, func(e error) { err = e })
	return err
}

// under is a message with the options of its enqueue, over which its own win.
func under(m IMessage, opts []Option) IMessage {
	m, own := unwrap(m)
	if len(opts) > 0 {
		m = With(m, opts...)
	}
	for _, opts := range own {
		m = With(m, opts...)
	}
	return m
}

func (q *Queue) enqueueAll(ctx context.Context, ms []IMessage, opts []Option) error {
	var failed failures
	all := q.sender.Batch()
	now := time.Now()
	d := new(draft) // of each message after the other: the batch copies what it needs
	for i, m := range ms {
		*d = draft{}
		err := q.newDraft(ctx, d, m, opts, now)
		if err != nil {
			failed.add(err, i)
			continue
		}
		all.Add(i, &d.Message)
	}
	all.Send(ctx, func(c *sender.Chunk, due time.Time, refused []sender.Refused, err error) {
		if err != nil {
			failed.add(q.explain(err, attempt(c.Due, c.Tracked()), c.Keys.Name), c.Indexes...)
			return
		}
		n, bytes := len(c.Indexes), c.Size()
		for i, r := range refused {
			if r.Record != nil {
				bytes -= c.SizeOf(i)
				failed.add(duplicateOf(c.Keys.Name, c.ID(i), r), c.Indexes[i])
				n--
			}
		}
		if n > 0 {
			q.emit(event.Event{Kind: event.Enqueued, Channel: c.Keys.Name, N: n, Bytes: bytes, Due: event.TimeOf(due)})
		}
	})
	return failed.err()
}

// duplicate is the error of a message that was refused.
func duplicate(m *sender.Message, r sender.Refused) error {
	return duplicateOf(m.Keys.Name, m.Element.ID(), r)
}

func duplicateOf(channel, id string, r sender.Refused) error {
	return &DuplicateError{Channel: channel, Status: statusOf(id, r.Record, r.Holder, time.Time{})}
}

// failures gathers what becomes an EnqueueError.
type failures struct {
	mu  sync.Mutex
	all *EnqueueError
}

func (f *failures) add(err error, indexes ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = &EnqueueError{Failed: make(map[int]error), Unknown: make(map[int]error)}
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

// explain gives an error of the link the name that users know it by, and adds what was attempted.
func (q *Queue) explain(err error, what, channel string) error {
	switch {
	case err == nil:
		return nil
	case link.Classify(err) == link.Unknown && !errors.Is(err, ErrUnknown):
		err = fmt.Errorf("%w (%w)", ErrUnknown, err)
	case errors.Is(err, link.ErrClosed):
		err = ErrClosed
	case link.Code(err) == "OOM":
		err = fmt.Errorf("%w (%w)", ErrFull, err)
	case link.Code(err) == store.ExpiresCode:
		err = errors.New("Expire ends before At, by the server's clock")
	case link.Code(err) == "WRONGTYPE":
		err = q.wrongType(channel, err)
	case link.Code(err) == "MOVED":
		err = fmt.Errorf("this is a Redis Cluster, which is not supported: use a single server: %w", err)
	}
	if channel == "" {
		return fmt.Errorf("shunt: %s %s: %w", what, store.ChannelsKey, err)
	}
	return fmt.Errorf("shunt: %s %q: %w", what, channel, err)
}
