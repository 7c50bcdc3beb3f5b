// Hello is the README's program, on a Redis of its own: one message type, two messages, one failure.
//
//	go run ./example/hello
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/example/internal/server"
)

type Welcome struct{ To string } // the payload of a message, as JSON

func main() {
	redis, err := server.Open(os.Getenv("REDIS_URL")) // without a URL a small Redis inside this process
	check(err)
	defer redis.Close()
	q := &shunt.Queue{ // the client, one in each process; its fields are the configuration
		Pool: redis.Pool,
		// By default the first retry comes after 16 s or more, and the last of 25 attempts after three weeks.
		Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * time.Second },
	}

	welcome := shunt.Define("welcome", func(ctx context.Context, w Welcome) error {
		if info, _ := shunt.FromContext(ctx); info.Attempt == 1 && w.To == "Ann" {
			return errors.New("the mail server is busy") // an error: the message is tried again
		}
		fmt.Println("welcome,", w.To)
		return nil // done
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	check(q.Enqueue(ctx, welcome.Message(Welcome{To: "Ann"})))
	check(q.Enqueue(ctx, welcome.Message(Welcome{To: "Ben"}), shunt.In(2*time.Second)))

	_, err = q.Receive(ctx, welcome, 8) // 8 workers, until Ctrl-C
	check(err)
	<-ctx.Done()
	stop() // a second Ctrl-C ends the program at once
	patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	check(errors.Join(q.Shutdown(patience), q.Close())) // handlers have 20 s to end
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
