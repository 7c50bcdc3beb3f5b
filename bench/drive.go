package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// work is what a measured piece of it came to.
type work struct {
	rate  float64       // messages a second
	mean  time.Duration // of the handlers, by their own measure
	depth int           // of the limit's pipeline
	cost
}

// fill brings t.n messages into the queue by the quickest means.
func fill(ctx context.Context, q queue, t task) error {
	if f, ok := q.(filler); ok {
		return f.fill(ctx, t)
	}
	batch := 1
	if can[batcher](q) {
		batch = 100
	}
	return each(ctx, q, t, func(ctx context.Context, q queue, from, n, workers int) error {
		return send(ctx, q, t, from, n, workers, batch)
	})
}

// enqueue is fill for t.batch a call, measured.
func enqueue(ctx context.Context, q queue, t task) (work, error) {
	if d, ok := q.(enqueuer); ok {
		return d.enqueue(ctx, t)
	}
	m := t.srv.meter()
	began := time.Now()
	err := send(ctx, q, t, t.first, t.n, t.workers, t.batch)
	took := time.Since(began)
	if err != nil {
		return work{}, err
	}
	c, err := m.stop(t.n)
	return work{rate: float64(t.n) / took.Seconds(), cost: c}, err
}

// each calls do for the messages and workers of each of t's channels, all at once.
func each(
	ctx context.Context, q queue, t task, do func(ctx context.Context, q queue, from, n, workers int) error,
) error {
	if t.over <= 1 {
		return do(ctx, q, 0, t.n, t.workers)
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range t.over {
		from, to := i*t.n/t.over, (i+1)*t.n/t.over
		g.Go(func() error {
			return do(ctx, q.(channeler).channel(fmt.Sprint("bench", i)), from, to-from, max(1, t.workers/t.over))
		})
	}
	return g.Wait()
}

// send enqueues n messages numbered from from, batch of them a call, from as many goroutines as there are workers.
func send(ctx context.Context, q queue, t task, from, n, workers, batch int) error {
	next, end := atomic.Int64{}, int64(from+n)
	next.Store(int64(from))
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error {
			ctx, cancel := context.WithCancel(ctx) // a context of its own, as a request has
			defer cancel()
			payloads := make([][]byte, batch)
			for i := range payloads {
				payloads[i] = make([]byte, t.size)
			}
			var one func(context.Context, []byte) error
			var many func(context.Context, [][]byte) error
			if batch == 1 {
				one = q.(client).sender()
			} else {
				many = q.(batcher).batchSender()
			}
			for {
				i := next.Add(int64(batch)) - int64(batch)
				if i >= end || ctx.Err() != nil {
					return ctx.Err()
				}
				ps := payloads[:min(int64(batch), end-i)]
				for j, p := range ps {
					binary.BigEndian.PutUint64(p, uint64(i)+uint64(j))
				}
				var err error
				if batch == 1 {
					err = one(ctx, ps[0])
				} else {
					err = many(ctx, ps)
				}
				if err != nil {
					return fmt.Errorf("enqueue message %d: %w", i, err)
				}
			}
		})
	}
	return g.Wait()
}

// drain has the workers handle t.want of the t.n messages that lie in the queue, each for t.wait.
func drain(ctx context.Context, q queue, t task) (work, error) {
	if d, ok := q.(drainer); ok {
		return d.drain(ctx, t)
	}
	tally := newTally(make([]atomic.Bool, t.n), t.want)
	handle := tally.handler(t.wait)
	m := t.srv.meter()
	var stops stops
	// Not with each's context: it ends when all have been started.
	err := each(ctx, q, t, func(_ context.Context, q queue, _, _, workers int) error {
		stop, err := q.receive(ctx, workers, handle)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		stops.add(stop)
		return nil
	})
	if err == nil {
		err = tally.wait(ctx, t.stall)
	}
	c, bad := m.stop(t.want)
	if err == nil && t.atRest != nil {
		err = t.atRest()
	}
	if err := errors.Join(err, bad, stops.stop(), tally.verdict()); err != nil {
		return work{}, err
	}
	return work{rate: tally.rate(), mean: tally.mean(), cost: c}, expect(ctx, q, t.n-int(tally.count.Load()))
}

// stops are the ends of several receivers.
type stops struct {
	mu  sync.Mutex
	all []func() error
}

func (s *stops) add(stop func() error) {
	s.mu.Lock()
	s.all = append(s.all, stop)
	s.mu.Unlock()
}

func (s *stops) stop() error {
	var g errgroup.Group
	for _, stop := range s.all {
		g.Go(stop)
	}
	return g.Wait()
}
