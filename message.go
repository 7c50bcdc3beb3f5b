package shunt

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	jsoniter "github.com/json-iterator/go"

	"github.com/shuntmq/shunt/internal/worker"
)

// IMessage is what a user defines: a type whose values are enqueued to a channel and handled by its receivers.
//
// A value given to Receive is the prototype of its channel: Channel and Unmarshal are called on it, Unmarshal by all workers
// at once. Whatever a handler needs besides the payload (a database, a logger) lives in the prototype's fields.
// A method that panics, or ends its goroutine, is reported as an error with its stack; it never takes the process down.
type IMessage interface {
	// Channel names the stream that the message belongs to: 1 to 200 bytes without braces, blanks and control characters.
	Channel() string
	// Marshal makes the payload. It is called once an enqueue.
	Marshal() ([]byte, error)
	// Unmarshal, called on a prototype, returns a new message made of payload, with the prototype's dependencies.
	// It must not write to the prototype; payload is its to keep, and to write to. An error sends the message to dead with its text: it
	// is never tried again.
	Unmarshal(payload []byte) (IMessage, error)
	// Resolve handles the message. nil acks it; an error retries it after the backoff until its attempts are used up;
	// Reject and RetryAfter say otherwise. ctx ends at the handler's timeout, when the lease is lost, and after the end
	// of the context given to shutdown; context.Cause tells which.
	Resolve(ctx context.Context) error
}

// The optional companions of IMessage. An option of one enqueue comes before the method, the method before the Queue's field.
type (
	// Timeouter bounds one handling of a message; zero means the Queue's default, negative none.
	Timeouter interface{ Timeout() time.Duration }
	// MaxAttempter bounds how often a message is handled before it goes to dead: 1 to 255; zero means the Queue's
	// default, negative or more than 255 no bound. Where it panics, or has not returned after 1 s, the default holds, and an EventReceiverError says so.
	MaxAttempter interface{ MaxAttempts() int }
	// Backoffer says how long to wait after the given failed attempt, counted from 1. Zero or less means at once. Where it panics, or has
	// not returned after 1 s, the default holds, as for MaxAttempter.
	Backoffer interface {
		Backoff(attempt int) time.Duration
	}
	// Identifier names a message, as the option ID does; an empty name is none.
	Identifier interface{ MessageID() string }
)

// Handler handles one message; Queue.Wrap puts middleware around the innermost one, which calls m.Resolve.
type Handler func(ctx context.Context, m IMessage) error

// json is json-iterator as encoding/json behaves, less the escaping of HTML.
var json = jsoniter.Config{SortMapKeys: true, ValidateJsonRawMessage: true}.Froze()

// ToJSON is a Marshal in one line: return shunt.ToJSON(m). Strings must be UTF-8: bytes such as file names belong in a []byte.
func ToJSON(m any) ([]byte, error) { return json.Marshal(m) }

// FromJSON is an Unmarshal in one line: return shunt.FromJSON(m, payload). The new message is a copy of the prototype,
// with its dependencies, into which the payload is decoded; a field that is no part of the payload is tagged json:"-".
// Fields that are decoded into should be zero in the prototype: a map or slice there would be shared by all messages.
func FromJSON[T any, P interface {
	*T
	IMessage
}](prototype P, payload []byte) (IMessage, error) {
	m := *prototype
	if err := json.Unmarshal(payload, &m); err != nil {
		return nil, err
	}
	return P(&m), nil
}

// Kind is a message type made of a function by Define. It is the prototype to give to Receive; Message makes its messages.
type Kind[T any] struct {
	channel string
	handle  func(context.Context, T) error
	value   T
}

// Define makes a message type of a function: its payload is T as JSON, its handler handle.
//
//	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error { … })
//	err := q.Enqueue(ctx, welcome.Message(Welcome{To: "a@example.org"}))
//	shutdown, err := q.Receive(ctx, welcome, 8)
func Define[T any](channel string, handle func(context.Context, T) error) *Kind[T] {
	return &Kind[T]{channel: channel, handle: handle}
}

// Message returns a message that carries v.
func (k *Kind[T]) Message(v T) *Kind[T] {
	return &Kind[T]{channel: k.channel, handle: k.handle, value: v}
}

// Value returns what the message carries.
func (k *Kind[T]) Value() T { return k.value }

func (k *Kind[T]) Channel() string                   { return k.channel }
func (k *Kind[T]) Marshal() ([]byte, error)          { return json.Marshal(k.value) }
func (k *Kind[T]) Resolve(ctx context.Context) error { return k.handle(ctx, k.value) }
func (k *Kind[T]) Unmarshal(payload []byte) (IMessage, error) {
	m := k.Message(*new(T))
	return m, json.Unmarshal(payload, &m.value)
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
func (r raw) Resolve(context.Context) error {
	return Reject(errors.New("a Raw message has no handler: receive its channel with a type of your own"))
}

// Info is what a handler can learn of the message in its hands.
type Info struct {
	Channel    string
	Serial     string            // the enqueue's own ULID; empty for a bare payload not yet rewritten
	ID         string            // as given by ID; mostly empty
	Attempt    int               // this handling, counted from 1
	Recoveries int               // how often a dead receiver held it, since it was last handled to an end
	EnqueuedAt time.Time         // by the producer's clock; zero for a bare payload
	Headers    map[string]string // as given by Header; not to be written to
	Failure    string            // what the last attempt failed with
	Receiver   string            // the incarnation that took it
	Worker     int               // from 0
}

// FromContext returns what is known of the message that the handler owning ctx was called for.
func FromContext(ctx context.Context) (Info, bool) {
	it, ok := ctx.Value(worker.Key{}).(*worker.Item)
	if !ok {
		return Info{}, false
	}
	return infoOf(it), true
}

// rejection is the error of Reject.
type rejection struct{ error }

func (r rejection) Unwrap() error { return r.error }

// Reject makes of err the verdict that the message is given up at once: it goes to dead with err's text.
func Reject(err error) error {
	if err == nil {
		err = errors.New("rejected")
	}
	return rejection{err}
}

// delayed is the error of RetryAfter.
type delayed struct {
	error
	after time.Duration
}

func (d delayed) Unwrap() error { return d.error }

// RetryAfter makes of err the verdict that the message is tried again after d instead of its backoff; zero or less means
// at once. It counts as an attempt.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("to be tried again")
	}
	return delayed{err, d}
}

// guard runs what a user wrote: a panic and a runtime.Goexit become errors with their stack. On Goexit the goroutine ends
// when guard's deferred call returns, so finish is called with the verdict in either case.
func guard(what string, f func() error, finish func(error)) {
	returned := false
	var err error
	defer func() {
		if returned {
			finish(err)
			return
		}
		finish(panicked(what, recover()))
	}()
	err = f()
	returned = true
}

// panicked is the error of a call that did not return; without a panic's value it was runtime.Goexit.
func panicked(what string, value any) *PanicError {
	return &PanicError{What: what, Value: value, Goexit: value == nil, Stack: debug.Stack()}
}

// PanicError is the error of a user's method that panicked or called runtime.Goexit.
type PanicError struct {
	What   string // the method
	Value  any    // of the panic
	Goexit bool
	Stack  []byte
}

func (p *PanicError) Error() string {
	if p.Goexit {
		return fmt.Sprintf("%s called runtime.Goexit", p.What)
	}
	return fmt.Sprintf("%s panicked: %v\n%s", p.What, p.Value, p.Stack)
}

// Unwrap gives the panic's value where it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
