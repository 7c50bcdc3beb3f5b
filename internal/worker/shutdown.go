package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// End is the way down: nothing more is taken, what has not begun is handed back, handlers end or are ended, what is left is
// handed back too, and the entry goes. It returns how many messages whose handlers had begun were handed back, how many handlers
// still run, and what kept Redis from being told.
func (r *Pool) End() (returned, still int, err error) {
	<-r.TakeCtx.Done()
	r.parking.wakeAll()
	r.watcher.note(time.Now())
	graced := r.graced()
	if r.closeGate(graced) {
		r.flushVerdicts(graced)
		r.putBack(graced, queued)
		r.openGate()
	}
	close(r.settled)
	r.wakeAll()
	idle := make(chan struct{})
	go func() {
		r.workerGroup.Wait()
		close(idle)
	}()
	clean := false
	select {
	case <-idle:
		clean = true
	case <-graced.Done():
	}
	r.end()
	// Where all is well this takes a round trip or two. Where not, whoever calls shutdown is waiting beyond his time already.
	limit, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	if !clean {
		limit, cancel = context.WithTimeout(limit, time.Second)
		defer cancel()
	}
	if r.s.Why() != nil && !r.s.Data.Up() {
		limit, cancel = context.WithTimeout(limit, 10*time.Millisecond)
		defer cancel()
	}
	defer context.AfterFunc(r.handlerCtx, func() {
		link.Sleep(limit, max(r.conf.Grace, 100*time.Millisecond))
		cancel()
	})()
	returned, err = r.handBack(limit)
	r.reportUnsettled()
	still = r.runningNow()
	gone := make(chan struct{})
	go func() {
		r.otherGroup.Wait()
		for _, in := range r.channels {
			in.YieldKeeper()
			in.waiter.Close()
		}
		r.large.close()
		close(gone)
	}()
	select {
	case <-gone:
	case <-limit.Done():
	}
	r.CancelHandlers()
	return returned, still, err
}

// graced ends a grace after the handlers' contexts were ended, which it does when patience is over.
func (r *Pool) graced() context.Context {
	ctx, cancel := context.WithCancel(r.PoolCtx)
	go func() {
		defer cancel()
		select {
		case <-r.handlerCtx.Done():
			r.cancelAll(ErrShutdown)
			link.Sleep(ctx, r.conf.Grace)
		case <-r.over: // nothing is ours any more
		}
	}()
	return ctx
}

// unblock ends the waiters' blocking commands, where the server allows it, until done; one that comes too early does nothing.
func (r *Pool) unblock(ctx context.Context) {
	refused := false
	for ctx.Err() == nil {
		for _, in := range r.channels {
			if id := in.waiter.ID(); id != 0 && in.blocked.Load() && !refused {
				c := link.NewCall()
				c.Add("CLIENT", "UNBLOCK", id)
				ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				refused = r.s.Pulse.Do(ctx, c) == nil && link.Code(c.Replies[0].Err) != ""
				cancel()
			}
		}
		link.Sleep(ctx, 10*time.Millisecond)
	}
}

// errEnded is told of verdicts that nobody hears of any more.
var errEnded = errors.New("shunt: the receiver ended before it was known what became of the verdict")

// confess tells of the verdicts that could not be sent, or whose replies did not come: those messages may be handled again.
func (r *Pool) reportUnsettled() {
	for _, s := range r.workers {
		var evs []Event
		s.mu.Lock()
		for _, it := range s.items {
			if it.hasVerdict() && it.verdict.Fate != store.Released {
				evs = append(evs, Event{Kind: UnconfirmedVerdict, Channel: it.Channel.Name, Serial: it.Serial, ID: it.ID(), Attempt: it.Attempt(),
					Receiver: r.live.Load().Name, Worker: s.n, Took: it.took, Err: errEnded})
			}
		}
		s.mu.Unlock()
		r.emit(evs...)
	}
}

// handBack empties, at the end of a shutdown, what is left in the lists, and takes the entry away. It returns how many messages
// whose handlers had begun went to the taking end.
func (r *Pool) handBack(ctx context.Context) (returned int, err error) {
	if !r.closeGate(ctx) {
		return int(r.returned.Load()), context.Cause(ctx)
	}
	defer r.openGate()
	r.flushVerdicts(ctx)
	n, err := r.putBack(ctx, running)
	returned = int(r.returned.Add(int32(n)))
	if err != nil {
		return returned, err
	}
	if r.mustEnd.Load() || len(r.owed) > 0 {
		r.flushVerdicts(ctx) // what has returned since
		return returned, r.supersedeAll(ctx)
	}
	for range 2 {
		c := link.NewCall()
		for _, in := range r.channels {
			c.AddScript(store.Unregister, 1+len(r.workers), append(append([]any{in.Receivers}, store.Args(in.doing)...), r.live.Load().Name)...)
		}
		if err := r.all(ctx, c); err != nil {
			return returned, err
		}
		left := false
		for _, rep := range c.Replies {
			n, _ := redis.Int(rep.Value, nil)
			left = left || n == 0
		}
		if !left {
			return returned, nil
		}
		r.flushVerdicts(ctx)                                 // what has returned since
		if err := r.empty(ctx, *r.live.Load()); err != nil { // a verdict that could not be sent, or what a lost reply had left
			return returned, err
		}
	}
	return returned, nil // a sweep finds the rest
}

// disown ends all incarnations into whose lists a command without a reply may yet bring something: they are emptied and then
// looked after as dead ones, not forgotten.
func (r *Pool) supersedeAll(ctx context.Context) error {
	owed := append([]store.Incarnation{*r.live.Load()}, r.owed...)
	c := link.NewCall()
	for _, i := range owed {
		if err := r.empty(ctx, i); err != nil {
			return err
		}
		for _, in := range r.channels {
			c.AddScript(store.Supersede, 3, in.Receivers, in.DeadReceivers, in.Keeper, i.Name)
		}
	}
	return r.all(ctx, c)
}

// conclude sends every verdict that is there. The gate is held alone.
func (r *Pool) flushVerdicts(ctx context.Context) {
	c := link.NewCall()
	of := make([]dispatches, len(r.workers))
	for i, s := range r.workers {
		s.mu.Lock()
		s.refused, s.sendSingly = link.Holdoff{}, true // there is no later
		s.collect(&of[i], c, false)
		s.mu.Unlock()
	}
	if c.Len() == 0 {
		return
	}
	replies := make([]link.Reply, c.Len())
	if err := r.all(ctx, c); c.Answered {
		replies = c.Replies
	} else {
		for i := range replies {
			replies[i].Err = err
		}
	}
	for i, s := range r.workers {
		n := len(of[i].all)
		s.settle(replies[:n], &of[i])
		replies = replies[n:]
	}
}

// putBack sends the items of a state to the taking end, in one pipeline and the one taken last first, so that the one taken first
// is next whichever worker had it. The gate is held alone. It returns how many were found; what fails stays in hand.
func (r *Pool) putBack(ctx context.Context, state itemState) (n int, err error) {
	var all []held
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			if it.state == state {
				all = append(all, held{s, it})
			}
		}
		s.mu.Unlock()
	}
	if len(all) == 0 {
		return 0, nil
	}
	slices.Reverse(all) // of one reply, the one taken last first
	slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(b.it.batch.order, a.it.batch.order) })
	c := link.NewCall()
	for _, h := range all {
		in := h.it.Channel
		store.AddRelease(c, in.Keys, in.doing[h.s.n], h.it.Identity(h.it.Raw))
	}
	if err := r.all(ctx, c); !c.Answered {
		return 0, err
	}
	for i, h := range all {
		found, err2 := store.ReleaseReply(c.Replies[i])
		err = cmp.Or(err, err2)
		if err2 != nil {
			continue
		}
		n += found
		h.s.mu.Lock()
		runs := h.it.state == running
		h.it.state, h.it.back = lost, true // where its handler still runs, nobody wants its verdict
		if !runs {
			h.s.remove(h.it)
		}
		h.s.mu.Unlock()
	}
	if n > 0 {
		r.emit(Event{Kind: Released, Channel: r.channels[0].Name, Receiver: r.live.Load().Name, N: n})
	}
	return n, err
}

// empty puts what the lists hold, known or not, to the taking end.
func (r *Pool) empty(ctx context.Context, i store.Incarnation) error {
	c := link.NewCall()
	for _, s := range r.workers {
		for _, in := range r.channels {
			list := in.Doing(i, s.n)
			c.AddScript(store.Handover, 6, in.Receivers, list, list, in.Prepare, in.IDs, in.Running, "")
		}
	}
	return r.all(ctx, c)
}
