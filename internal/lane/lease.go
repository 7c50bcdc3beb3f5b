package lane

import (
	"sync/atomic"
	"time"
)

// Lease is how long the receiver may believe itself alive. It is counted from the sending of the last good beat, by two
// clocks: one that stops while the machine is suspended, and one that does not.
type Lease struct {
	Length time.Duration
	last   atomic.Pointer[time.Time]
	lost   atomic.Bool // until there is a new incarnation
}

// renew begins a new incarnation's lease.
func (l *Lease) renew(sent time.Time) { l.last.Store(&sent); l.lost.Store(false) }

// extend goes on with it; one that is lost stays so.
func (l *Lease) extend(sent time.Time) { l.last.Store(&sent) }

// Last is when the last good beat was sent; each beat has another pointer.
func (l *Lease) Last() *time.Time { return l.last.Load() }

// Age is by the monotonic clock, and by the wall clock.
func (l *Lease) Age(now time.Time) (mono, wall time.Duration) {
	last := *l.last.Load()
	return now.Sub(last), time.Duration(now.UnixNano() - last.UnixNano())
}

// Fresh says whether something may be taken and started now: for the first two thirds of the term.
func (l *Lease) Fresh(now time.Time) bool {
	mono, wall := l.Age(now)
	return max(mono, wall) < l.Length*2/3 && !l.lost.Load()
}

// Lost says whether it was lost, and there is no new incarnation yet.
func (l *Lease) Lost() bool { return l.lost.Load() }

// Lose has it lost, and says whether it was before.
func (l *Lease) Lose() (before bool) { return l.lost.Swap(true) }
