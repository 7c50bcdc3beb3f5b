package shunt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/worker"
)

// Shutdown ends a receiver. It stops taking at once. Handlers run on until ctx ends; then their contexts are cancelled
// with ErrShutdown as cause. After Queue.Grace all that is still held goes back to the taking end, in order. Shutdown
// returns nil when all handlers had ended, else a *ShutdownError. It may be called again, and by many goroutines at
// once: the first ctx to end counts, and all get the same result. From inside a handler of the receiver it is
// ErrInHandler, and nothing has begun.
type Shutdown func(ctx context.Context) error

// receiver is one Receive call: a pool of workers, its messages' types, and the goroutines that recover messages of the
// dead and promote due ones.
type receiver struct {
	pool     *worker.Pool
	q        *Queue
	conf     *config
	handler  Handler
	channels []*channel // the channels, the highest first

	hungErrors, hungMethods atomic.Int32 // calls for verdicts that have not returned in time

	ended chan struct{} // closed: err is set and shutdown returns
	err   error
}

// channel is one channel of a receiver: its lane, the types of its messages, and the progress of what tends it.
type channel struct {
	*lane.Lane
	types
	promoter *promoter
	sweeping sweeping
}

// ownerKey is the context key under which a handler's context gives its receiver.
type ownerKey struct{}

// Receive starts workers, 1 to 10,000, and returns. Each is a goroutine that takes messages from the prototype's
// channel into a list of its own and handles them. The end of ctx is the first step of shutdown. Handlers get the
// values of ctx, not its end.
//
// Receive returns an error if the arguments, the Pool or Redis are at fault, after at most 5 s, and then nothing is
// left running. docs/configuration.md says how many connections the Pool must allow. A Redis that goes away later is
// waited for.
func (q *Queue) Receive(ctx context.Context, prototype IMessage, workers int) (Shutdown, error) {
	return q.receive(ctx, workers, []IMessage{prototype}, nil, nil)
}

// ReceiveOrdered is Receive for 1 to 64 channels in strict order: no worker starts a message while a channel
// named earlier has one. A message of a later channel may wait for ever; ReceiveWeighted starves none. A
// worker holds one message at a time, whatever Prefetch says, unless there is but one channel.
func (q *Queue) ReceiveOrdered(ctx context.Context, workers int, prototypes ...IMessage) (Shutdown, error) {
	return q.receive(ctx, workers, prototypes, worker.NewOrder(nil), nil)
}

// Share is a channel's part in ReceiveWeighted.
type Share struct {
	Prototype IMessage
	Weight    int // 1 to 1,000,000
}

// ReceiveWeighted is Receive for 1 to 64 channels. While all have messages, each gets its weight's share of the starts.
// What one leaves goes to the others, the channel named earlier first. A worker holds one message at a time, as with
// ReceiveOrdered.
func (q *Queue) ReceiveWeighted(ctx context.Context, workers int, shares ...Share) (Shutdown, error) {
	weights := make([]int, len(shares))
	prototypes := make([]IMessage, len(shares))
	for i, s := range shares {
		if s.Weight < 1 || s.Weight > 1e6 {
			return nil, fmt.Errorf("shunt: share %d has weight %d: want 1 to 1,000,000", i, s.Weight)
		}
		weights[i], prototypes[i] = s.Weight, s.Prototype
	}
	return q.receive(ctx, workers, prototypes, worker.NewOrder(weights), nil)
}

// receive starts a receiver. g, which may be nil, makes batches of its messages.
func (q *Queue) receive(
	ctx context.Context, workers int, prototypes []IMessage, o *worker.Order, g *batcher,
) (Shutdown, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if err := q.open(context.Background()); err != nil {
		return nil, err
	}
	r, err := q.newReceiver(ctx, workers, prototypes, o, g)
	if err != nil {
		return nil, err
	}
	if err := q.admit(r); err != nil {
		return nil, err
	}
	start, cancel := context.WithTimeout(ctx, worker.StartTimeout)
	defer cancel()
	defer context.AfterFunc(r.pool.TakeCtx, cancel)() // Close
	at := r.channels[0]
	if len(r.channels) == 1 { // several go on without the one that cannot be read
		if key, wrong := store.WrongKey(start, at.Site.Server.Data, at.Keys); key == at.Prepare {
			err = wrong
		}
	}
	if err == nil {
		err = r.pool.Join(start)
	}
	if err != nil {
		q.dismiss(r)
		close(r.ended)
		return nil, q.explain(err, "receive from", at.Name)
	}
	r.run(ctx)
	return r.shutdown, nil
}

// newReceiver makes a receiver, and starts nothing.
func (q *Queue) newReceiver(
	ctx context.Context, workers int, prototypes []IMessage, o *worker.Order, g *batcher,
) (*receiver, error) {
	if workers < 1 || workers > store.MaxWorkers {
		return nil, fmt.Errorf("shunt: %d workers: want 1 to %d", workers, store.MaxWorkers)
	}
	if len(prototypes) == 0 || len(prototypes) > 64 {
		return nil, fmt.Errorf("shunt: %d channels: want 1 to 64 prototypes", len(prototypes))
	}
	if len(prototypes) == 1 {
		o = nil // one channel is in order by itself
	}
	r := &receiver{q: q, conf: q.conf, ended: make(chan struct{})}
	if err := r.wrap(g); err != nil {
		return nil, err
	}
	var lanes []*lane.Lane
	for i, p := range prototypes {
		in, err := r.newChannel(i, p, g != nil)
		if err != nil {
			return nil, err
		}
		r.channels, lanes = append(r.channels, in), append(lanes, in.Lane)
	}
	conf := r.workerConfig(ctx)
	conf.Order = o
	if g != nil {
		conf.Prefetch = 1 // what a worker holds besides could not be part of the batch that it waits for
	}
	r.pool = worker.NewPool(workers, lanes, conf)
	if g != nil {
		g.serve(r)
	}
	return r, nil
}

// wrap sets the receiver's handler, inside of the user's middleware.
func (r *receiver) wrap(g *batcher) (err error) {
	r.handler = resolve
	if g != nil {
		r.handler = g.join
	}
	if wrap := r.conf.Wrap; wrap != nil {
		guard("Wrap", func() error { r.handler = wrap(r.handler); return nil }, func(e error) { err = e })
		if err != nil || r.handler == nil {
			return errors.Join(errors.New("shunt: Queue.Wrap gave no Handler"), err)
		}
	}
	return nil
}

// newChannel makes the channel of a prototype. number is the prototype's place among others.
func (r *receiver) newChannel(number int, p IMessage, batched bool) (*channel, error) {
	k, err := r.q.channelOf(number, p)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(r.channels, func(in *channel) bool { return in.Name == k.Name }) {
		return nil, fmt.Errorf("shunt: two prototypes of channel %q: want one, or a Mux of both", k.Name)
	}
	t, err := typesOf(k.Name, p, batched)
	if err != nil {
		return nil, err
	}
	in := &channel{types: t}
	in.promoter = newPromoter(r, in)
	in.Lane = lane.New(k, r.q.router.For(k.Name), in.promoter)
	return in, nil
}

// workerConfig is the Queue's configuration, as the workers need it.
func (r *receiver) workerConfig(ctx context.Context) worker.Config {
	q := r.conf
	conf := worker.Config{
		Lease: q.Lease, Grace: q.Grace, Timeout: q.Timeout, ReplyTimeout: q.ReplyTimeout, Prefetch: q.Prefetch,
		PrefetchBytes: q.PrefetchBytes, MaxSize: q.MaxSize, Bounds: q.Bounds, Handle: r.handle, Judge: r.judge,
		Values: context.WithValue(context.WithoutCancel(ctx), ownerKey{}, r),
	}
	conf.Emit, conf.Every, conf.Count = r.q.emit, r.q.events.All(), r.q.counter != nil
	if r.q.overs != nil {
		conf.Over = r.q.overs.settled
	}
	return conf
}

// resolve is the innermost Handler. A panic is an error for the middleware around it, as any other failure is.
func resolve(ctx context.Context, m IMessage) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			err = panicked("the handler", p)
		}
	}()
	err = m.Resolve(ctx)
	returned = true
	return err
}

// channelOf gives the keys of a prototype's channel. number is the prototype's place among others.
func (q *Queue) channelOf(number int, p IMessage) (k *store.Keys, err error) {
	if isNil(p) {
		return nil, fmt.Errorf("shunt: prototype %d is nil", number)
	}
	if m, ok := p.(*mux); ok && len(m.prototypes) == 0 {
		return nil, errors.New("shunt: a Mux without a prototype: want one at least")
	}
	var name string
	guard("Channel", func() error { name = p.Channel(); return nil }, func(e error) { err = e })
	if err == nil {
		k, err = q.keysFor(name)
	}
	return k, err
}

// connections is how many connections a Queue needs: the data and pulse links and the subscription. Each receiver adds
// one waiter a channel and the link for large elements.
func (q *Queue) connections() int {
	n := 3
	for r := range q.receivers {
		n += len(r.channels) + 1
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
	for o := range q.receivers {
		if err := r.beside(o); err != nil {
			return err
		}
	}
	q.receivers[r] = struct{}{}
	if most, need := q.Pool.MaxActive, q.connections(); most > 0 && most < need {
		delete(q.receivers, r)
		return fmt.Errorf(
			"shunt: the Pool's MaxActive is %d, and with this receiver the Queue needs %d connections: 3, and for "+
				"each receiver 1 and 1 a channel", most, need)
	}
	return nil
}

// beside returns an error where another receiver handles a channel's messages as other types: each would get the
// other's.
func (r *receiver) beside(o *receiver) error {
	for _, in := range r.channels {
		for _, there := range o.channels {
			if in.Name == there.Name && !in.same(&there.types) {
				return fmt.Errorf("shunt: channel %q is received as %v by another receiver of this Queue, and as %v "+
					"here: give each type a channel of its own, or receive both with a Mux", in.Name, &there.types,
					&in.types)
			}
		}
	}
	return nil
}

// running are the receivers that have not ended.
func (q *Queue) running() []*receiver {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.receivers))
}

func (q *Queue) dismiss(r *receiver) {
	q.mu.Lock()
	delete(q.receivers, r)
	q.mu.Unlock()
}

// run starts the goroutines of a registered receiver.
func (r *receiver) run(ctx context.Context) {
	var others []func()
	for _, s := range r.pool.Sites {
		r.q.emit(event.Event{Kind: event.Started, Channel: s.Lanes[0].Name, Receiver: s.Live().Name,
			N: r.pool.Workers()})
		others = append(others, newReaper(r, s).run)
	}
	for _, in := range r.channels {
		others = append(others, in.promoter.run)
	}
	r.pool.Start(others...)
	forget := context.AfterFunc(ctx, r.pool.StopTaking)
	go func() {
		result := &ShutdownError{}
		result.Returned, result.Running, result.Err = r.pool.End()
		if result.Returned+result.Running > 0 || result.Err != nil {
			r.err = result
		}
		for _, s := range r.pool.Sites {
			r.q.emit(event.Event{Kind: event.Stopped, Channel: s.Lanes[0].Name, Receiver: s.Live().Name,
				Err: r.err})
		}
		forget()
		r.q.counter.absorb(r)
		r.q.dismiss(r)
		close(r.ended)
	}()
}

func (r *receiver) shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	if r.isHandler(ctx, worker.Goroutine()) {
		return ErrInHandler
	}
	r.pool.StopTaking()
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		r.pool.CancelHandlers()
	}
	<-r.ended
	return r.err
}

// isHandler says whether a goroutine runs one of the receiver's handlers, or a context is such a handler's.
func (r *receiver) isHandler(ctx context.Context, goroutine uint64) bool {
	owner, _ := ctx.Value(ownerKey{}).(*receiver)
	return owner == r || r.pool.Handles(goroutine)
}
