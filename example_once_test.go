package shunt_test

import (
	"context"
	"fmt"

	"github.com/shuntmq/shunt"
)

// A request that is sent again, after a lost answer or a crash, enqueues nothing anew.
func ExampleQueue_EnqueueOnce() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	charge := shunt.Define("charge", func(ctx context.Context, order int) error {
		fmt.Println("charges order", order)
		return nil
	})
	request := func() shunt.OnceResult {
		once := shunt.Once{Channel: "charge", Key: "request-51", Note: "order 7"}
		done, err := q.EnqueueOnce(ctx, once, charge.Message(7))
		check(err)
		return done
	}
	first := request()
	_, err := q.Receive(ctx, charge, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	second := request()
	fmt.Println("before:", first.Before, second.Before)
	fmt.Println("the same message:", first.Refs[0].Serial == second.Refs[0].Serial, "for", second.Note)
	// Output:
	// charges order 7
	// before: false true
	// the same message: true for order 7
}
