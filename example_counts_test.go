package shunt_test

import (
	"context"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Counts says what has happened in a channel, and how long it took. Any process may ask, at any time later.
func ExampleQueue_Counts() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	mail := shunt.Define("mail", func(context.Context, string) error { return nil })
	_, err := q.Receive(ctx, mail, 2)
	check(err)
	check(q.EnqueueAll(ctx, []shunt.IMessage{mail.Message("ann"), mail.Message("bob"), mail.Message("eve")}))
	wait(shunt.EventAcked, 3)
	check(q.Close()) // adds what the process has counted; else that is added once in 10 s

	monitor := &shunt.Queue{Pool: q.Pool}
	all, err := monitor.Counts(ctx, shunt.CountsOptions{Channels: []string{"mail"}, From: time.Now().Add(-time.Hour)})
	check(err)
	hour := all[0][0]
	fmt.Println(hour.Enqueued, "enqueued,", hour.Acked, "acked,", hour.Waiting, "wait")
	fmt.Println("half of them waited for less than a second:", hour.Wait.Quantile(0.5) < time.Second)
	check(monitor.Close())
	// Output:
	// 3 enqueued, 3 acked, 0 wait
	// half of them waited for less than a second: true
}
