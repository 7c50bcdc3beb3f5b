package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"
)

// idle counts what a receiver sends that has nothing to do.
func idle(ctx context.Context, q queue, t task) ([]sample, error) {
	stop, err := q.receive(ctx, t.workers, func([]byte) {})
	if err != nil {
		return nil, err
	}
	n := 0
	if err = sleep(ctx, t.settle); err == nil {
		n, err = t.srv.commands(ctx, t.idleFor)
	}
	return []sample{{"idle", float64(n) / t.idleFor.Seconds(), "commands/s"}}, errors.Join(err, stop())
}

// commands counts the commands that clients send in d: MONITOR shows those of scripts too, but marks them.
func (s *server) commands(ctx context.Context, d time.Duration) (n int, err error) {
	c, err := redis.Dial("tcp", s.addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Do("MONITOR"); err != nil {
		return 0, err
	}
	for end := time.Now().Add(d); ; {
		line, err := redis.String(redis.ReceiveWithTimeout(c, max(time.Until(end), time.Millisecond)))
		if time.Now().After(end) {
			return n, nil
		}
		if err != nil {
			return 0, fmt.Errorf("watch the commands: %w", err)
		}
		if from, _, _ := strings.Cut(line, "]"); !strings.HasSuffix(from, " lua") {
			n++
		}
	}
}

// receivers measures what many receivers of one channel that have nothing to do cost Redis.
func receivers(ctx context.Context, q queue, t task) (samples []sample, err error) {
	for _, n := range t.receivers {
		var all stops
		g, _ := errgroup.WithContext(ctx)
		g.SetLimit(16)
		for range n {
			g.Go(func() error {
				stop, err := q.receive(ctx, 1, func([]byte) {})
				if err == nil {
					all.add(stop)
				}
				return err
			})
		}
		percent := 0.0
		if err = g.Wait(); err == nil {
			percent, err = t.srv.busy(ctx, t.settle, t.idleFor)
		}
		if err := errors.Join(err, all.stop()); err != nil {
			return nil, fmt.Errorf("%d receivers: %w", n, err)
		}
		samples = append(samples, sample{fmt.Sprint("receivers-", n), percent, ofCore})
	}
	return samples, nil
}

// busy is what percentage of a core the server uses during d, after settle.
func (s *server) busy(ctx context.Context, settle, d time.Duration) (float64, error) {
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := sleep(ctx, d); err != nil {
		return 0, err
	}
	after, err := s.cpu()
	return 100 * float64(after-before) / float64(time.Since(began)), err
}
