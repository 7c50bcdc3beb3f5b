package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// shuntQueue is a channel of a Queue.
type shuntQueue struct {
	q    *shunt.Queue
	name string
}

// shuntEvents is what the counter has counted: Events cost what they cost with the least that one can do with them.
var shuntEvents atomic.Int64

func openShunt(prefetch int) func(task) (queue, error) {
	return func(t task) (queue, error) {
		url := "redis://" + t.srv.addr
		if t.srv.tls != "" {
			url = "rediss://" + t.srv.tls
		}
		pool, err := shunt.NewPool(url)
		if err != nil {
			return nil, err
		}
		count := func(shunt.Event) { shuntEvents.Add(1) }
		s := shuntQueue{&shunt.Queue{Pool: pool, Prefetch: prefetch, Lease: t.lease, Events: count}, "bench"}
		if prefetch == 1 {
			return plain{s}, nil
		}
		return s, nil
	}
}

// shuntMessage's handle is its prototype's.
type shuntMessage struct {
	channel string
	payload []byte
	handle  func([]byte)
}

func (m *shuntMessage) Channel() string               { return m.channel }
func (m *shuntMessage) Marshal() ([]byte, error)      { return m.payload, nil }
func (m *shuntMessage) Resolve(context.Context) error { m.handle(m.payload); return nil }
func (m *shuntMessage) Unmarshal(payload []byte) (shunt.IMessage, error) {
	return &shuntMessage{m.channel, payload, m.handle}, nil
}

func (s shuntQueue) sender() func(context.Context, []byte) error {
	m := &shuntMessage{channel: s.name}
	return func(ctx context.Context, payload []byte) error {
		m.payload = payload
		return s.q.Enqueue(ctx, m)
	}
}

func (s shuntQueue) batchSender() func(context.Context, [][]byte) error {
	enqueue := s.enqueuer()
	return func(ctx context.Context, payloads [][]byte) error { return enqueue(ctx, payloads) }
}

// enqueuer gives one goroutine what it enqueues many messages with.
func (s shuntQueue) enqueuer() func(ctx context.Context, payloads [][]byte, opts ...shunt.Option) error {
	var own []shuntMessage
	var ms []shunt.IMessage
	return func(ctx context.Context, payloads [][]byte, opts ...shunt.Option) error {
		if len(own) < len(payloads) {
			own, ms = make([]shuntMessage, len(payloads)), make([]shunt.IMessage, len(payloads))
			for i := range own {
				own[i].channel, ms[i] = s.name, &own[i]
			}
		}
		for i, p := range payloads {
			own[i].payload = p
		}
		return s.q.EnqueueAll(ctx, ms[:len(payloads)], opts...)
	}
}

func (s shuntQueue) receive(ctx context.Context, workers int, handle func([]byte)) (func() error, error) {
	return stopper(s.q.Receive(ctx, &shuntMessage{channel: s.name, handle: handle}, workers))
}

func stopper(shutdown shunt.Shutdown, err error) (func() error, error) {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return shutdown(ctx)
	}, err
}

func (s shuntQueue) laterSender() func(context.Context, [][]byte, time.Time) error {
	enqueue := s.enqueuer()
	return func(ctx context.Context, payloads [][]byte, due time.Time) error {
		return enqueue(ctx, payloads, shunt.At(due))
	}
}

// shuntIDs gives every message an id.
type shuntIDs struct{ shuntQueue }

func (s shuntQueue) ids() queue { return shuntIDs{s} }

func (s shuntIDs) sender() func(context.Context, []byte) error {
	m := &shuntMessage{channel: s.name}
	return func(ctx context.Context, payload []byte) error {
		m.payload = payload
		return s.q.Enqueue(ctx, m, shunt.ID(idOf(payload)))
	}
}

func (s shuntIDs) batchSender() func(context.Context, [][]byte) error {
	enqueue := s.laterSender()
	return func(ctx context.Context, payloads [][]byte) error { return enqueue(ctx, payloads, time.Time{}) }
}

func (s shuntIDs) laterSender() func(context.Context, [][]byte, time.Time) error {
	return func(ctx context.Context, payloads [][]byte, due time.Time) error {
		ms := make([]shunt.IMessage, len(payloads))
		for i, p := range payloads {
			ms[i] = shunt.With(&shuntMessage{channel: s.name, payload: p}, shunt.ID(idOf(p)))
		}
		return s.q.EnqueueAll(ctx, ms, shunt.At(due))
	}
}

func (s shuntQueue) taken(context.Context) (int, error) {
	c := s.q.Pool.Get()
	defer c.Close()
	return redis.Int(c.Do("HLEN", "{"+s.name+"}.ids"))
}

func (s shuntQueue) status(ctx context.Context, id string) (due time.Time, found bool, err error) {
	st, err := s.q.Status(ctx, shunt.ByID(s.name, id))
	if errors.Is(err, shunt.ErrNotFound) {
		return due, false, nil
	}
	return st.DueAt, st.ID == id, err
}

func (s shuntQueue) cancel(ctx context.Context, id string) error {
	_, err := s.q.Cancel(ctx, shunt.ByID(s.name, id))
	return err
}

func (s shuntQueue) postpone(ctx context.Context, id string, due time.Time) error {
	return s.q.Postpone(ctx, shunt.ByID(s.name, id), shunt.At(due))
}

// interrupt cancels messages in the hands of one Queue by another, as another process would, and tells how long each
// took to hear of it.
func (s shuntQueue) interrupt(ctx context.Context, n int, stall time.Duration) (took []time.Duration, err error) {
	begun, ended := make(chan struct{}, 1), make(chan time.Time, 1)
	kind := shunt.Define(s.name, func(ctx context.Context, _ int) error {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- time.Now()
		return context.Cause(ctx)
	})
	stop, err := stopper(s.q.Receive(ctx, kind, 1))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	other := &shunt.Queue{Pool: s.q.Pool}
	defer func() { err = errors.Join(err, other.Close()) }()
	for i := range n {
		id := idOfNumber(uint64(i))
		if err := other.Enqueue(ctx, kind.Message(i), shunt.ID(id)); err != nil {
			return nil, err
		}
		select {
		case <-begun:
		case <-time.After(stall):
			return nil, errors.New("a message was not handled")
		}
		began := time.Now()
		if _, err := other.Cancel(ctx, shunt.ByID(s.name, id)); err != nil {
			return nil, err
		}
		select {
		case at := <-ended:
			took = append(took, at.Sub(began))
		case <-time.After(stall):
			return nil, errors.New("a handler was not told that it was cancelled")
		}
	}
	return took, nil
}

// shuntLowest is received from when the channels that come before it have nothing.
type shuntLowest struct {
	shuntQueue
	higher []string
}

func (s shuntQueue) ordered(higher ...string) queue { return shuntLowest{s, higher} }

func (s shuntLowest) receive(ctx context.Context, workers int, handle func([]byte)) (func() error, error) {
	var prototypes []shunt.IMessage
	for _, name := range append(s.higher, s.name) {
		prototypes = append(prototypes, &shuntMessage{channel: name, handle: handle})
	}
	return stopper(s.q.ReceiveOrdered(ctx, workers, prototypes...))
}

func (s shuntQueue) channel(name string) queue { return shuntQueue{s.q, name} }

func (s shuntQueue) left(ctx context.Context) (int, error) {
	names, err := s.q.Channels(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range names {
		stats, err := s.q.Stats(ctx, name)
		if err != nil {
			return 0, err
		}
		for _, state := range stats {
			n += state.Count
		}
	}
	return n, nil
}

func (s shuntQueue) close() error { return errors.Join(s.q.Close(), s.q.Pool.Close()) }
