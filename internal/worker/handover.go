package worker

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// register enters an incarnation among the living of every channel; only then may it take. The call tells what came of each.
func (r *Pool) register(ctx context.Context, i store.Incarnation) (*link.Call, error) {
	c := link.NewCall()
	for _, in := range r.channels {
		c.AddScript(store.Register, 1, in.Receivers, i.Name, i.Term().Milliseconds())
	}
	return c, r.all(ctx, c)
}

// all sends a call on the receiver's own behalf.
func (r *Pool) all(ctx context.Context, c *link.Call) error { return r.s.Data.Run(ctx, c) }

// succeed waits for the incarnation's end and puts a new one in its place. A connection that broke while it owed a reply may have
// moved an element into a list of this live receiver without anybody knowing, and a command that it carried may run even now: so the
// old lists are given up for good, and emptied.
func (r *Pool) handOverLoop() {
	const (
		maxCalm = 2 * link.MaxTrouble // after which a break is not taken for the last one's consequence
		maxWait = time.Second         // for all that time nothing is taken
	)
	var last time.Time // of the last handover's end
	var wait time.Duration
	for {
		select {
		case why := <-r.broken:
			if time.Since(last) > maxCalm {
				wait = 0
			}
			link.Sleep(r.PoolCtx, wait) // what breaks a connection each time does not do so at full speed
			wait = min(max(2*wait, link.MinTrouble/2), maxWait)
			r.handover(why)
			last = time.Now()
		case <-r.PoolCtx.Done():
			return
		}
	}
}

// seize takes the gate alone, when every command under way has ended. A blocked waiter is unblocked. False: ctx ended first.
func (r *Pool) closeGate(ctx context.Context) bool {
	r.pausing.Store(true)
	unblocking, done := context.WithCancel(ctx)
	defer done()
	go r.unblock(unblocking)
	for !r.gate.TryLock() { // Lock would hold up those who are still to end
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
	r.pausing.Store(true) // another one who had it may have resumed meanwhile
	return true
}

// resume lets the workers and waiters go on.
func (r *Pool) openGate() {
	r.pausing.Store(false)
	r.gate.Unlock()
	r.wakeAll()
}

// enter takes the gate with others, for commands on the incarnation's store. False: a handover is under way.
func (r *Pool) enter() bool {
	if !r.gate.TryRLock() {
		return false
	}
	if r.pausing.Load() {
		r.gate.RUnlock()
		return false
	}
	return true
}

// wakeAll sends every worker and waiter to look whether something has changed for it.
func (r *Pool) wakeAll() {
	r.parking.wakeAll()
	for _, s := range r.workers {
		s.poke()
	}
}

// handover ends the live incarnation in favour of a new one. It may take as long as Redis is away.
func (r *Pool) handover(why error) {
	life := r.PoolCtx
	if life.Err() != nil || !r.closeGate(life) {
		return
	}
	defer r.openGate()
	h := &handover{r: r, sources: []store.Incarnation{*r.live.Load()}}
	h.revoke()
	h.begin()
	wait := link.MinTrouble
	for {
		err := h.try(life)
		if err == nil {
			break
		}
		if h.moved || h.known(func(since time.Time) bool {
			return link.Classify(err) == link.Unknown || time.Since(since) > r.conf.Lease/3
		}) {
			// What was sent may yet be executed, or next holds elements already, where their verdicts must find them, or others may have found
			// that it does not beat: it is no longer new.
			h.sources = append(h.sources, h.next)
			h.begin()
		}
		if life.Err() != nil {
			r.owed = h.sources
			return
		}
		if r.ReportFatal(r.channels[0], err) {
			wait = min(2*wait, link.MaxTrouble, max(r.conf.Lease/4, link.MinTrouble)) // next would grow old
		}
		link.Sleep(life, link.Jitter(wait))
	}
	r.live.Store(&h.next)
	r.lease.renew(h.registered)
	r.mustEnd.Store(false)
	select { // it answers for all that broke so far
	case <-r.broken:
	default:
	}
	if r.lease.lost.Load() { // lost, as the watcher saw it, just when it was renewed
		r.mustHandOver(ErrLeaseLost)
	}
	r.requestBeat() // registered counts from its sending, which may be long ago, and the last beat was the old one's
	r.adopt(h.next)
	for _, s := range r.workers {
		s.mu.Lock()
		s.clearHoldoff() // what it waited for may be settled
		s.mu.Unlock()
	}
	for _, in := range r.channels {
		r.RequestSweep(in) // the old one may have been the keeper
	}
	r.emit(Event{Kind: HandedOver, Channel: r.channels[0].Name, Receiver: h.next.Name, N: h.held, Err: why})
}

// handover is one under way. The gate is held alone.
type handover struct {
	r          *Pool
	sources    []store.Incarnation // not yet known to be ended
	next       store.Incarnation
	registered time.Time   // sending of the last register that all channels executed
	since      []time.Time // of the last that each of them executed, or may have; zero where that is none
	moved      bool        // elements may lie in the lists of next
	held       int
}

// begin makes another next.
func (h *handover) begin() {
	h.next = store.NewIncarnation(len(h.r.workers), h.r.conf.Lease)
	h.since, h.moved = make([]time.Time, len(h.r.channels)), false
}

// known says whether next may be known to a channel, and has been for as long as old says.
func (h *handover) known(old func(since time.Time) bool) bool {
	return slices.ContainsFunc(h.since, func(t time.Time) bool { return !t.IsZero() && old(t) })
}

// revoke forgets what has not begun: it goes back with everything else that no handler holds.
func (h *handover) revoke() {
	for _, s := range h.r.workers {
		s.mu.Lock()
		for i := 0; i < len(s.items); {
			if it := s.items[i]; it.state == queued || it.hasVerdict() && it.state != sending && it.verdict == release && it.slot == nil {
				it.state = lost // for whoever is just looking at it
				s.remove(it)
			} else {
				i++
			}
		}
		s.mu.Unlock()
	}
}

// try makes the four steps: the new one is registered, verdicts are sent again to the old lists, these are emptied, and the old
// ones are listed as dead.
func (h *handover) try(ctx context.Context) error {
	r := h.r
	sent := time.Now()
	c, err := r.register(ctx, h.next)
	for i := range h.since {
		class := link.Classify(err)
		if c.Answered {
			class = link.Classify(c.Replies[i].Err)
		}
		if class == link.Done || class == link.Unknown && h.since[i].IsZero() {
			h.since[i] = sent
		}
	}
	if err != nil {
		return err
	}
	h.registered = sent
	if err := h.verdicts(ctx); err != nil {
		return err
	}
	h.moved = true
	if err := h.move(ctx); err != nil {
		return err
	}
	c = link.NewCall()
	for _, old := range h.sources {
		for _, in := range r.channels {
			c.AddScript(store.Supersede, 3, in.Receivers, in.DeadReceivers, in.Keeper, old.Name)
		}
	}
	return r.all(ctx, c)
}

// verdicts sends what handlers have decided, sent before or not; all at once, for next grows old meanwhile. A bare payload's verdict
// whose outcome is unknown is not sent again, because it might hit another payload of the same bytes: its message is handled again.
func (h *handover) verdicts(ctx context.Context) error {
	r := h.r
	var sent []held
	for _, s := range r.workers {
		s.mu.Lock()
		s.items = slices.DeleteFunc(s.items, func(it *Item) bool {
			again := it.state == unknown && it.Bare
			if again {
				s.suspectDone(it)
			}
			return again
		})
		for _, it := range s.items {
			if it.unsent() || it.state == unknown {
				sent = append(sent, held{s, it})
			}
		}
		s.mu.Unlock()
	}
	for i, old := range h.sources {
		if len(sent) == 0 {
			break
		}
		c := link.NewCall()
		for _, o := range sent {
			o.s.command(c, o.it, o.it.Channel.Doing(old, o.s.n))
		}
		if err := r.all(ctx, c); link.Classify(err) == link.Unknown || !c.Answered {
			for _, o := range sent {
				o.s.mu.Lock()
				o.it.state, o.it.wasUnknown = unknown, true
				o.s.mu.Unlock()
			}
			return err
		}
		sent = h.settle(sent, c.Replies, i == len(h.sources)-1)
	}
	return nil
}

// held is what a worker has in hand.
type held struct {
	s  *worker
	it *Item
}

// settle takes what was found, or on the last list was not, out of hand, and returns the rest. What was refused stays in hand.
func (h *handover) settle(sent []held, replies []link.Reply, last bool) (left []held) {
	var evs []Event
	for i, o := range sent {
		s, it := o.s, o.it
		s.mu.Lock()
		switch rep := replies[i]; {
		case rep.Err != nil: // whether an earlier one was executed is seen when the lists are moved
			it.state = decided
		case s.outcome(it, rep):
			s.remove(it)
			evs = s.report(it, true, evs)
		case last:
			s.remove(it)
			evs = s.report(it, false, evs)
		default:
			left = append(left, o)
		}
		s.mu.Unlock()
	}
	h.r.emit(evs...)
	return left
}

// move empties all old lists: what a handler holds, or a verdict waits for, goes to the new ones. One incarnation after the other is
// asked, and only for what those before did not have: of bare payloads with the same bytes each may have one.
func (h *handover) move(ctx context.Context) error {
	r := h.r
	var missing []held
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			if it.state != lost {
				missing = append(missing, held{s, it})
			}
		}
		s.mu.Unlock()
	}
	h.held = len(missing)
	back := 0
	for _, old := range h.sources {
		found, n, err := h.empty(ctx, old, missing)
		if err != nil {
			return err
		}
		back += n
		missing = slices.DeleteFunc(missing, func(o held) bool { return found[o.it] })
	}
	for _, o := range missing {
		o.s.mu.Lock()
		if o.it.state != lost {
			h.held--
			o.s.lose(o.it)
		}
		o.s.mu.Unlock()
	}
	if back > 0 {
		r.emit(Event{Kind: Released, Channel: r.channels[0].Name, N: back, Receiver: h.next.Name})
	}
	return nil
}

// empty does so with the lists of one incarnation; it says what was there of wanted, and how much else.
func (h *handover) empty(ctx context.Context, old store.Incarnation, wanted []held) (found map[*Item]bool, back int, err error) {
	r := h.r
	type part struct {
		in    *Channel
		items []*Item
	}
	var parts []part
	c := link.NewCall()
	for _, s := range r.workers {
		n := 0 // wanted is in the order of the slots
		for n < len(wanted) && wanted[n].s == s {
			n++
		}
		for _, in := range r.channels {
			p := part{in: in}
			var ids []any
			for _, o := range wanted[:n] {
				if o.it.Channel == in {
					p.items, ids = append(p.items, o.it), append(ids, o.it.Identity(o.it.Raw))
				}
			}
			c.AddScript(store.Handover, 6, append([]any{in.Receivers, in.Doing(old, s.n), in.Doing(h.next, s.n), in.Prepare, in.IDs, in.Running, holder(h.next, s.n)}, ids...)...)
			parts = append(parts, p)
		}
		wanted = wanted[n:]
	}
	if err := r.all(ctx, c); !c.Answered {
		return nil, 0, err
	}
	// A channel with a key that is not shunt's does not hold up the others: its lists stay with the old incarnations, which are
	// looked after as dead ones.
	for i, rep := range c.Replies {
		if rep.Err != nil && !r.ReportFatal(parts[i].in, rep.Err) {
			return nil, 0, rep.Err
		}
	}
	found = make(map[*Item]bool)
	for i, p := range parts {
		is, _ := redis.Ints(c.Replies[i].Value, nil)
		for j, n := range is {
			if j == 0 {
				back += n
			} else if n >= 1 && n <= len(p.items) {
				found[p.items[n-1]] = true
			}
		}
	}
	return found, back, nil
}

// lose marks an item that somebody else has by now, and ends its handler. s.mu is held.
func (s *worker) lose(it *Item) {
	if it.state == running {
		it.state = lost
		it.cancel(ErrLeaseLost)
		s.r.watcher.note(time.Now())
		return
	}
	it.state = lost
	s.remove(it)
	kind := LateVerdict
	if it.wasUnknown {
		kind = UnconfirmedVerdict
	}
	s.r.emit(Event{Kind: kind, Channel: it.Channel.Name, Serial: it.Serial, ID: it.ID(), Receiver: s.r.live.Load().Name, Worker: s.n, Err: ErrLeaseLost})
}
