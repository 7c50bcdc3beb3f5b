package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Reject sends a message to dead at once, because trying again would not help.
func ExampleReject() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		return shunt.Reject(fmt.Errorf("%q is no address", to))
	})
	check(q.Enqueue(ctx, mail.Message("ann")))
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	wait(shunt.EventRejected, 1)
	dead, err := q.List(ctx, "mail", shunt.StateDead, 0, 0)
	check(err)
	for _, e := range dead {
		fmt.Printf("%s after %d attempt: %s\n", e.Payload, e.Attempts, e.Failure)
	}
	// Output: "ann" after 1 attempt: "ann" is no address
}

// RetryAfter says when to try again, as a server did that had too many requests.
func ExampleRetryAfter() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(ctx context.Context, to string) error {
		info, _ := shunt.FromContext(ctx)
		fmt.Printf("attempt %d, failed so far with %q\n", info.Attempt, info.Failure)
		if info.Attempt == 1 {
			return shunt.RetryAfter(10*time.Millisecond, errors.New("too many requests"))
		}
		return nil
	})
	check(q.Enqueue(ctx, mail.Message("ann@example.org")))
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output:
	// attempt 1, failed so far with ""
	// attempt 2, failed so far with "too many requests"
}

// Snooze looks at a message again later, and counts no attempt, for nothing has failed.
func ExampleSnooze() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	looks := 0
	report := shunt.Define("report", func(ctx context.Context, month string) error {
		looks++
		info, _ := shunt.FromContext(ctx)
		fmt.Printf("look %d, attempt %d\n", looks, info.Attempt)
		if looks == 1 { // the figures are not there yet
			return shunt.Snooze(100 * time.Millisecond)
		}
		return nil
	})
	check(q.Enqueue(ctx, report.Message("2026-11")))
	_, err := q.Receive(ctx, report, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output:
	// look 1, attempt 1
	// look 2, attempt 1
}

// Then enqueues the next step of a chain when this one is acked, and not otherwise.
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
		_, err := q.Receive(ctx, step, 1)
		check(err)
	}
	check(q.Enqueue(ctx, pay.Message(7)))
	wait(shunt.EventAcked, 3)
	// Output:
	// takes the money for order 7
	// packs order 7
	// ships order 7
}

// FromContext tells a handler whether its message may have been handled before.
func ExampleFromContext() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	charge := shunt.Define("charge", func(ctx context.Context, order int) error {
		if info, _ := shunt.FromContext(ctx); info.Attempt > 1 || info.Recoveries > 0 {
			fmt.Println("asks the bank whether order", order, "is paid")
			return nil
		}
		fmt.Println("charges order", order)
		return shunt.RetryAfter(0, errors.New("the bank does not answer"))
	})
	check(q.Enqueue(ctx, charge.Message(7)))
	_, err := q.Receive(ctx, charge, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output:
	// charges order 7
	// asks the bank whether order 7 is paid
}

// convert is a handler that cleans up as the cause of its ended context demands.
func convert(ctx context.Context, video string) error {
	<-ctx.Done() // a long time
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, shunt.ErrCancelled), errors.Is(cause, shunt.ErrDeadline):
		fmt.Println("deletes what it has of", video, "because nobody wants it any more")
	case errors.Is(cause, shunt.ErrShutdown), errors.Is(cause, shunt.ErrTimeout):
		fmt.Println("saves what it has of", video, "for the next attempt")
	case errors.Is(cause, shunt.ErrLeaseLost):
		fmt.Println("touches nothing of", video, "because another worker may have it by now")
	}
	return cause
}

// The cause of a handler's ended context says why it ended.
func Example_cause() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	video := shunt.Define("convert", convert)
	_, err := q.Receive(ctx, video, 1)
	check(err)
	check(q.Enqueue(ctx, video.Message("holiday.mp4"), shunt.Timeout(10*time.Millisecond)))
	wait(shunt.EventRetried, 1)
	// Output: saves what it has of holiday.mp4 for the next attempt
}
