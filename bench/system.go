package main

import (
	"context"
	"time"
)

// system is a toolkit under measurement, in one configuration.
type system struct {
	name, about string
	kind        queue // a zero one: which measures it can take shows by its methods
	open        func(task) (queue, error)
	poll        time.Duration               // the longest that it sleeps when there is nothing to do
	slow        bool                        // -quick gives it fewer messages
	grows       bool                        // it is measured along the axes of growth
	tls         bool                        // it can be opened over TLS
	recovers    bool                        // it has what brings back what a killed process held
	missing     func(context.Context) error // why it cannot be measured here; nil: it always can
}

// reference is the system that the ratios are to.
const reference = "limit"

var systems = []system{
	{name: "shunt", about: "as it comes, its Events on a counter",
		kind: shuntQueue{}, open: openShunt(0), grows: true, tls: true, recovers: true},
	{name: "shunt-1", about: "the same with Prefetch 1: a worker holds one message",
		kind: plain{}, open: openShunt(1)},
	{name: "shunt-pull", about: "16 goroutines that pull and ack in batches of 32, under leases",
		kind: plain{}, open: openPull},
	{name: "asynq", about: "as it comes, Concurrency as -workers",
		kind: asynqQueue{}, open: openAsynq(0, 0), poll: 1500 * time.Millisecond, slow: true, recovers: true},
	{
		name: "asynq-fast",
		about: "the same with the smallest TaskCheckInterval, 1 ns, DelayedTaskCheckInterval 10 ms, a connection a " +
			"worker",
		kind: asynqQueue{},
		open: openAsynq(time.Nanosecond, 10*time.Millisecond),
		slow: true,
	},
	{name: "loop", about: "RPOPLPUSH, then LREM by each worker for itself; when there is nothing it sleeps 100 ms",
		kind: loopQueue{}, open: openLoop, poll: loopSleep},
	{name: "bullmq", about: "a Worker in Node with -workers as concurrency, removeOnComplete, add from as many callers",
		kind: bullmqQueue{}, open: openBullmq, slow: true, missing: installBullmq},
	{name: reference, about: "the same two commands raw, on one connection, at the best pipeline depth of 1 to 1,024",
		kind: limitQueue{}, open: openLimit, grows: true},
}

// queue is what every system can do. Messages are payloads that begin with their number.
type queue interface {
	// receive starts workers that call handle with each message's payload; stop ends them cleanly.
	receive(ctx context.Context, workers int, handle func([]byte)) (stop func() error, err error)
	// left counts the messages in Redis, whatever their state.
	left(ctx context.Context) (int, error)
	close() error
}

// What some can do besides.
type (
	client interface {
		queue
		// sender gives one goroutine what it enqueues single messages with.
		sender() func(ctx context.Context, payload []byte) error
	}
	batcher interface {
		// batchSender is sender for many messages a call.
		batchSender() func(ctx context.Context, payloads [][]byte) error
	}
	channeler interface {
		channel(name string) queue // another one on the same connections
	}
)

// What some do in their own way; the harness does it for the others.
type (
	filler interface {
		fill(ctx context.Context, t task) error
	}
	enqueuer interface {
		enqueue(ctx context.Context, t task) (work, error)
	}
	drainer interface {
		drain(ctx context.Context, t task) (work, error)
	}
)

// plain is a client whose further abilities are not to be measured.
type plain struct{ client }

func can[T any](q queue) bool {
	_, ok := q.(T)
	return ok
}
