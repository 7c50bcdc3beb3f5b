package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/shuntmq/shunt"
)

// Events gets all that happens, here to call somebody when a message is given up or Redis is away.
func ExampleQueue_events() {
	q, _, end := open()
	defer end()
	pages := make(chan string, 16)
	q.Events = func(e shunt.Event) { // on a goroutine of its own, one at a time
		switch e.Kind {
		case shunt.EventRejected, shunt.EventUndecodable:
			pages <- fmt.Sprintf("%s: gave up after attempt %d: %v", e.Channel, e.Attempt, e.Err)
		case shunt.EventPoisoned:
			pages <- fmt.Sprintf("%s: %d messages have killed their processes", e.Channel, e.N)
		case shunt.EventDisconnected:
			pages <- fmt.Sprintf("Redis is away: %v", e.Err)
		case shunt.EventReceiverError:
			if e.Fatal {
				pages <- fmt.Sprintf("%s: waiting will not help: %v", e.Channel, e.Err)
			}
		}
	}
	ctx := context.Background()

	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		return shunt.Reject(errors.New("mailbox unknown"))
	})
	check(q.Enqueue(ctx, mail.Message("ann@example.org")))
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	fmt.Println(<-pages)
	// Output: mail: gave up after attempt 1: mailbox unknown
}

// An EventKind is a good label of a counter, for metrics.
func ExampleEventKind() {
	q, wait, end := open()
	defer end()
	metrics, events := make(map[shunt.EventKind]int), q.Events
	q.Events = func(e shunt.Event) {
		metrics[e.Kind] += max(1, e.N)
		events(e)
	}
	ctx := context.Background()

	mail := shunt.Define("mail", func(ctx context.Context, to string) error {
		if info, _ := shunt.FromContext(ctx); info.Attempt == 1 {
			return shunt.RetryAfter(0, errors.New("too many requests"))
		}
		return nil
	})
	check(q.EnqueueAll(ctx, []shunt.IMessage{mail.Message("ann"), mail.Message("ben")}))
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	wait(shunt.EventAcked, 2)
	check(q.Close()) // which waits for Events, too
	for _, kind := range []shunt.EventKind{shunt.EventEnqueued, shunt.EventRetried, shunt.EventAcked} {
		fmt.Println(kind, metrics[kind])
	}
	// Output:
	// enqueued 2
	// retried 2
	// acked 2
}

// LogEvents writes Events to a log, here those that are warnings and errors.
func ExampleLogEvents() {
	q, wait, end := open()
	defer end()
	log, events := shunt.LogEvents(plainLog(slog.LevelWarn)), q.Events
	q.Events = func(e shunt.Event) {
		log(e)
		events(e)
	}
	ctx := context.Background()

	mail := shunt.Define("mail", func(_ context.Context, to string) error {
		return shunt.Reject(errors.New("mailbox unknown"))
	})
	check(q.Enqueue(ctx, mail.Message("ann@example.org")))
	_, err := q.Receive(ctx, mail, 1)
	check(err)
	wait(shunt.EventRejected, 1)
	// Output: level=ERROR msg="shunt: rejected" channel=mail attempt=1 worker=0 error="mailbox unknown"
}

// MarshalJSON makes an Event one line for whoever gathers logs.
func ExampleEvent_MarshalJSON() {
	e := shunt.Event{Kind: shunt.EventRetried, Channel: "mail", ID: "7", Err: errors.New("busy")}
	line, err := e.MarshalJSON()
	fmt.Println(string(line), err)
	// Output: {"kind":"retried","time":"0001-01-01T00:00:00Z","channel":"mail","id":"7","error":"busy"} <nil>
}
