package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// EnqueueAndWait is a request and its reply, which the handler gives by SetResult.
func ExampleQueue_EnqueueAndWait() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	price := shunt.Define("price", func(ctx context.Context, km int) error {
		return shunt.SetResult(ctx, fmt.Appendf(nil, "%d.00", 3+2*km))
	})
	_, err := q.Receive(ctx, price, 1)
	check(err)

	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := q.EnqueueAndWait(limit, price.Message(12))
	fmt.Println(out.Kind, string(out.Result), err)
	// Output: acked 27.00 <nil>
}

// Wait returns how a message ended, also to another process, for as long as Retain keeps that.
func ExampleQueue_Wait() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	report := shunt.Define("report", func(ctx context.Context, month string) error {
		return shunt.SetResult(ctx, []byte("reports/"+month+".pdf"))
	})
	_, err := q.Receive(ctx, report, 1)
	check(err)
	check(q.Enqueue(ctx, report.Message("2026-11"), shunt.ID("2026-11"), shunt.Retain(time.Hour)))

	out, err := q.Wait(ctx, shunt.ByID("report", "2026-11"))
	switch {
	case errors.Is(err, shunt.ErrNotFound), errors.Is(err, shunt.ErrNotKept):
		fmt.Println("it is over, and nobody knows how")
	case errors.Is(err, shunt.ErrLost):
		fmt.Println("Redis has lost it: enqueue it again")
	case err != nil:
		fmt.Println(err)
	case out.Kind == shunt.EventAcked:
		kept := out.KeptUntil.Sub(out.EndedAt).Round(time.Minute)
		fmt.Printf("attempt %d wrote %s, which is known for %v\n", out.Attempt, out.Result, kept)
	default:
		fmt.Println(out.Kind, out.Failure)
	}
	// Output: attempt 1 wrote reports/2026-11.pdf, which is known for 1h0m0s
}
