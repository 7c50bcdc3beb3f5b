package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/sim/daytime"
	"github.com/shuntmq/shunt/internal/trial"
)

// process is one simulated process. What it says it says to its ledger, unless it is frozen or was killed.
type process struct {
	trial.Orders
	w     *world
	port  *port
	log   *trial.Ledger
	pool  *redis.Pool
	queue *shunt.Queue
	clock *daytime.Clock

	posts sync.WaitGroup     // enqueues under way
	stop  context.CancelFunc // of the attempts to begin
	begun chan struct{}      // closed when it has begun, or given up
	end   shunt.Shutdown     // nil: it never began

	mu     sync.Mutex
	thawed chan struct{} // closed when it goes on; nil: it is not frozen
	killed bool
}

// start starts a process, which receives, or pulls or enqueues where its orders say so. Without channels it has a Queue
// that others use.
func (w *world) start(o trial.Orders) *process {
	p := &process{Orders: o, w: w, clock: w.clockOf(o.Name), begun: make(chan struct{})}
	w.mu.Lock()
	p.port = w.net.port(w.plot.Seed, uint64(len(w.born)+1)<<8)
	w.born = append(w.born, p)
	w.mu.Unlock()
	p.port.of = p
	p.Hang = make(chan struct{})
	p.MaxDead, p.MaxSize = w.plot.MaxDead, w.plot.Bulk
	p.log = w.said.Ledger(o.Name).Behind(p.open, p.clock.Right)
	p.pool = link.PoolOver(p.port.dial)
	p.queue = p.Orders.Queue(p.pool, p.log)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.clock.Within(func() { w.living.Go(func() { p.live(ctx) }) })
	return p
}

// live is what the process does from its begin.
func (p *process) live(ctx context.Context) {
	defer close(p.begun)
	switch {
	case len(p.Channels) == 0:
		return
	case p.Enqueue > 0:
		p.Load(ctx, p.queue, p.log)
		return
	case p.Channels[0] == ticks:
		p.end = p.tick(ctx)
		return
	}
	end, err := p.Begin(ctx, p.queue, p.log)
	if err != nil {
		p.log.Say(trial.Entry{Op: "unstarted", Phase: trial.Fail, Note: err.Error()})
	}
	p.end = p.timed(end)
}

// open waits while the process is frozen, and says whether it can still say anything.
func (p *process) open() bool {
	for {
		p.mu.Lock()
		thawed, killed := p.thawed, p.killed
		p.mu.Unlock()
		if killed || thawed == nil {
			return !killed
		}
		<-thawed
	}
}

// freeze stops the process, or has it go on.
func (p *process) freeze(is bool) {
	p.mu.Lock()
	switch {
	case is && p.thawed == nil:
		p.thawed = make(chan struct{})
	case !is && p.thawed != nil:
		close(p.thawed)
		p.thawed = nil
	}
	p.mu.Unlock()
	p.w.net.change(func() { p.port.own.frozen = is })
}

// exit ends what a process runs when it has shut down: handlers that were given up.
func (p *process) exit() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	close(p.Hang)
}

// kill ends the process at once. What it runs goes on without effect until it ends by itself.
func (p *process) kill(flush bool) {
	p.exit()
	p.port.kill(flush)
	p.freeze(false)
	p.stop()
	over := func() {
		<-p.begun
		over, cancel := context.WithCancel(context.Background())
		cancel()
		if p.end != nil {
			_ = p.end(over)
		}
		_ = p.queue.Close()
		p.pool.Close()
	}
	p.clock.Within(func() { p.w.living.Go(over) })
}

// timed is a Shutdown that is to take no longer than its bound once no handler runs, unless its process is killed. If
// one still runs, the grace and the longest hang come on top. A puller settles what it has one by one.
func (p *process) timed(end shunt.Shutdown) shunt.Shutdown {
	if p.Pull > 0 || end == nil {
		return end
	}
	return func(ctx context.Context) error {
		if ctx.Err() != nil {
			return end(ctx)
		}
		what, began := "shutdown", time.Now()
		err := end(ctx)
		if some := (*shunt.ShutdownError)(nil); errors.As(err, &some) && some.Running > 0 {
			what, began = "shutdown beside a handler", began.Add(p.Grace+p.w.plot.longest())
		} else if handled := p.w.said.Last(func(e trial.Entry) bool {
			return e.By == p.Name && e.Op == trial.Handle && e.Phase != trial.Invoke
		}); handled.At.After(began) {
			began = handled.At
		}
		p.w.took(what, time.Since(began), p.Name)
		return err
	}
}

// term has the process shut down in order, and waits for that.
func (p *process) term() {
	p.stop()
	<-p.begun
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	var began time.Time
	p.clock.Within(func() {
		if p.end != nil {
			err = p.end(ctx)
		}
		began = time.Now()
		if err2 := p.queue.Close(); err == nil {
			err = err2
		}
	})
	p.w.took("close", time.Since(began), p.Name)
	p.pool.Close()
	defer p.exit()
	if err != nil {
		p.log.Say(trial.Entry{Op: trial.Unclean, Phase: trial.Fail, Note: err.Error()})
		return
	}
	time.Sleep(time.Millisecond) // what was cut or dialled in the last moment has ended by then
	p.w.net.mu.Lock()
	open := p.port.inUse
	p.w.net.mu.Unlock()
	p.log.Say(trial.Entry{Op: trial.Count, Phase: trial.Invoke, ID: "connections"},
		trial.Entry{Op: trial.Count, Phase: trial.OK, ID: "connections", N: open},
		trial.Entry{Op: trial.Closed, Phase: trial.OK})
}
