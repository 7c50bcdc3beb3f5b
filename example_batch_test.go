package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// ReceiveBatch gathers rows for one INSERT, with a verdict for each, so that one bad row holds up no other.
func ExampleQueue_ReceiveBatch() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	check(q.EnqueueAll(ctx, []shunt.IMessage{&Order{ID: 1}, &Order{ID: -2}, &Order{ID: 3}}))
	shutdown, err := q.ReceiveBatch(ctx, &Order{}, 1, shunt.Batch{
		MaxSize: 3,                // in one call
		MaxWait: 10 * time.Second, // or fewer, after that time
		Handle: func(ctx context.Context, ms []shunt.IMessage) []error {
			verdicts := make([]error, len(ms))
			var rows []int
			for i, m := range ms {
				if id := m.(*Order).ID; id > 0 {
					rows = append(rows, id)
				} else {
					verdicts[i] = shunt.Reject(errors.New("no such order"))
				}
			}
			fmt.Println("one INSERT of", len(rows), "rows")
			return verdicts
		},
	})
	check(err)
	wait(shunt.EventAcked, 2)
	wait(shunt.EventRejected, 1)
	fmt.Println(shutdown(ctx))
	// Output:
	// one INSERT of 2 rows
	// <nil>
}

// MemberContext tells in a batch what FromContext tells of one message, and Value what a message of Define carries.
func ExampleMemberContext() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	push := shunt.Define[string]("push", nil) // batches need no func
	check(q.EnqueueAll(ctx, []shunt.IMessage{
		shunt.With(push.Message("Your parcel has left"), shunt.Header("device", "ann's phone")),
		shunt.With(push.Message("Your parcel is there"), shunt.Header("device", "ben's watch")),
	}))
	_, err := q.ReceiveBatch(ctx, push, 1, shunt.Batch{
		MaxSize: 2,
		MaxWait: 10 * time.Second,
		Handle: func(ctx context.Context, ms []shunt.IMessage) []error {
			devices := make(map[string]string)
			for i, m := range ms {
				info, _ := shunt.FromContext(shunt.MemberContext(ctx, i))
				devices[info.Headers["device"]] = m.(*shunt.Kind[string]).Value()
			}
			fmt.Println("one request:", devices)
			return nil
		},
	})
	check(err)
	wait(shunt.EventAcked, 2)
	// Output: one request: map[ann's phone:Your parcel has left ben's watch:Your parcel is there]
}
