package lane

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// minBeatRetry is the wait between beats that fail, less the jitter: 5 a second, and several within the shortest lease.
const minBeatRetry = 225 * time.Millisecond

// heart keeps a site's entries alive, on a goroutine of its own. No sweep and no element delays a beat.
//
// An entry outlives its last beat by four thirds of a lease, and is extended every third, so three beats in a row may
// fail. A beat also finds out which entry of its lanes runs out next, and when. The heart then beats just after that
// time, and asks the reaper for a sweep. So what a killed receiver held is found as soon as its term is over.
type heart struct {
	site     *Site
	lease    time.Duration
	requests chan struct{} // of capacity 1: beat now

	// Owned by the goroutine.
	next   time.Time     // of the next beat
	retry  time.Duration // the wait after beats that failed; 0 after a good one
	failed time.Time     // the last of these

	teller

	seen atomic.Pointer[sight]
}

// sight is what a beat that was answered in time saw of Redis. It is not written to.
type sight struct {
	sent   time.Time // by the clock here
	server time.Time // by the server's clock
	since  time.Time // the same of the first beat of the row that this one belongs to
}

func (h *heart) init(s *Site) {
	h.site, h.lease, h.requests = s, s.conf.Lease, make(chan struct{}, 1)
	h.teller.init()
}

// RequestBeat has the heart beat at once, or soon where the last beat failed.
func (s *Site) RequestBeat() {
	select {
	case s.heart.requests <- struct{}{}:
	default:
	}
}

// Fence is from when on this receiver's view of the site's Redis counts. A sweep judges by it.
//
// A living receiver is never declared dead because Redis, its clock or the judge stood still. The script judges only if
// the judge's last good beat is less than half a lease ago by the server's clock. So Redis was there then. It judges a
// receiver only if the judge's row of beats is as old as half of that receiver's lease. Each beat of a row came within
// half a lease of the one before, by both clocks alike. A receiver that is alive has beaten in that time, because it
// beats every third of its lease: the row's last beat must lie as far behind its first, and no more than three quarters
// of that lease before now. The judge's own lease may be much longer.
func (s *Site) Fence() store.Fence {
	h := &s.heart
	seen := h.seen.Load()
	if seen == nil || time.Since(seen.sent) > h.lease/2 {
		return store.Fence{}
	}
	return store.Fence{At: seen.server, Since: seen.since, Age: h.lease / 2}
}

// Beat is the heart's goroutine.
func (s *Site) Beat() {
	h := &s.heart
	h.next = time.Now() // at once, for the row begins with it
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(h.next))
		select {
		case <-timer.C:
		case <-h.requests:
			if soon := h.soon(); soon.Before(h.next) {
				h.next = soon
			}
		case <-s.conf.Running.Done():
			return
		}
		sent := time.Now()
		if sent.Before(h.next) {
			continue
		}
		wait, err := h.beat(sent)
		if err != nil {
			third := h.lease / 3
			h.retry = max(min(max(2*h.retry, third/16), third/2), minBeatRetry)
			h.failed = time.Now()
			h.next = h.failed.Add(link.Jitter(h.retry))
			continue
		}
		h.retry, h.next = 0, sent.Add(wait)
	}
}

// soon is when a beat that is asked for may be sent. Who asks may know that Redis is back.
func (h *heart) soon() time.Time {
	now := time.Now()
	if again := h.failed.Add(link.Jitter(minBeatRetry)); h.retry > 0 && now.Before(again) {
		return again
	}
	return now
}

// beat beats on every lane, and says how long after its sending to beat again.
func (h *heart) beat(sent time.Time) (wait time.Duration, err error) {
	s := h.site
	from, inc := s.Lease.Last(), s.Live()
	c := link.NewCall()
	for _, l := range s.Lanes {
		store.AddBeat(c, l.Keys, inc)
	}
	beats := c.Len()
	telling := h.add(c, s, inc, sent)
	err = s.Server.Pulse.Run(s.conf.Running, c)
	if c.Answered {
		h.learn(telling, c.Replies[beats:], sent)
		err = c.First(beats)
	}
	if err != nil {
		s.ReportFatal(s.Lanes[0], err)
		return 0, err
	}
	took := time.Since(sent)
	wait = link.Jitter(h.lease / 3)
	gone := false
	var server time.Time
	var over []*Lane // an entry has run out there
	for i, rep := range c.Replies[:beats] {
		b, err := store.BeatReply(rep)
		if err != nil {
			return 0, err
		}
		gone, server = gone || !b.Alive, b.Now
		switch {
		case !b.Others:
		case b.Earliest < 0:
			over = append(over, s.Lanes[i])
		case b.Earliest < wait: // somebody has not beaten for long
			wait = b.Earliest + 5*time.Millisecond
		}
	}
	pausing := s.Pausing() // asked first: a handover ends with another incarnation, and then with its pause
	if s.Live().Name != inc.Name || gone && pausing {
		return wait, nil // the incarnation that beat has ended or is ending, and why is known
	}
	if gone {
		s.LoseLease(fmt.Errorf("shunt: the receiver's entry is gone: Redis was flushed, or has an older "+
			"state: %w", custody.ErrLeaseLost))
		return wait, nil
	}
	s.renew(from, sent)
	h.see(sent, took, server)
	for _, l := range over {
		s.RequestSweep(l)
	}
	if seen := h.seen.Load(); len(over) > 0 && took <= h.lease/6 {
		if early := h.lease/2 - seen.server.Sub(seen.since); early > 0 { // when the row allows a judgement
			wait = min(wait, early+5*time.Millisecond)
		}
	}
	return wait, nil
}

// renew takes in a good beat, sent then (see Lease.extend).
func (s *Site) renew(from *time.Time, sent time.Time) {
	stale := !s.Lease.Fresh(time.Now())
	sure := s.Lease.extend(from, sent)
	switch {
	case s.Lease.InDoubt(): // since that sending, or since the same tick of the clock
		s.conf.Renewed()
		s.RequestBeat()
	case sure || stale:
		s.conf.Wake()
	default:
		s.conf.Renewed()
	}
}

// see takes in a beat that was answered. A failed beat does not end the row: the row is about the sight of Redis, and
// not about a connection.
func (h *heart) see(sent time.Time, took time.Duration, server time.Time) {
	if took > h.lease/6 {
		return // when the server saw it is not known well enough
	}
	now := &sight{sent: sent, server: server, since: server}
	if last := h.seen.Load(); last != nil {
		here, there := sent.Sub(last.sent), server.Sub(last.server)
		if here <= h.lease/2 && (here-there).Abs() < h.lease/4 {
			now.since = last.since
		}
	}
	h.seen.Store(now)
}
