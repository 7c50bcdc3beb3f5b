package shunt

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/sender"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/worker"
)

// Queue enqueues and receives messages through one Redis. Its exported fields are its configuration: a zero field means
// the default, and all are read once, by the first method called. It is not copied once used. Its methods may be called
// by many goroutines at once.
type Queue struct {
	// Pool gives the connections: NewPool's, or any other whose connections can be read with a timeout. Required.
	Pool *redis.Pool

	// Lease is how long a receiver, or Redis, may be away without its messages being given to others: 1 s to 10 min,
	// default 10 s. Messages of a killed process are handled again after 1 to 1.4 leases. Receivers that share a
	// channel may differ. A round trip to Redis must take less than a sixth of it.
	Lease time.Duration
	// Grace is how long a handler may go on after its context has ended: at most a year, default 1 s. Then its worker
	// goes on without it, and the message gets its verdict.
	Grace time.Duration
	// Timeout bounds each handling of a message: default 30 min; negative: no bound.
	Timeout time.Duration
	// MaxAttempts is how often a message is handled before it goes to dead, the first time included: 1 to 255, default
	// 25; negative: no bound. What a dead process held is handled again, and that counts as no attempt.
	MaxAttempts int
	// Backoff says how long to wait after the given failed attempt, counted from 1. The default is Sidekiq's:
	// attempt⁴ + 15 s and up to 10 s × attempt of jitter, 25 attempts in some three weeks.
	Backoff func(attempt int) time.Duration

	// Prefetch is how many messages a worker may hold: 1 to 1000, default 64, beside those whose verdicts are on their
	// way. It holds more than one only while its handler takes less than 1 ms for all of them. It holds up to four if
	// the handler takes less than 25 ms for these. 1 turns it off.
	Prefetch int
	// PrefetchBytes bounds the same by their size: default 256 KB.
	PrefetchBytes int
	// MaxSize bounds an element that is enqueued, header included: default 16 MB, at most 512 MB.
	MaxSize int

	// MaxDead bounds how many dead messages a channel keeps: 1 or more, default 10,000; negative: no bound. The oldest
	// are dropped, with an Event, when another one dies, at most 100 with each.
	MaxDead int
	// DeadFor bounds how long a channel keeps dead messages, by the server's clock: 1 ms or more, default 30 days;
	// negative: no bound. Older ones stay until another message dies.
	DeadFor time.Duration

	// MaxDone bounds how many outcomes a channel keeps, as Retain asks. The oldest are dropped. Default 10,000;
	// negative: no bound.
	MaxDone int
	// MaxDoneBytes bounds the same by size: default 64 MB; negative: no bound.
	MaxDoneBytes int

	// EnqueueTimeout bounds an enqueue whose context has no deadline, and each command of Stats, List, Status, Cancel
	// and the other operators' methods: default 10 s.
	EnqueueTimeout time.Duration
	// ReplyTimeout is how long a connection may owe a reply before it is taken for broken: default 3 s, 100 ms to a
	// year. Beats wait for a third of Lease at most.
	ReplyTimeout time.Duration

	// Wrap builds the middleware. It is called once a Receive, with the Handler that calls Resolve. The Handler that it
	// returns is called for every message. A panic of Resolve comes to it as a *PanicError; runtime.Goexit ends its
	// goroutine, too.
	Wrap func(next Handler) Handler
	// WrapEnqueue builds the middleware of enqueues. It is called for each Enqueue, EnqueueAll and Then, with the
	// EnqueueHandler that enqueues; Then's notes the messages with the handler's own. The one that it returns gets all
	// messages of the call, and may give others to next: With adds options, which win over those that were given, and
	// Unwrap gives a message without its options. What
	// it returns is the error of the call. Package recur does not call it.
	WrapEnqueue func(next EnqueueHandler) EnqueueHandler
	// Codec writes and reads the payloads of messages made by Define. The default is JSON, as ToJSON and FromJSON have
	// it.
	Codec Codec
	// Payloads compresses, encrypts or stores elsewhere the payloads of all messages, and undoes that. The default
	// leaves them as they are.
	Payloads Payloads
	// CarryHeaders names the headers that travel from a message to those that its handler enqueues by Then.
	CarryHeaders []string
	// Events gets what happens, one Event at a time, on a goroutine of its own. Close waits Grace for it. Where Events
	// is slower than what happens, up to 16,384 Events wait for it, and the rest are dropped and counted. Without it,
	// warnings and errors go to slog.Default(): at most 10 lines in 10 s for one kind of Event on one channel,
	// and 1,000 where messages went to dead.
	Events func(Event)
	// Quiet turns that log off.
	Quiet bool
	// NoCounts leaves out of Counts what this Queue does.
	NoCounts bool

	mu        sync.Mutex
	opened    bool
	closed    bool
	ending    context.Context // ends when Close begins
	beginEnd  context.CancelFunc
	life      context.Context // ends when Close has waited for as long as a reply may take
	endLife   context.CancelFunc
	closing   chan struct{} // closed when Close has done its work
	closeErr  error
	receivers map[*receiver]struct{}

	knownMu sync.RWMutex
	known   map[string]*store.Keys // channels met so far

	waits sync.WaitGroup // what Close waits for beside receivers: calls of Wait and Pull, and what they began; under mu

	ready atomic.Bool // open has nothing to do: opened and not closed
	// Set by open and constant from then on.
	conf   *config
	server *link.Server
	router *link.Router
	sender *sender.Sender
	events *event.Stream
	log    *sampler // nil: with Events, or Quiet

	counter *counter // nil: with NoCounts
	overs   *overs   // nil: without Payloads.Over

	stations map[*link.Server]*station // for those who pull; mu guards the map
	foreign  foreign
}

// NewPool makes a pool for a URL: redis://[[user]:password@]host[:port][/db], rediss:// for TLS, or
// unix:///path/to/socket[?db=n]. All of them take ?db=n; any other option is an error. NewPool does not dial; a wrong
// host or password surfaces on first use. TLS trusts the certificates that the system trusts. For an authority of your
// own make a redis.Pool with redis.DialTLSConfig.
//
// A connection, with its TLS handshake, is made within 1 s or fails. The commands that log in and choose the database
// have 3 s each, as has any read or write on which nothing moves. There is no bound on connections (MaxActive). Up to 8
// idle ones are kept (MaxIdle), for a minute. The fields of the Pool may be set until its first use.
func NewPool(rawURL string) (*redis.Pool, error) { return link.NewPool(rawURL) }

// open checks and starts what all methods need, once. An enqueue from within a handler may still come while Close waits
// for it.
func (q *Queue) open(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	if q.ready.Load() {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		if r, ok := ctx.Value(ownerKey{}).(*receiver); !ok || r.q != q || q.server == nil {
			return ErrClosed
		}
	}
	if q.opened {
		return nil
	}
	if err := q.Validate(); err != nil {
		return err
	}
	q.conf = q.config()
	q.events = q.newEvents()
	q.receivers = make(map[*receiver]struct{})
	q.ending, q.beginEnd = context.WithCancel(context.Background())
	q.known = make(map[string]*store.Keys)
	q.life, q.endLife = context.WithCancel(context.Background())
	// A dial and the wait before it take less than a third of a lease together. The dial has a half of that third, and
	// the wait two fifths with an eighth of jitter. So an outage that has ended costs no lease.
	third := q.conf.Lease / 3
	node := link.NewNode(q.Pool, link.Settings{
		DialTimeout: min(time.Second, third/2), MaxBackoff: min(5*time.Second, third*2/5),
		Changed: func(up, refused bool, err error) {
			if up {
				q.emit(event.Event{Kind: event.Connected})
			} else {
				q.emit(event.Event{Kind: event.Disconnected, Fatal: refused, Err: err})
			}
		},
	})
	q.server = &link.Server{
		Node:  node,
		Data:  link.New(node, q.conf.ReplyTimeout, true),
		Pulse: link.New(node, min(q.conf.ReplyTimeout, third), false),
		Hints: link.NewSubscription(node),
	}
	q.router = link.NewRouter(q.server)
	q.sender = sender.New(q.router, asker{q: q}, q.conf.EnqueueTimeout)
	q.overs = newOvers(q)
	if !q.NoCounts {
		q.counter = newCounter(q)
		q.waits.Add(1)
		go q.counter.run()
	}
	q.opened = true
	q.ready.Store(true)
	return nil
}

// begin counts a call, or a goroutine, for which Close waits.
func (q *Queue) begin() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.waits.Add(1)
	return nil
}

// sidekiqBackoff is the default of Queue.Backoff, after sidekiq/job_retry.rb.
func sidekiqBackoff(attempt int) time.Duration {
	n := min(attempt, 255)
	return time.Duration(n*n*n*n+15)*time.Second + rand.N(time.Duration(n)*10*time.Second+1)
}

// maxKnown bounds the channels that are remembered, some 1.5 KB each: a daemon's clients may name any number.
const maxKnown = 10000

// keysOf is the channel's keys, for one who does not use the channel but looks at it: it is not listed for that.
func (q *Queue) keysOf(channel string) *store.Keys {
	q.knownMu.RLock()
	defer q.knownMu.RUnlock()
	if k := q.known[channel]; k != nil {
		return k
	}
	return store.KeysOf(channel)
}

// keysFor is the channel's keys, if that is a channel's name. The first time the channel is met it is listed for
// operators, out of the message's way.
func (q *Queue) keysFor(channel string) (*store.Keys, error) {
	q.knownMu.RLock()
	k := q.known[channel]
	q.knownMu.RUnlock()
	if k != nil {
		return k, nil
	}
	if err := store.CheckChannel(channel); err != nil {
		return nil, err
	}
	made := store.KeysOf(channel)
	q.knownMu.Lock()
	if k = q.known[channel]; k == nil {
		if k = made; len(q.known) >= maxKnown {
			clear(q.known) // some are met again, and listed once more
		}
		q.known[channel] = k
	}
	q.knownMu.Unlock()
	if k == made {
		c := link.NewCall()
		store.AddChannel(c, channel)
		q.router.For(channel).Data.Post(c) // the reply is nobody's
	}
	return k, nil
}

// Shutdown ends all receivers that the Queue has now, at once and with one deadline, as their own Shutdown does:
// handlers run on until ctx ends. The Queue can still enqueue, and receive anew; Close ends it. The error joins those
// of the receivers, each a *ShutdownError, and is nil where all handlers had ended. Where Redis is away and no handler
// runs, Shutdown takes ReplyTimeout at most. From inside a handler it is ErrInHandler.
func (q *Queue) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	q.mu.Lock()
	rs, err := q.stoppable(ctx)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	return shutdownAll(ctx, rs)
}

// stoppable are the receivers, unless the caller is a handler of one. mu is held.
func (q *Queue) stoppable(ctx context.Context) (rs []*receiver, err error) {
	id := worker.Goroutine()
	for r := range q.receivers {
		if r.isHandler(ctx, id) {
			return nil, ErrInHandler
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// shutdownAll ends receivers at once: one's handlers may run for long.
func shutdownAll(ctx context.Context, rs []*receiver) error {
	errs := make([]error, len(rs))
	var all sync.WaitGroup
	for i, r := range rs {
		all.Go(func() { errs[i] = r.shutdown(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close ends what the Queue has begun. New enqueues get ErrClosed. Receivers shut down, and their handlers run to their
// end, during which they may enqueue. Then an enqueue under way gets its reply or ErrUnknown within ReplyTimeout, and
// so does all else that asks Redis. Close waits for handlers however long they take: to bound that, call Shutdown
// first. Where Redis is away and no handler runs, Close takes ReplyTimeout at most, beside what Events and
// Payloads.Over take. Its error joins those of the receivers, and is nil where all ended clean. Close does not close
// the Pool. A second call waits for the first and gives its error. From inside a handler it is ErrInHandler.
func (q *Queue) Close() error {
	q.mu.Lock()
	rs, err := q.stoppable(context.Background())
	if err != nil {
		q.mu.Unlock()
		return err
	}
	if q.closed {
		closing := q.closing
		q.mu.Unlock()
		<-closing
		return q.closeErr
	}
	q.closed, q.closing = true, make(chan struct{})
	if q.beginEnd != nil {
		q.beginEnd()
	}
	q.ready.Store(false)
	s, stations := q.server, q.stations
	q.mu.Unlock()

	budget, end := context.Background(), context.CancelFunc(func() {})
	if s != nil {
		budget, end = context.WithTimeout(budget, q.conf.ReplyTimeout)
		defer context.AfterFunc(budget, q.endLife)()
	}
	q.closeErr = shutdownAll(context.Background(), rs)
	if budget.Err() != nil && !errors.Is(q.closeErr, worker.ErrUnanswered) { // handlers have ended late
		budget, end = context.WithTimeout(context.Background(), q.conf.ReplyTimeout)
	}
	defer end()
	for _, at := range stations {
		at.bells.Close()
	}
	if q.counter != nil {
		q.counter.stop()
	}
	q.waits.Wait()
	if s != nil {
		q.counter.end(budget)
		for _, at := range stations {
			at.upkeep.end(budget)
		}
		q.endLife()
		q.sender.Close(budget)
		s.Data.CloseWithin(budget)
		s.Pulse.CloseWithin(budget)
		limit, end := context.WithTimeout(context.Background(), q.conf.EnqueueTimeout)
		q.overs.close(limit) // behind the links: most enqueues that their end has failed have told Over by then
		end()
		ctx, cancel := context.WithTimeout(context.Background(), q.conf.Grace)
		q.events.Close(ctx)
		cancel()
		q.log.close()
	}
	close(q.closing)
	return q.closeErr
}
