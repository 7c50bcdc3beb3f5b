package codec_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/codec"
)

// A chain encrypts all payloads, and keeps large ones in a directory until their messages are over.
func Example() {
	pool, dir, secret, end := serve()
	defer end()
	chain := &codec.Chain{Layers: []codec.Layer{
		&codec.AES{Keys: []codec.Key{{ID: "2026", Secret: secret}}},
		&codec.Claim{Store: &codec.Dir{Path: dir}, Above: 256 << 10},
	}}
	payloads, err := chain.Payloads()
	check(err)
	q := &shunt.Queue{Pool: pool, Payloads: payloads}
	defer q.Close()

	handled := make(chan struct{})
	letter := shunt.Define("letter", func(_ context.Context, text string) error {
		defer close(handled)
		fmt.Println("handled", len(text), "bytes")
		return nil
	})
	check(q.Enqueue(context.Background(), letter.Message(strings.Repeat("text ", 100_000))))
	there, err := q.List(context.Background(), "letter", shunt.StatePrepare, 0, 0)
	check(err)
	encoding, _, _ := strings.Cut(there[0].Headers[shunt.EncodingHeader], "=")
	fmt.Println(encoding, len(there[0].Payload), "bytes in Redis")
	_, err = q.Receive(context.Background(), letter, 8)
	check(err)
	<-handled
	// Output:
	// aes 0 bytes in Redis
	// handled 500000 bytes
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// serve starts the Redis of the Example, and makes a directory and a secret.
func serve() (pool *redis.Pool, dir string, secret []byte, end func()) {
	m, err := miniredis.Run()
	check(err)
	pool, err = shunt.NewPool("redis://" + m.Addr())
	check(err)
	dir, err = os.MkdirTemp("", "codec")
	check(err)
	secret = make([]byte, 32)
	_, _ = rand.Read(secret)
	return pool, dir, secret, func() { pool.Close(); m.Close(); check(os.RemoveAll(dir)) }
}
