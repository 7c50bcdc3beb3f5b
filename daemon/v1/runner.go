package v1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

const (
	// recurringKey is the set of channels that have recurring messages, made by PUT. It only grows: it costs two small
	// commands every 5 s for each.
	recurringKey = "{shuntd}.recurring"
	// maxRecurring bounds the channels of a pool whose recurring messages one process runs.
	maxRecurring = 10_000
	runEvery     = 5 * time.Second // finds what other processes have added
	maxFailed    = 3               // channels of which Redis said nothing, after which a look ends: it may be away
)

// Recurring runs the recurring messages of the channels that the interface has added some to. Any number of processes
// may, and each tick is enqueued once. Its exported fields are its configuration. Run must run.
type Recurring struct {
	Pools map[string]*shunt.Queue // by name; required
	Redis map[string]*redis.Pool  // of each of these; required
	Log   *slog.Logger            // nil: slog.Default()

	mu    sync.Mutex
	wakes map[string]chan struct{} // by pool, each of capacity 1
}

func (r *Recurring) wake(pool string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wakes == nil {
		r.wakes = make(map[string]chan struct{})
	}
	if r.wakes[pool] == nil {
		r.wakes[pool] = make(chan struct{}, 1)
	}
	return r.wakes[pool]
}

// add lists a channel before a message is added to it: a fault between the two leaves a channel that is run for
// nothing, and never a message that nobody runs.
func (r *Recurring) add(ctx context.Context, pool, channel string, add func() error) error {
	at := r.Redis[pool]
	if at == nil {
		return fmt.Errorf("v1: Recurring has no Redis for pool %q", pool)
	}
	c, err := at.GetContext(ctx)
	if err != nil {
		return err
	}
	_, err = redis.DoContext(c, ctx, "SADD", recurringKey, channel)
	if err := errors.Join(err, c.Close()); err != nil {
		return err
	}
	if err := add(); err != nil {
		return err
	}
	select {
	case r.wake(pool) <- struct{}{}:
	default:
	}
	return nil
}

// Run runs them until ctx ends, and returns its cause once all runners have ended.
func (r *Recurring) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for name, q := range r.Pools {
		g.Go(func() error { return r.runPool(ctx, name, q) })
	}
	return g.Wait()
}

// runPool looks for channels every few seconds, and runs each that is new.
func (r *Recurring) runPool(ctx context.Context, name string, q *shunt.Queue) error {
	log := cmp.Or(r.Log, slog.Default())
	running := make(map[string]shunt.Shutdown)
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
		defer cancel()
		var all sync.WaitGroup
		for _, shutdown := range running {
			all.Go(func() { _ = shutdown(end) })
		}
		all.Wait()
	}()
	tick := time.NewTicker(runEvery)
	defer tick.Stop()
	for failed := false; ; {
		err := r.runNew(ctx, name, q, running)
		if err != nil && !failed && ctx.Err() == nil {
			log.Error("v1: recurring messages are not run", "pool", name, "error", err)
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-r.wake(name):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *Recurring) runNew(ctx context.Context, name string, q *shunt.Queue, running map[string]shunt.Shutdown) error {
	channels, err := r.channels(ctx, name)
	if err != nil {
		return err
	}
	var errs []error
	failed := 0
	for _, channel := range channels {
		if running[channel] != nil || ctx.Err() != nil {
			continue
		}
		if len(running) >= maxRecurring {
			return fmt.Errorf("v1: there are more than %d queues with recurring messages", maxRecurring)
		}
		shutdown, err := (&recur.Timetable{Queue: q}).Run(ctx, channel)
		var said redis.Error
		if errs = append(errs, err); err == nil {
			running[channel] = shutdown
		} else if !errors.As(err, &said) {
			failed++
		}
		if failed > maxFailed {
			break
		}
	}
	return errors.Join(errs...)
}

func (r *Recurring) channels(ctx context.Context, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	c, err := r.Redis[name].GetContext(ctx)
	if err != nil {
		return nil, err
	}
	channels, err := redis.Strings(redis.DoContext(c, ctx, "SMEMBERS", recurringKey))
	return channels, errors.Join(err, c.Close())
}
