// Package worker is the pool of workers of one receiver. It takes elements from its lanes in order, has them handled,
// and makes the verdicts true. It hands over or back what it holds when a connection breaks, a lease is lost or a
// shutdown comes. The functions of its Config know what a message is, and what a failure of its handler means. The
// receiver keeps the reaper and the promoter.
package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/store"
)

// ErrExited says that a handler has ended its goroutine.
var ErrExited = errors.New("shunt: the handler called runtime.Goexit")

// StartTimeout bounds the start and the end of a receiver, where Redis may be absent.
const StartTimeout = 5 * time.Second

// Config configures a pool. shunt.Queue explains the fields that have the same name there.
type Config struct {
	Lease, Grace, Timeout, ReplyTimeout time.Duration
	Prefetch, PrefetchBytes             int
	MaxSize                             int // of an element, in bytes
	// after which a verdict that Redis refuses is put back; 0: a minute
	RefusedFor time.Duration
	Bounds     store.Bounds

	Order  *Order          // of several lanes; nil for one
	Values context.Context // of handlers' contexts

	// Handle decodes a message, runs its handler, and returns Ack or a verdict of its own. The item is the handler's
	// context. Handle tells the item when the message is Decoded. It also tells it that the handler has Returned,
	// before it asks the user for what a verdict depends on.
	Handle func(it *Item) *custody.Verdict
	// Judge is the verdict on a message whose handler did not return. It called runtime.Goexit, which is ErrExited, or
	// it ignored its ended context, whose cause err is then. Judge gets what Decoded was given. It runs on a goroutine
	// that is ending, or on one of its own.
	Judge func(it *Item, message any, err error) *custody.Verdict
	// Emit gets each event; nil for none. Every: also what happens to each message that is handled well.
	Emit  func(...event.Event)
	Every bool
	Count bool // what Tally gives
	// Over gets what has left Redis by a verdict; nil for none. It does not block.
	Over func(*custody.Held, *custody.Verdict)
}

// Pool is the workers of one receiver, which share its lanes. Each worker takes elements into lists of its own, has
// them handled, and makes the verdicts true.
type Pool struct {
	Lanes []*lane.Lane // the highest first
	Sites []*lane.Site // of the lanes

	conf    *Config
	order   *Order // of several lanes; nil for one
	workers []*worker

	lifetime

	workerGroup errgroup.Group // workers' goroutines, those of orphans too
	otherGroup  errgroup.Group // all else

	parking parking
	watcher watcher
	orphans orphans
}

// NewPool makes a pool of lanes, the highest first, and starts nothing.
func NewPool(workers int, lanes []*lane.Lane, conf Config) *Pool {
	conf.RefusedFor = cmp.Or(conf.RefusedFor, time.Minute)
	r := &Pool{Lanes: lanes, conf: &conf, order: conf.Order}
	r.lifetime.init()
	r.parking.init()
	r.watcher.init(r)
	for n := range workers {
		r.workers = append(r.workers, newWorker(r, n))
	}
	r.Sites = lane.Sites(lanes, &lane.Config{
		Lease: conf.Lease, ReplyTimeout: conf.ReplyTimeout, Workers: workers, Emit: r.emit, Wake: r.wakeAll,
		Renewed: r.parking.signal, Adopt: r.adopt, Busy: r.busy, Taking: r.TakeCtx, Running: r.PoolCtx,
		Lost: func(s *lane.Site) { r.cancelAll(s, custody.ErrLeaseLost) },
	})
	return r
}

func (r *Pool) emit(evs ...event.Event) {
	if r.conf.Emit != nil && len(evs) > 0 {
		r.conf.Emit(evs...)
	}
}

// adopt makes the lists of a site's incarnation the workers' own. The gate is closed.
func (r *Pool) adopt(*lane.Site) {
	if r.order != nil {
		return // with several lanes no command is ready
	}
	for n, s := range r.workers {
		s.take, s.ack = store.NewTake(r.Lanes[0].Keys, r.Lanes[0].Lists[n]), store.NewAck(r.Lanes[0].Lists[n])
	}
}

// Workers is how many workers there are.
func (r *Pool) Workers() int { return len(r.workers) }

// Join makes the pool known to the Redis of each lane; only then may it start.
func (r *Pool) Join(ctx context.Context) (err error) {
	for _, s := range r.Sites {
		err = cmp.Or(err, s.Join(ctx))
	}
	return err
}

// Start starts the goroutines, with others that end when the pool has ended. End waits for all of them.
func (r *Pool) Start(others ...func()) {
	for _, s := range r.workers {
		s.mu.Lock()
		s.spawn()
		s.mu.Unlock()
	}
	for _, l := range r.Lanes {
		others = append(others, (&waiter{r, l}).wait)
	}
	for _, s := range r.Sites {
		h, a := &handovers{pool: r, site: s}, &audit{pool: r, site: s}
		others = append(others, s.Beat, s.Debts.Loop, h.loop, a.loop)
	}
	for _, f := range append(others, r.watcher.watch) {
		r.otherGroup.Go(func() error { f(); return nil })
	}
}

// wakeAll sends every worker and waiter to look whether something has changed for it.
func (r *Pool) wakeAll() {
	r.parking.wakeAll()
	for _, s := range r.workers {
		s.poke()
	}
}

// Suspects sends a worker for the suspects of a lane.
func (r *Pool) Suspects(l *lane.Lane) {
	l.MayHaveSuspects.Store(true)
	r.parking.wakeOne()
}

// Cancel ends the handler of a message, or keeps it from being begun. It does nothing where no worker here holds the
// message.
func (r *Pool) Cancel(l *lane.Lane, serial ulid.ULID) {
	r.each(func(s *worker, it *Item) {
		if it.Lane != l || it.Bare || it.Serial != serial {
			return
		}
		it.cancelled = true
		if it.runs() {
			it.cancel(custody.ErrCancelled)
		} else if it.state == queued {
			it.decide(&custody.Verdict{Verdict: store.Verdict{Fate: store.Cancelled}})
			s.poke()
		}
	})
	r.watcher.note(time.Now())
}

// Tracked are the serials of the messages with an id that the workers hold, of one lane.
func (r *Pool) Tracked(l *lane.Lane) (all []ulid.ULID) {
	r.each(func(_ *worker, it *Item) {
		if it.Lane == l && it.ID() != "" && (it.runs() || it.state == queued) && !it.cancelled {
			all = append(all, it.Serial)
		}
	})
	return all
}

// cancelAll ends the context of every handler that runs; of a site's lanes alone, if one is given.
func (r *Pool) cancelAll(of *lane.Site, cause error) {
	r.each(func(_ *worker, it *Item) {
		if it.runs() && (of == nil || it.Lane.Site == of) {
			it.cancel(cause)
		}
	})
	r.watcher.note(time.Now())
}

// busy are the messages of a site's lanes whose handlers have been at work since before then, whoever has them by now.
func (r *Pool) busy(at *lane.Site, before time.Time) (all []lane.Busy) {
	r.each(func(s *worker, it *Item) {
		if it.atWork() && it.Lane.Site == at && it.Started.Before(before) {
			all = append(all, lane.Busy{Lane: it.Lane, Busy: store.Busy{Worker: s.n, Serial: it.SerialString(),
				ID: it.ID(), Since: it.Started}})
		}
	})
	return all
}

// runningNow counts handlers that have not returned, orphans or not.
func (r *Pool) runningNow() int {
	n := r.orphans.count()
	r.each(func(_ *worker, it *Item) {
		if it.atWork() {
			n++
		}
	})
	return n
}

// each calls do for every item that a worker holds, with the worker's mu held.
func (r *Pool) each(do func(s *worker, it *Item)) {
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			do(s, it)
		}
		s.mu.Unlock()
	}
}

// Handles says whether the goroutine is one of the receiver's that run handlers.
func (r *Pool) Handles(id uint64) bool {
	for _, s := range r.workers {
		s.mu.Lock()
		_, is := s.goroutines[id]
		s.mu.Unlock()
		if is {
			return true
		}
	}
	return false
}

// Goroutine is the number of the calling goroutine, as its stack trace gives it. It serves only to tell a handler that
// it would wait for itself: a handler need not pass its context on.
func Goroutine() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
}

// atEach runs do for each site at once, so that one whose Redis is away holds up no other.
func (r *Pool) atEach(do func(i int, s *lane.Site)) {
	if len(r.Sites) == 1 {
		do(0, r.Sites[0])
		return
	}
	var all sync.WaitGroup
	for i, s := range r.Sites {
		all.Go(func() { do(i, s) })
	}
	all.Wait()
}
