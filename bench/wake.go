package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// waker wakes in its own way: t.wakes times, and no longer than t.wakeFor.
type waker interface {
	wake(ctx context.Context, t task) ([]time.Duration, error)
}

// wake enqueues one message at a time to a receiver that has nothing to do.
func wake(ctx context.Context, q queue, t task) ([]sample, error) {
	var took []time.Duration
	var err error
	if w, ok := q.(waker); ok {
		took, err = w.wake(ctx, t)
	} else {
		took, err = wakeEach(ctx, q, t)
	}
	if err != nil {
		return nil, err
	}
	return []sample{
		{"wake-p50", percentile(took, 50), "ms"},
		{"wake-p99", percentile(took, 99), "ms"},
	}, expect(ctx, q, 0)
}

// wakeEach does so in several channels at once where the system sleeps for long: a sample takes more than a second
// then, and no core.
func wakeEach(ctx context.Context, q queue, t task) (all []time.Duration, err error) {
	if t.n = t.wakes; t.system.poll > time.Second && can[channeler](q) {
		t.over = min(8, t.wakes)
	}
	var mu sync.Mutex
	err = each(ctx, q, t, func(ctx context.Context, q queue, _, n, workers int) error {
		took, err := wakeOne(ctx, q, t, n, workers)
		mu.Lock()
		all = append(all, took...)
		mu.Unlock()
		return err
	})
	return all, err
}

// wakeOne measures from just before the call that enqueues until the handler runs. The pauses before are random, and up
// to more than a system sleeps: what polls is met at any time of its sleep.
func wakeOne(ctx context.Context, q queue, t task, n, workers int) (took []time.Duration, err error) {
	type waking struct {
		number uint64
		at     time.Time
	}
	woken := make(chan waking, n)
	stop, err := q.receive(ctx, workers, func(payload []byte) {
		at := time.Now()
		woken <- waking{binary.BigEndian.Uint64(payload), at}
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, stop()); err == nil && len(woken) > 0 {
			err = fmt.Errorf("%d messages were handled again", len(woken))
		}
	}()
	enqueue, payload := q.(client).sender(), make([]byte, t.size)
	for end := time.Now().Add(t.wakeFor); len(took) == 0 || len(took) < n && time.Now().Before(end); {
		if err := sleep(ctx, 2*time.Millisecond+rand.N(t.system.poll+6*time.Millisecond)); err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint64(payload, uint64(len(took)))
		began := time.Now()
		if err := enqueue(ctx, payload); err != nil {
			return nil, err
		}
		select {
		case w := <-woken:
			if w.number != uint64(len(took)) {
				return nil, fmt.Errorf("message %d was handled, and %d expected", w.number, len(took))
			}
			took = append(took, w.at.Sub(began))
		case <-time.After(t.stall):
			return nil, fmt.Errorf("a message was not handled for %v", t.stall)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return took, nil
}

// sleep is a sleep that ends with ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// percentile is the smallest that so many percent are no larger than, in ms.
func percentile(all []time.Duration, percent int) float64 { return thousandth(all, 10*percent) }

// thousandth is the same of so many in a thousand.
func thousandth(all []time.Duration, n int) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[(len(sorted)*n+999)/1000-1]) / float64(time.Millisecond)
}
