package shunt

import (
	"context"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	sweepEvery  = 5 * time.Second
	sweepClaims = 16       // dead receivers that one sweep claims
	reapSerials = 32       // elements that one script reaps
	reapLists   = 16       // lists that one pipeline reaps at most, since on a slow line each round trip counts
	reapBytes   = 64 << 10 // after which all scripts of a pipeline stop: some 0.4 ms; each moves one element at least
	existsChunk = 1000     // lists that one pipeline asks for
	keeperKeeps = 3 * sweepEvery
	upkeepEvery = time.Minute
)

// reaper puts back what dead receivers held at the channels of one site, on a goroutine of its own. A sweep of a
// channel finds the dead and claims them. It runs every 5 s or so, and at once when the heart has seen an entry run
// out. The reaper then empties their lists, a bounded part at a time, and asks for a sweep again when others may be
// dead.
type reaper struct {
	r     *receiver
	site  *lane.Site
	lists int // that the next pipeline reaps, by the bytes that the last one moved
	of    []*channel
}

// sweeping is the reaper's progress on one channel.
type sweeping struct {
	due     time.Time // of the next sweep
	backoff time.Time // after an error: when what was claimed comes up again
	claimed []string  // members of receivers.dead whose lists are still to be emptied
	asked   time.Time // when they were claimed
	burial  burial    // of the first of them

	kept time.Time // the last upkeep
	scan store.Scan
}

// burial is the progress on one dead receiver.
type burial struct {
	member  string
	unasked []string // its lists of which it is not known whether they hold anything
	held    []string // those that do
}

func newReaper(r *receiver, s *lane.Site) *reaper {
	p := &reaper{r: r, site: s}
	for _, l := range s.Lanes {
		p.of = append(p.of, r.channels[l.Index])
	}
	return p
}

// claimFor is for how long a claimed dead receiver is left to the reaper that has claimed it.
func (p *reaper) claimFor() time.Duration { return min(sweepEvery, p.r.conf.Lease/2) }

// run is the reaper's goroutine.
func (p *reaper) run() {
	r := p.r
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := p.of[0].sweeping.due
		for _, in := range p.of {
			if in.sweeping.due.Before(next) {
				next = in.sweeping.due
			}
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case l := <-p.site.SweepRequests():
			r.channels[l.Index].sweeping.due = time.Now()
		case <-r.pool.PoolCtx.Done():
			return
		}
		for _, in := range p.of {
			p.visit(in)
		}
	}
}

// visit sweeps a channel if that is due, for a bounded time.
func (p *reaper) visit(in *channel) {
	s := &in.sweeping
	now := time.Now()
	if now.Before(s.due) {
		return
	}
	s.due = now.Add(link.Jitter(sweepEvery))
	if p.r.pool.Stopped() {
		return
	}
	if s.backoff.After(now) { // a hint came before its time
		s.due = s.backoff
	}
	late, err := p.sweep(in, now.Add(min(p.r.conf.Lease/6, sweepEvery)))
	switch {
	case err != nil:
		s.claimed, s.burial = nil, burial{}
		if !p.site.ReportFatal(in.Lane, err) { // what was claimed comes up again
			s.backoff = time.Now().Add(p.claimFor() + link.Jitter(100*time.Millisecond))
			s.due = s.backoff
		}
	case late:
		s.sooner(time.Now().Add(p.r.conf.Lease / 12))
	}
}

// sooner brings the next sweep forward.
func (s *sweeping) sooner(t time.Time) {
	if t.Before(s.due) {
		s.due = t
	}
}

// sweep goes on with what was claimed, and then sweeps. late: something is left for the next visit, because the time is
// over or the fence is too old.
func (p *reaper) sweep(in *channel, until time.Time) (late bool, err error) {
	s := &in.sweeping
	if time.Since(s.asked) >= p.claimFor() {
		s.claimed = nil // others may claim them now
	}
	if late, err := p.buryAll(in, until); late || err != nil {
		return late, err
	}
	for {
		more, err := p.ask(in)
		if err != nil {
			return false, err
		}
		if err := p.r.endCancelled(in); err != nil && !p.site.ReportFatal(in.Lane, err) {
			return false, err
		}
		if late, err := p.buryAll(in, until); late || err != nil || !more {
			return late, err
		}
		if time.Now().After(until) {
			return true, nil
		}
	}
}

// ask runs the sweep script, and hands out what it found. more: there may be more dead receivers than it claimed.
func (p *reaper) ask(in *channel) (more bool, err error) {
	s := &in.sweeping
	r := p.r
	name, hints := in.promoter.keeperBid(r)
	a, err := store.RunSweep(r.pool.PoolCtx, p.site.Server.Pulse, in.Keys, store.Sweeping{
		Fence: p.site.Fence(), MaxClaims: sweepClaims, ClaimFor: p.claimFor(), Bid: name, KeepFor: keeperKeeps,
	})
	if err != nil {
		in.promoter.sweepFailed(name)
		return false, err
	}
	if a.Died > 0 {
		r.q.events.Emit(event.Event{
			Kind: event.ReceiversDied, Channel: in.Name, Receiver: p.site.Live().Name, N: a.Died,
		})
	}
	if a.Unreadable != nil {
		p.site.ReportFatal(in.Lane, a.Unreadable)
	}
	if a.Suspects {
		p.r.pool.Suspects(in.Lane)
	}
	if !a.Keeper {
		name = ""
	}
	if a.MoreToForget {
		s.sooner(time.Now().Add(10 * time.Millisecond))
	}
	switch {
	case a.Unjudged:
		s.sooner(time.Now().Add(r.conf.Lease / 6))
	case a.Again > 0:
		s.sooner(time.Now().Add(a.Again + 5*time.Millisecond))
	}
	in.promoter.sweepReplied(name, a.NextDue, a.Scheduled, hints)
	if r.pool.Stopped() {
		in.promoter.Yield() // it asked before
	}
	s.claimed, s.asked = a.Claims, time.Now()
	if len(s.claimed) == 0 || s.claimed[0] != s.burial.member {
		s.burial = burial{}
	}
	if name != "" && time.Since(s.kept) >= upkeepEvery {
		s.kept = time.Now()
		err = store.Upkeep(r.pool.PoolCtx, p.site.Server.Data, in.Keys, &s.scan, a.Now)
	}
	return len(a.Claims) == sweepClaims, err
}

// endCancelled ends the handlers of messages that were cancelled while nobody here could hear the hint.
func (r *receiver) endCancelled(in *channel) error {
	held := r.pool.Tracked(in.Lane)
	if len(held) == 0 {
		return nil
	}
	cancelled, err := store.AreCancelled(r.pool.PoolCtx, in.Site.Server.Data, in.Keys, held)
	for _, serial := range cancelled {
		r.pool.Cancel(in.Lane, serial)
	}
	return err
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
