package recur_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

func Example() {
	ctx := context.Background()
	server, err := miniredis.Run() // a Redis inside this process
	check(err)
	defer server.Close()
	pool, err := shunt.NewPool("redis://" + server.Addr())
	check(err)
	defer pool.Close()
	q := &shunt.Queue{Pool: pool}

	handled := make(chan string)
	poll := shunt.Define("polls", func(ctx context.Context, source string) error {
		tick, ok := recur.Tick(ctx)
		handled <- fmt.Sprint("poll ", source, " at a whole tenth of a second: ", ok && tick.Nanosecond()%1e8 == 0)
		return nil
	})
	_, err = q.Receive(ctx, poll, 1)
	check(err)

	t := &recur.Timetable{Queue: q}
	check(t.Add(ctx, "feed", recur.Every(100*time.Millisecond), poll.Message("the feed")))
	check(t.Add(ctx, "archive", recur.Cron("30 2 * * sun", "Europe/Berlin"), poll.Message("the archive"),
		recur.Missed(recur.Skip)))
	shutdown, err := t.Run(ctx, "polls") // in as many processes as there are
	check(err)
	fmt.Println(<-handled)
	check(t.Remove(ctx, "polls", "feed"))

	entries, err := t.List(ctx, "polls")
	check(err)
	for _, e := range entries {
		fmt.Println(e.Name, "recurs at", e.Spec)
	}
	check(shutdown(ctx))
	go func() {
		for range handled { // what came before Remove
		}
	}()
	check(q.Close())
	close(handled)
	// Output:
	// poll the feed at a whole tenth of a second: true
	// archive recurs at 30 2 * * sun Europe/Berlin
}

func ExampleNext() {
	from := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	ticks, err := recur.Next(recur.Cron("30 2 * * *", "Europe/Berlin"), from, 3)
	check(err)
	for _, t := range ticks {
		fmt.Println(t) // 02:30 does not come on the 29th: clocks go from 02:00 to 03:00
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-30 02:30:00 +0200 CEST
	// 2026-03-31 02:30:00 +0200 CEST
}

func ExampleCron_errors() {
	fmt.Println(recur.Cron("0 61 * * *", "").Err())
	fmt.Println(recur.Cron("0 0 * * mon,61", "").Err())
	// Output:
	// recur: cron "0 61 * * *": column 3 (hour): end of range (61) above maximum (23): 61
	// recur: cron "0 0 * * mon,61": column 13 (weekday): end of range (61) above maximum (6): 61
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
