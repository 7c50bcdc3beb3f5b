package shunt

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// haul is what a take under a lease has brought.
type haul struct {
	p     *pull
	lease store.Lease
	all   []*settlement
	said  []custody.Known // of each
	sent  time.Time       // when it was last asked for, or renewed: its lease began then or later

	unread map[*store.Keys]error // why channels could not be read

	again link.Resend // what became of its sendings so far
	known bool        // there was an answer
	err   error
}

func (h *haul) add(k *store.Keys, t store.LeasedTaken) {
	h.all = append(h.all, newSettlement(k, h.lease, t.Raw, len(h.all)))
	h.said = append(h.said, custody.Known{Now: t.Now, Taken: t.Taken, Read: t.Read, Record: t.Record,
		Cancelled: t.Cancelled})
}

// haul takes under a new lease, of one message together with others who want one of the same channel. What it could not
// learn there it asks for by itself, under the same lease. Some of several channels may come beside an error of others.
func (p *pull) haul(ctx context.Context) (haul, error) {
	h := haul{p: p, lease: store.NewLease(p.term, boundOf(0, p.q.conf.MaxAttempts))}
	if len(p.from) == 1 && p.max == 1 {
		shared, err := p.station.takes.Join(ctx, p.from[0], h)
		if err != nil {
			if link.Classify(err) == link.Unknown {
				p.giveBack(h.lease)
			}
			return h, err
		}
		h = shared
	}
	if !h.known {
		h.ask(ctx)
	}
	return h, h.err
}

// ask asks for messages until the answer is known. Where it gives up, nothing stays taken.
func (h *haul) ask(ctx context.Context) {
	p := h.p
	h.known = true
	for {
		c := link.NewCall()
		store.AddLease(c, p.from, h.lease, p.max, p.q.conf.PrefetchBytes)
		h.sent = time.Now()
		err := p.station.server.Data.Run(ctx, c)
		unknown := link.Classify(err) == link.Unknown
		h.err = h.again.Failed(err)
		switch {
		case h.err == nil:
			h.read(c.Replies[0])
			return
		case unknown && ctx.Err() == nil:
			h.again.Pause(ctx, 0)
			continue
		case h.again.InDoubt():
			p.giveBack(h.lease)
		}
		return
	}
}

// read takes in the reply to ask.
func (h *haul) read(rep link.Reply) {
	var wrong error
	err := store.EachLeasedTaken(rep, func(source int, t store.LeasedTaken, bad error) {
		k := h.p.from[source]
		if bad == nil {
			h.add(k, t)
			return
		}
		if wrong = bad; link.Code(bad) == "WRONGTYPE" {
			wrong = h.p.q.wrongType(k.Name, bad)
		}
		if h.unread == nil {
			h.unread = make(map[*store.Keys]error)
		}
		h.unread[k] = wrong
	})
	h.err = errors.Join(err, wrong)
}

// tell reports the channels that could not be read, where the pull itself goes well: its error says it otherwise.
func (h *haul) tell() {
	q := h.p.q
	for k, why := range h.unread {
		if q.foreign.tells(k.Name) {
			q.emit(event.Event{Kind: event.ReceiverError, Channel: k.Name, Err: why, Fatal: true})
		}
	}
}

// takeOnes takes one message of a channel for each of some pullers. Where there is no answer, each asks by itself.
func (s *station) takeOnes(ctx context.Context, k *store.Keys, all []*haul) {
	if len(all) == 1 {
		all[0].ask(ctx)
		return
	}
	leases := make([]store.Lease, len(all))
	for i, h := range all {
		leases[i] = h.lease
	}
	c := link.NewCall()
	store.AddLeaseEach(c, k, leases, all[0].p.q.conf.PrefetchBytes)
	sent := time.Now()
	if err := s.server.Data.Run(ctx, c); err != nil {
		for _, h := range all {
			_ = h.again.Failed(err)
		}
		return
	}
	empty, err := store.EachLeasedOne(c.Replies[0], func(i int, t store.LeasedTaken) { all[i].add(k, t) })
	for _, h := range all {
		h.sent, h.known = sent, err == nil && (empty || len(h.all) > 0)
	}
}

// giveBack releases what a lease holds, on a goroutine of its own: nobody has seen its messages. It goes on until Redis
// has answered, or the lease is over.
func (p *pull) giveBack(l store.Lease) {
	p.beyond(func(ctx context.Context) {
		for again := (link.Resend{}); ctx.Err() == nil; again.Pause(ctx, 0) {
			c := link.NewCall()
			for _, k := range p.from {
				store.AddGiveBack(c, k, l.Name)
			}
			err := p.station.server.Data.Run(ctx, c)
			if c.Answered && !waits(err) {
				p.gaveBack(c.Replies)
				return
			}
		}
	})
}

// beyond does what may outlast the pull, on a goroutine of its own. ctx ends with the lease, or with the Queue's life.
func (p *pull) beyond(do func(ctx context.Context)) {
	p.q.waits.Add(1) // the pull is counted there, so Close still waits
	go func() {
		defer p.q.waits.Done()
		ctx, cancel := context.WithTimeout(p.q.life, max(p.term, p.q.conf.ReplyTimeout))
		defer cancel()
		do(ctx)
	}()
}

// gaveBack reports what was released.
func (p *pull) gaveBack(replies []link.Reply) {
	for i, k := range p.from {
		if n, _ := store.GiveBackReply(replies[i]); n > 0 {
			p.q.counter.count(k.Name, func(to meter.Adder) { to.Add(meter.Released, n) })
			p.q.emit(event.Event{Kind: event.Released, Channel: k.Name, N: n})
		}
	}
}

// isLate says that the lease may be over.
func (h *haul) isLate() bool { return !time.Now().Before(h.sent.Add(h.p.term)) }

// renew has the lease begin anew, which may be over. It says whether the haul has it, and nobody else can have had what
// it holds.
func (h *haul) renew(ctx context.Context) bool {
	h.sent = time.Now()
	c := link.NewCall()
	store.AddExtend(c, h.all[0].held.Keys, h.lease.Name, h.p.term)
	if h.p.station.server.Data.Run(ctx, c) != nil {
		return false
	}
	left, _, err := store.ExtendReply(c.Replies[0])
	return left && err == nil && !h.isLate()
}
