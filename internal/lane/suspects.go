package lane

import (
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

// Suspects is a site's way with suspects: one at a time, and none for a while where Redis refuses to give any.
type Suspects struct {
	busy atomic.Bool  // one is held, or asked for
	off  link.Holdoff // of the goroutine that has set busy
	wait Span
}

// wanted says whether a suspect of the lane may be asked for now, if none is held.
func (u *Suspects) wanted(l *Lane, now time.Time) bool {
	return l.MayHaveSuspects.Load() && !u.wait.Lasts(now)
}

// SuspectsWait says whether a lane of the site may have suspects that may be taken now, and none is held.
func (s *Site) SuspectsWait(now time.Time) bool {
	for _, l := range s.Lanes {
		if n, _, _ := l.MayTake(now); n > 0 && s.Suspects.wanted(l, now) {
			return !s.Suspects.busy.Load()
		}
	}
	return false
}

// Claim gives the right to ask for one of the lane. Done gives it back.
func (u *Suspects) Claim(l *Lane, now time.Time) bool {
	return u.wanted(l, now) && u.busy.CompareAndSwap(false, true)
}

// Done makes room for the next one.
func (u *Suspects) Done() { u.busy.Store(false) }

// Refused takes in that a take of suspects was refused, and says how long none is asked for. The caller has the right.
func (u *Suspects) Refused(err error) time.Duration {
	wait := u.off.Refuse(err)
	u.wait.Begin(time.Now(), wait)
	return wait
}

// Granted takes in that a take of suspects was not refused. The caller has the right.
func (u *Suspects) Granted() { u.off = link.Holdoff{} }
