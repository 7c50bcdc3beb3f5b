package shunt_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"

	"github.com/shuntmq/shunt"
)

// Welcome is a payload for Define.
type Welcome struct {
	To string
}

// Define makes a message type of a function, whose argument is the payload.
func ExampleDefine() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error {
		fmt.Println("welcome,", w.To)
		return nil
	})
	check(q.Enqueue(ctx, welcome.Message(Welcome{To: "Ann"})))
	_, err := q.Receive(ctx, welcome, 8)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output: welcome, Ann
}

// Raw is a payload without a type, for a channel that somebody else receives.
func ExampleRaw() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	check(q.Enqueue(ctx, shunt.Raw("orders", []byte(`{"ID":7}`))))
	_, err := q.Receive(ctx, &Order{shop: &Shop{Name: "Ann's"}}, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output: Ann's ships order 7
}

// FromJSON is an Unmarshal in one line, and the new message has the prototype's dependencies.
func ExampleFromJSON() {
	payload, err := shunt.ToJSON(&Order{ID: 7})
	check(err)
	fmt.Printf("%s\n", payload)

	prototype := &Order{shop: &Shop{Name: "Ann's"}}
	m, err := shunt.FromJSON(prototype, payload)
	check(err)
	fmt.Println(m.(*Order).ID, m.(*Order).shop.Name, prototype.ID)
	// Output:
	// {"ID":7}
	// 7 Ann's 0
}

// Mux gives the messages of several types to one pool of workers.
func ExampleMux() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	type Receipt struct{ Number int }
	welcome := shunt.Define("mails", func(ctx context.Context, w Welcome) error {
		fmt.Println("welcome,", w.To)
		return nil
	})
	receipt := shunt.Define("mails", func(ctx context.Context, r Receipt) error {
		fmt.Println("receipt", r.Number)
		return nil
	})
	check(q.EnqueueAll(ctx, []shunt.IMessage{welcome.Message(Welcome{"Ann"}), receipt.Message(Receipt{7})}))
	_, err := q.Receive(ctx, shunt.Mux(welcome, receipt), 1)
	check(err)
	wait(shunt.EventAcked, 2)
	// Output:
	// welcome, Ann
	// receipt 7
}

// Invoice is a message that names itself and its type.
type Invoice struct{ Number int }

func (i *Invoice) Channel() string                            { return "invoices" }
func (i *Invoice) MessageID() string                          { return fmt.Sprintf("invoice-%d", i.Number) }
func (i *Invoice) MessageType() string                        { return "invoice" }
func (i *Invoice) Marshal() ([]byte, error)                   { return shunt.ToJSON(i) }
func (i *Invoice) Unmarshal(b []byte) (shunt.IMessage, error) { return shunt.FromJSON(i, b) }
func (i *Invoice) Resolve(ctx context.Context) error          { return nil }

// An Identifier gives its messages their IDs, so no enqueue can forget one.
func ExampleIdentifier() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	fmt.Println("first:", q.Enqueue(ctx, &Invoice{Number: 7}))
	err := q.Enqueue(ctx, &Invoice{Number: 7})
	fmt.Println("second is a duplicate:", errors.Is(err, shunt.ErrDuplicate))
	// Output:
	// first: <nil>
	// second is a duplicate: true
}

// CreditNote is a payload whose type keeps its name in Redis when it is renamed in Go.
type CreditNote struct{ Number int }

func (CreditNote) MessageType() string { return "credit" }

// A Typer names its type, and a receiver of another type sends the message to dead with a *TypeError.
func ExampleTyper() {
	q, wait, end := open()
	defer end()
	undecodable, events := make(chan error, 1), q.Events
	q.Events = func(e shunt.Event) {
		events(e)
		if e.Kind == shunt.EventUndecodable {
			undecodable <- e.Err
		}
	}
	ctx := context.Background()

	credit := shunt.Define("invoices", func(ctx context.Context, c CreditNote) error {
		fmt.Println("credit note", c.Number)
		return nil
	})
	check(q.Enqueue(ctx, credit.Message(CreditNote{Number: 7})))
	shutdown, err := q.Receive(ctx, &Invoice{}, 1) // which knows no credit notes
	check(err)
	var other *shunt.TypeError
	if err := <-undecodable; errors.As(err, &other) {
		fmt.Printf("%s: a %s came to a receiver of %v\n", other.Channel, other.Type, other.Handled)
	}
	check(shutdown(ctx))

	_, err = q.Receive(ctx, shunt.Mux(&Invoice{}, credit), 1) // the next release
	check(err)
	_, err = q.RetryAllDead(ctx, "invoices", shunt.Filter{Type: "credit"})
	check(err)
	wait(shunt.EventAcked, 1)
	// Output:
	// invoices: a credit came to a receiver of [invoice]
	// credit note 7
}

// A Codec writes and reads the payloads of Define's messages in another form, here in XML.
func ExampleCodec() {
	q, wait, end := open()
	defer end()
	q.Codec = shunt.Codec{Marshal: xml.Marshal, Unmarshal: xml.Unmarshal}
	ctx := context.Background()

	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error {
		fmt.Println("welcome,", w.To)
		return nil
	})
	check(q.Enqueue(ctx, welcome.Message(Welcome{To: "Ann"})))
	waiting, err := q.List(ctx, "welcome", shunt.StatePrepare, 0, 0)
	check(err)
	for _, e := range waiting {
		fmt.Printf("%s\n", e.Payload)
	}
	_, err = q.Receive(ctx, welcome, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output:
	// <Welcome><To>Ann</To></Welcome>
	// welcome, Ann
}

// Type says of what type a payload is that comes from elsewhere, so that a Mux finds its prototype.
func ExampleType() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	welcome := shunt.Define("mails", func(_ context.Context, w Welcome) error {
		fmt.Println("welcome,", w.To)
		return nil
	})
	check(q.Enqueue(ctx, shunt.Raw("mails", []byte(`{"To":"Ann"}`)), shunt.Type(welcome.MessageType())))
	_, err := q.Receive(ctx, shunt.Mux(welcome), 8)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output: welcome, Ann
}

// Unwrap gives middleware the message itself, whatever options it has.
func ExampleUnwrap() {
	m := shunt.With(shunt.Raw("mails", nil), shunt.ID("7"))
	fmt.Printf("%T in place of %T\n", shunt.Unwrap(m), m)
	// Output: shunt.raw in place of *shunt.with
}
