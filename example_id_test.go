package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// An ID makes a message unique on its channel for as long as it lives.
func ExampleID() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	charge := shunt.Define("charge", func(ctx context.Context, order int) error {
		fmt.Println("charges order", order)
		return nil
	})
	fmt.Println("first:", q.Enqueue(ctx, charge.Message(7), shunt.ID("order-7")))
	err := q.Enqueue(ctx, charge.Message(7), shunt.ID("order-7"))
	var taken *shunt.DuplicateError
	if errors.As(err, &taken) {
		fmt.Println("second: taken, and in state", taken.Status.State)
	}
	_, err = q.Receive(ctx, charge, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	_, err = q.Status(ctx, charge.ByID("order-7"))
	fmt.Println("over:", errors.Is(err, shunt.ErrNotFound))
	// Output:
	// first: <nil>
	// second: taken, and in state prepare
	// charges order 7
	// over: true
}

// where tells a customer about an order.
func where(ctx context.Context, q *shunt.Queue, id string) string {
	s, err := q.Status(ctx, shunt.ByID("orders", id))
	if errors.Is(err, shunt.ErrNotFound) {
		return "there is no such order"
	}
	if err != nil {
		return "ask again later"
	}
	switch s.State {
	case shunt.StateDelay:
		return fmt.Sprintf("will be packed at %s", s.DueAt.UTC().Format(time.Kitchen))
	case shunt.StateDoing:
		if s.Cancelled {
			return "is being cancelled"
		}
		return fmt.Sprintf("is being packed since %s", s.StartedAt.Format(time.Kitchen))
	case shunt.StateDone:
		if s.Outcome.Kind == shunt.EventAcked {
			return "was sent"
		}
		return "could not be sent: " + s.Outcome.Failure
	}
	if s.Failure != "" {
		return fmt.Sprintf("waits for attempt %d, after: %s", s.Attempt+1, s.Failure)
	}
	return fmt.Sprintf("waits for %.0f s", time.Since(s.EnqueuedAt).Seconds())
}

// Status finds a message by its ID, wherever it is, and what became of it if Retain kept that.
func ExampleQueue_Status() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	fmt.Println("order 7", where(ctx, q, "7"))
	tomorrow := shunt.At(time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC))
	check(q.Enqueue(ctx, &Order{ID: 7}, tomorrow, shunt.ID("7"), shunt.Retain(7*24*time.Hour)))
	fmt.Println("order 7", where(ctx, q, "7"))
	check(q.Promote(ctx, shunt.ByID("orders", "7")))
	fmt.Println("order 7", where(ctx, q, "7"))
	_, err := q.Receive(ctx, &Order{shop: &Shop{Name: "Ann's"}}, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	fmt.Println("order 7", where(ctx, q, "7"))
	// Output:
	// order 7 there is no such order
	// order 7 will be packed at 9:00AM
	// order 7 waits for 0 s
	// Ann's ships order 7
	// order 7 was sent
}

// Cancel takes back what waits, and ends the context of a handler that runs, in whichever process.
func ExampleQueue_Cancel() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	started := make(chan string)
	export := shunt.Define("export", func(ctx context.Context, table string) error {
		info, _ := shunt.FromContext(ctx)
		started <- info.Receiver
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	})
	orders := shunt.ByID("export", "orders")
	check(q.Enqueue(ctx, export.Message("orders"), shunt.ID(orders.ID), shunt.In(time.Hour)))
	before, err := q.Cancel(ctx, orders)
	fmt.Println(before.State, err)

	_, err = q.Receive(ctx, export, 1)
	check(err)
	check(q.Enqueue(ctx, export.Message("orders"), shunt.ID(orders.ID)))
	holder := <-started
	before, err = q.Cancel(ctx, orders)
	fmt.Println(before.State, before.Receiver == holder, before.Worker, err)
	wait(shunt.EventCancelled, 1)
	// Unordered output:
	// delay <nil>
	// doing true 0 <nil>
	// shunt: the message was cancelled
}

// Postpone gives a delayed message another due time, and says why it cannot where it waits or runs already.
func ExampleQueue_Postpone() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	reminder := shunt.Define[string]("reminder", nil)
	check(q.Enqueue(ctx, reminder.Message("dentist"), shunt.ID("dentist"), shunt.In(time.Hour)))
	check(q.Enqueue(ctx, reminder.Message("bus"), shunt.ID("bus")))
	for _, id := range []string{"dentist", "bus", "train"} {
		switch err := q.Postpone(ctx, shunt.ByID("reminder", id), shunt.In(2*time.Hour)); {
		case err == nil:
			fmt.Println(id, "is put off")
		case errors.Is(err, shunt.ErrWaiting), errors.Is(err, shunt.ErrRunning):
			fmt.Println(id, "is due already")
		case errors.Is(err, shunt.ErrNotFound):
			fmt.Println(id, "is over, or never was")
		}
	}
	// Output:
	// dentist is put off
	// bus is due already
	// train is over, or never was
}
