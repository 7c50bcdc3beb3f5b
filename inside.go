package shunt

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/link"
)

// door is what recur and shunttest may ask of a Queue.
type door struct {
	asker
}

func init() {
	inside.Open = func(queue any) (inside.Door, error) {
		q, _ := queue.(*Queue)
		if q == nil {
			return nil, errors.New("shunt: the Queue is nil")
		}
		return door{asker{q}}, q.open(context.Background())
	}
}

func (d door) Encode(
	message, options any,
) (channel string, e element.Element, in time.Duration, at time.Time, err error) {
	m, _ := message.(IMessage)
	opts, _ := options.([]Option)
	v, err := d.q.newDraft(m, opts, time.Now())
	if err != nil {
		return "", e, 0, time.Time{}, err
	}
	return v.Keys.Name, v.Element, v.Due.In, v.Due.At, nil
}

func (d door) Hints(channel string) *link.Subscription { return d.q.router.For(channel).Hints }

func (d door) Emit(kind, channel, serial, id string, n int, due time.Time, err error) {
	d.q.events.emit(Event{Kind: EventKind(kind), Channel: channel, Serial: serial, ID: id, N: n, Due: due, Err: err})
}
