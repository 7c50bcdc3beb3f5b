package worker

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/store"
)

// Channel is one channel of a pool.
type Channel struct {
	*store.Keys
	ScheduledHere func(wait time.Duration) // called for each retry that the pool has written to delay
	YieldKeeper   func()                   // leaves the keeper's place to others, when all has ended

	Index           int // in the Pool; set by NewPool
	pool            *Pool
	doing           []store.Key // of the live incarnation; gate
	mayHaveSuspects atomic.Bool // as a sweep said
	nonEmptyLately  atomic.Bool // it had something lately
	unreadable      span        // it is left out, because it could not be read
	waiter          waiter
}

// mayTake says whether the pool may take from the channel now, and if not, when to ask again. Zero means that the
// workers are woken when it may.
func (in *Channel) mayTake(now time.Time) (ok bool, retryAt time.Time) {
	r := in.pool
	switch {
	case r.Stopped() || !r.mayStart(now):
		return false, time.Time{}
	case in.unreadable.lasts(now):
		return false, in.unreadable.end()
	}
	return true, time.Time{}
}

// mayStart says whether the pool may start messages that it holds, and take. It may not while a handover is under way
// or the lease is about to end.
func (r *Pool) mayStart(now time.Time) bool { return !r.pausing() && r.lease.fresh(now) }

// takeable are the channels that a worker may take from now: not those of which it holds a verdict that Redis
// refuses for good. Where only channels are left that could not be read, these are tried all the same.
func (s *worker) takeable(now time.Time, stuck bool) []*Channel {
	all := s.r.channels
	hindered := func(in *Channel) bool { ok, _ := in.mayTake(now); return !ok }
	if !stuck && !slices.ContainsFunc(all, hindered) {
		return all
	}
	leave := s.stuckOn()
	var open, later []*Channel
	for _, in := range all {
		ok, retryAt := in.mayTake(now)
		switch {
		case leave[in]:
		case ok:
			open = append(open, in)
		case !retryAt.IsZero():
			later = append(later, in)
		}
	}
	if len(open) > 0 {
		return open
	}
	return later
}

// stuckOn are the channels of which the worker holds a verdict that Redis refuses.
func (s *worker) stuckOn() map[*Channel]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stuck := make(map[*Channel]bool)
	for _, it := range s.items {
		if it.isRefused() {
			stuck[it.Channel] = true
		}
	}
	return stuck
}

// span is a time that lasts until then, by a clock that nobody sets.
type span struct{ until atomic.Int64 } // ns since began

func (s *span) begin(now time.Time, d time.Duration) { s.until.Store(int64(now.Add(d).Sub(began))) }

func (s *span) lasts(now time.Time) bool { return int64(now.Sub(began)) < s.until.Load() }

func (s *span) end() time.Time { return began.Add(time.Duration(s.until.Load())) }
