package msgpack_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/codec/msgpack"
	"github.com/shuntmq/shunt/shunttest"
)

// Order is a message's payload.
type Order struct {
	Number int `json:"number"`
}

// A Queue with this Codec writes and reads the payloads of Define as MessagePack.
func Example() {
	pool, end := serve()
	defer end()
	q := &shunt.Queue{Pool: pool, Codec: msgpack.Codec}
	defer q.Close()
	handled := make(chan struct{})
	order := shunt.Define("order", func(_ context.Context, o Order) error {
		defer close(handled)
		fmt.Println("handled order", o.Number)
		return nil
	})
	_ = q.Enqueue(context.Background(), order.Message(Order{Number: 7}))
	_, _ = q.Receive(context.Background(), order, 8)
	<-handled
	// Output: handled order 7
}

// A test of a program needs no Redis.
func TestProgram(t *testing.T) {
	q := shunttest.New(t, func(q *shunt.Queue) { q.Codec = msgpack.Codec })
	order := shunt.Define("order", func(context.Context, Order) error { return nil })
	if err := q.Enqueue(t.Context(), order.Message(Order{7})); err != nil {
		t.Fatal(err)
	}
	q.AssertEnqueued(order.Message(Order{7}))
}
