package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// load is the work that every system is given.
type load struct {
	n, workers int
	size       int           // of a payload, in bytes, at least 8
	stall      time.Duration // once nothing was handled for so long, what is missing is lost
}

// measure is one way to look at a system. It is given an empty queue, and its first sample is the one it is named after.
type measure struct {
	name string
	run  func(context.Context, queue, load) ([]sample, error)
}

type sample struct {
	measure string
	value   float64
	unit    string
}

var measures = []measure{{"process", process}, {"deliver", deliver}}

// process drains a backlog with a handler that does nothing. The rate counts from the call that starts the receiver to the
// last message handled; start is the part before the first.
func process(ctx context.Context, q queue, l load) ([]sample, error) {
	if err := fill(ctx, q, l); err != nil {
		return nil, err
	}
	t := &tally{seen: make([]atomic.Bool, l.n), all: make(chan struct{})}
	began := time.Now()
	stop, err := q.receive(ctx, l.workers, t.handle)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	// The verdict comes after the end, because a double may come after the last.
	if err := errors.Join(t.wait(ctx, l.stall), stop(), t.verdict()); err != nil {
		return nil, err
	}
	return []sample{
		{"process", float64(l.n) / t.last.Sub(began).Seconds(), "msg/s"},
		{"start", t.first.Sub(began).Seconds() * 1000, "ms"},
	}, expect(ctx, q, 0)
}

// deliver puts messages into the queue, one a call.
func deliver(ctx context.Context, q queue, l load) ([]sample, error) {
	began := time.Now()
	if err := fill(ctx, q, l); err != nil {
		return nil, err
	}
	took := time.Since(began)
	return []sample{{"deliver", float64(l.n) / took.Seconds(), "msg/s"}}, expect(ctx, q, l.n)
}

// fill delivers n messages, each with its number in its first 8 bytes.
func fill(ctx context.Context, q queue, l load) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range l.workers {
		g.Go(func() error {
			for i := next.Add(1) - 1; i < int64(l.n); i = next.Add(1) - 1 {
				payload := make([]byte, l.size)
				binary.BigEndian.PutUint64(payload, uint64(i))
				if err := q.deliver(ctx, payload); err != nil {
					return fmt.Errorf("deliver message %d: %w", i, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func expect(ctx context.Context, q queue, want int) error {
	n, err := q.left(ctx)
	if err != nil {
		return fmt.Errorf("count what is left: %w", err)
	}
	if n != want {
		return fmt.Errorf("there are %d messages in Redis, not %d", n, want)
	}
	return nil
}

// tally sees to it that every message is handled exactly once.
type tally struct {
	seen           []atomic.Bool // by number
	count, doubled atomic.Int64  // numbers seen, and seen again

	first, last time.Time     // each written once; to be read when the receiver has stopped
	all         chan struct{} // closed with the last number
}

func (t *tally) handle(payload []byte) {
	if t.seen[binary.BigEndian.Uint64(payload)].Swap(true) {
		t.doubled.Add(1)
		return
	}
	n := t.count.Add(1)
	if n == 1 {
		t.first = time.Now()
	}
	if n == int64(len(t.seen)) {
		t.last = time.Now()
		close(t.all)
	}
}

// wait returns when every number has come, or none for as long as stall.
func (t *tally) wait(ctx context.Context, stall time.Duration) error {
	look := time.NewTicker(stall)
	defer look.Stop()
	for before := int64(-1); ; before = t.count.Load() {
		select {
		case <-t.all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
			if t.count.Load() == before {
				return fmt.Errorf("nothing more was handled for %v", stall)
			}
		}
	}
}

func (t *tally) verdict() error {
	lost, doubled := int64(len(t.seen))-t.count.Load(), t.doubled.Load()
	if lost == 0 && doubled == 0 {
		return nil
	}
	return fmt.Errorf("of %d messages %d were not handled, %d were handled again", len(t.seen), lost, doubled)
}
