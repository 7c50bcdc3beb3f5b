package shunt

import (
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	sweepEvery  = 5 * time.Second
	sweepClaims = 16 // dead receivers that one sweep claims
	keeperKeeps = 3 * sweepEvery
	upkeepEvery = time.Minute
)

// reaper puts back what dead receivers held at the channels of one site, on a goroutine of its own. A sweep of a
// channel finds the dead and claims them. It runs every 5 s or so, and at once when the heart has seen an entry run
// out. The reaper then empties their lists, a bounded part at a time, and asks for a sweep again when others may be
// dead.
type reaper struct {
	r    *receiver
	site *lane.Site
	of   []*channel

	asked time.Time // for a beat, to judge by
}

// beatsAsked is how often a beat is asked for at most, to judge by.
const beatsAsked = 500 * time.Millisecond

// sweeping is the reaper's progress on one channel.
type sweeping struct {
	undertaker
	due     time.Time // of the next sweep
	backoff time.Time // after an error: when what was claimed comes up again

	kept time.Time // the last upkeep
	scan store.Scan
}

func newReaper(r *receiver, s *lane.Site) *reaper {
	p := &reaper{r: r, site: s}
	for _, l := range s.Lanes {
		in := r.channels[l.Index]
		in.sweeping.undertaker = undertaker{
			q: r.q, ctx: r.pool.PoolCtx, server: s.Server, keys: l.Keys, fence: s.Fence,
			fatal:    func(err error) bool { return s.ReportFatal(l, err) },
			suspects: func() { r.pool.Suspects(l) },
		}
		p.of = append(p.of, in)
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
		if !p.site.ReportFatal(in.Lane, err) {
			p.comeBack(s)
			s.due = s.backoff
		}
	case late:
		s.sooner(time.Now().Add(p.r.conf.Lease / 12))
	}
}

// comeBack has the next sweep come when what was claimed, by one whose answer nobody heard, comes up again.
func (p *reaper) comeBack(s *sweeping) {
	s.backoff = time.Now().Add(p.claimFor() + link.Jitter(100*time.Millisecond))
	s.sooner(s.backoff)
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
	if late, err := s.buryAll(until, p.claimFor()); late || err != nil {
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
		if late, err := s.buryAll(until, p.claimFor()); late || err != nil || !more {
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
	fence := p.site.Fence()
	a, err := store.RunSweep(r.pool.PoolCtx, p.site.Server.Pulse, in.Keys, store.Sweeping{
		Fence: fence, MaxClaims: sweepClaims, ClaimFor: p.claimFor(), Bid: name, KeepFor: keeperKeeps,
	})
	if err != nil {
		in.promoter.sweepFailed(name)
		return false, err
	}
	if a.Died > 0 {
		r.q.emit(event.Event{
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
	if a.Unjudged {
		s.sooner(time.Now().Add(link.Jitter(r.conf.Lease / 6)))
		if fence != (store.Fence{}) && time.Since(p.asked) > beatsAsked { // the next one may be far off
			p.asked = time.Now()
			p.site.RequestBeat()
		}
	}
	if a.Again > 0 {
		s.sooner(time.Now().Add(a.Again + 5*time.Millisecond))
	}
	if a.Repeated {
		p.comeBack(s)
	}
	if a.Leased {
		r.q.stationAt(p.site.Server).sight.fence() // the row begins before the first lease ends
	}
	next, any := a.Next()
	in.promoter.sweepReplied(name, next, any, hints)
	if r.pool.Stopped() || name != "" && name != p.site.Live().Name {
		in.promoter.Yield() // it asked before, or in the name of an incarnation that a handover has ended
	}
	s.claims(a.Claims)
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
