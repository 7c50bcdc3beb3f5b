package shunt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/shuntmq/shunt/internal/element"
)

// Mux is a prototype of one channel for messages of several types: one pool of workers handles them all. It goes
// wherever a prototype goes. The prototypes in it have the same channel and a type name each: that of T for a Kind,
// else what MessageType returns. One of them may have none, and handles messages without a type name, such as those
// that other languages enqueue. A message of another type goes to dead, with the names.
//
//	jobs := shunt.Mux(welcome, invoice) // both of channel "jobs"
//	shutdown, err := q.Receive(ctx, jobs, 16)
//
// Mistakes in the prototypes are errors of Receive.
func Mux(prototypes ...IMessage) IMessage { return &mux{prototypes} }

type mux struct{ prototypes []IMessage }

// Channel is that of the first prototype, and empty where there is none.
func (m *mux) Channel() string {
	if len(m.prototypes) == 0 || isNil(m.prototypes[0]) {
		return ""
	}
	return m.prototypes[0].Channel()
}

var errMux = errors.New("shunt: a Mux is a prototype for Receive: enqueue messages of the types in it")

func (m *mux) noMessage() error                   { return errMux }
func (m *mux) Marshal() ([]byte, error)           { return nil, errMux }
func (m *mux) Unmarshal([]byte) (IMessage, error) { return nil, errMux }
func (m *mux) Resolve(context.Context) error      { return Reject(errMux) }

// types are the prototypes of a channel by the names of their messages' types.
type types struct {
	only   IMessage            // where there is but one
	name   string              // of it; empty: it takes messages of every type
	byName map[string]IMessage // of a Mux; the empty name is for messages without one
}

// typesOf reads a prototype of a channel.
func typesOf(channel string, p IMessage, batched bool) (t types, err error) {
	p, _ = unwrap(p)
	several, ok := p.(*mux)
	if !ok {
		t.only = p
		t.name, err = typeOf(p)
		return t, errors.Join(err, checkHandler(p, batched))
	}
	t.byName = make(map[string]IMessage)
	for i, p := range several.prototypes {
		p, _ = unwrap(p)
		name, err := memberOf(channel, p, batched)
		if _, twice := t.byName[name]; err == nil && twice {
			err = fmt.Errorf("its type name %q is another's too: each needs its own, from a method MessageType", name)
		}
		if err != nil {
			return t, fmt.Errorf("shunt: prototype %d of a Mux of channel %q: %w", i, channel, err)
		}
		t.byName[name] = p
	}
	return t, nil
}

// memberOf is the type name of a prototype in a Mux.
func memberOf(channel string, p IMessage, batched bool) (name string, err error) {
	if isNil(p) {
		return "", errors.New("it is nil")
	}
	if _, nested := p.(*mux); nested {
		return "", errors.New("it is a Mux itself: give all prototypes to one Mux")
	}
	var own string
	guard("Channel", func() error { own = p.Channel(); return nil }, func(e error) { err = e })
	if err == nil && own != channel {
		err = fmt.Errorf("its channel is %q: a Mux has one channel", own)
	}
	if err == nil {
		name, err = typeOf(p)
	}
	return name, errors.Join(err, checkHandler(p, batched))
}

// checkHandler says why a prototype's messages cannot be handled. In batches they need no handler of their own.
func checkHandler(p IMessage, batched bool) error {
	if h, ok := p.(interface{ noHandler() error }); ok && !batched {
		return h.noHandler()
	}
	return nil
}

// typeOf is the type name that a message gives itself; empty where it gives none.
func typeOf(m IMessage) (name string, err error) {
	t, ok := m.(Typer)
	if !ok {
		return "", nil
	}
	guard("MessageType", func() error { name = t.MessageType(); return nil }, func(e error) { err = e })
	if err == nil && len(name) > element.MaxType {
		err = fmt.Errorf("shunt: the type name %.40q has %d bytes: want up to %d", name, len(name), element.MaxType)
	}
	return name, err
}

// prototype is the one for a message of that type.
func (t *types) prototype(channel, name string) (IMessage, error) {
	if t.only != nil && (name == t.name || name == "" || t.name == "") {
		return t.only, nil
	}
	if p := t.byName[name]; p != nil {
		return p, nil
	}
	return nil, &TypeError{Channel: channel, Type: name, Handled: t.names()}
}

// names are those that are handled, sorted.
func (t *types) names() []string {
	if t.only != nil {
		return []string{t.name}
	}
	return slices.Sorted(maps.Keys(t.byName))
}

// same says whether two receivers handle the same types in the same way.
func (t *types) same(o *types) bool {
	return t.name == o.name && alike(t.only, o.only) && maps.EqualFunc(t.byName, o.byName, alike)
}

// alike says whether two prototypes have the same Go type.
func alike(a, b IMessage) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// String names the types for an error.
func (t *types) String() string {
	if t.only != nil {
		return strings.TrimPrefix(fmt.Sprintf("%T", t.only), "*")
	}
	return "Mux of " + quoted(t.names())
}

// quoted is a list of type names for an error.
func quoted(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		if all[i] = fmt.Sprintf("%q", n); n == "" {
			all[i] = "messages without a type name"
		}
	}
	return strings.Join(all, ", ")
}

// TypeError is the reason of a message in dead that came to a receiver of other types. RetryDead gives it back to a
// receiver that knows its type.
type TypeError struct {
	Channel string
	Type    string   // of the message; empty: it has no type name
	Handled []string // type names that the receiver handles, sorted
}

func (e *TypeError) Error() string {
	is := fmt.Sprintf("of type %q", e.Type)
	if e.Type == "" {
		is = "without a type name"
	}
	mend := "give each type a channel of its own, or receive them with a Mux"
	if e.Type == "" {
		mend = "enqueue it with the option Type, or have one prototype of the Mux without a type name"
	}
	return fmt.Sprintf("shunt: a message %s came to a receiver of channel %q, which handles %s: %s, and retry the "+
		"message", is, e.Channel, quoted(e.Handled), mend)
}
