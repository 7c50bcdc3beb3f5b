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
	lost   atomic.Bool               // until there is a new incarnation
	doubt  atomic.Pointer[time.Time] // since when Redis may not know the incarnation; nil: it does
}

// renew begins a new incarnation's lease.
func (l *Lease) renew(sent time.Time) { l.last.Store(&sent); l.lost.Store(false) }

// extend goes on with it; one that is lost stays so. from is what Last gave before the beat: where another incarnation
// has come since, the beat was not its own. sure: a doubt has ended.
func (l *Lease) extend(from *time.Time, sent time.Time) (sure bool) {
	if !l.last.CompareAndSwap(from, &sent) {
		return false
	}
	since := l.doubt.Load()
	return since != nil && since.Before(sent) && l.doubt.CompareAndSwap(since, nil)
}

// Doubt has nothing taken or started until a beat that is sent from now on was answered. A new connection may lead to a
// Redis that has come back with an older state, and does not know the incarnation. Nobody looks after its lists then.
func (l *Lease) Doubt() {
	now := time.Now()
	l.doubt.Store(&now)
}

// Last is when the last good beat was sent; each beat has another pointer.
func (l *Lease) Last() *time.Time { return l.last.Load() }

// Age is by the monotonic clock, and by the wall clock.
func (l *Lease) Age(now time.Time) (mono, wall time.Duration) {
	last := *l.last.Load()
	return now.Sub(last), time.Duration(now.UnixNano() - last.UnixNano())
}

// InDoubt says whether a beat is waited for.
func (l *Lease) InDoubt() bool { return l.doubt.Load() != nil }

// Fresh says whether something may be taken and started now: for the first two thirds of the term, but for a doubt.
func (l *Lease) Fresh(now time.Time) bool {
	mono, wall := l.Age(now)
	return max(mono, wall) < l.Length*2/3 && !l.lost.Load() && !l.InDoubt()
}

// Lost says whether it was lost, and there is no new incarnation yet.
func (l *Lease) Lost() bool { return l.lost.Load() }

// Lose has it lost, and says whether it was before.
func (l *Lease) Lose() (before bool) { return l.lost.Swap(true) }
