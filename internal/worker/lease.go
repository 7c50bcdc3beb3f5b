package worker

import (
	"sync/atomic"
	"time"
)

// lease is how long the receiver may believe itself alive. It is counted from the sending of the last good beat, by two
// clocks: one that stops while the machine is suspended, and one that does not.
type lease struct {
	length time.Duration
	last   atomic.Pointer[time.Time]
	lost   atomic.Bool // until there is a new incarnation
}

// renew begins a new incarnation's lease.
func (l *lease) renew(sent time.Time) { l.last.Store(&sent); l.lost.Store(false) }

// extend goes on with it; one that is lost stays so.
func (l *lease) extend(sent time.Time) { l.last.Store(&sent) }

// age is by the monotonic clock, and by the wall clock.
func (l *lease) age(now time.Time) (mono, wall time.Duration) {
	last := *l.last.Load()
	return now.Sub(last), time.Duration(now.UnixNano() - last.UnixNano())
}

// fresh says whether something may be taken and started now: for the first two thirds of the term.
func (l *lease) fresh(now time.Time) bool {
	mono, wall := l.age(now)
	return max(mono, wall) < l.length*2/3 && !l.lost.Load()
}
