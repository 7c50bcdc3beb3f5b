package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"
)

// delayer is a queue whose messages can be due later.
type delayer interface {
	// laterSender is batchSender for later; where a call takes one message it makes many.
	laterSender() func(ctx context.Context, payloads [][]byte, due time.Time) error
}

// late measures how long after its time a message is handled, while many others wait for theirs.
func late(ctx context.Context, q queue, t task) ([]sample, error) {
	waiting, err := fillLater(ctx, q, t)
	if err != nil {
		return nil, err
	}
	if waiting < t.waiting {
		t.note("with %d waiting, as many as were enqueued in %v", waiting, t.waitFor)
	}
	ahead, err := t.srv.ahead()
	if err != nil {
		return nil, err
	}
	due, took := make([]time.Time, t.due), make([]time.Duration, t.due)
	start := time.Now().Add(t.settle)
	for i := range due { // in whole milliseconds, which is how finely shunt keeps them
		due[i] = start.Add(rand.N(t.dueFor)).Round(time.Millisecond)
	}
	tally := newTally(make([]atomic.Bool, t.due), t.due)
	stop, err := q.receive(ctx, t.workers, func(payload []byte) {
		now := time.Now()
		if i := binary.BigEndian.Uint64(payload); i < uint64(len(took)) {
			took[i] = now.Add(ahead).Sub(due[i])
		}
		tally.handle(payload)
	})
	if err != nil {
		return nil, err
	}
	enqueue, payload := q.(delayer).laterSender(), make([]byte, t.size)
	for i := range due {
		binary.BigEndian.PutUint64(payload, uint64(i))
		err = errors.Join(err, enqueue(ctx, [][]byte{payload}, due[i].Add(-ahead)))
	}
	if time.Now().After(start) {
		err = errors.Join(err, fmt.Errorf("enqueueing took longer than %v: some were due before", t.settle))
	}
	if err == nil {
		err = tally.wait(ctx, t.stall)
	}
	if err := errors.Join(err, stop(), tally.verdict()); err != nil {
		return nil, err
	}
	early := 0
	for _, d := range took {
		if d < 0 {
			early++
		}
	}
	return []sample{
		{"late-p50", percentile(took, 50), "ms"}, {"late-p99", percentile(took, 99), "ms"},
		{"late-early", float64(early), fmt.Sprintf("of %d", t.due)},
	}, expect(ctx, q, waiting)
}

// fillLater enqueues messages for tomorrow, numbered from t.due, and returns how many there was time for.
func fillLater(ctx context.Context, q queue, t task) (int, error) {
	const batch = 500
	tomorrow, end := time.Now().Add(24*time.Hour), time.Now().Add(t.waitFor)
	var next, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range t.workers {
		g.Go(func() error {
			enqueue := q.(delayer).laterSender()
			payloads := make([][]byte, batch)
			for i := range payloads {
				payloads[i] = make([]byte, t.size)
			}
			for time.Now().Before(end) {
				i := int(next.Add(batch)) - batch
				if i >= t.waiting {
					break
				}
				ps := payloads[:min(batch, t.waiting-i)]
				for j, p := range ps {
					binary.BigEndian.PutUint64(p, uint64(t.due+i+j))
				}
				if err := enqueue(ctx, ps, tomorrow.Add(time.Duration(i)*time.Millisecond)); err != nil {
					return err
				}
				done.Add(int64(len(ps)))
			}
			return nil
		})
	}
	err := g.Wait()
	return int(done.Load()), err
}

// ahead is how far the server's clock is ahead of ours, by the quickest of some answers. On one host they are the same
// clock; so it is the error of the measurement, some µs.
func (s *server) ahead() (ahead time.Duration, err error) {
	best := time.Hour
	for range 20 {
		began := time.Now()
		v, err := redis.Int64s(s.conn.Do("TIME"))
		took := time.Since(began)
		if err != nil || len(v) != 2 {
			return 0, fmt.Errorf("ask redis-server for its time: %w", err)
		}
		if took < best {
			best, ahead = took, time.Unix(v[0], v[1]*1000).Sub(began.Add(took/2))
		}
	}
	return ahead, nil
}
