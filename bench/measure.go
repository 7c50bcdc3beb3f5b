package main

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/redisd"
)

// measure is one way to look at a system. It is given an empty queue on a server of its own.
type measure struct {
	name, about string
	fits        func(system) bool
	run         func(context.Context, queue, task) ([]sample, error)
	quick       bool // part of -quick
	tls         bool // the server serves TLS, too, and the queue is opened on that
	// rounds would tell nothing more; all systems are measured at once, because it takes time and no core
	once bool
}

var measures = []measure{
	{
		name:  "process",
		about: "a backlog, by a handler that does nothing; also CPU and allocations a message",
		fits:  every,
		run:   process,
		quick: true,
	},
	{
		name:  "process-tls",
		about: "process over TLS",
		fits:  func(s system) bool { return s.tls && redisd.CanTrust },
		run:   processTLS,
		tls:   true,
	},
	{
		name:  "process-100us",
		about: "the same, by one that sleeps 100 µs",
		fits:  handles,
		run:   processWaiting("process-100us", 100*time.Microsecond),
	},
	{
		name:  "process-5ms",
		about: "the same, by one that sleeps 5 ms",
		fits:  handles,
		run:   processWaiting("process-5ms", 5*time.Millisecond),
	},
	{
		name:  "enqueue",
		about: "one message a call, from as many goroutines as -workers",
		fits:  every,
		run:   enqueueOne,
		quick: true,
	},
	{
		name:  "enqueue-100",
		about: "100 messages a call",
		fits:  func(s system) bool { return can[batcher](s.kind) || can[enqueuer](s.kind) },
		run:   enqueueMany,
	},
	{
		name:  "wake",
		about: "from the call that enqueues a message to its handler, when the receiver was idle",
		fits:  every,
		run:   wake,
		quick: true,
	},
	{
		name:  "late",
		about: "from when a message is due to its handler, with 1,000,000 others that are not",
		fits:  fits[delayer],
		run:   late,
	},
	{
		name:  "promote",
		about: "how fast due messages become ready, and the longest call of Redis in it",
		fits:  fits[promoter],
		run:   promote,
	},
	{
		name:  "ordered",
		about: "the lowest of three channels in order, the others empty",
		fits:  fits[orderer],
		run:   ordered,
	},
	{name: "process-id", about: "process of messages with ids", fits: fits[identifier], run: processIDs},
	{name: "enqueue-id", about: "enqueue of messages with ids, with 10,000 of them there", fits: fits[identifier],
		run: enqueueIDs("enqueue-id", func(l load) int { return l.alive })},
	{name: "enqueue-id-1M", about: "the same with 1,000,000", fits: fits[identifier],
		run: enqueueIDs("enqueue-id-1M", func(l load) int { return l.waiting })},
	{
		name:  "status",
		about: "a call that finds a message by its id, with 1,000,000 others",
		fits:  fits[finder],
		run:   status,
	},
	{name: "cancel", about: "the same for one that cancels it", fits: fits[canceller], run: cancel},
	{
		name:  "interrupt",
		about: "from the call that cancels a message in the hands of another process until its handler hears of it",
		fits:  fits[interrupter],
		run:   interrupt,
	},
	{
		name:  "postpone",
		about: "the same for one that gives a delayed message another due time",
		fits:  fits[postponer],
		run:   postpone,
	},
	{name: "bytes", about: "Redis' memory a queued message", fits: every, run: bytesEach, quick: true, once: true},
	{name: "bytes-id", about: "the same of one with an id", fits: fits[identifier], run: bytesIDs, once: true},
	{name: "backlog", about: "process, by the size of the backlog", fits: grows, run: backlogs},
	{name: "workers", about: "process, by the number of workers", fits: grows, run: pools},
	{name: "channels", about: "process, by the number of channels in one process", fits: grows, run: channels},
	{name: "processes", about: "process, by the number of processes", fits: grows, run: processes},
	{
		name:  "receivers",
		about: "what Redis uses of its core while so many receivers of one channel are idle",
		fits:  grows,
		run:   receivers,
		once:  true,
	},
	{
		name:  "idle",
		about: "commands a second that an idle receiver sends",
		fits:  every,
		run:   idle,
		quick: true,
		once:  true,
	},
	{
		name:  "recovery",
		about: "from kill -9 to the next handling of what the process held",
		fits:  func(s system) bool { return s.recovers },
		run:   recovery,
		once:  true,
	},
}

func every(system) bool         { return true }
func grows(s system) bool       { return s.grows }
func handles(s system) bool     { return s.name != reference }
func fits[T any](s system) bool { return can[T](s.kind) }

type sample struct {
	measure string
	value   float64
	unit    string
}

const (
	// Units of which more is better.
	perSecond = "msg/s"
	ofIdeal   = "of the workers"
	// Units of which the limit has next to none, so that no ratio to it tells anything.
	perMessage  = "allocs/msg"
	ofCore      = "% of a core"
	connections = "connections"
)

// process drains a backlog with a handler that does nothing.
func process(ctx context.Context, q queue, t task) ([]sample, error) { return processAs(ctx, q, t, "") }

// processTLS is process of a queue whose connections are over TLS.
func processTLS(ctx context.Context, q queue, t task) ([]sample, error) {
	return processAs(ctx, q, t, "-tls")
}

// processAs is process whose figures' names end so.
func processAs(ctx context.Context, q queue, t task, suffix string) ([]sample, error) {
	w, err := fillAndDrain(ctx, q, t)
	if err != nil {
		return nil, err
	}
	samples := []sample{
		{"process" + suffix, w.rate, perSecond},
		{"redis-cpu" + suffix, w.redis, "µs/msg"},
		{"client-cpu" + suffix, w.client, "µs/msg"},
	}
	return w.addAllocs(samples, "allocs"+suffix), nil
}

// processWaiting drains one with a handler that waits. It waits longer than it is asked to, on every system. So what
// the workers could reach at best is judged by how long it really took.
func processWaiting(name string, wait time.Duration) func(context.Context, queue, task) ([]sample, error) {
	return func(ctx context.Context, q queue, t task) ([]sample, error) {
		t.wait = wait
		t.n = min(t.n, t.workers*t.waves)
		w, err := fillAndDrain(ctx, q, t)
		if err != nil {
			return nil, err
		}
		ideal := float64(t.workers) / w.mean.Seconds()
		return []sample{{name, w.rate, perSecond}, {name + "-share", w.rate / ideal, ofIdeal}}, nil
	}
}

func fillAndDrain(ctx context.Context, q queue, t task) (work, error) {
	t.want = t.n
	if err := fill(ctx, q, t); err != nil {
		return work{}, err
	}
	return drain(ctx, q, t)
}

// enqueueOne puts messages into the queue, one a call.
func enqueueOne(ctx context.Context, q queue, t task) ([]sample, error) {
	t.batch = 1
	w, err := enqueue(ctx, q, t)
	if err != nil {
		return nil, err
	}
	return w.addAllocs([]sample{{"enqueue", w.rate, perSecond}}, "enqueue-allocs"), expect(ctx, q, t.n)
}

func enqueueMany(ctx context.Context, q queue, t task) ([]sample, error) {
	t.batch = 100
	t.n *= 4 // for it is so much faster
	w, err := enqueue(ctx, q, t)
	return []sample{{"enqueue-100", w.rate, perSecond}}, errors.Join(err, expect(ctx, q, t.n))
}

// orderer is a queue that can be received from after others.
type orderer interface {
	ordered(higher ...string) queue
}

// ordered drains a channel while two that come before it are empty.
func ordered(ctx context.Context, q queue, t task) ([]sample, error) {
	w, err := fillAndDrain(ctx, q.(orderer).ordered("bench-high", "bench-mid"), t)
	return []sample{{"ordered", w.rate, perSecond}}, err
}

// bytesEach is what Redis needs for a message. What it needs for the connections that enqueue is not part of it, so
// they are closed before it is looked at again.
func bytesEach(ctx context.Context, q queue, t task) ([]sample, error) {
	return bytesAs(ctx, q, t, "bytes", func(q queue) queue { return q })
}

// unshared is the memory of a server less what its connections have, which grows and shrinks on its own.
func unshared(s *server) (float64, error) {
	used, err := s.info("memory", "used_memory")
	if err != nil {
		return 0, err
	}
	clients, err := s.info("memory", "mem_clients_normal")
	return used - clients, err
}

// bytesAs is bytesEach of the messages that the queue which as makes of q enqueues.
func bytesAs(ctx context.Context, q queue, t task, name string, as func(queue) queue) ([]sample, error) {
	t.bare = true
	clients, err := t.srv.info("clients", "connected_clients")
	if err != nil {
		return nil, err
	}
	before, err := unshared(t.srv)
	if err != nil {
		return nil, err
	}
	enqueuer, err := t.system.open(t)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(fill(ctx, as(enqueuer), t), enqueuer.close()); err != nil {
		return nil, err
	}
	for now := clients + 1; now > clients; {
		if now, err = t.srv.info("clients", "connected_clients"); err != nil {
			return nil, err
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	after, err := unshared(t.srv)
	if err != nil {
		return nil, err
	}
	return []sample{{name, (after - before) / float64(t.n), "bytes"}}, expect(ctx, q, t.n)
}
