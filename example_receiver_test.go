package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
)

// Receive takes nothing more once its context has ended, and what has begun may end.
func ExampleQueue_Receive() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	began, finish := make(chan bool), make(chan bool)
	export := shunt.Define("export", func(context.Context, string) error {
		close(began)
		<-finish
		fmt.Println("handled to its end")
		return nil
	})
	taking, stop := context.WithCancel(ctx) // or signal.NotifyContext
	shutdown, err := q.Receive(taking, export, 8)
	check(err)
	check(q.Enqueue(ctx, export.Message("orders")))
	<-began
	stop()
	close(finish)

	limit, cancel := context.WithTimeout(ctx, time.Minute) // then handlers' contexts end
	defer cancel()
	fmt.Println(shutdown(limit))
	// Output:
	// handled to its end
	// <nil>
}

// ReceiveOrdered starts no order while there is one of a channel named before its own.
func ExampleQueue_ReceiveOrdered() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	show := func(_ context.Context, what string) error { fmt.Println(what); return nil }
	vip, bulk := shunt.Define("vip", show), shunt.Define("bulk", show)
	check(q.EnqueueAll(ctx, []shunt.IMessage{bulk.Message("gravel"), bulk.Message("sand"), vip.Message("pearls")}))
	_, err := q.ReceiveOrdered(ctx, 1, vip, bulk)
	check(err)
	wait(shunt.EventAcked, 3)
	// Output:
	// pearls
	// gravel
	// sand
}

// ReceiveWeighted gives the paying two of three starts while both channels have messages.
func ExampleQueue_ReceiveWeighted() {
	q, wait, end := open()
	defer end()
	ctx := context.Background()

	show := func(_ context.Context, what string) error { fmt.Println(what); return nil }
	paying, free := shunt.Define("paying", show), shunt.Define("free", show)
	for range 4 {
		check(q.EnqueueAll(ctx, []shunt.IMessage{paying.Message("paying"), free.Message("free")}))
	}
	_, err := q.ReceiveWeighted(
		ctx,
		1,
		shunt.Share{Prototype: paying, Weight: 2},
		shunt.Share{Prototype: free, Weight: 1},
	)
	check(err)
	wait(shunt.EventAcked, 8)
	// Output:
	// paying
	// free
	// paying
	// paying
	// free
	// paying
	// free
	// free
}

// Shutdown ends all receivers by one deadline, and hands back what has not ended by then.
func ExampleQueue_Shutdown() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	began := make(chan bool)
	export := shunt.Define("export", func(ctx context.Context, table string) error {
		close(began)
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	})
	for _, prototype := range []shunt.IMessage{export, &Order{}} {
		_, err := q.Receive(ctx, prototype, 8)
		check(err)
	}
	check(q.Enqueue(ctx, export.Message("orders")))
	<-began

	limit, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	var cut *shunt.ShutdownError
	switch err := q.Shutdown(limit); {
	case err == nil:
		fmt.Println("all have ended")
	case errors.As(err, &cut):
		fmt.Println("handed back:", cut.Returned, "still running:", cut.Running)
	}
	// Output:
	// shunt: the receiver is shutting down
	// handed back: 1 still running: 0
}

// A Shutdown cannot wait for the handler that calls it, so it is called beside it.
func ExampleShutdown() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	var shutdown shunt.Shutdown
	ready, stopped := make(chan bool), make(chan error)
	command := shunt.Define("commands", func(ctx context.Context, what string) error {
		<-ready
		fmt.Println(what, errors.Is(shutdown(ctx), shunt.ErrInHandler))
		go func() { stopped <- shutdown(context.Background()) }()
		return nil
	})
	shutdown, err := q.Receive(ctx, command, 1)
	check(err)
	close(ready)
	check(q.Enqueue(ctx, command.Message("stop")))
	fmt.Println(<-stopped)
	// Output:
	// stop true
	// <nil>
}

// busy says what workers have been at for a while.
func busy(workers []shunt.BusyWorker) {
	for _, w := range workers {
		fmt.Println("worker", w.Worker, "has handled", w.Serial, w.ID, "for", time.Since(w.Since))
	}
}

// Receivers lists the processes that receive from a channel, the living and the dead.
func ExampleQueue_Receivers() {
	q, _, end := open()
	defer end()
	ctx := context.Background()

	_, err := q.Receive(ctx, &Order{}, 8)
	check(err)
	receivers, err := q.Receivers(ctx, "orders")
	check(err)
	for _, r := range receivers {
		fmt.Println("alive:", r.Alive, "workers:", r.Workers, "lease:", r.Lease, "holding:", r.Holding)
		busy(r.Busy)
	}
	// Output: alive: true workers: 8 lease: 10s holding: 0
}
