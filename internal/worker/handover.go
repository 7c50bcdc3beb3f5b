package worker

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	maxCalm      = 2 * link.MaxTrouble // after which a break is not taken for the last one's consequence
	maxWait      = time.Second         // before a handover; for all that time nothing is taken
	verdictBytes = 1 << 20             // of elements that one pipeline of verdicts carries, unless one alone is larger
	scriptsAtOne = 512                 // in one pipeline
)

// handovers are those of one site.
type handovers struct {
	pool *Pool
	site *lane.Site
}

// loop waits until the incarnation has to end, and puts a new one in its place. A connection that broke while it owed a
// reply may have moved an element into a list of this live receiver unnoticed. A command that it carried may run even
// now. So the old lists are left for good, and emptied.
func (m *handovers) loop() {
	ctx := m.pool.PoolCtx
	var last time.Time // of the last handover's end
	var wait time.Duration
	streak := 0 // connections cut, one soon after the other
	for {
		select {
		case why := <-m.site.Broken():
			if time.Since(last) > maxCalm {
				wait, streak = 0, 0
			}
			if lane.WasCut(why) {
				streak++
			}
			link.Sleep(ctx, wait) // what breaks a connection each time does not do so at full speed
			wait = min(max(2*wait, link.MinTrouble/2), maxWait)
			if m.make(why, streak > 1) {
				streak = 0
			}
			last = time.Now()
		case <-ctx.Done():
			return
		}
	}
}

// make ends the live incarnation in favour of the next one. Only for the register does it wait for Redis. Then comes
// one attempt, of a third of a lease. Where that fails, the receiver drops all that it held there, and goes on without
// it. again says that the incarnation before was cut too, a moment ago. Then messages that lie in the lists and are
// held by no worker are counted as recovered. replaced: another process of Redis answers since.
func (m *handovers) make(why error, again bool) (replaced bool) {
	r, site := m.pool, m.site
	if r.PoolCtx.Err() != nil || !site.CloseGate(r.PoolCtx) {
		return false
	}
	h := &handover{pool: r, site: site, old: site.Live(), counted: again}
	done := h.run()
	site.OpenGate()
	r.wakeAll()
	if !done {
		return h.replaced
	}
	site.RequestBeat() // registered counts from its sending, which may be long ago, and the last beat was the old one's
	paying, cancel := context.WithTimeout(r.PoolCtx, r.conf.Lease/3)
	site.Debts.Pay(paying) // what cannot be paid now is paid later, and then reported
	cancel()
	for _, l := range site.Lanes {
		site.RequestSweep(l) // the old one may have been the keeper, and hold something
	}
	r.emit(event.Event{Kind: event.HandedOver, Channel: site.Lanes[0].Name, Receiver: site.Live().Name, N: h.held,
		Err: why})
	return h.replaced
}

// handover is one under way. The gate is closed.
type handover struct {
	pool    *Pool
	site    *lane.Site
	old     store.Incarnation
	next    *lane.Registered
	counted bool   // what is in nobody's hands stays in the old lists, and its recovery counts are raised
	back    []held // what had not begun: held no more, and to go to the taking end
	held    int

	replaced bool // another process of Redis answers since
}

// held is one message that a worker holds.
type held struct {
	s  *worker
	it *Item
}

// each calls do for every item of the site's lanes, with its worker's mu held. Where do returns true, it has taken the
// item out of hand.
func (h *handover) each(do func(s *worker, it *Item) (removed bool)) {
	for _, s := range h.pool.workers {
		s.mu.Lock()
		for i := 0; i < len(s.items); {
			if it := s.items[i]; it.Lane.Site != h.site || !do(s, it) {
				i++
			}
		}
		s.mu.Unlock()
	}
}

// run makes the steps with the gate closed. False: the pool ended first, and the old incarnation with what it owes is
// left to the shutdown.
func (h *handover) run() bool {
	r, site := h.pool, h.site
	h.revoke()
	if !h.register() {
		return false
	}
	ctx, cancel := context.WithTimeoutCause(r.PoolCtx, r.conf.Lease/3, errLateHandover)
	err := h.attempt(ctx)
	cancel()
	site.Debts.Add(h.old, h.counted)
	if err != nil {
		h.loseAll(err)
		site.Debts.Add(h.next.Incarnation, false) // it may hold something already
		h.held = 0
		if !h.register() {
			return false
		}
	}
	site.Succeed(h.next)
	for _, s := range r.workers {
		s.mu.Lock()
		s.clearHoldoff() // what it waited for may be settled
		delete(s.unmarked, site)
		s.mu.Unlock()
	}
	return true
}

// register registers the next incarnation. False: the pool has ended first.
func (h *handover) register() bool {
	if h.next = h.site.RegisterNext(); h.next == nil {
		return false
	}
	// The process that has ended broke the connection, and no element did. Where the state is an older one, elements
	// lie in the lists that were settled since, and what was superseded may be among the living.
	if h.site.Replaced(h.next.Run) {
		h.replaced, h.counted = true, false
		h.site.Debts.Renew()
	}
	return true
}

var errLateHandover = errors.New("shunt: the handover took longer than a third of the lease")

// revoke forgets what has not begun: it goes back with everything else that no handler holds.
func (h *handover) revoke() {
	h.each(func(s *worker, it *Item) bool {
		if it.state != queued && (it.verdict != custody.Release || !it.unsent() && it.state != unknown) {
			return false
		}
		if it.state != unknown {
			h.back = append(h.back, held{s, it})
		}
		it.move(lose) // for a goroutine that is just looking at it
		s.remove(it)
		return true
	})
}

// attempt sends the verdicts once more and moves what handlers hold. It is made once.
func (h *handover) attempt(ctx context.Context) error {
	if err := h.verdicts(ctx); err != nil {
		return err
	}
	h.abandon()
	return h.move(ctx)
}

// verdicts sends the verdicts of handlers, sent before or not, to the old lists. A verdict that breaks its connection
// once more is not sent again. Its message stays where it is, and is counted. A bare payload's verdict whose outcome is
// unknown is not sent again at all, because it might hit another payload of the same bytes. Its message is handled
// again.
func (h *handover) verdicts(ctx context.Context) error {
	for left := h.decided(); len(left) > 0; {
		c, n, bytes := link.NewCall(), 0, 0
		for n < len(left) && n < scriptsAtOne && (n == 0 || bytes < verdictBytes) {
			o := left[n]
			o.s.mu.Lock()
			o.it.move(send)
			o.s.mu.Unlock()
			o.s.leave(c, o.it)
			bytes += len(o.it.Raw) + len(o.it.verdict.Next) + len(o.it.verdict.Result)
			n++
		}
		some := left[:n]
		left = left[n:]
		if err := h.site.Do(ctx, c); !c.Answered { // out of time
			h.unknown(some)
			return err
		}
		if h.settle(some, c.Replies) {
			if err := h.reconnect(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// reconnect waits, after a verdict that broke the connection, until another one answers: what follows may not be sent
// twice.
func (h *handover) reconnect(ctx context.Context) error {
	for {
		c := link.NewCall()
		store.AddHeld(c, h.site.Lanes[0].Doing(h.old, 0))
		err := h.site.Do(ctx, c)
		if err == nil || !lane.Broke(err) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		link.Sleep(ctx, 10*time.Millisecond)
	}
}

// decided are the items whose verdicts are sent once more.
func (h *handover) decided() (all []held) {
	h.each(func(s *worker, it *Item) bool {
		if it.unsent() || it.state == unknown && !it.Bare {
			all = append(all, held{s, it})
		}
		return false
	})
	return all
}

func (h *handover) unknown(some []held) {
	for _, o := range some {
		o.s.mu.Lock()
		o.it.move(silence)
		o.s.mu.Unlock()
	}
}

// settle ends the items whose verdict has an answer. Refused ones stay held, and those that broke the connection are
// abandoned later. It says whether a verdict broke it.
func (h *handover) settle(sent []held, replies []link.Reply) (cut bool) {
	var evs []event.Event
	for i, o := range sent {
		s, it := o.s, o.it
		s.mu.Lock()
		switch rep := replies[i]; {
		case lane.Broke(rep.Err):
			it.move(silence)
			h.counted, cut = true, true
		case rep.Err != nil: // whether an earlier one was executed is seen when the lists are moved
			it.move(parted)
		default:
			it.move(execute)
			evs = s.left(it, rep, evs)
			s.remove(it)
		}
		s.mu.Unlock()
	}
	h.pool.emit(evs...)
	return cut
}

// abandon ends the items whose verdict has no known outcome. Their elements, if they are still there, stay in the old
// list or go to the taking end with the rest.
func (h *handover) abandon() {
	h.each(func(s *worker, it *Item) bool {
		if it.state == unknown {
			s.lose(it)
			return true
		}
		return false
	})
}

// loseAll ends every handler's context as a lost lease does, and takes all else out of hand.
func (h *handover) loseAll(why error) {
	site := h.site
	site.Lease.Lose()
	h.pool.emit(event.Event{Kind: event.LeaseLost, Channel: site.Lanes[0].Name, Receiver: site.Live().Name, Err: why})
	h.each(func(s *worker, it *Item) bool {
		if it.state >= lost {
			return false
		}
		s.lose(it)
		return it.state != lost
	})
}
