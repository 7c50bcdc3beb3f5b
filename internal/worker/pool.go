// Package worker is the pool of workers of one receiver. It takes elements in order, has them handled, and makes the
// verdicts true. It hands over or back what it holds when a connection breaks, a lease is lost or a shutdown comes. The
// functions of its Config know what a message is, and what a failure of its handler means. The receiver keeps the beat,
// the reaper and the promoter.
package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
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

	Order  *Order          // of several channels; nil for one
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
}

// Pool is the workers of one receiver, and what they share. Each worker takes elements into a list of its own, has them
// handled, and makes the verdicts true.
type Pool struct {
	conf     *Config
	s        *link.Server
	channels []*Channel // the channels, the highest first
	order    *Order     // of several channels; nil for one
	workers  []*worker

	incarnation
	lifetime

	workerGroup errgroup.Group // slots' goroutines, those of orphans too
	otherGroup  errgroup.Group // all else

	parking       parking
	watcher       watcher
	orphans       orphans
	breaker       link.Breaker
	large         large
	BeatRequests  chan struct{} // of capacity 1: beat now
	SweepRequests chan *Channel // sweep now
	suspects      suspects
	full          fullRedis
}

// NewPool makes a pool of channels, the highest first, and starts nothing.
func NewPool(s *link.Server, workers int, intakes []*Channel, conf Config) *Pool {
	conf.RefusedFor = cmp.Or(conf.RefusedFor, time.Minute)
	r := &Pool{
		conf: &conf, s: s, channels: intakes, order: conf.Order,
		BeatRequests: make(chan struct{}, 1), SweepRequests: make(chan *Channel, 128),
	}
	r.lifetime.init()
	inc := store.NewIncarnation(workers, conf.Lease)
	r.incarnation.init(inc)
	r.unblock = r.unblockWaiters
	for i, in := range intakes {
		in.Index, in.pool, in.waiter.conn = i, r, link.NewWaiter(s.Node, conf.ReplyTimeout)
	}
	for n := range workers {
		r.workers = append(r.workers, &worker{r: r, n: n, wake: make(chan struct{}, 1), pace: pace{limit: 1}})
	}
	r.adopt(inc)
	r.breaker.Over = r.wakeAll
	r.breaker.Tells = func(err error, fatal bool) {
		r.emit(
			event.Event{
				Kind:     event.ReceiverError,
				Channel:  r.channels[0].Name,
				Receiver: r.live.Load().Name,
				Err:      err,
				Fatal:    fatal,
			},
		)
	}
	r.parking.init()
	r.watcher.init()
	r.large.bytes = semaphore.NewWeighted(largeInFlight)
	return r
}

func (r *Pool) emit(evs ...event.Event) {
	if r.conf.Emit != nil && len(evs) > 0 {
		r.conf.Emit(evs...)
	}
}

// Live is the incarnation that the pool is now.
func (r *Pool) Live() store.Incarnation { return *r.live.Load() }

// Join makes the pool known to Redis; only then may it start.
func (r *Pool) Join(ctx context.Context) error {
	first, err := r.register(ctx, *r.live.Load())
	if err == nil {
		r.succeed(first)
	}
	return err
}

// Renew takes in a good beat, sent then.
func (r *Pool) Renew(sent time.Time) {
	stale := !r.lease.fresh(time.Now())
	r.lease.extend(sent)
	r.parking.signal()
	if stale {
		r.wakeAll()
	}
}

// Pausing says that the incarnation is ending.
func (r *Pool) Pausing() bool { return r.pausing() }

// Start starts the goroutines, with others that end when Life has ended. End waits for all of them.
func (r *Pool) Start(others ...func()) {
	for _, s := range r.workers {
		s.mu.Lock()
		s.spawn()
		s.mu.Unlock()
	}
	other := func(f func()) { r.otherGroup.Go(func() error { f(); return nil }) }
	for _, in := range r.channels {
		other(func() { r.wait(in) })
	}
	for _, f := range others {
		other(f)
	}
	other(r.watch)
	other(r.handOverLoop)
	other(r.payLoop)
	other(r.auditLoop)
}

// wakeAll sends every worker and waiter to look whether something has changed for it.
func (r *Pool) wakeAll() {
	r.parking.wakeAll()
	for _, s := range r.workers {
		s.poke()
	}
}

// Goroutine is the number of the calling goroutine, as its stack trace gives it. It serves only to tell a handler that
// it would wait for itself: a handler need not pass its context on.
func Goroutine() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
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

// LookSoon asks for a sweep of one channel, for what it says of delay.
func (r *Pool) RequestSweep(in *Channel) {
	select {
	case r.SweepRequests <- in:
	default: // a regular one will do
	}
}

// Grave tells of an error that waiting does not mend, and says whether it is one.
func (r *Pool) ReportFatal(in *Channel, err error) bool {
	class := link.Classify(err)
	if class != link.Fatal && class != link.Failed {
		return false
	}
	r.emit(event.Event{Kind: event.ReceiverError, Channel: in.Name, Receiver: r.live.Load().Name, Err: err,
		Fatal: true})
	return true
}
