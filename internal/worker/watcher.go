package worker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
)

// watcher keeps the times that no handler's goroutine can keep: timeouts, stalls, the end of the lease. It sleeps
// until the earliest of them.
type watcher struct {
	pool *Pool
	next atomic.Int64  // ns since began
	wake chan struct{} // of capacity 1

	// The goroutine's.
	requestedFor map[*lane.Site]*time.Time // the lease for which it last asked for a beat
	over         bool                      // every lease is lost, and the end was told
}

// began is what the watcher's times are counted from, by a clock that nobody sets.
var began = time.Now()

func (w *watcher) init(r *Pool) {
	w.pool, w.requestedFor = r, make(map[*lane.Site]*time.Time)
	w.wake = make(chan struct{}, 1)
	w.next.Store(math.MaxInt64)
}

// note makes sure that the watcher looks at t, or before.
func (w *watcher) note(t time.Time) {
	ns := int64(t.Sub(began))
	for {
		next := w.next.Load()
		if ns >= next {
			return
		}
		if w.next.CompareAndSwap(next, ns) {
			select {
			case w.wake <- struct{}{}:
			default:
			}
			return
		}
	}
}

// watch is the watcher's goroutine.
func (w *watcher) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.next.Store(math.MaxInt64) // so that what is noted while it looks is not missed
		w.note(w.look())
		for {
			d := time.Duration(w.next.Load()) - time.Since(began)
			if d <= 0 {
				break
			}
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-w.wake:
			case <-w.pool.PoolCtx.Done():
				return
			}
		}
	}
}

// look does what is due and returns when to look again at the latest.
func (w *watcher) look() time.Time {
	now := time.Now()
	next := w.leases(now)
	soonest := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, s := range w.pool.workers {
		s.mu.Lock()
		busy, rest, vacant := time.Time{}, uint64(0), s.vacant
		for i := 0; i < len(s.items); i++ {
			switch it := s.items[i]; {
			case it.atWork():
				busy = it.Started
				soonest(w.time(s, it, now))
				if i < len(s.items) && s.items[i] != it {
					i-- // it was taken out of hand
				}
			case it.state == queued || it.unsent():
				rest |= 1 << it.Lane.Index
			}
		}
		s.mu.Unlock()
		if rest != 0 && vacant {
			busy = began
		}
		if rest != 0 && !busy.IsZero() {
			if t := busy.Add(Stall); now.Before(t) {
				soonest(t)
			} else {
				soonest(now.Add(Stall))
				w.flush(s, rest)
			}
		}
	}
	return next
}

// long is a wait for what has no time of its own.
const long = time.Hour

// time ends a handler's context at its deadline, and gives the handler up a grace after its context has ended. It
// returns when to look again. s.mu is held.
func (w *watcher) time(s *worker, it *Item, now time.Time) time.Time {
	r := w.pool
	if it.state == concluding {
		return now.Add(long)
	}
	if it.Cause() == nil {
		if end, ok := it.Deadline(); !ok {
			return now.Add(long)
		} else if now.Before(end) {
			return end
		}
		cause := custody.ErrTimeout
		if until := it.until; until != nil && !now.Before(*until) {
			cause = custody.ErrDeadline
		}
		it.cancel(cause)
		r.emit(it.timed(event.TimedOut, s, now))
	}
	if r.handlerCtx.Err() != nil {
		return now.Add(long) // the end of the grace is shutdown's to judge
	}
	m := it.more()
	if m.giveUp == 0 {
		m.giveUp = now.Sub(it.Started) + r.conf.Grace
	}
	if end := it.Started.Add(m.giveUp); now.Before(end) {
		return end
	}
	r.orphan(s, it, now)
	return now.Add(long)
}

// leases finds those that are lost, and returns when to look again at the latest.
func (w *watcher) leases(now time.Time) (next time.Time) {
	r := w.pool
	over := r.Stopped()
	for i, site := range r.Sites {
		lease := &site.Lease
		mono, wall := lease.Age(now)
		if mono >= lease.Length && !lease.Lost() {
			site.LoseLease(custody.ErrLeaseLost)
		} else if wall >= lease.Length*2/3 && wall-mono > lease.Length/6 &&
			w.requestedFor[site] != lease.Last() && !site.Pausing() {
			w.requestedFor[site] = lease.Last()
			site.RequestBeat() // the machine was suspended, or its clock was set: the beat tells
		}
		over = over && lease.Lost()
		if end := now.Add(max(lease.Length-mono, Stall)); i == 0 || end.Before(next) {
			next = end
		}
	}
	if over && !w.over {
		w.over = true
		close(r.over)
	}
	return next
}

// flush has a worker that a handler holds up send what it holds of some lanes: verdicts, and what has not begun.
func (w *watcher) flush(s *worker, of uint64) {
	if !s.flushing.CompareAndSwap(false, true) {
		return
	}
	w.pool.otherGroup.Go(func() error {
		for _, site := range w.pool.Sites {
			if of&site.Mask != 0 {
				flush(s, site)
			}
		}
		s.flushing.Store(false)
		return nil
	})
}

// flush sends a site what a worker holds of its lanes, from outside the worker's goroutine.
func flush(s *worker, site *lane.Site) {
	if site.Breaker.Pass() > 0 {
		return
	}
	if !site.Enter() {
		site.Breaker.Back()
		return
	}
	defer site.Leave()
	call := link.NewCall()
	sent := dispatches{worker: s}
	s.mu.Lock()
	sent.collect(site, call, true)
	s.mu.Unlock()
	if len(sent.all) == 0 {
		site.Breaker.Back()
		return
	}
	site.Exchange(call)
	site.Breaker.Judge(sent.settle(call.Replies))
	s.poke()
}
