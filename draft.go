package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/sender"
	"github.com/shuntmq/shunt/internal/store"
)

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
