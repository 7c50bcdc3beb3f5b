package shunt

import (
	"context"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	reapSerials = 32       // elements that one script reaps
	reapLists   = 16       // lists that one pipeline reaps at most, since on a slow line each round trip counts
	reapBytes   = 64 << 10 // after which all scripts of a pipeline stop: some 0.4 ms; each moves one element at least
	existsChunk = 1000     // lists that one pipeline asks for
)

// burial is the progress on one dead receiver.
type burial struct {
	member  string
	unasked []string // its lists of which it is not known whether they hold anything
	held    []string // those that do
}

// buryAll empties the lists of the dead receivers that were claimed.
func (p *reaper) buryAll(in *channel, until time.Time) (late bool, err error) {
	s := &in.sweeping
	for len(s.claimed) > 0 {
		late, err := p.bury(in, s.claimed[0], until)
		if late || err != nil && !p.site.ReportFatal(in.Lane, err) {
			return late, err
		}
		s.claimed, s.burial = s.claimed[1:], burial{}
	}
	return false, nil
}

// bury reaps what a dead receiver holds, and says when it is looked at again. late: it goes on with the next visit.
func (p *reaper) bury(in *channel, member string, until time.Time) (late bool, err error) {
	r := p.r
	dead, err := store.ParseDeadReceiver(member)
	if err != nil { // nothing that could be reaped
		r.q.events.Emit(event.Event{Kind: event.ReceiverError, Channel: in.Name, Err: err, Fatal: true})
		return false, nil
	}
	b := &in.sweeping.burial
	if b.member != member {
		*b = burial{member: member, unasked: in.AllDoing(dead.Incarnation)}
	}
	for first := true; ; first = false { // a step is always taken, or on a slow line it never would get on
		if !first && time.Now().After(until) {
			return true, nil
		}
		switch {
		case len(b.held) > 0:
			late, err = p.reap(in, dead)
		case len(b.unasked) > 0:
			err = p.askLists(b)
		default:
			// short, as the sweep is
			return false, store.FinishDead(r.pool.PoolCtx, p.site.Server.Pulse, in.Keys, member, dead)
		}
		if late || err != nil {
			return late, err
		}
	}
}

// askLists asks for the next lists, in one command where that will do.
func (p *reaper) askLists(b *burial) error {
	ctx, l := p.r.pool.PoolCtx, p.site.Server.Data
	some := b.unasked[:min(len(b.unasked), existsChunk)]
	n, err := store.CountNonEmpty(ctx, l, some)
	if err != nil {
		return err
	}
	switch n {
	case 0:
	case len(some):
		b.held = append(b.held, some...)
	default:
		held, err := store.NonEmpty(ctx, l, some)
		if err != nil {
			return err
		}
		b.held = append(b.held, held...)
	}
	b.unasked = b.unasked[len(some):]
	return nil
}

// reap empties the next of the lists, a bounded part of them. late: the fence is too old.
func (p *reaper) reap(in *channel, dead store.DeadReceiver) (late bool, err error) {
	r, b := p.r, &in.sweeping.burial
	fence := p.site.Fence()
	if dead.Superseded {
		fence = store.Fence{} // its own receiver has ended it, so it may be reaped at any time
	} else if fence.At.IsZero() {
		return true, nil
	}
	some := b.held[:min(len(b.held), max(1, p.lists))]
	if planted.Reap != nil {
		return false, p.reapPlanted(in, some)
	}
	c := link.NewCall()
	for _, list := range some {
		store.AddReap(c, in.Keys, list, fence, dead, reapSerials, reapBytes/len(some), &r.q.conf.Bounds)
	}
	err = p.site.Server.Data.Run(r.pool.PoolCtx, c) // one reply after another
	if err != nil && !c.Answered {
		return false, err
	}
	var left []string
	moved := 0
	for i, rep := range c.Replies {
		a, bad := store.ReapReply(rep)
		if bad != nil {
			continue // err is the first of these
		}
		late = late || a.Late
		p.report(in, dead, a)
		if a.Left > 0 || a.Late {
			left = append(left, some[i])
		}
		moved += a.Bytes
	}
	if p.lists = min(4*len(some), reapLists); moved > reapBytes {
		p.lists = 1 // large elements go one by one, so that nobody waits for Redis meanwhile
	}
	if err == nil {
		b.held = append(left, b.held[len(some):]...)
	}
	return late, err
}

// report emits what one reap has moved.
func (p *reaper) report(in *channel, dead store.DeadReceiver, a store.ReapAnswer) {
	for _, m := range []struct {
		kind event.Kind
		n    int
	}{{event.Recovered, a.Prepare}, {event.Suspected, a.Suspect}, {event.Poisoned, a.Dead}, {event.Trimmed,
		a.Trimmed}} {
		if m.n > 0 {
			p.r.q.events.Emit(event.Event{Kind: m.kind, Channel: in.Name, Receiver: dead.Name, N: m.n})
		}
	}
	if a.Suspect > 0 {
		p.r.pool.Suspects(in.Lane)
	}
}

// reapPlanted is reap with the mistake that the fault harness has planted.
func (p *reaper) reapPlanted(in *channel, some []string) error {
	s := &in.sweeping
	for _, list := range some {
		if _, err := planted.Reap(do(p.r.pool.PoolCtx, p.site.Server.Data), list, in.Prepare); err != nil {
			return err
		}
	}
	s.burial.held = s.burial.held[len(some):]
	return nil
}

// do runs single commands on a link, for planted mistakes.
func do(ctx context.Context, l *link.Link) planted.Do {
	return func(name string, args ...any) (any, error) { return store.Do(ctx, l, name, args...) }
}
