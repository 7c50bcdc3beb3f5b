// Hello is the first program to read: one message type, one message, one receiver.
//
//	go run ./example/hello
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/example/internal/server"
)

func main() {
	redis, err := server.Open(os.Getenv("REDIS_URL")) // without a URL a small Redis inside this process
	check(err)
	defer redis.Close()
	q := &shunt.Queue{Pool: redis.Pool}

	handled := make(chan string)
	hello := shunt.Define("hello", func(ctx context.Context, name string) error {
		handled <- name
		return nil // the message is done; an error would try it again later
	})
	check(q.Enqueue(context.Background(), hello.Message("Ann")))

	_, err = q.Receive(context.Background(), hello, 4) // 4 workers
	check(err)
	fmt.Println("Hello,", <-handled)
	check(q.Close()) // waits for handlers
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
