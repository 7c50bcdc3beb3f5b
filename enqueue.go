package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/element"
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

// draft is a message on its way into its channel, with what its options ask for.
type draft struct {
	sender.Message
	rivals   rivals
	refs     []*Ref   // are set to the message's
	awaited  bool     // its outcome is to be found, however soon it is there
	copied   *Payload // of a Copy: the message that it is of, as that lies in Redis
	deadline int64    // of a Copy: that of the original, which may have passed
}

// rivals are the options of one list, of which only one of each pair makes sense.
type rivals struct{ in, at, expire, expireToDead bool }

// newDraft makes the element, and checks all that can be checked before Redis is asked.
func (q *Queue) newDraft(ctx context.Context, d *draft, m IMessage, opts []Option, now time.Time) error {
	if err := q.plainDraft(d, m, opts, now); err != nil {
		return err
	}
	return q.finish(ctx, d)
}

// finish encodes the payload, and checks its size.
func (q *Queue) finish(ctx context.Context, d *draft) error {
	channel := d.Keys.Name
	if err := q.plain(ctx, d); err != nil {
		return err
	}
	if err := q.encode(ctx, channel, &d.Element); err != nil {
		return err
	}
	if n := d.Element.Size(); n > q.conf.MaxSize {
		q.overs.add(channel, &d.Element)
		return fmt.Errorf("%w: a message for %q has %d bytes, %d are allowed: enqueue a reference to what is large",
			ErrTooLarge, channel, n, q.conf.MaxSize)
	}
	d.refer()
	return nil
}

// refer sets what names the message.
func (d *draft) refer() {
	for _, r := range d.refs {
		*r = Ref{Channel: d.Keys.Name, ID: d.Element.ID(), Serial: d.Element.Serial.String()}
	}
}

// plainDraft is a draft with the payload that Marshal makes.
func (q *Queue) plainDraft(d *draft, m IMessage, opts []Option, now time.Time) (err error) {
	m, own := unwrap(m)
	if isNil(m) {
		return errors.New("shunt: the message is nil")
	}
	if k, ok := m.(interface{ noMessage() error }); ok {
		if err := k.noMessage(); err != nil {
			return err
		}
	}
	var channel string
	guard("Channel", func() error { channel = m.Channel(); return nil }, func(e error) { err = e })
	if err == nil {
		d.Keys, err = q.keysFor(channel)
	}
	if err != nil {
		return err
	}
	if len(opts) > 0 {
		if err := d.with(opts); err != nil {
			return err
		}
	}
	for _, opts := range own {
		if err := d.with(opts); err != nil {
			return err
		}
	}
	if name, err := typeOf(m); err != nil {
		return err
	} else if name != "" && d.Element.Type() == "" {
		d.Element.SetType(name)
	}
	if n, ok := offers[Identifier](m); ok && d.Element.ID() == "" {
		if err := d.identify(n); err != nil {
			return err
		}
	}
	d.Element.Serial = element.NewSerialAt(now)
	if at := d.Due.From(now); at.After(now) {
		d.Element.SetDue(at)
	}
	if d.awaited {
		d.await()
	}
	if d.Element.Extra != nil {
		if err := d.checkExtra(now); err != nil {
			return err
		}
	}
	guard("Marshal", func() (err error) { d.Element.Payload, err = marshal(q.conf.Codec, m); return err },
		func(e error) { err = e })
	if err != nil {
		return fmt.Errorf("shunt: marshal a message for %q: %w", channel, err)
	}
	return nil
}

// unwrap gives the message within With, and the options of each With around it, the innermost first.
func unwrap(m IMessage) (within IMessage, own [][]Option) {
	for {
		w, ok := m.(*with)
		if !ok || w == nil {
			slices.Reverse(own)
			return m, own
		}
		m, own = w.IMessage, append(own, w.opts)
	}
}

// with applies a list of options. They win over those of earlier lists, and must go together.
func (d *draft) with(opts []Option) error {
	d.rivals = rivals{}
	for i, o := range opts {
		if o == nil {
			return fmt.Errorf("shunt: option %d of an enqueue to %q is nil: leave it out", i, d.Keys.Name)
		}
		if err := o(d); err != nil {
			return err
		}
	}
	return nil
}

// identify takes the id that a message gives itself.
func (d *draft) identify(n Identifier) (err error) {
	var id string
	guard("MessageID", func() error { id = n.MessageID(); return nil }, func(e error) { err = e })
	if err != nil || id == "" {
		return err
	}
	return ID(id)(d)
}

// attempt says what an enqueue attempts, for its error.
func (d *draft) attempt() string { return attempt(d.Due, d.Tracked()) }

func attempt(due store.Due, tracked bool) string {
	if due.Later() && !tracked {
		return "enqueue later to"
	}
	return "enqueue to"
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

// wrongType names the key that an error of the wrong type is about.
func (q *Queue) wrongType(channel string, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	key, _ := store.WrongKey(ctx, q.router.For(channel).Data, store.KeysOf(channel))
	if key == "" {
		return fmt.Errorf("a key of the channel holds something that is not shunt's: see docs/lifecycle.md: %w", err)
	}
	return fmt.Errorf("the key %s holds something that is not shunt's: rename or delete it: %w", key, err)
}
