package worker

import (
	"cmp"
	"context"
	"slices"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// handback is the end of one site's incarnation at a shutdown.
type handback struct {
	pool *Pool
	site *lane.Site
}

// waiting puts back what has not begun, unless one of the contexts ends first.
func (b handback) waiting(graced, answered context.Context) {
	ctx, cancel := context.WithCancel(graced)
	defer cancel()
	defer context.AfterFunc(answered, cancel)()
	if b.site.CloseGate(ctx) {
		b.flush(ctx)
		b.putBack(ctx, func(it *Item) bool { return it.state == queued })
		b.site.OpenGate()
	}
}

// all empties what is left in the lists, and takes the entry away. It counts in the pool's returned the messages whose
// handlers had begun and that went to the taking end.
func (b handback) all(ctx context.Context) error {
	if !b.site.CloseGate(ctx) {
		return context.Cause(ctx)
	}
	defer b.site.OpenGate()
	b.flush(ctx)
	n, err := b.putBack(ctx, (*Item).runs)
	b.pool.returned.Add(int32(n))
	if err != nil {
		return err
	}
	owed := b.payDebts(ctx)
	if b.site.MustEnd() {
		b.flush(ctx) // what has returned since
		return cmp.Or(owed, b.supersede(ctx))
	}
	return cmp.Or(owed, b.unregister(ctx))
}

// unregister takes the entry away; what it finds in the lists goes to the taking end first.
func (b handback) unregister(ctx context.Context) error {
	for range 2 {
		c := link.NewCall()
		for _, l := range b.site.Lanes {
			store.AddUnregister(c, l.Keys, b.site.Live())
		}
		n := c.Len()
		for _, l := range b.site.Lanes {
			store.AddDropAbout(c, l.Keys, b.site.Live())
		}
		err := b.site.Do(ctx, c)
		if c.Answered {
			err = c.First(n)
		}
		if err != nil {
			return err
		}
		left := false
		for _, rep := range c.Replies[:n] {
			gone, _ := store.UnregisterReply(rep)
			left = left || !gone
		}
		if !left {
			return nil
		}
		b.flush(ctx) // what has returned since
		// What is left then is a verdict that could not be sent, or what a lost reply had left.
		if err := b.empty(ctx, b.site.Live()); err != nil {
			return err
		}
	}
	return nil // a sweep finds the rest
}

// payDebts empties the incarnations that have ended and lists them as dead; those that are counted are left to the
// sweeps of others.
func (b handback) payDebts(ctx context.Context) error {
	b.site.Debts.Forget(ctx)
	emptied := make(map[store.Incarnation]bool)
	for _, d := range b.site.Debts.List() {
		if d.Counted || emptied[d.Incarnation] {
			continue
		}
		emptied[d.Incarnation] = true
		if err := b.empty(ctx, d.Incarnation); err != nil {
			return err
		}
	}
	return b.site.Debts.Pay(ctx)
}

// supersede ends an incarnation into whose lists a command without a reply may yet bring something. Its lists are
// emptied, and sweeps then treat it as dead, so that it is not forgotten.
func (b handback) supersede(ctx context.Context) error {
	if err := b.empty(ctx, b.site.Live()); err != nil {
		return err
	}
	b.site.Debts.Add(b.site.Live(), false)
	return b.site.Debts.Pay(ctx)
}

// flush sends every verdict for the site that is there. The gate is closed.
func (b handback) flush(ctx context.Context) {
	for workers := b.pool.workers; len(workers) > 0; {
		c := link.NewCall()
		var of []dispatches
		for bytes := 0; len(workers) > len(of) && (len(of) == 0 || c.Len() < scriptsAtOne && bytes < verdictBytes); {
			s := workers[len(of)]
			sent := dispatches{worker: s}
			s.mu.Lock()
			s.refused, s.sendSingly = link.Holdoff{}, allLanes // there is no later
			sent.collect(b.site, c, false)
			s.mu.Unlock()
			for _, it := range sent.items {
				bytes += len(it.Raw) + len(it.verdict.Next) + len(it.verdict.Result)
			}
			of = append(of, sent)
		}
		b.send(ctx, c, of)
		workers = workers[len(of):]
	}
}

// send sends the verdicts of some workers, and files the replies.
func (b handback) send(ctx context.Context, c *link.Call, of []dispatches) {
	if c.Len() == 0 {
		return
	}
	replies := make([]link.Reply, c.Len())
	if err := b.site.Do(ctx, c); c.Answered {
		replies = c.Replies
	} else {
		for i := range replies {
			replies[i].Err = err
		}
	}
	for i := range of {
		n := len(of[i].all)
		of[i].settle(replies[:n])
		replies = replies[n:]
	}
}

// putBack sends some of the items to the taking end, in one pipeline. The one taken last goes first, so that the one
// taken first is next, whichever worker had it. The gate is held alone. It returns how many were found. Those that
// failed stay held.
func (b handback) putBack(ctx context.Context, some func(*Item) bool) (n int, err error) {
	var all []held
	b.pool.each(func(s *worker, it *Item) {
		if it.Lane.Site == b.site && some(it) {
			all = append(all, held{s, it})
		}
	})
	if len(all) == 0 {
		return 0, nil
	}
	slices.Reverse(all) // of one reply, the one taken last first
	slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(b.it.batch.order, a.it.batch.order) })
	for len(all) > 0 {
		some := all[:min(len(all), scriptsAtOne)]
		all = all[len(some):]
		found, err2 := b.putBackSome(ctx, some)
		n, err = n+found, cmp.Or(err, err2)
	}
	if n > 0 {
		b.pool.emit(event.Event{Kind: event.Released, Channel: b.site.Lanes[0].Name, Receiver: b.site.Live().Name,
			N: n})
	}
	return n, err
}

// putBackSome does so for some, in one pipeline.
func (b handback) putBackSome(ctx context.Context, some []held) (n int, err error) {
	c := link.NewCall()
	for _, h := range some {
		l := h.it.Lane
		store.AddRelease(c, l.Keys, l.Lists[h.s.n], h.it.Identity(h.it.Raw))
	}
	if err := b.site.Do(ctx, c); !c.Answered {
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
		h.s.countOf(h.it.Lane, meter.Released, found)
		h.it.move(giveBack)
		if h.it.state != handedBack { // no handler of it runs
			h.s.remove(h.it)
		}
		h.s.mu.Unlock()
	}
	return n, err
}

// empty puts what the lists of an incarnation hold, known or not, to the taking end.
func (b handback) empty(ctx context.Context, inc store.Incarnation) error {
	c := link.NewCall()
	send := func() error {
		err := b.site.Do(ctx, c)
		c = link.NewCall()
		return err
	}
	for _, s := range b.pool.workers {
		for _, l := range b.site.Lanes {
			store.AddEmpty(c, l.Keys, inc, s.n)
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
