package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"
)

// loopSleep is how long a worker sleeps when it finds nothing.
const loopSleep = 100 * time.Millisecond

// loopQueue is the plain loop that shunt grew from. Each worker moves a message to a list of its own, handles it and
// removes it. Each command takes a connection of the pool. Nothing looks after the list of one that died.
type loopQueue struct{ pool *redis.Pool }

func openLoop(t task) (queue, error) {
	dial := func() (redis.Conn, error) {
		return redis.Dial("tcp", t.srv.addr, redis.DialReadTimeout(10*time.Second),
			redis.DialWriteTimeout(10*time.Second))
	}
	return loopQueue{&redis.Pool{Dial: dial, MaxIdle: t.workers + 1}}, nil
}

func (p loopQueue) do(command string, args ...any) (any, error) {
	c := p.pool.Get()
	defer c.Close()
	return c.Do(command, args...)
}

func (p loopQueue) sender() func(context.Context, []byte) error {
	return func(_ context.Context, payload []byte) error {
		_, err := p.do("LPUSH", "prepare", payload)
		return err
	}
}

func (p loopQueue) batchSender() func(context.Context, [][]byte) error {
	args := []any{"prepare"}
	return func(_ context.Context, payloads [][]byte) error {
		args = args[:1]
		for _, payload := range payloads {
			args = append(args, payload)
		}
		_, err := p.do("LPUSH", args...)
		return err
	}
}

func (p loopQueue) receive(ctx context.Context, workers int, handle func([]byte)) (func() error, error) {
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	for i := range workers {
		g.Go(func() error { return p.work(ctx, fmt.Sprint("doing", i), handle) })
	}
	return func() error { stop(); return g.Wait() }, nil
}

func (p loopQueue) work(ctx context.Context, doing string, handle func([]byte)) error {
	for ctx.Err() == nil {
		payload, err := redis.Bytes(p.do("RPOPLPUSH", "prepare", doing))
		if errors.Is(err, redis.ErrNil) {
			select {
			case <-time.After(loopSleep):
			case <-ctx.Done():
			}
			continue
		}
		if err != nil {
			return err
		}
		handle(payload)
		if _, err := p.do("LREM", doing, 1, payload); err != nil {
			return err
		}
	}
	return nil
}

func (p loopQueue) left(context.Context) (int, error) { return countLists(p.do) }

// countLists adds up the lists of a server that holds nothing else.
func countLists(do func(string, ...any) (any, error)) (int, error) {
	keys, err := redis.Values(do("KEYS", "*"))
	sum := 0
	for _, key := range keys {
		n, err := redis.Int(do("LLEN", key))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, err
}

func (p loopQueue) close() error { return p.pool.Close() }
