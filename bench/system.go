package main

import "context"

// system is a toolkit under measurement, in one configuration.
type system struct {
	name, about string
	open        func(addr string) (queue, error)
}

// reference is the system that the ratios are to.
const reference = "asynq"

var systems = []system{
	{"shunt", "as it comes", func(addr string) (queue, error) { return openShunt(addr, 0) }},
	{"shunt-1", "Prefetch 1: a worker holds one message", func(addr string) (queue, error) { return openShunt(addr, 1) }},
	{"asynq", "as it comes, but Concurrency is -workers", openAsynq},
}

// queue is what every system can do.
type queue interface {
	// deliver puts one message into the queue; many goroutines call it at once.
	deliver(ctx context.Context, payload []byte) error
	// receive starts workers that call handle with each message's payload; stop ends them cleanly.
	receive(ctx context.Context, workers int, handle func([]byte)) (stop func() error, err error)
	// left counts the messages in Redis, whatever their state.
	left(ctx context.Context) (int, error)
	close() error
}
