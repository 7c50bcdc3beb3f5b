package main

import (
	"context"
	"errors"
	"time"
)

// recovery kills a process whose handlers hold messages, and measures until one of them is handled by another that was
// there before.
func recovery(ctx context.Context, q queue, t task) ([]sample, error) {
	t.n = t.workers
	if err := fill(ctx, q, t); err != nil {
		return nil, err
	}
	victim, err := startChild(ctx,
		errand{System: t.system.name, Addr: t.srv.addr, Hold: true, Workers: t.workers, Lease: t.lease})
	if err != nil {
		return nil, err
	}
	defer victim.kill()
	if _, err := victim.in.Write([]byte("go\n")); err != nil {
		return nil, err
	}
	if err := victim.hear("held"); err != nil {
		return nil, err
	}
	if err := sleep(ctx, t.settle); err != nil { // it takes what else it can
		return nil, err
	}
	handled := make(chan time.Time, t.n)
	stop, err := q.receive(ctx, t.workers, func([]byte) { handled <- time.Now() })
	if err != nil {
		return nil, err
	}
	err = sleep(ctx, t.settle) // we take what it did not
	for len(handled) > 0 {
		<-handled
	}
	victim.kill()
	began := time.Now()
	var samples []sample
	select {
	case at := <-handled:
		samples = []sample{{"recovery", at.Sub(began).Seconds(), "s"}}
	case <-time.After(t.patience):
		t.note("nothing came back within %v", t.patience)
	case <-ctx.Done():
	}
	return samples, errors.Join(err, stop())
}
