// Package lane is what a receiver has of its channels, without the workers. A lane is one channel on one server. A site
// is one server, with the receiver's lanes there and what these share: the incarnation and its lease, the gate before
// its lists, the heart that beats for it, and what it owes. What breaks is a connection, and one connection carries
// every lane of its server, so a handover ends a site's incarnation, and no other site's.
package lane

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Lane is one channel on one server, as one receiver takes from it.
type Lane struct {
	*store.Keys
	Site     *Site
	Index    int // in the order of the receiver's lanes
	Promoter Promoter

	Lists           []store.Key // its doing lists, by worker, of the live incarnation; the site's gate guards them
	Waiter          Waiter
	MayHaveSuspects atomic.Bool // as a sweep said
	NonEmptyLately  atomic.Bool // it had something lately

	server     *link.Server
	beside     []*Lane // all lanes of the receiver
	unreadable Span
	closed     atomic.Pointer[error]
}

// Promoter is what a lane tells its promoter.
type Promoter interface {
	ScheduledHere(wait time.Duration) // a retry of this receiver was written to delay
	Yield()                           // the receiver has ended: the keeper's place is for others
}

// Waiter is a lane's connection for blocking takes.
type Waiter struct {
	*link.Waiter
	Blocked atomic.Bool // it is in a blocking command
}

// New makes a lane of a channel on a server.
func New(k *store.Keys, s *link.Server, p Promoter) *Lane {
	return &Lane{Keys: k, server: s, Promoter: p}
}

// Reasons why nothing may be taken.
var (
	errStopped  = errors.New("shunt: the receiver takes nothing more")
	errHandover = errors.New("shunt: a handover is under way")
	errStale    = errors.New("shunt: Redis has not answered a beat for two thirds of the lease's term, or since " +
		"the connection to it is a new one")
	errUnreadable = errors.New("shunt: the channel could not be read")
)

// MayTake is the permit: how many messages may be taken now. If none, it says when to ask again, and why. A zero time
// means that Config.Wake is called once more may be taken. Every way to take asks it, and none goes against it.
func (l *Lane) MayTake(now time.Time) (n int, retryAt time.Time, why error) {
	switch closed := l.closed.Load(); {
	case closed != nil:
		return 0, time.Time{}, *closed
	case l.Site.Stopped():
		return 0, time.Time{}, errStopped
	case l.Site.Pausing():
		return 0, time.Time{}, errHandover
	case !l.Site.Lease.Fresh(now):
		return 0, time.Time{}, errStale
	case l.unreadable.Lasts(now) && l.othersOpen(now): // where none is, it is tried all the same
		return 0, l.unreadable.End(), errUnreadable
	}
	return math.MaxInt, time.Time{}, nil
}

// MayStart says whether a message of the lane that is held may be started now. It may not while a handover is under
// way, the lease is about to end or in doubt, or the lane is closed.
func (l *Lane) MayStart(now time.Time) bool {
	return l.closed.Load() == nil && !l.Site.Pausing() && l.Site.Lease.Fresh(now)
}

// othersOpen says whether another lane may be taken from.
func (l *Lane) othersOpen(now time.Time) bool {
	for _, o := range l.beside {
		if o != l && !o.unreadable.Lasts(now) && o.MayStart(now) {
			return true
		}
	}
	return false
}

// unreadableFor is how long others are taken from in place of a lane that could not be read.
const unreadableFor = time.Second

// CouldNotBeRead has others taken from in place of the lane, for a second.
func (l *Lane) CouldNotBeRead() { l.unreadable.Begin(time.Now(), unreadableFor) }

// Close withdraws the permit until Open: nothing of the lane is taken or started, but for what a worker starts just
// then. A blocked take is ended, within ctx. What such a take brings all the same goes back unhandled, as does what
// workers hold and have not started.
func (l *Lane) Close(ctx context.Context, why error) {
	l.closed.Store(&why)
	l.Site.conf.Wake()
	for l.Waiter.Blocked.Load() && l.unblock(ctx) {
		link.Sleep(ctx, unblockEvery)
	}
}

// Open gives the permit back.
func (l *Lane) Open() {
	l.closed.Store(nil)
	l.Site.conf.Wake()
}

// Closed says whether the permit is withdrawn.
func (l *Lane) Closed() bool { return l.closed.Load() != nil }

// unblockEvery is the wait before another try: one that comes before the blocking command does nothing.
const unblockEvery = 10 * time.Millisecond

// unblock tries to end the lane's blocking command, and says whether another try may help.
func (l *Lane) unblock(ctx context.Context) bool {
	id := l.Waiter.ID()
	return ctx.Err() == nil && (id == 0 || !l.Waiter.Blocked.Load() || !store.Unblock(ctx, l.Site.Server.Pulse, id))
}

// Span is a time that lasts until then, by a clock that nobody sets.
type Span struct{ until atomic.Int64 } // ns since began

// began is what spans are counted from.
var began = time.Now()

// Begin has it last for d from now.
func (s *Span) Begin(now time.Time, d time.Duration) { s.until.Store(int64(now.Add(d).Sub(began))) }

// Lasts says whether it lasts now.
func (s *Span) Lasts(now time.Time) bool { return int64(now.Sub(began)) < s.until.Load() }

// End is when it ends, or has ended.
func (s *Span) End() time.Time { return began.Add(time.Duration(s.until.Load())) }
