// Package inside gives recur and shunttest what a shunt.Queue keeps from its users.
package inside

import (
	"context"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/sender"
	"github.com/shuntmq/shunt/internal/store"
)

// Access opens and copies Queues. The type parameters stand for *shunt.Queue, shunt.IMessage and shunt.Option.
type Access[Queue, Message, Option any] struct {
	// Open opens a Queue, unless it is open already. The error says what is wrong with its configuration.
	Open func(Queue) (Engine[Message, Option], error)
	// Copy makes an unused Queue with the same configuration. It opens neither.
	Copy func(Queue) Queue
}

// Engine is what an open Queue does for recur and shunttest.
type Engine[Message, Option any] interface {
	store.Asker
	// Draft checks a message with its options, and makes the element and the due time that an enqueue would send, but
	// for Encode.
	Draft(m Message, options []Option) (sender.Message, error)
	// Encode gives an element the payload that goes to Redis, and checks its size.
	Encode(context.Context, *sender.Message) error
	// Payload is an element's payload as Marshal made it.
	Payload(ctx context.Context, channel string, e *element.Element) ([]byte, error)
	// Hints is the subscription on the server that has the channel.
	Hints(channel string) *link.Subscription
	// Emit adds an event to those of the Queue.
	Emit(event.Event)
}

// granted is an Access. It is any because the package cannot name shunt's types: shunt imports it.
var granted any

// Grant sets the Access that To gives. shunt calls it once, when it is initialized.
func Grant[Queue, Message, Option any](a Access[Queue, Message, Option]) { granted = a }

// To is the Access to shunt's Queues. It panics unless the type parameters are those of Grant.
func To[Queue, Message, Option any]() Access[Queue, Message, Option] {
	return granted.(Access[Queue, Message, Option])
}
