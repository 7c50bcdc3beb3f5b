package worker

import (
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

// suspects is a pool's way with suspects: one at a time, and none for a while where Redis refuses to give any.
type suspects struct {
	busy atomic.Bool  // one is held, or asked for
	off  link.Holdoff // of the goroutine that has set busy
	wait span
}

// wanted says whether a suspect of the channel may be asked for now, if none is held.
func (u *suspects) wanted(in *Channel, now time.Time) bool {
	return in.mayHaveSuspects.Load() && !u.wait.lasts(now)
}

// claim gives the right to ask for one of the channel.
func (u *suspects) claim(in *Channel, now time.Time) bool {
	return u.wanted(in, now) && u.busy.CompareAndSwap(false, true)
}

// refused takes in that a take of suspects was refused, and says how long none is asked for.
func (u *suspects) refused(err error) time.Duration {
	wait := u.off.Refuse(err)
	u.wait.begin(time.Now(), wait)
	return wait
}

// suspecting says whether there may be suspects to take, and none is held.
func (r *Pool) suspecting() bool {
	now := time.Now()
	for _, in := range r.channels {
		if r.suspects.wanted(in, now) {
			return !r.suspects.busy.Load()
		}
	}
	return false
}

// Suspects sends a worker for the suspects of a channel.
func (r *Pool) Suspects(in *Channel) {
	in.mayHaveSuspects.Store(true)
	r.parking.wakeOne()
}

// suspectDone makes room for the next suspect, if the item was one.
func (s *worker) suspectDone(it *Item) {
	if it.suspect {
		it.suspect = false
		s.r.suspects.busy.Store(false)
		s.r.parking.wakeOne() // there may be more, and this worker may be busy
	}
}
