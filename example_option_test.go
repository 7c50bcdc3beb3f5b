package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// In makes a message due after some time, counted by the clock of Redis.
func ExampleIn() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	began := time.Now()
	reminder := shunt.Define("reminder", func(context.Context, Welcome) error {
		fmt.Println("not before its time:", time.Since(began) >= 50*time.Millisecond)
		return nil
	})
	_, err := q.Receive(ctx, reminder, 1)
	check(err)
	check(q.Enqueue(ctx, reminder.Message(Welcome{}), shunt.In(50*time.Millisecond)))
	wait(shunt.EventAcked, 1)
	// Output: not before its time: true
}

// At makes a message due at a time.
func ExampleAt() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	due := time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC)
	check(q.Enqueue(ctx, &Order{ID: 7}, shunt.At(due)))
	delayed, err := q.List(ctx, "orders", shunt.StateDelay, 0, 0)
	check(err)
	for _, e := range delayed {
		fmt.Println(e.DueAt.UTC().Format(time.RFC3339))
	}
	// Output: 2100-01-01T09:00:00Z
}

// With gives each message of one call options of its own.
func ExampleWith() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	reminder := shunt.Define[string]("reminder", nil) // this process only enqueues
	flight := time.Date(2100, 1, 1, 9, 0, 0, 0, time.UTC)
	check(q.EnqueueAll(ctx, []shunt.IMessage{
		shunt.With(reminder.Message("check in"), shunt.At(flight.Add(-24*time.Hour))),
		shunt.With(reminder.Message("leave for the airport"), shunt.At(flight.Add(-3*time.Hour))),
	}, shunt.Header("booking", "X7K2"), shunt.Deadline(flight)))
	delayed, err := q.List(ctx, "reminder", shunt.StateDelay, 0, 0)
	check(err)
	for _, e := range delayed {
		fmt.Printf("%s %s %s\n", e.DueAt.UTC().Format("Jan _2 15:04"), e.Headers["booking"], e.Payload)
	}
	// Output:
	// Dec 31 09:00 X7K2 "check in"
	// Jan  1 06:00 X7K2 "leave for the airport"
}

// Header adds a pair that travels with the message, beside its payload.
func ExampleHeader() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	export := shunt.Define("export", func(ctx context.Context, table string) error {
		info, _ := shunt.FromContext(ctx)
		fmt.Println("exports", table, "of", info.Headers["tenant"])
		return nil
	})
	check(q.Enqueue(ctx, export.Message("orders"), shunt.Header("tenant", "ann")))
	_, err := q.Receive(ctx, export, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output: exports orders of ann
}

// Timeout ends the context of a handler that takes too long, and MaxAttempts says how often that may happen.
func ExampleTimeout() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	convert := shunt.Define("convert", func(ctx context.Context, video string) error {
		<-ctx.Done() // where the converter hangs
		return context.Cause(ctx)
	})
	_, err := q.Receive(ctx, convert, 1)
	check(err)
	out, err := q.EnqueueAndWait(
		ctx,
		convert.Message("holiday.mp4"),
		shunt.Timeout(10*time.Millisecond),
		shunt.MaxAttempts(1),
	)
	check(err)
	fmt.Printf("%s after attempt %d: %s\n", out.Kind, out.Attempt, out.Failure)
	// Output: rejected after attempt 1: shunt: the handler's timeout has passed
}

// Deadline ends what Snooze alone would do for ever.
func ExampleDeadline() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	payment := shunt.Define("payment", func(ctx context.Context, order int) error {
		return shunt.Snooze(100 * time.Millisecond) // the bank has not heard of it yet
	})
	_, err := q.Receive(ctx, payment, 1)
	check(err)
	out, err := q.EnqueueAndWait(ctx, payment.Message(7), shunt.Deadline(time.Now().Add(200*time.Millisecond)))
	check(err)
	fmt.Println(out.Kind, out.Failure == shunt.ErrDeadline.Error())
	// Output: rejected true
}

// Expire drops a message that no worker took in time, such as a code for a login.
func ExampleExpire() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	code := shunt.Define("code", func(ctx context.Context, to string) error {
		fmt.Println("sends a code to", to)
		return nil
	})
	check(q.Enqueue(ctx, code.Message("ann"), shunt.ID("ann"), shunt.Expire(time.Millisecond)))
	time.Sleep(300 * time.Millisecond) // nobody receives it in time
	check(q.Enqueue(ctx, code.Message("ben"), shunt.ID("ben"), shunt.Expire(time.Minute)))
	_, err := q.Receive(ctx, code, 1)
	check(err)
	wait(shunt.EventExpired, 1)
	wait(shunt.EventAcked, 1)
	// Output: sends a code to ben
}

// ExpireToDead keeps what no worker took in time among the dead letters, where somebody looks at it.
func ExampleExpireToDead() {
	q, _, end := open()
	defer end()
	rejected := make(chan error, 1)
	q.Events = func(e shunt.Event) {
		if e.Kind == shunt.EventRejected {
			rejected <- e.Err
		}
	}
	ctx := context.Background()

	check(q.Enqueue(ctx, &Order{ID: 7}, shunt.ID("order-7"), shunt.ExpireToDead(time.Millisecond)))
	time.Sleep(300 * time.Millisecond) // nobody receives it in time
	_, err := q.Receive(ctx, &Order{}, 1)
	check(err)
	fmt.Println("expired:", errors.Is(<-rejected, shunt.ErrExpired))
	e, err := q.Peek(ctx, shunt.ByID("orders", "order-7"))
	check(err)
	fmt.Printf("%s: %s\n", e.State, e.Payload)
	// Output:
	// expired: true
	// dead: {"ID":7}
}

// UniqueFor keeps an ID taken after success, so a webhook that comes twice charges nobody twice.
func ExampleUniqueFor() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	charge := shunt.Define("charge", func(ctx context.Context, order int) error {
		fmt.Println("charges order", order)
		return nil
	})
	_, err := q.Receive(ctx, charge, 1)
	check(err)
	webhook := func() error {
		return q.Enqueue(ctx, charge.Message(7), shunt.ID("order-7"), shunt.UniqueFor(24*time.Hour))
	}
	check(webhook())
	wait(shunt.EventAcked, 1)
	var taken *shunt.DuplicateError
	if errors.As(webhook(), &taken) {
		free := time.Until(taken.Status.UniqueUntil)
		fmt.Printf("%s is %s, its ID is free in %.0f h\n", taken.Status.ID, taken.Status.State, free.Hours())
	}
	// Output:
	// charges order 7
	// order-7 is done, its ID is free in 24 h
}
