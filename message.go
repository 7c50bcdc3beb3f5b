package shunt

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/shuntmq/shunt/internal/element"
)

// IMessage is what a user defines: a type whose values are enqueued to a channel and handled by its receivers.
//
// A value given to Receive is the prototype of its channel: Channel and Unmarshal are called on it, Unmarshal
// by all workers at once. Whatever a handler needs besides the payload (a database, a logger) lives in the
// prototype's fields. A method that panics, or ends its goroutine, is reported as an error with its stack; it
// never takes the process down.
type IMessage interface {
	// Channel names the stream that the message belongs to: 1 to 200 bytes without braces, blanks and control
	// characters.
	Channel() string
	// Marshal makes the payload. It is called once an enqueue.
	Marshal() ([]byte, error)
	// Unmarshal, called on a prototype, returns a new message made of payload, with the prototype's
	// dependencies. It must not write to the prototype; payload is its to keep, and to write to. An error
	// sends the message to dead with its text: it is never tried again.
	Unmarshal(payload []byte) (IMessage, error)
	// Resolve handles the message. nil acks it. An error retries it after the backoff, until its attempts are used up.
	// Reject and RetryAfter choose otherwise. ctx ends at the handler's timeout, when the lease is lost, and after the
	// end of the context given to shutdown. context.Cause tells which.
	Resolve(ctx context.Context) error
}

// The optional companions of IMessage, for a message's type or the T of Define. An option of one enqueue comes before
// the method, the method before the Queue's field.
type (
	// Timeouter bounds one handling of a message; zero means the Queue's default, negative none.
	Timeouter interface{ Timeout() time.Duration }
	// MaxAttempter bounds how often a message is handled before it goes to dead: 1 to 255; zero means the
	// Queue's default, negative no bound. Where it returns more than 255, panics, or has not returned after 1 s,
	// the default holds, and an EventReceiverError says so.
	MaxAttempter interface{ MaxAttempts() int }
	// Backoffer says how long to wait after the given failed attempt, counted from 1. Zero or less means at
	// once. Where it panics, or has not returned after 1 s, the default holds, as for MaxAttempter.
	Backoffer interface {
		Backoff(attempt int) time.Duration
	}
	// Identifier names a message, as the option ID does; an empty name is none.
	Identifier interface{ MessageID() string }
	// Typer names a message's type, with up to 255 bytes that travel in the element; an empty name is none. A receiver
	// whose prototype has another name sends the message to dead, with both names: so types of two names that share a
	// channel by mistake are never handled as each other. Mux finds the prototype by it.
	Typer interface{ MessageType() string }
)

// isNil also sees a nil pointer in an interface.
func isNil(m IMessage) bool {
	if m == nil {
		return true
	}
	v := reflect.ValueOf(m)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// carrier is a Kind, whose value may have the optional methods.
type carrier interface{ carried() any }

// offers gives the optional methods of a message: its own, or those of the value that a Kind carries.
func offers[I any](m IMessage) (I, bool) {
	i, ok := m.(I)
	if k, is := m.(carrier); is && !ok {
		i, ok = k.carried().(I)
	}
	return i, ok
}

// timeouter is offers[Timeouter], which every message is asked for: outside of a generic func an assertion is cached.
func timeouter(m IMessage) (Timeouter, bool) {
	t, ok := m.(Timeouter)
	if k, is := m.(carrier); is && !ok {
		t, ok = k.carried().(Timeouter)
	}
	return t, ok
}

// Handler handles one message; Queue.Wrap puts middleware around the innermost one, which calls m.Resolve.
type Handler func(ctx context.Context, m IMessage) error

// FromJSON is an Unmarshal in one line: return shunt.FromJSON(m, payload). The new message is a copy of the prototype,
// with its dependencies, into which the payload is decoded. Tag fields that are no part of the payload with json:"-".
// Fields that are decoded into should be zero in the prototype, because all messages would share a map or slice there.
func FromJSON[T any, P interface {
	*T
	IMessage
}](prototype P, payload []byte) (IMessage, error) {
	m := *prototype
	if err := fromJSON(payload, &m); err != nil {
		return nil, err
	}
	return P(&m), nil
}

// Kind is a message type made of a function by Define. It is the prototype to give to Receive; Message makes
// its messages.
type Kind[T any] struct {
	channel string
	handle  func(context.Context, T) error
	name    string // of the type
	value   T
	made    bool // by Message or Unmarshal, so it carries a value
}

// Define makes a message type of a function: its payload is T as JSON, or as Queue.Codec writes it, its handler handle.
// A process that only enqueues, or handles in batches, may give nil for handle.
//
//	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error { … })
//	err := q.Enqueue(ctx, welcome.Message(Welcome{To: "a@example.org"}))
//	shutdown, err := q.Receive(ctx, welcome, 8)
//
// One channel has one type of messages, unless a Mux receives it. T's name, such as mails.Welcome, travels in each
// element, and a receiver of a type of another name sends the message to dead. T with a method MessageType names
// itself: then T may be renamed, or moved to another package, or be a copy in another program, and messages that wait
// are handled. A T without a name of its own, such as a map or an int, has none. A message without a type name, such as
// a payload that another language has pushed, is handled, too; but not by a Mux whose types all have names.
//
// T may also have the methods of Timeouter, MaxAttempter, Backoffer and Identifier.
func Define[T any](channel string, handle func(context.Context, T) error) *Kind[T] {
	return &Kind[T]{channel: channel, handle: handle, name: nameOf[T]()}
}

// nameOf is the type name of T, with the last part of its package's path: types of one name in two packages differ.
func nameOf[T any]() (name string) {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v, ok := reflect.New(t).Interface().(Typer); ok {
		guard("MessageType", func() error { name = v.MessageType(); return nil }, func(error) {})
	}
	if name == "" && t.PkgPath() != "" && len(t.String()) <= element.MaxType {
		name = t.String()
	}
	return name
}

// Message returns a message that carries v.
func (k *Kind[T]) Message(v T) *Kind[T] {
	return &Kind[T]{channel: k.channel, handle: k.handle, name: k.name, value: v, made: true}
}

// Value returns what the message carries.
func (k *Kind[T]) Value() T { return k.value }

// ByID names the message that has an ID on the Kind's channel, as the func ByID does.
func (k *Kind[T]) ByID(id string) Ref { return ByID(k.channel, id) }

// carried is the value with all methods of its type.
func (k *Kind[T]) carried() any {
	if kind := reflect.TypeFor[T]().Kind(); kind == reflect.Pointer || kind == reflect.Interface {
		return k.value
	}
	return &k.value
}

func (k *Kind[T]) Channel() string          { return k.channel }
func (k *Kind[T]) MessageType() string      { return k.name }
func (k *Kind[T]) Marshal() ([]byte, error) { return ToJSON(k.value) }
func (k *Kind[T]) Resolve(ctx context.Context) error {
	if err := k.noHandler(); err != nil {
		return err
	}
	return k.handle(ctx, k.value)
}
func (k *Kind[T]) Unmarshal(payload []byte) (IMessage, error) { return k.unmarshalBy(Codec{}, payload) }

// marshalBy is Marshal with the codec of a Queue.
func (k *Kind[T]) marshalBy(c Codec) ([]byte, error) {
	if c.Marshal == nil {
		return k.Marshal()
	}
	return c.Marshal(k.value)
}

func (k *Kind[T]) unmarshalBy(c Codec, payload []byte) (IMessage, error) {
	m := k.Message(*new(T))
	if c.Unmarshal == nil {
		return m, fromJSON(payload, &m.value)
	}
	return m, c.Unmarshal(payload, &m.value)
}

// self is k, also of a type that embeds it, which may have a Marshal and Unmarshal of its own.
func (k *Kind[T]) self() any { return k }

// coded is a message whose payload a Queue's codec writes and reads.
type coded interface {
	self() any
	marshalBy(Codec) ([]byte, error)
	unmarshalBy(Codec, []byte) (IMessage, error)
}

// marshal is the message's payload; c is the Queue's codec.
func marshal(c Codec, m IMessage) ([]byte, error) {
	if k, ok := m.(coded); ok && k.self() == any(m) {
		return k.marshalBy(c)
	}
	return m.Marshal()
}

// unmarshal is a new message of a prototype.
func unmarshal(c Codec, prototype IMessage, payload []byte) (IMessage, error) {
	if k, ok := prototype.(coded); ok && k.self() == any(prototype) {
		return k.unmarshalBy(c, payload)
	}
	return prototype.Unmarshal(payload)
}

// noMessage says that k is what Define returned, and no message of it.
func (k *Kind[T]) noMessage() error {
	if k.made {
		return nil
	}
	return fmt.Errorf("shunt: the Kind of channel %q carries no value: enqueue what its Message(v) returns", k.channel)
}

// noHandler says that k cannot be handled.
func (k *Kind[T]) noHandler() error {
	if k.handle != nil {
		return nil
	}
	return fmt.Errorf("shunt: the Kind of channel %q has no func: give one to Define to receive it", k.channel)
}

// raw is a payload without a type.
type raw struct {
	channel string
	payload []byte
}

// Raw returns a message that enqueues payload as it is; it has no handler, so it is no prototype.
func Raw(channel string, payload []byte) IMessage { return raw{channel, payload} }

func (r raw) Channel() string                      { return r.channel }
func (r raw) Marshal() ([]byte, error)             { return r.payload, nil }
func (r raw) Unmarshal(p []byte) (IMessage, error) { return raw{r.channel, p}, nil }
func (r raw) Resolve(context.Context) error        { return Reject(r.noHandler()) }
func (r raw) noHandler() error {
	return fmt.Errorf("shunt: a Raw message is no prototype: it has no handler for channel %q", r.channel)
}
