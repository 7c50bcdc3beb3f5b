package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// kept is one channel that an upkeep keeps. Its upkeep's mu guards all but what a visit owns.
type kept struct {
	undertaker // a visit's own
	visiting   bool
	again      bool // it became due during the visit

	due       *time.Timer
	at        time.Time      // when due fires
	sweep     time.Time      // the next sweep is due
	pause     time.Time      // before then no hint brings a visit: the last one has met what a person has to mend
	pullers   int            // who pull from it now
	pulled    time.Time      // when the last one ended
	own       *link.Listener // nil: the hints of all channels are heard
	listening bool
	visited   bool
	keeper    bool      // as last told
	received  bool      // receivers are listed, as last told
	minds     time.Time // until then it keeps the time: it has put off ends of leases, and nobody else may know
	hints     int       // heard so far: what was asked for before one cannot put the timer back

	tidied time.Time // a visit's own, as scan
	scan   store.Scan
}

// sooner brings the next visit forward. mu is held.
func (c *kept) sooner(in time.Duration) {
	in = max(in, time.Until(c.pause))
	if at := time.Now().Add(in); c.at.IsZero() || at.Before(c.at) {
		c.set(in)
	}
}

// look has the channel swept: asked after the subscription was confirmed, so that nothing falls between. mu is held.
func (c *kept) look(in time.Duration) {
	c.sweep = time.Time{}
	c.sooner(in)
}

// set says when the next visit is due. mu is held.
func (c *kept) set(in time.Duration) {
	c.at = time.Now().Add(in)
	c.due.Reset(in)
}

// visitOnce visits a channel unless another goroutine does, which then does it once more.
func (u *upkeep) visitOnce(c *kept) {
	u.mu.Lock()
	if c.visiting || u.of[c.keys.Name] != c {
		c.again = true
		u.mu.Unlock()
		return
	}
	c.visiting, c.again, c.at = true, false, time.Time{}
	u.mu.Unlock()
	u.visit(c)
	u.mu.Lock()
	c.visiting = false
	if c.again {
		c.at = time.Time{}
		c.sooner(0)
	}
	u.mu.Unlock()
}

var errUpkeep = errors.New("shunt: the upkeep of the channel failed")

// visit does what is due, and says when the next visit is.
func (u *upkeep) visit(c *kept) {
	if u.closing() {
		return
	}
	err := u.tend(c)
	if err == nil {
		return
	}
	lasting := u.report(c.keys.Name, fmt.Errorf("%w: %w", errUpkeep, err))
	c.claimed, c.burial = nil, burial{}
	u.mu.Lock()
	wait := link.Jitter(time.Second)
	if lasting {
		c.pause = time.Now().Add(wait)
	}
	c.look(wait)
	u.mu.Unlock()
}

// tend sweeps where that is due, then promotes and ends leases.
func (u *upkeep) tend(c *kept) error {
	u.mu.Lock()
	sweep := !time.Now().Before(c.sweep)
	u.mu.Unlock()
	var at store.Timetable
	var minds time.Time
	var err error
	if sweep {
		var left bool
		if at, left, err = u.swept(c); err != nil || left {
			return err
		}
	}
	if next, any := at.Next(); !sweep || any && next <= 0 {
		if at, minds, err = u.q.bringDue(u.q.life, u.server, c.keys, c.fence); err != nil {
			return err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c.minds = later(c.minds, minds)
	c.visited = true
	until := time.Until(c.sweep)
	if next, any := at.Next(); any && (next <= 0 || u.keepsTime(c)) {
		until = min(until, max(next, 0))
	}
	c.sooner(until)
	return nil
}

// keepsTime says whether a visit is due when the first message is, or the first lease ends. Where receivers are listed,
// or another process keeps what it pulls from, that is for the keeper alone. mu is held.
func (u *upkeep) keepsTime(c *kept) bool {
	return c.keeper || time.Now().Before(c.minds) || !u.hears(c) || u.listening && !c.received
}

// hears says whether the channel's hints are heard. mu is held.
func (u *upkeep) hears(c *kept) bool { return c.listening || u.listening }

// swept sweeps a channel, and recovers what the sweep has found. left: the channel needs nobody, and is kept no more.
func (u *upkeep) swept(c *kept) (at store.Timetable, left bool, err error) {
	claimFor := min(sweepEvery, u.q.conf.Lease/2)
	until := time.Now().Add(visitFor)
	late, err := c.buryAll(until, claimFor)
	if err != nil {
		return at, false, err
	}
	q := store.Sweeping{Fence: u.sight.fence(), MaxClaims: sweepClaims, ClaimFor: claimFor, KeepFor: keeperKeeps}
	if late {
		q.MaxClaims = 0
	}
	u.mu.Lock()
	hints, was := c.hints, c.keeper
	if u.hears(c) {
		q.Bid = u.name
	}
	if u.listening && !c.received { // the next sweep may be far off, and then others have to tell of leases
		q.KeepFor = time.Millisecond
	}
	c.sweep = time.Now().Add(time.Hour) // unless somebody asks for another one meanwhile
	u.mu.Unlock()
	a, err := store.RunSweep(u.q.life, u.server.Pulse, c.keys, q)
	if err != nil {
		return at, false, err
	}
	if a.Died > 0 {
		u.q.emit(event.Event{Kind: event.ReceiversDied, Channel: c.keys.Name, Receiver: u.name, N: a.Died})
	}
	if a.Unreadable != nil {
		u.report(c.keys.Name, a.Unreadable)
	}
	if len(a.Claims) > 0 && !late {
		c.claims(a.Claims)
		late, err = c.buryAll(until, claimFor)
	}
	if a.Keeper && time.Since(c.tidied) >= upkeepEvery && err == nil {
		c.tidied = time.Now()
		err = store.Upkeep(u.q.life, u.server.Data, c.keys, &c.scan, a.Now)
	}
	if err != nil {
		return at, false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	c.received = a.Known
	wait := u.untilSweep(&a, late, claimFor)
	c.keeper = a.Keeper
	if c.keeper && !was && hints != c.hints { // a hint that came before this answer was nobody's
		wait = 0
	}
	asked := c.sweep.IsZero()
	if !asked {
		c.sweep = time.Now().Add(wait)
	}
	needed := asked || a.Known || a.Scheduled || a.Leased || a.MoreToForget || a.Unreadable != nil || hints != c.hints
	lately := c.pullers > 0 || time.Since(c.pulled) < keptFor
	if !needed && (u.listening || !lately) { // a hint brings it back
		u.leave(c)
		return at, true, nil
	}
	return a.Timetable, false, nil
}

// untilSweep is how long it is until the next sweep, by what the last one said. late: what it has claimed is not
// recovered yet. mu is held.
func (u *upkeep) untilSweep(a *store.SweepAnswer, late bool, claimFor time.Duration) time.Duration {
	wait := link.Jitter(sweepEvery)
	if u.listening && !a.Known && a.Keeper && a.Unreadable == nil { // whatever is added from now on is told
		wait = link.Jitter(quietEvery)
	}
	switch {
	case late:
		wait = link.Jitter(100 * time.Millisecond)
	case a.MoreToForget:
		wait = 10 * time.Millisecond
	case len(a.Claims) == sweepClaims:
		wait = 0
	}
	if a.Unjudged {
		wait = min(wait, link.Jitter(u.q.conf.Lease/6))
	}
	if a.Again > 0 {
		wait = min(wait, a.Again+5*time.Millisecond)
	}
	if a.Repeated { // the first one may have claimed some
		wait = min(wait, claimFor+link.Jitter(100*time.Millisecond))
	}
	return wait
}

// leave ends the upkeep of a channel. mu is held.
func (u *upkeep) leave(c *kept) {
	if u.q.begin() != nil {
		return // Close ends it
	}
	delete(u.of, c.keys.Name)
	c.due.Stop()
	go func() {
		defer u.q.waits.Done()
		ctx, cancel := context.WithTimeout(u.q.life, time.Second)
		defer cancel()
		if c.own != nil {
			u.server.Hints.Forget(ctx, c.own)
		}
		needed, err := store.LeaveKeeper(ctx, u.server.Pulse, u.name, c.keys)
		if err != nil {
			link.Sleep(u.q.ending, link.Jitter(time.Second))
		}
		if needed || err != nil { // by a lease that began just now, of which no hint tells a keeper
			u.keep(c.keys)
		}
	}()
}
