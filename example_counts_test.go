package shunt_test

import (
	"context"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Counts says what has happened in a channel, and how long it took.
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

	monitor := &shunt.Queue{Pool: q.Pool, NoCounts: true} // any process may ask
	all, err := monitor.Counts(ctx, shunt.CountsOptions{Channels: []string{"mail"}, From: time.Now().Add(-time.Hour)})
	check(err)
	hour := all[0][0]
	fmt.Println(hour.Enqueued, "enqueued,", hour.Acked, "acked,", hour.Waiting, "wait")
	fmt.Println(hour.Wait.Count(), "waited, half of them for less than 1 s:", hour.Wait.Quantile(0.5) < time.Second)
	hour.Handling.Each(func(below time.Duration, n int64) {
		if below > time.Second {
			fmt.Println(n, "took", below/2, "or longer")
		}
	})
	_, err = hour.EndToEnd.MarshalJSON() // the count and three percentiles
	check(err)
	check(monitor.Close())
	// Output:
	// 3 enqueued, 3 acked, 0 wait
	// 3 waited, half of them for less than 1 s: true
}
