package worker

import (
	"cmp"
	"context"
	"slices"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// handBack empties, at the end of a shutdown, what is left in the lists, and takes the entry away. It returns how many
// messages whose handlers had begun went to the taking end.
func (r *Pool) handBack(ctx context.Context) (returned int, err error) {
	if !r.closeGate(ctx) {
		return int(r.returned.Load()), context.Cause(ctx)
	}
	defer r.openGate()
	r.flushVerdicts(ctx)
	n, err := r.putBack(ctx, (*Item).runs)
	returned = int(r.returned.Add(int32(n)))
	if err != nil {
		return returned, err
	}
	owed := r.settleDebts(ctx)
	if r.mustEnd.Load() {
		r.flushVerdicts(ctx) // what has returned since
		return returned, cmp.Or(owed, r.supersedeLive(ctx))
	}
	return returned, cmp.Or(owed, r.unregister(ctx))
}

// unregister takes the entry away; what it finds in the lists goes to the taking end first.
func (r *Pool) unregister(ctx context.Context) error {
	for range 2 {
		c := link.NewCall()
		for _, in := range r.channels {
			store.AddUnregister(c, in.Keys, *r.live.Load())
		}
		if err := r.all(ctx, c); err != nil {
			return err
		}
		left := false
		for _, rep := range c.Replies {
			gone, _ := store.UnregisterReply(rep)
			left = left || !gone
		}
		if !left {
			return nil
		}
		r.flushVerdicts(ctx) // what has returned since
		// What is left then is a verdict that could not be sent, or what a lost reply had left.
		if err := r.empty(ctx, *r.live.Load()); err != nil {
			return err
		}
	}
	return nil // a sweep finds the rest
}

// settleDebts empties the incarnations that have ended and lists them as dead; those that are counted are left to the
// sweeps of others.
func (r *Pool) settleDebts(ctx context.Context) error {
	if names := r.debts.abandoned; len(names) > 0 {
		c := link.NewCall()
		for _, in := range r.channels {
			store.AddForget(c, in.Keys, names...)
		}
		if r.all(ctx, c) == nil {
			r.debts.abandoned = nil
		}
	}
	emptied := make(map[store.Incarnation]bool)
	for _, d := range r.debts.list() {
		if d.counted || emptied[d.inc] {
			continue
		}
		emptied[d.inc] = true
		if err := r.empty(ctx, d.inc); err != nil {
			return err
		}
	}
	return r.payDebts(ctx)
}

// supersedeLive ends an incarnation into whose lists a command without a reply may yet bring something. Its lists are
// emptied, and sweeps then treat it as dead, so that it is not forgotten.
func (r *Pool) supersedeLive(ctx context.Context) error {
	if err := r.empty(ctx, *r.live.Load()); err != nil {
		return err
	}
	r.debts.add(*r.live.Load(), r.channels, false)
	return r.payDebts(ctx)
}

// flushVerdicts sends every verdict that is there. The gate is closed.
func (r *Pool) flushVerdicts(ctx context.Context) {
	for workers := r.workers; len(workers) > 0; {
		c := link.NewCall()
		var of []dispatches
		for bytes := 0; len(workers) > len(of) && (len(of) == 0 || c.Len() < scriptsAtOne && bytes < verdictBytes); {
			s := workers[len(of)]
			var sent dispatches
			s.mu.Lock()
			s.refused, s.sendSingly = link.Holdoff{}, true // there is no later
			s.collect(&sent, c, false)
			s.mu.Unlock()
			for _, it := range sent.items {
				bytes += len(it.Raw) + len(it.verdict.Next) + len(it.verdict.Result)
			}
			of = append(of, sent)
		}
		r.sendVerdicts(ctx, c, workers[:len(of)], of)
		workers = workers[len(of):]
	}
}

// sendVerdicts sends the verdicts of some workers, and files the replies.
func (r *Pool) sendVerdicts(ctx context.Context, c *link.Call, workers []*worker, of []dispatches) {
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
	for i, s := range workers {
		n := len(of[i].all)
		s.settle(replies[:n], &of[i])
		replies = replies[n:]
	}
}

// putBack sends some of the items to the taking end, in one pipeline. The one taken last goes first, so that the one
// taken first is next, whichever worker had it. The gate is held alone. It returns how many were found. Those that
// failed stay held.
func (r *Pool) putBack(ctx context.Context, some func(*Item) bool) (n int, err error) {
	var all []held
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			if some(it) {
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
	for len(all) > 0 {
		some := all[:min(len(all), scriptsAtOne)]
		all = all[len(some):]
		found, err2 := r.putBackSome(ctx, some)
		n, err = n+found, cmp.Or(err, err2)
	}
	if n > 0 {
		r.emit(event.Event{Kind: event.Released, Channel: r.channels[0].Name, Receiver: r.live.Load().Name, N: n})
	}
	return n, err
}

// putBackSome does so for some, in one pipeline.
func (r *Pool) putBackSome(ctx context.Context, some []held) (n int, err error) {
	c := link.NewCall()
	for _, h := range some {
		in := h.it.Channel
		store.AddRelease(c, in.Keys, in.doing[h.s.n], h.it.Identity(h.it.Raw))
	}
	if err := r.all(ctx, c); !c.Answered {
		return 0, err
	}
	for i, h := range some {
		found, err2 := store.ReleaseReply(c.Replies[i])
		err = cmp.Or(err, err2)
		if err2 != nil {
			continue
		}
		n += found
		h.s.mu.Lock()
		h.it.move(giveBack)
		if h.it.state != handedBack { // no handler of it runs
			h.s.remove(h.it)
		}
		h.s.mu.Unlock()
	}
	return n, err
}

// empty puts what the lists hold, known or not, to the taking end.
func (r *Pool) empty(ctx context.Context, i store.Incarnation) error {
	c := link.NewCall()
	send := func() error {
		err := r.all(ctx, c)
		c = link.NewCall()
		return err
	}
	for _, s := range r.workers {
		for _, in := range r.channels {
			store.AddEmpty(c, in.Keys, i, s.n)
		}
		if c.Len() >= scriptsAtOne {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if c.Len() == 0 {
		return nil
	}
	return send()
}
