package shunt

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/sender"
)

// engine is a Queue as recur and shunttest use it.
type engine struct {
	asker
	q *Queue
}

func init() {
	inside.Grant(inside.Access[*Queue, IMessage, Option]{
		Open: func(q *Queue) (inside.Engine[IMessage, Option], error) {
			if q == nil {
				return nil, errors.New("shunt: the Queue is nil")
			}
			return engine{asker{q: q}, q}, q.open(context.Background())
		},
		Copy: (*Queue).unused,
	})
}

func (e engine) Draft(m IMessage, options []Option) (sender.Message, error) {
	d := new(draft)
	err := e.q.plainDraft(d, m, options, time.Now())
	if err == nil {
		err = e.q.plain(context.Background(), d)
	}
	if err == nil {
		d.refer()
	}
	return d.Message, err
}

func (e engine) Encode(ctx context.Context, m *sender.Message) error {
	whole := draft{Message: *m}
	err := e.q.finish(ctx, &whole)
	*m = whole.Message
	return err
}

func (e engine) Payload(ctx context.Context, channel string, el *element.Element) ([]byte, error) {
	return e.q.decode(ctx, payloadOf(channel, el))
}

func (e engine) Hints(channel string) *link.Subscription { return e.q.router.For(channel).Hints }

func (e engine) Emit(ev event.Event) { e.q.emit(ev) }
