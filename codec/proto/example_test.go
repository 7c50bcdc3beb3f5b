package proto_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/codec/proto"
)

// A Queue with this Codec writes and reads generated messages in their binary form.
func Example() {
	pool, end := serve()
	defer end()
	q := &shunt.Queue{Pool: pool, Codec: proto.Codec}
	defer q.Close()
	handled := make(chan struct{})
	order := shunt.Define("order", func(_ context.Context, o *wrapperspb.Int64Value) error {
		defer close(handled)
		fmt.Println("handled order", o.Value)
		return nil
	})
	_ = q.Enqueue(context.Background(), order.Message(wrapperspb.Int64(7)))
	_, _ = q.Receive(context.Background(), order, 8)
	<-handled
	// Output: handled order 7
}

// serve starts the Redis of the Example.
func serve() (*redis.Pool, func()) {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	pool, err := shunt.NewPool("redis://" + m.Addr())
	if err != nil {
		panic(err)
	}
	return pool, func() { pool.Close(); m.Close() }
}
