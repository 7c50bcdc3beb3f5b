package worker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
)

// watcher keeps the times that no handler's goroutine can keep: timeouts, stalls, the end of the lease. It sleeps
// until the earliest of them.
type watcher struct {
	next atomic.Int64  // ns since began
	wake chan struct{} // of capacity 1
}

// began is what the watcher's times are counted from, by a clock that nobody sets.
var began = time.Now()

func (w *watcher) init() {
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
func (r *Pool) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.watcher.next.Store(math.MaxInt64) // so that what is noted while it looks is not missed
		r.watcher.note(r.look())
		for {
			d := time.Duration(r.watcher.next.Load()) - time.Since(began)
			if d <= 0 {
				break
			}
			timer.Reset(d)
			select {
			case <-timer.C:
			case <-r.watcher.wake:
			case <-r.PoolCtx.Done():
				return
			}
		}
	}
}

// look does what is due and returns when to look again at the latest.
func (r *Pool) look() time.Time {
	now := time.Now()
	mono, wall := r.lease.age(now)
	if mono >= r.lease.length && !r.lease.lost.Load() {
		r.LoseLease(custody.ErrLeaseLost)
	} else if wall >= r.lease.length*2/3 && wall-mono > r.lease.length/6 &&
		r.requestedFor != r.lease.last.Load() && !r.pausing() {
		r.requestedFor = r.lease.last.Load()
		r.requestBeat() // the machine was suspended, or its clock was set: the beat tells
	}
	if r.lease.lost.Load() && r.Stopped() {
		r.overOnce.Do(func() { close(r.over) })
	}
	next := now.Add(max(r.lease.length-mono, Stall))
	soonest := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, s := range r.workers {
		s.mu.Lock()
		busy, rest, vacant := time.Time{}, false, s.vacant
		for _, it := range s.items {
			switch {
			case it.runs() || it.state == lost || it.state == handedBack:
				busy = it.Started
				soonest(s.time(it, now))
			case it.state == queued || it.unsent():
				rest = true
			}
		}
		s.mu.Unlock()
		if rest && vacant {
			busy = began
		}
		if rest && !busy.IsZero() {
			if t := busy.Add(Stall); now.Before(t) {
				soonest(t)
			} else {
				soonest(now.Add(Stall))
				if s.flushing.CompareAndSwap(false, true) {
					r.otherGroup.Go(func() error { s.flush(); s.flushing.Store(false); return nil })
				}
			}
		}
	}
	return next
}

// time ends a handler's context at its deadline. A grace after the context has ended it makes the handler an orphan. It
// returns when to look again. s.mu is held.
func (s *worker) time(it *Item, now time.Time) time.Time {
	r := s.r
	if it.state == concluding {
		return now.Add(time.Hour)
	}
	if it.Cause() == nil {
		if end, ok := it.Deadline(); !ok {
			return now.Add(time.Hour)
		} else if now.Before(end) {
			return end
		}
		cause := custody.ErrTimeout
		if until := it.until; until != nil && !now.Before(*until) {
			cause = custody.ErrDeadline
		}
		it.cancel(cause)
		r.emit(s.event(event.TimedOut, it, now))
	}
	if r.handlerCtx.Err() != nil {
		return now.Add(time.Hour) // the end of the grace is shutdown's to judge
	}
	m := it.more()
	if m.giveUp == 0 {
		m.giveUp = now.Sub(it.Started) + r.conf.Grace
	}
	if end := it.Started.Add(m.giveUp); now.Before(end) {
		return end
	}
	if it.move(leaveBe) { // nobody else's until its verdict is there
		m := it.message
		go func() {
			v := r.conf.Judge(it, m, it.Cause())
			s.mu.Lock()
			if it.state == judging {
				it.decide(v)
				it.took = now.Sub(it.Started)
			}
			s.mu.Unlock()
			s.poke()
			r.watcher.note(time.Now())
		}()
	} else {
		s.remove(it)
	}
	n, left := r.orphans.add(s, len(r.workers))
	e := s.event(event.Orphaned, it, now)
	e.N = n
	r.emit(e)
	if !left {
		s.spawn()
	} else {
		s.generation++ // the handler's goroutine has lost the slot all the same
		s.vacant = true
		missing := n - len(r.workers)
		r.emit(event.Event{Kind: event.WorkersMissing, Channel: it.Channel.Name, Receiver: r.live.Load().Name,
			N: missing})
	}
	return now.Add(time.Hour)
}

func (s *worker) event(kind event.Kind, it *Item, now time.Time) event.Event {
	return event.Event{Kind: kind, Channel: it.Channel.Name, Serial: it.Serial, ID: it.ID(), Attempt: it.Attempt(),
		Receiver: s.r.live.Load().Name, Worker: s.n, Took: now.Sub(it.Started), Err: it.Cause()}
}

// cancelAll ends the context of every handler that runs.
func (r *Pool) cancelAll(cause error) {
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			if it.runs() {
				it.cancel(cause)
			}
		}
		s.mu.Unlock()
	}
	r.watcher.note(time.Now())
}

// LoseLease ends all handlers: what they hold may be another's already. A new incarnation follows when Redis is back.
func (r *Pool) LoseLease(why error) {
	if r.lease.lost.Swap(true) {
		return
	}
	r.emit(event.Event{Kind: event.LeaseLost, Channel: r.channels[0].Name, Receiver: r.live.Load().Name, Err: why})
	r.cancelAll(custody.ErrLeaseLost)
	r.mustHandOver(custody.ErrLeaseLost)
}

// runningNow counts handlers that have not returned, orphans or not.
func (r *Pool) runningNow() int {
	n := r.orphans.count()
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			if it.runs() || it.state == lost || it.state == handedBack {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// kick makes the beat's goroutine beat at once.
func (r *Pool) requestBeat() {
	select {
	case r.BeatRequests <- struct{}{}:
	default:
	}
}
