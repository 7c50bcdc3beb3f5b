package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Stats counts the messages of a channel in every state.
func ExampleQueue_Stats() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	check(q.EnqueueAll(ctx, []shunt.IMessage{&Order{ID: 1}, &Order{ID: 2}}))
	check(q.Enqueue(ctx, &Order{ID: 3}, shunt.In(time.Hour)))
	stats, err := q.Stats(ctx, "orders")
	check(err)
	for _, state := range shunt.States {
		fmt.Println(state, stats[state].Count)
	}
	// Output:
	// prepare 2
	// doing 0
	// leased 0
	// delay 1
	// suspect 0
	// dead 0
	// done 0
}

// healthy says what is wrong with a channel, for a page that a monitor asks for.
func healthy(ctx context.Context, q *shunt.Queue, channel string) error {
	stats, err := q.Stats(ctx, channel)
	if err != nil {
		return err
	}
	var errs []error
	if age := stats[shunt.StatePrepare].OldestAge; age > time.Minute {
		errs = append(errs, fmt.Errorf("the next message waits for %v", age))
	}
	if late := -stats[shunt.StateDelay].NextDueIn; late > time.Minute {
		errs = append(errs, fmt.Errorf("a message is overdue by %v", late))
	}
	if n := stats[shunt.StateSuspect].Count; n > 0 {
		errs = append(errs, fmt.Errorf("%d messages may have killed their processes", n))
	}
	if n := stats[shunt.StateDead].Count; n > 0 {
		errs = append(errs, fmt.Errorf("%d messages are dead", n))
	}
	return errors.Join(errs...)
}

// Stats tells a monitor whether messages wait too long or are dead.
func ExampleStats() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	fmt.Println(healthy(ctx, q, "mail"))
	giveUp(q, wait) // mails to ann, ben and cleo
	fmt.Println(healthy(ctx, q, "mail"))
	// Output:
	// <nil>
	// 3 messages are dead
}

// Channels lists all channels that were enqueued to or received from.
func ExampleQueue_Channels() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	check(q.Enqueue(ctx, shunt.Raw("mail", nil)))
	check(q.Enqueue(ctx, &Order{}))
	fmt.Println(q.Channels(ctx))
	// Output: [mail orders] <nil>
}

// An Entry of StateDoing says who handles a message, and one of StateDone how it ended.
func ExampleEntry() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	began, finish := make(chan bool), make(chan bool)
	export := shunt.Define("export", func(ctx context.Context, table string) error {
		began <- true
		<-finish
		return shunt.SetResult(ctx, []byte(table+".csv"))
	})
	_, err := q.Receive(ctx, export, 1)
	check(err)
	check(q.Enqueue(ctx, export.Message("orders"), shunt.ID("orders"), shunt.Retain(time.Hour)))
	<-began
	receivers, err := q.Receivers(ctx, "export")
	check(err)
	running, err := q.List(ctx, "export", shunt.StateDoing, 0, 0)
	check(err)
	for _, e := range running {
		fmt.Printf("%s %s is in worker %d of a living receiver: %t\n", e.Channel, e.Payload, e.Worker,
			e.Receiver == receivers[0].Name && receivers[0].Alive)
	}

	close(finish)
	wait(shunt.EventAcked, 1)
	over, err := q.List(ctx, "export", shunt.StateDone, 0, 0)
	check(err)
	for _, e := range over {
		fmt.Printf("%s %s is %s, known for %v: %s\n", e.Channel, e.ID, e.Outcome.Kind,
			e.Outcome.KeptUntil.Sub(e.EndedAt).Round(time.Minute), e.Outcome.Result)
	}
	// Output:
	// export "orders" is in worker 0 of a living receiver: true
	// export orders is acked, known for 1h0m0s: orders.csv
}
