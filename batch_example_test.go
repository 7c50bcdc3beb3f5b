package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Rows for one INSERT: a verdict for each, so that one bad row holds up no other.
func ExampleQueue_ReceiveBatch() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	if err := q.EnqueueAll(ctx, []shunt.IMessage{&Order{ID: 1}, &Order{ID: -2}, &Order{ID: 3}}); err != nil {
		panic(err)
	}
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
	if err != nil {
		panic(err)
	}
	wait(shunt.EventAcked, 2)
	wait(shunt.EventRejected, 1)
	fmt.Println(shutdown(ctx))
	// Output:
	// one INSERT of 2 rows
	// <nil>
}
