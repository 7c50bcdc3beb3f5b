// Package inside is the door by which shunt's other packages reach what a Queue keeps from its users.
package inside

import (
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Door is what they may ask of a Queue.
type Door interface {
	store.Asker
	// Encode makes the element of a message, a shunt.IMessage, with options, a []shunt.Option. when is the time that In
	// and At ask for: a wait, or a time of day, both zero for now.
	Encode(message, options any) (channel string, e element.Element, in time.Duration, at time.Time, err error)
	// Hints is the subscription of the Queue.
	Hints(channel string) *link.Subscription
	// Emit tells an Event.
	Emit(kind, channel, serial, id string, n int, due time.Time, err error)
}

// Open is set by shunt: the door of a *shunt.Queue.
var Open func(queue any) (Door, error)
