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

	fmt.Println("first:", q.Enqueue(ctx, charge.Message(7), shunt.ID("order-7"), shunt.In(time.Hour)))
	err := q.Enqueue(ctx, charge.Message(7), shunt.ID("order-7"))
	var taken *shunt.DuplicateError
	if errors.As(err, &taken) {
		fmt.Println("second: taken, and in state", taken.Status.State)
	}

	if err := q.Promote(ctx, shunt.ByID("charge", "order-7")); err != nil {
		fmt.Println(err)
	}
	if _, err := q.Receive(ctx, charge, 1); err != nil {
		fmt.Println(err)
	}
	wait(shunt.EventAcked, 1)
	_, err = q.Status(ctx, shunt.ByID("charge", "order-7"))
	fmt.Println("over:", errors.Is(err, shunt.ErrNotFound))
	// Output:
	// first: <nil>
	// second: taken, and in state delay
	// charges order 7
	// over: true
}

// A request and its reply: the handler sets a result, and Wait returns it.
func ExampleQueue_Wait() {
	q, _, end := open()
	defer end()
	ctx := context.Background()
	square := shunt.Define("square", func(ctx context.Context, n int) error {
		return shunt.SetResult(ctx, fmt.Appendf(nil, "%d", n*n))
	})
	if _, err := q.Receive(ctx, square, 1); err != nil {
		fmt.Println(err)
	}

	if err := q.Enqueue(ctx, square.Message(12), shunt.ID("job-1"), shunt.Retain(time.Hour)); err != nil {
		fmt.Println(err)
	}
	o, err := q.Wait(ctx, shunt.ByID("square", "job-1"))
	fmt.Println(o.Kind, string(o.Result), err)
	// Output: acked 144 <nil>
}

// EnqueueAndWait gives a message an ID, and returns its outcome.
func ExampleQueue_EnqueueAndWait() {
	q, _, end := open()
	defer end()
	ctx := context.Background()
	square := shunt.Define("square", func(ctx context.Context, n int) error {
		return shunt.SetResult(ctx, fmt.Appendf(nil, "%d", n*n))
	})
	if _, err := q.Receive(ctx, square, 1); err != nil {
		fmt.Println(err)
	}

	o, err := q.EnqueueAndWait(ctx, square.Message(12))
	fmt.Println(o.Kind, string(o.Result), err)
	// Output: acked 144 <nil>
}

// What waits is taken back; what runs is told, in whichever process it is.
func ExampleQueue_Cancel() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()
	started := make(chan struct{})
	export := shunt.Define("export", func(ctx context.Context, table string) error {
		close(started)
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	})
	if err := q.Enqueue(ctx, export.Message("orders"), shunt.ID("orders"), shunt.In(time.Hour)); err != nil {
		fmt.Println(err)
	}
	before, err := q.Cancel(ctx, shunt.ByID("export", "orders"))
	fmt.Println(before.State, err)

	if _, err := q.Receive(ctx, export, 1); err != nil {
		fmt.Println(err)
	}
	if err := q.Enqueue(ctx, export.Message("orders"), shunt.ID("orders")); err != nil {
		fmt.Println(err)
	}
	<-started
	before, err = q.Cancel(ctx, shunt.ByID("export", "orders"))
	wait(shunt.EventCancelled, 1)
	fmt.Println(before.State, err)
	// Output:
	// delay <nil>
	// shunt: the message was cancelled
	// doing <nil>
}

// The steps of a chain: each is enqueued when the one before it is acked, and not otherwise.
func ExampleThen() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()
	ship := shunt.Define("ship", func(ctx context.Context, order int) error {
		fmt.Println("ships order", order)
		return nil
	})
	pack := shunt.Define("pack", func(ctx context.Context, order int) error {
		fmt.Println("packs order", order)
		return shunt.Then(ctx, ship.Message(order))
	})
	pay := shunt.Define("pay", func(ctx context.Context, order int) error {
		fmt.Println("takes the money for order", order)
		return shunt.Then(ctx, pack.Message(order))
	})
	for _, step := range []shunt.IMessage{pay, pack, ship} {
		if _, err := q.Receive(ctx, step, 1); err != nil {
			fmt.Println(err)
		}
	}
	if err := q.Enqueue(ctx, pay.Message(7)); err != nil {
		fmt.Println(err)
	}
	wait(shunt.EventAcked, 3)
	// Output:
	// takes the money for order 7
	// packs order 7
	// ships order 7
}

// A code that nobody may get late: what was not taken in time is dropped.
func ExampleExpire() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()
	code := shunt.Define("code", func(ctx context.Context, to string) error {
		fmt.Println("sends a code to", to)
		return nil
	})
	if err := q.Enqueue(ctx, code.Message("ann"), shunt.Expire(time.Millisecond)); err != nil {
		fmt.Println(err)
	}
	time.Sleep(5 * time.Millisecond) // no receiver is there yet
	if err := q.Enqueue(ctx, code.Message("ben"), shunt.Expire(time.Minute)); err != nil {
		fmt.Println(err)
	}
	if _, err := q.Receive(ctx, code, 1); err != nil {
		fmt.Println(err)
	}
	wait(shunt.EventExpired, 1)
	wait(shunt.EventAcked, 1)
	// Output: sends a code to ben
}
