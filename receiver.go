package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

// Shutdown ends a receiver. It stops taking at once; handlers run on until ctx ends, then their contexts are cancelled with
// ErrShutdown as cause, and after Queue.Grace what is still held goes back to the taking end, in order. It returns nil when all
// had ended, else a *ShutdownError. It may be called again, and by many goroutines at once: the first ctx to end counts, and all
// get the same result. From inside a handler of the receiver it is ErrInHandler, and nothing has begun.
type Shutdown func(ctx context.Context) error

// receiver is one Receive call.
type receiver struct {
	q       *Queue
	s       *link.Server
	conf    *Queue
	handler Handler
	values  context.Context // of handlers: Receive's values, not its end
	intakes []*intake       // the channels, the highest first
	order   *order          // of several channels; nil for one
	slots   []*slot

	// live is the incarnation. gate is held shared by whoever has commands under way on its lists, from before they are sent until
	// their replies have been judged, and alone by the handover that ends it: so a handover sees every element in one known place.
	live atomic.Pointer[lists.Incarnation]
	gate sync.RWMutex

	taking   context.Context // ends: nothing more is taken
	stop     context.CancelFunc
	patience context.Context // ends: handlers' contexts end
	hurry    context.CancelFunc
	life     context.Context // ends: whoever is left goes home
	die      context.CancelFunc
	settled  chan struct{} // closed: stopped, and what had not begun is handed back
	ended    chan struct{} // closed: err is set and shutdown returns
	err      error
	overOnce sync.Once

	workers errgroup.Group // slots' goroutines, those of handlers that were given up too
	others  errgroup.Group // all else

	lease    lease
	parking  parking
	watcher  watcher
	vacant   vacant
	breaker  link.Breaker
	large    large
	kicks    chan struct{}       // of capacity 1: beat now
	looks    chan *intake        // sweep now, without judging anybody
	broken   chan error          // of capacity 1: why the incarnation has to end
	doubt    atomic.Bool         // it has to, and has not yet
	owed     []lists.Incarnation // gate: what an unfinished handover leaves to the end
	pausing  atomic.Bool         // a handover wants the gate
	suspect  atomic.Bool         // a suspect is in hand
	polls    atomic.Bool         // a waiter may not block
	full     atomic.Int64        // unix ns until which a full Redis is assumed
	orphans  atomic.Int32
	returned atomic.Int32  // messages whose handlers ended early on our demand
	over     chan struct{} // closed: stopped, and the lease is lost too
}

// intake is one channel of a receiver.
type intake struct {
	*lists.Keys
	index     int
	prototype IMessage
	doing     []any       // of the live incarnation; gate
	suspects  atomic.Bool // there may be some to take
	promoter  *promoter
	waiter    *link.Waiter
	blocked   atomic.Bool // the waiter's connection is in a blocking command
	due       time.Time   // beat's: of the next sweep
}

// Receive starts workers, 1 to 10,000 goroutines that each take messages from the prototype's channel into a list of their own
// and handle them. ctx ending is the first step of shutdown; handlers get its values, not its end. The error says what is wrong with
// the arguments, the Pool (see README for the connections needed) or Redis, after at most 5 s, and then nothing is left running. A Redis
// that goes away later is waited for.
func (q *Queue) Receive(ctx context.Context, prototype IMessage, workers int) (Shutdown, error) {
	return q.receive(ctx, workers, []IMessage{prototype}, nil)
}

// ReceiveOrdered is Receive for several channels in strict order: no worker starts a message while a channel named earlier has
// one. A message of a later channel may wait for ever; ReceiveWeighted starves none.
func (q *Queue) ReceiveOrdered(ctx context.Context, workers int, prototypes ...IMessage) (Shutdown, error) {
	return q.receive(ctx, workers, prototypes, &order{})
}

// Share is a channel's part in ReceiveWeighted.
type Share struct {
	Prototype IMessage
	Weight    int // 1 to 1,000,000
}

// ReceiveWeighted is Receive for several channels that each get their weight's share of the starts while all have messages; what
// one leaves goes to the others, the channel named earlier first.
func (q *Queue) ReceiveWeighted(ctx context.Context, workers int, shares ...Share) (Shutdown, error) {
	o := &order{weights: make([]int, len(shares)), credit: make([]int, len(shares))}
	prototypes := make([]IMessage, len(shares))
	for i, s := range shares {
		if s.Weight < 1 || s.Weight > 1e6 {
			return nil, fmt.Errorf("shunt: share %d has weight %d: want 1 to 1,000,000", i, s.Weight)
		}
		o.weights[i], prototypes[i] = s.Weight, s.Prototype
	}
	return q.receive(ctx, workers, prototypes, o)
}

// startTimeout bounds the start of a receiver, where Redis may be absent.
const startTimeout = 5 * time.Second

func (q *Queue) receive(ctx context.Context, workers int, prototypes []IMessage, o *order) (Shutdown, error) {
	if err := q.open(context.Background()); err != nil {
		return nil, err
	}
	r, err := q.newReceiver(ctx, workers, prototypes, o)
	if err != nil {
		return nil, err
	}
	if err := q.admit(r); err != nil {
		return nil, err
	}
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer context.AfterFunc(r.taking, cancel)() // Close
	sent, err := r.register(start, *r.live.Load())
	if err != nil {
		q.dismiss(r)
		close(r.ended)
		return nil, explain(err, "receive from", r.intakes[0].Channel)
	}
	r.lease.renew(sent)
	r.run(ctx)
	return r.shutdown, nil
}

func (q *Queue) newReceiver(ctx context.Context, workers int, prototypes []IMessage, o *order) (*receiver, error) {
	if workers < 1 || workers > lists.MaxWorkers {
		return nil, fmt.Errorf("shunt: %d workers: want 1 to %d", workers, lists.MaxWorkers)
	}
	if len(prototypes) == 0 || len(prototypes) > 64 {
		return nil, fmt.Errorf("shunt: %d channels: want 1 to 64 prototypes", len(prototypes))
	}
	if len(prototypes) == 1 {
		o = nil // one channel is in order by itself
	}
	r := &receiver{
		q: q, conf: q.conf, order: o, values: context.WithoutCancel(ctx), broken: make(chan error, 1),
		kicks: make(chan struct{}, 1), looks: make(chan *intake, 128),
		settled: make(chan struct{}), ended: make(chan struct{}), over: make(chan struct{}),
	}
	r.taking, r.stop = context.WithCancel(context.Background())
	r.patience, r.hurry = context.WithCancel(context.Background())
	r.life, r.die = context.WithCancel(context.Background())
	r.handler = func(ctx context.Context, m IMessage) error { return m.Resolve(ctx) }
	if wrap := q.conf.Wrap; wrap != nil {
		var err error
		guard("Wrap", func() error { r.handler = wrap(r.handler); return nil }, func(e error) { err = e })
		if err != nil || r.handler == nil {
			return nil, errors.Join(errors.New("shunt: Queue.Wrap gave no Handler"), err)
		}
	}
	seen := make(map[string]bool)
	inc := lists.NewIncarnation(workers, q.conf.Lease)
	r.live.Store(&inc)
	for i, p := range prototypes {
		if isNil(p) {
			return nil, fmt.Errorf("shunt: prototype %d is nil", i)
		}
		var channel string
		var err error
		guard("Channel", func() error { channel = p.Channel(); return nil }, func(e error) { err = e })
		if err == nil {
			err = lists.CheckChannel(channel)
		}
		if err == nil && seen[channel] {
			err = fmt.Errorf("shunt: two prototypes of channel %q: want one", channel)
		}
		if err == nil && reflect.TypeOf(p) == reflect.TypeFor[raw]() {
			err = fmt.Errorf("shunt: a Raw message is no prototype: it has no handler for channel %q", channel)
		}
		if err != nil {
			return nil, err
		}
		seen[channel] = true
		r.s = q.serverOf(channel)
		k := q.keysFor(channel)
		in := &intake{Keys: k, index: i, prototype: p, doing: k.Doings(inc), waiter: link.NewWaiter(r.s.Node, q.conf.ReplyTimeout)}
		in.promoter = newPromoter(r, in)
		r.intakes = append(r.intakes, in)
	}
	for n := range workers {
		r.slots = append(r.slots, &slot{r: r, n: n, wake: make(chan struct{}, 1), limit: 1})
	}
	r.lease.length = q.conf.Lease
	r.breaker.Over = r.wakeAll
	r.breaker.Tells = func(err error, fatal bool) {
		r.q.events.emit(Event{Kind: Trouble, Channel: r.intakes[0].Channel, Receiver: r.live.Load().Name, Err: err, Fatal: fatal})
	}
	r.parking.init()
	r.watcher.init()
	r.large.bytes = semaphore.NewWeighted(largeInFlight)
	return r, nil
}

// isNil also sees a nil pointer in an interface.
func isNil(m IMessage) bool {
	if m == nil {
		return true
	}
	v := reflect.ValueOf(m)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// connections is what a Queue needs: the data and pulse links and the subscription, and for each receiver one waiter a
// channel and the link for large elements.
func (q *Queue) connections() int {
	n := 3
	for r := range q.receivers {
		n += len(r.intakes) + 1
	}
	return n
}

// admit lists a receiver for Close, if the Pool can serve it.
func (q *Queue) admit(r *receiver) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.receivers[r] = struct{}{}
	if most, need := q.Pool.MaxActive, q.connections(); most > 0 && most < need {
		delete(q.receivers, r)
		return fmt.Errorf("shunt: the Pool's MaxActive is %d, and with this receiver the Queue needs %d connections: 3, and for each receiver 1 and 1 a channel", most, need)
	}
	return nil
}

func (q *Queue) dismiss(r *receiver) {
	q.mu.Lock()
	delete(q.receivers, r)
	q.mu.Unlock()
}

// run starts the goroutines of a registered receiver.
func (r *receiver) run(ctx context.Context) {
	r.q.events.emit(Event{Kind: Started, Channel: r.intakes[0].Channel, Receiver: r.live.Load().Name, N: len(r.slots)})
	for _, s := range r.slots {
		s.mu.Lock()
		s.spawn()
		s.mu.Unlock()
	}
	other := func(f func()) { r.others.Go(func() error { f(); return nil }) }
	for _, in := range r.intakes {
		other(func() { r.wait(in) })
		other(in.promoter.run)
	}
	other(r.beat)
	other(r.watch)
	other(r.succeed)
	forget := context.AfterFunc(ctx, r.stop)
	go func() {
		r.end()
		forget()
		r.q.dismiss(r)
		close(r.ended)
	}()
}

// isSettled says whether a worker that has nothing may go home: before, a waiter or a late reply might still bring it something.
func (r *receiver) isSettled() bool {
	select {
	case <-r.settled:
		return true
	default:
		return false
	}
}

func (r *receiver) stopped() bool { return r.taking.Err() != nil }

func (r *receiver) shutdown(ctx context.Context) error {
	if r.handles(goroutine()) {
		return ErrInHandler
	}
	if h, ok := ctx.Value(infoKey{}).(*handling); ok && h.r == r {
		return ErrInHandler
	}
	r.stop()
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		r.hurry()
	}
	<-r.ended
	return r.err
}

// end is the way down: nothing more is taken, what has not begun is handed back, handlers end or are ended, what is left is
// handed back too, and the entry goes.
func (r *receiver) end() {
	<-r.taking.Done()
	r.parking.wakeAll()
	r.watcher.note(time.Now())
	graced := r.graced()
	if r.seize(graced) {
		r.conclude(graced)
		r.putBack(graced, waiting)
		r.resume()
	}
	close(r.settled)
	r.wakeAll()
	idle := make(chan struct{})
	go func() {
		r.workers.Wait()
		close(idle)
	}()
	clean := false
	select {
	case <-idle:
		clean = true
	case <-graced.Done():
	}
	r.die()
	// Where all is well this takes a round trip or two. Where not, whoever calls shutdown is waiting beyond his time already.
	limit, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if !clean {
		limit, cancel = context.WithTimeout(limit, time.Second)
		defer cancel()
	}
	if r.s.Why() != nil {
		limit, cancel = context.WithTimeout(limit, 10*time.Millisecond)
		defer cancel()
	}
	defer context.AfterFunc(r.patience, func() {
		link.Sleep(limit, max(r.conf.Grace, 100*time.Millisecond))
		cancel()
	})()
	result := &ShutdownError{}
	result.Returned, result.Err = r.handBack(limit)
	result.Running = r.runningNow()
	gone := make(chan struct{})
	go func() {
		r.others.Wait()
		for _, in := range r.intakes {
			in.promoter.yield()
			in.waiter.Close()
		}
		r.large.close()
		close(gone)
	}()
	select {
	case <-gone:
	case <-limit.Done():
	}
	if result.Returned+result.Running > 0 || result.Err != nil {
		r.err = result
	}
	r.hurry()
	r.q.events.emit(Event{Kind: Stopped, Channel: r.intakes[0].Channel, Receiver: r.live.Load().Name, Err: r.err})
}

// graced ends a grace after the handlers' contexts were ended, which it does when patience is over.
func (r *receiver) graced() context.Context {
	ctx, cancel := context.WithCancel(r.life)
	go func() {
		defer cancel()
		select {
		case <-r.patience.Done():
			r.cancelAll(ErrShutdown)
			link.Sleep(ctx, r.conf.Grace)
		case <-r.over: // nothing is ours any more
		}
	}()
	return ctx
}

// unblock ends the waiters' blocking commands, where the server allows it, until done; one that comes too early does nothing.
func (r *receiver) unblock(ctx context.Context) {
	refused := false
	for ctx.Err() == nil {
		for _, in := range r.intakes {
			if id := in.waiter.ID(); id != 0 && in.blocked.Load() && !refused {
				c := link.NewCall()
				c.FailFast = true
				c.Add("CLIENT", "UNBLOCK", id)
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				refused = r.s.Pulse.Do(ctx, c) != nil || c.Replies[0].Err != nil
				cancel()
			}
		}
		link.Sleep(ctx, 10*time.Millisecond)
	}
}

// goroutine is the number of the calling goroutine, as its stack trace gives it. It serves only to tell a handler that it
// would wait for itself: a handler need not pass its context on.
func goroutine() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	id, _ := strconv.ParseUint(string(fields[1]), 10, 64)
	return id
}

// handles says whether the goroutine is one of the receiver's that run handlers.
func (r *receiver) handles(id uint64) bool {
	for _, s := range r.slots {
		s.mu.Lock()
		_, is := s.goroutines[id]
		s.mu.Unlock()
		if is {
			return true
		}
	}
	return false
}
