package main

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt"
)

type shuntQueue struct{ q *shunt.Queue }

func openShunt(addr string, prefetch int) (queue, error) {
	pool, err := shunt.NewPool("redis://" + addr)
	if err != nil {
		return nil, err
	}
	return shuntQueue{&shunt.Queue{Pool: pool, Prefetch: prefetch}}, nil
}

// shuntTask's handle is its prototype's.
type shuntTask struct {
	payload []byte
	handle  func([]byte)
}

func (t *shuntTask) Channel() string                            { return "bench" }
func (t *shuntTask) Marshal() ([]byte, error)                   { return t.payload, nil }
func (t *shuntTask) Unmarshal(b []byte) (shunt.IMessage, error) { return &shuntTask{b, t.handle}, nil }
func (t *shuntTask) Resolve(context.Context) error              { t.handle(t.payload); return nil }

func (s shuntQueue) deliver(ctx context.Context, payload []byte) error {
	return s.q.Deliver(ctx, &shuntTask{payload: payload})
}

func (s shuntQueue) receive(ctx context.Context, workers int, handle func([]byte)) (func() error, error) {
	shutdown, err := s.q.Receive(ctx, &shuntTask{handle: handle}, workers)
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return shutdown(ctx)
	}, err
}

func (s shuntQueue) left(ctx context.Context) (int, error) {
	stats, err := s.q.Stats(ctx, "bench")
	n := 0
	for _, state := range stats {
		n += state.Count
	}
	return n, err
}

func (s shuntQueue) close() error { return errors.Join(s.q.Close(), s.q.Pool.Close()) }
