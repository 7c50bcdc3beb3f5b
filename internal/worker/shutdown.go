package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
)

// lifetime is how a pool ends, step by step, each the end of a context or a closed channel.
type lifetime struct {
	TakeCtx        context.Context // ends: nothing more is taken
	StopTaking     context.CancelFunc
	cleared        chan struct{}   // closed: stopped, and what had not begun is handed back
	handlerCtx     context.Context // ends: handlers' contexts end
	CancelHandlers context.CancelFunc
	PoolCtx        context.Context // ends: all goroutines that are left return
	end            context.CancelFunc
	LastCtx        context.Context // ends: who waits for an answer beyond that waits no more
	giveUp         context.CancelFunc

	over     chan struct{} // closed by the watcher: stopped, and every lease is lost too
	returned atomic.Int32  // messages whose handlers ended early on our demand
}

func (l *lifetime) init() {
	l.cleared, l.over = make(chan struct{}), make(chan struct{})
	l.TakeCtx, l.StopTaking = context.WithCancel(context.Background())
	l.handlerCtx, l.CancelHandlers = context.WithCancel(context.Background())
	l.PoolCtx, l.end = context.WithCancel(context.Background())
	l.LastCtx, l.giveUp = context.WithCancel(context.Background())
}

// Stopped says that nothing more is taken.
func (l *lifetime) Stopped() bool { return l.TakeCtx.Err() != nil }

// isCleared says whether a worker that has nothing may go home: before, a waiter or a late reply might still bring it
// something.
func (l *lifetime) isCleared() bool {
	select {
	case <-l.cleared:
		return true
	default:
		return false
	}
}

// lastPart is the part of ReplyTimeout that the last step of a shutdown has, at most, where Redis has not answered in
// the rest of it.
const lastPart = 200 * time.Millisecond

// ErrUnanswered is the cause of a shutdown's contexts: nobody gave them an end. A mute Redis is why.
var ErrUnanswered = errors.New("shunt: Redis did not answer before the shutdown had to end")

// End stops taking, hands back what has not begun, waits for handlers or ends them, hands back the rest, and removes
// the entries. It returns how many messages whose handlers had begun were handed back, how many handlers still run, and
// what kept Redis from being told. Once no handler runs it takes ReplyTimeout at most.
func (r *Pool) End() (returned, still int, err error) {
	<-r.TakeCtx.Done()
	r.parking.wakeAll()
	r.watcher.note(time.Now())
	e := &ending{pool: r}
	graced := e.graced()
	quiet := e.quiet()
	r.atEach(func(_ int, s *lane.Site) { handback{r, s}.waiting(graced, quiet.answered) })
	close(r.cleared)
	r.wakeAll()
	idle := make(chan struct{})
	go func() {
		r.workerGroup.Wait()
		close(idle)
	}()
	hurried := false
	select {
	case <-idle:
	case <-quiet.answered.Done():
	case <-graced.Done():
		hurried = true
	}
	r.end()
	budget, cancel := context.WithTimeoutCause(context.Background(), e.budget(quiet, hurried), ErrUnanswered)
	defer cancel()
	last, cut := context.WithCancelCause(budget)
	defer cut(nil)
	defer context.AfterFunc(r.handlerCtx, func() { // the caller's time is over
		link.Sleep(last, max(r.conf.Grace, 100*time.Millisecond))
		cut(ErrUnanswered)
	})()
	errs := make([]error, len(r.Sites))
	r.atEach(func(i int, s *lane.Site) { errs[i] = e.handBack(last, s) })
	e.reportUnsettled()
	still = r.runningNow()
	e.waitForOthers(last)
	r.giveUp()
	r.CancelHandlers()
	return int(r.returned.Load()), still, cmp.Or(errs...)
}

// ending is a shutdown under way.
type ending struct{ pool *Pool }

// budget is how long the last step may take: the handback at each site, and the wait for the other goroutines. Where
// all is well that is a round trip or two. Once no handler runs the whole shutdown takes ReplyTimeout at most. hurried:
// the caller waits beyond its time already.
func (e *ending) budget(q *quiet, hurried bool) time.Duration {
	limit := StartTimeout
	if hurried {
		limit = time.Second
	}
	if e.pool.runningNow() == 0 { // which q may not have seen yet
		limit = max(0, min(limit, e.pool.conf.ReplyTimeout-q.since()))
	}
	if !slices.ContainsFunc(e.pool.Sites, func(s *lane.Site) bool { return !away(s) }) {
		limit = min(limit, knownAway)
	}
	return limit
}

// knownAway is the budget at a site whose Redis does not take connections.
const knownAway = 10 * time.Millisecond

// away says whether a site's Redis does not take connections.
func away(s *lane.Site) bool { return s.Server.Shut() && !s.Server.Data.Up() }

// handBack hands back what a site still holds. It returns what kept its Redis from being told.
func (e *ending) handBack(ctx context.Context, s *lane.Site) error {
	if away(s) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, knownAway, ErrUnanswered)
		defer cancel()
	}
	return outage(s, handback{e.pool, s}.all(ctx))
}

// waitForOthers waits for the goroutines that are no worker's, and closes what they used; where they take too long
// that is done behind.
func (e *ending) waitForOthers(ctx context.Context) {
	r := e.pool
	gone := make(chan struct{})
	go func() {
		r.otherGroup.Wait()
		for _, l := range r.Lanes {
			l.Promoter.Yield()
			l.Waiter.Close()
		}
		for _, s := range r.Sites {
			s.Large.Close()
		}
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

// outage names what kept a site's Redis from answering, in an error that is but the end of a shutdown's own time, or of
// a connection.
func outage(s *lane.Site, err error) error {
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	away := link.Classify(err) == link.NotExecuted && s.Server.Why() != nil
	if !ended && !away && !errors.Is(err, ErrUnanswered) {
		if err != nil && link.Classify(err) == link.Unknown {
			return fmt.Errorf("shunt: the connection to Redis broke during the shutdown: %w", err)
		}
		return err
	}
	if why := s.Server.Why(); why != nil {
		return fmt.Errorf("%w: %w", ErrUnanswered, why)
	}
	return ErrUnanswered
}

// quiet is the time after the last handler of a pool that has stopped.
type quiet struct {
	answered context.Context // ends when Redis has had most of ReplyTimeout to take the last verdicts
	ended    atomic.Pointer[time.Time]
}

// since is how long no handler has run, as far as was seen: 0 until then.
func (q *quiet) since() time.Duration {
	if at := q.ended.Load(); at != nil {
		return time.Since(*at)
	}
	return 0
}

// quiet waits for the handlers, of which none begins any more.
func (e *ending) quiet() *quiet {
	r := e.pool
	ctx, cancel := context.WithCancel(r.PoolCtx)
	q := &quiet{answered: ctx}
	go func() {
		defer cancel()
		for r.runningNow() > 0 {
			if link.Sleep(ctx, 10*time.Millisecond) != nil {
				return
			}
		}
		now := time.Now()
		q.ended.Store(&now)
		link.Sleep(ctx, r.conf.ReplyTimeout-min(lastPart, r.conf.ReplyTimeout/4))
	}()
	return q
}

// graced ends a grace after the handlers' contexts were ended, which it does when the caller's time is over.
func (e *ending) graced() context.Context {
	r := e.pool
	ctx, cancel := context.WithCancel(r.PoolCtx)
	go func() {
		defer cancel()
		select {
		case <-r.handlerCtx.Done():
			r.cancelAll(nil, custody.ErrShutdown)
			link.Sleep(ctx, r.conf.Grace)
		case <-r.over: // nothing is ours any more
		}
	}()
	return ctx
}

// errEnded is the error of verdicts whose reply comes after the end.
var errEnded = errors.New("shunt: the receiver ended before it was known what became of the verdict")

// reportUnsettled tells of the verdicts that could not be sent, or whose replies did not come: those messages may be
// handled again.
func (e *ending) reportUnsettled() {
	var evs []event.Event
	e.pool.each(func(s *worker, it *Item) {
		if it.hasVerdict() && !it.verdict.IsUnhandled() {
			s.countOf(it.Lane, meter.Late, 1)
			ev := it.event(event.UnconfirmedVerdict, s)
			ev.Attempt, ev.Took, ev.Err = it.Attempt(), it.took, errEnded
			if it.verdict.Err != nil {
				ev.Err = fmt.Errorf("%w: %w", errEnded, it.verdict.Err)
			}
			evs = append(evs, ev)
		}
	})
	e.pool.emit(evs...)
}
