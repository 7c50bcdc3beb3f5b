package shunt

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// minBeatRetry is the wait between beats that fail, less the jitter: 5 a second, and several within the shortest lease.
const minBeatRetry = 225 * time.Millisecond

// heart keeps a receiver's entries alive, on a goroutine of its own. No sweep and no element delays a beat.
//
// An entry outlives its last beat by four thirds of a lease, and is extended every third, so three beats in a row may
// fail. A beat also finds out which entry of its channels runs out next, and when. The heart then beats just after that
// time, and asks the reaper for a sweep. So what a killed receiver held is found as soon as its term is over.
type heart struct {
	r     *receiver
	lease time.Duration

	// Owned by the goroutine.
	next  time.Time     // of the next beat
	retry time.Duration // the wait after beats that failed; 0 after a good one

	seen atomic.Pointer[sight]
}

// sight is what a beat that was answered in time saw of Redis. It is not written to.
type sight struct {
	sent   time.Time // by the clock here
	server time.Time // by the server's clock
	since  time.Time // the same of the first beat of the row that this one belongs to
}

func newHeart(r *receiver) *heart {
	return &heart{r: r, lease: r.conf.Lease, next: time.Now()} // at once, for the row begins with it
}

// fence is from when on this receiver's view of Redis counts. A sweep judges by it.
//
// A living receiver is never declared dead because Redis, its clock or the judge stood still. The script judges only if
// the judge's last good beat is less than half a lease ago by the server's clock. So Redis was there then. It judges a
// receiver only if the judge's row of beats is as old as half of that receiver's lease. Each beat of a row came within
// half a lease of the one before, by both clocks alike. A receiver that is alive has beaten in that time, because it
// beats every third of its lease.
func (h *heart) fence() store.Fence {
	s := h.seen.Load()
	if s == nil || time.Since(s.sent) > h.lease/2 {
		return store.Fence{}
	}
	return store.Fence{At: s.server, Since: s.since, Age: h.lease / 2}
}

// run is the heart's goroutine.
func (h *heart) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(h.next))
		select {
		case <-timer.C:
		case <-h.r.pool.BeatRequests:
			if h.retry == 0 {
				h.next = time.Now()
			}
		case <-h.r.pool.PoolCtx.Done():
			return
		}
		sent := time.Now()
		if sent.Before(h.next) {
			continue
		}
		wait, err := h.beat(sent)
		if link.Classify(err) == link.Unknown && h.retry == 0 { // the server's timeout may have cut the idle connection
			wait, err = h.beat(time.Now())
		}
		if err != nil {
			third := h.lease / 3
			h.retry = max(min(max(2*h.retry, third/16), third/2), minBeatRetry)
			h.next = time.Now().Add(link.Jitter(h.retry))
			continue
		}
		h.retry, h.next = 0, sent.Add(wait)
	}
}

// beat beats on every channel, and says how long after its sending to beat again.
func (h *heart) beat(sent time.Time) (wait time.Duration, err error) {
	r := h.r
	inc := r.pool.Live()
	c := link.NewCall()
	for _, in := range r.channels {
		store.AddBeat(c, in.Keys, inc)
	}
	if err := r.s.Pulse.Run(r.pool.PoolCtx, c); err != nil {
		r.pool.ReportFatal(r.channels[0].Channel, err)
		return 0, err
	}
	took := time.Since(sent)
	wait = link.Jitter(h.lease / 3)
	gone := false
	var server time.Time
	var over []*channel // an entry has run out there
	for i, rep := range c.Replies {
		b, err := store.BeatReply(rep)
		if err != nil {
			return 0, err
		}
		gone, server = gone || !b.Alive, b.Now
		switch {
		case !b.Others:
		case b.Earliest < 0:
			over = append(over, r.channels[i])
		case b.Earliest < wait: // somebody has not beaten for long
			wait = b.Earliest + 5*time.Millisecond
		}
	}
	pausing := r.pool.Pausing() // asked first: a handover ends with another incarnation, and then with its pause
	if r.pool.Live().Name != inc.Name || gone && pausing {
		return wait, nil // the incarnation that beat has ended or is ending, and why is known
	}
	if gone {
		r.pool.LoseLease(fmt.Errorf("shunt: the receiver's entry is gone: Redis was flushed, or has an older "+
			"state: %w", ErrLeaseLost))
		return wait, nil
	}
	r.pool.Renew(sent)
	h.look(sent, took, server)
	for _, in := range over {
		r.pool.RequestSweep(in.Channel)
	}
	if seen := h.seen.Load(); len(over) > 0 && took <= h.lease/6 {
		if early := h.lease/2 - seen.server.Sub(seen.since); early > 0 { // when the row allows a judgement
			wait = min(wait, early+5*time.Millisecond)
		}
	}
	return wait, nil
}

// look takes in a beat that was answered. A failed beat does not end the row: the row is about the sight of Redis, and
// not about a connection.
func (h *heart) look(sent time.Time, took time.Duration, server time.Time) {
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
