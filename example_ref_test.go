package shunt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Ticket is what the support files about a message.
type Ticket struct {
	Number  int
	Message shunt.Ref
}

// A Ref in a ticket is text in its JSON, and finds the very message when somebody acts on the ticket.
func ExampleRef() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	dead, err := q.List(ctx, "mail", shunt.StateDead, 0, 1)
	check(err)
	file, err := json.Marshal(Ticket{Number: 12, Message: dead[0].Ref()})
	check(err)

	var t Ticket
	check(json.Unmarshal(file, &t))
	fmt.Println(t.Message.Channel, t.Message.State, t.Message.At.Equal(dead[0].DiedAt))
	check(q.Retry(ctx, t.Message))
	e, err := q.Peek(ctx, t.Message)
	fmt.Println(e.State, e.Serial == t.Message.Serial, err)
	// Output:
	// mail dead true
	// prepare true <nil>
}

// ParseRef reads a Ref from a URL or a command line.
func ExampleParseRef() {
	ref, err := shunt.ParseRef("{orders}.any.-.order-7")
	fmt.Println(ref.Channel, ref.ID, err)
	fmt.Println(shunt.ByID("orders", "order-7"))
	_, err = shunt.ParseRef("orders/7")
	fmt.Println(err)
	// Output:
	// orders order-7 <nil>
	// {orders}.any.-.order-7
	// shunt: "orders/7" names no message: it is no such text: want {channel}.state.serial, as Ref.String gives it
}

// RefTo keeps what finds a message again, here for a button that takes a mail back.
func ExampleRefTo() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define[string]("mail", nil)
	var sent shunt.Ref
	check(q.Enqueue(ctx, mail.Message("ann"), shunt.In(30*time.Second), shunt.RefTo(&sent)))
	before, err := q.Cancel(ctx, sent)
	fmt.Println(before.State, err)
	// Output: delay <nil>
}

// BySerial finds a message without an ID, by the serial that a log or an Event has.
func ExampleBySerial() {
	q, _, end := open()
	defer end()
	enqueued := make(chan string, 1)
	q.Events = func(e shunt.Event) {
		if e.Kind == shunt.EventEnqueued {
			enqueued <- e.Serial
		}
	}
	ctx := context.Background()

	check(q.Enqueue(ctx, &Order{ID: 7}, shunt.In(time.Hour)))
	order := shunt.BySerial("orders", <-enqueued)
	s, err := q.Status(ctx, order)
	check(err)
	fmt.Println(s.State, s.Serial == order.Serial, s.ID == "")
	check(q.Promote(ctx, order))
	e, err := q.Peek(ctx, order)
	check(err)
	fmt.Printf("%s %s\n", e.State, e.Payload)
	// Output:
	// delay true true
	// prepare {"ID":7}
}

// Peek shows one message with its payload, without taking it.
func ExampleQueue_Peek() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	check(q.Enqueue(ctx, &Invoice{Number: 7}))
	e, err := q.Peek(ctx, shunt.ByID("invoices", "invoice-7"))
	check(err)
	fmt.Printf("%s %s of type %s: %s\n", e.State, e.ID, e.Type, e.Payload)
	// Output: prepare invoice-7 of type invoice: {"Number":7}
}

// Retry has a message handled again if it is dead, and now if it is delayed.
func ExampleQueue_Retry() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	up := false // the mail server
	mail := shunt.Define("mail", func(ctx context.Context, to string) error {
		if !up {
			return errors.New("no route to host") // which is tried again after 15 s and more
		}
		fmt.Println("sends a mail to", to)
		return nil
	})
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	check(q.Enqueue(ctx, mail.Message("ann"), shunt.ID("ann")))
	wait(shunt.EventRetried, 1)
	up = true
	switch err := q.Retry(ctx, shunt.ByID("mail", "ann")); {
	case errors.Is(err, shunt.ErrRunning):
		fmt.Println("it is being tried already")
	case errors.Is(err, shunt.ErrNotFound):
		fmt.Println("it is over")
	case errors.Is(err, shunt.ErrDuplicate):
		fmt.Println("it is dead, and ann gets another mail by now")
	}
	wait(shunt.EventAcked, 1)
	// Output: sends a mail to ann
}

// Delete removes a message for good, whether it waits or is dead.
func ExampleQueue_Delete() {
	q, wait, end := open()
	defer end()
	giveUp(q, wait) // mails to ann, ben and cleo
	ctx := context.Background()

	ben := shunt.ByID("mail", "ben")
	fmt.Println(q.Delete(ctx, ben))
	_, err := q.Peek(ctx, ben)
	fmt.Println(errors.Is(err, shunt.ErrNotFound))
	// Output:
	// <nil>
	// true
}
