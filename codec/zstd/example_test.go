package zstd_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/codec"
	"github.com/shuntmq/shunt/codec/zstd"
)

// The layer compresses payloads of more than 1 KB, or of more than Above.
func Example() {
	pool, end := serve()
	defer end()
	chain := &codec.Chain{Layers: []codec.Layer{&zstd.Layer{}}}
	payloads, err := chain.Payloads()
	check(err)
	q := &shunt.Queue{Pool: pool, Payloads: payloads}
	defer q.Close()
	check(q.Enqueue(context.Background(), shunt.Raw("post", []byte(strings.Repeat("text ", 1000)))))
	there, err := q.List(context.Background(), "post", shunt.StatePrepare, 0, 0)
	check(err)
	fmt.Println(there[0].Headers[shunt.EncodingHeader], len(there[0].Payload) < 50)
	// Output: zstd true
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// serve starts the Redis of the Example.
func serve() (*redis.Pool, func()) {
	m, err := miniredis.Run()
	check(err)
	pool, err := shunt.NewPool("redis://" + m.Addr())
	check(err)
	return pool, func() { pool.Close(); m.Close() }
}
