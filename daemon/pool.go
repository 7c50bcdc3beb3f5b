package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/v1"
)

const (
	ownConnections = 64 // of the daemon's own commands to one Redis
	pingEvery      = time.Second
	commandTimeout = 3 * time.Second
	// maxSize is what the largest job may have that limits.max_body allows, with its headers and names beside.
	maxSize = 64<<20 + 4<<20
)

// pool is one Redis.
type pool struct {
	name  string
	queue *shunt.Queue
	own   *redis.Pool // for what is not the queue's: tokens, checks, gauges
	hub   v1.Hub      // of the queue's events

	mu     sync.Mutex
	pinged time.Time
	alive  error
}

func (d *Daemon) openPools(ctx context.Context) error {
	d.pools = make(map[string]*pool)
	var missed []error
	for name, c := range d.Config.Pools {
		p, err := openPool(name, c)
		if err != nil {
			return err
		}
		p.hub.Next = newEventLog(name, d.Log).take
		d.pools[name] = p
		if d.Config.Checks == "off" {
			continue
		}
		for _, miss := range p.check(ctx) {
			if d.Config.Checks == "fail" {
				missed = append(missed, miss)
			} else {
				d.Log.Warn("a start-up check missed", "pool", name, "miss", miss.Error())
			}
		}
	}
	return errors.Join(missed...)
}

func openPool(name string, c config.Pool) (*pool, error) {
	p := &pool{name: name}
	queues, err := shunt.NewPool(c.Redis)
	if err == nil {
		p.own, err = shunt.NewPool(c.Redis)
	}
	if err != nil {
		return nil, fmt.Errorf("daemon: pool %s: its URL is wrong", name) // Validate has said how, without its password
	}
	p.own.MaxActive, p.own.MaxIdle, p.own.Wait = ownConnections, ownConnections/2, true
	p.own.TestOnBorrowContext = new(borrowing).test
	// Publishes rely on EnqueueTimeout: they have no other bound.
	p.queue = &shunt.Queue{Pool: queues, EnqueueTimeout: 10 * time.Second, MaxSize: maxSize, MaxDead: c.MaxDead,
		DeadFor: c.DeadFor, Events: p.hub.Take}
	return p, nil
}

// testAfter is how long a connection is idle before it is tried at its next use: Redis may have been restarted.
const testAfter = time.Second

// borrowing tries idle connections, so that one that has ended fails no request. Once one has ended, those that have
// been idle since before that are not tried, but closed: else each might take as long as a command may.
type borrowing struct{ ended atomic.Int64 } // when that was seen last, in ns since 1970

var errEndedIdle = errors.New("daemon: another idle connection has ended")

func (b *borrowing) test(ctx context.Context, c redis.Conn, idle time.Time) error {
	switch {
	case idle.UnixNano() <= b.ended.Load():
		return errEndedIdle
	case time.Since(idle) < testAfter:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	_, err := redis.DoContext(c, ctx, "PING")
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		b.ended.Store(time.Now().UnixNano())
	}
	return err
}

// ping says whether Redis answers. It asks once a second at most.
func (p *pool) ping(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.pinged) < pingEvery {
		return p.alive
	}
	_, p.alive = p.do(ctx, "PING")
	p.pinged = time.Now()
	return p.alive
}

func (p *pool) do(ctx context.Context, command string, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	c, err := p.own.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	v, err := redis.DoContext(c, ctx, command, args...)
	return v, errors.Join(err, c.Close())
}

// ready says whether requests can be served.
func (d *Daemon) ready() error {
	if d.stopping.Load() {
		return errors.New("daemon: it stops")
	}
	for _, p := range d.pools {
		if err := p.ping(context.Background()); err != nil {
			return fmt.Errorf("daemon: pool %s: %w", p.name, err)
		}
	}
	return nil
}

func (d *Daemon) queues() map[string]*shunt.Queue {
	all := make(map[string]*shunt.Queue, len(d.pools))
	for name, p := range d.pools {
		all[name] = p.queue
	}
	return all
}

// hubs are those of the pools' events.
func (d *Daemon) hubs() map[string]*v1.Hub {
	all := make(map[string]*v1.Hub, len(d.pools))
	for name, p := range d.pools {
		all[name] = &p.hub
	}
	return all
}

// owns are the pools' connections for what is not the queue's.
func (d *Daemon) owns() map[string]*redis.Pool {
	all := make(map[string]*redis.Pool, len(d.pools))
	for name, p := range d.pools {
		all[name] = p.own
	}
	return all
}

func (d *Daemon) closePools() error {
	var errs []error
	for _, p := range d.pools {
		errs = append(errs, p.queue.Close(), p.queue.Pool.Close(), p.own.Close())
	}
	return errors.Join(errs...)
}
