package shunt

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

// One promote script moves at most this much, so that two in a row hold Redis up for well under 1 ms.
const (
	promoteMost  = 128
	promoteBytes = 32 << 10
)

// promoter brings one channel's due messages from delay to prepare, and ends leases that are over. A local timer keeps
// the first time of both. One promoter of a
// channel, the keeper, hears of each new earliest time by hints. All promoters look every 5 s, with the sweep, so that
// they find what the keeper missed.
type promoter struct {
	r    *receiver
	in   *channel
	wake chan struct{} // of capacity 1

	behind bool // run's own: the last call has left something that is due

	mu        sync.Mutex
	listening bool      // the subscription is confirmed: only then may it be keeper
	ended     bool      // it promotes no more
	keeper    bool      // as last told
	granted   string    // the name in which it is keeper in Redis, or may be; or empty
	due       time.Time // when to promote next, or to end a lease; zero: not known to be ever
	minds     time.Time // until then it keeps the time: it has put off ends of leases, and nobody else may know
	hints     int       // heard so far: what was asked for before one cannot put the timer back
}

func newPromoter(r *receiver, in *channel) *promoter {
	return &promoter{r: r, in: in, wake: make(chan struct{}, 1)}
}

// set brings the timer forward to due, or with back also puts it back. p.mu is held.
func (p *promoter) set(due time.Time, back bool) {
	if !back && !p.due.IsZero() && !due.Before(p.due) {
		return
	}
	p.due = due
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// keepsTime says whether it promotes when the first message is due, or the first lease ends. p.mu is held.
func (p *promoter) keepsTime() bool { return p.keeper || time.Now().Before(p.minds) }

// heard takes a hint.
func (p *promoter) heard(payload string) {
	switch h := store.ParseHint(payload); h.Kind {
	case store.HintCancelled:
		p.r.pool.Cancel(p.in.Lane, h.Serial)
	case store.HintDue:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hints++
		if p.keeper {
			p.set(time.Now().Add(h.In), false)
		}
	default:
		p.in.Site.RequestSweep(p.in.Lane)
	}
}

// ScheduledHere takes in a retry of this receiver, in case nobody can hear its hint.
func (p *promoter) ScheduledHere(wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.listening || p.keeper {
		p.hints++
		p.set(time.Now().Add(max(wait, 0)), false)
	}
}

// setListening takes in whether hints are heard from now on.
func (p *promoter) setListening(listening bool) {
	p.mu.Lock()
	p.listening = listening && !p.ended
	if !p.listening {
		p.keeper = false
	}
	p.mu.Unlock()
	p.in.Site.RequestSweep(p.in.Lane) // asked after the subscription, so that nothing falls between
}

// keeperBid gives the incarnation for which a sweep asks to be keeper, empty if it may not be, and how many hints had
// been heard.
func (p *promoter) keeperBid(r *receiver) (name string, hints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listening && !r.pool.Stopped() {
		name = p.in.Site.Live().Name
	}
	return name, p.hints
}

// sweepReplied takes in the sweep's reply. keeper is the incarnation that keeps, empty if the bid failed. in is when
// the first message in delay is due, or the first lease ends. hints is what keeperBid gave.
func (p *promoter) sweepReplied(keeper string, in time.Duration, scheduled bool, hints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.keeper
	p.granted = keeper
	p.keeper = keeper != "" && p.listening
	back := hints == p.hints
	if !back && p.keeper && !was {
		p.in.Site.RequestSweep(p.in.Lane) // a hint that came before this answer was nobody's
	}
	switch {
	case scheduled && (p.keepsTime() || in < 0 || in < sweepEvery && !p.listening):
		p.set(time.Now().Add(in), back)
	case back:
		p.due = time.Time{}
	}
}

// sweepFailed notes a sweep without an answer: it may have made the incarnation keeper.
func (p *promoter) sweepFailed(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = cmp.Or(name, p.granted)
}

// run is the promoter's goroutine.
func (p *promoter) run() {
	r := p.r
	channel := p.in.Delay
	hints := p.in.Site.Server.Hints
	l := hints.Listen(channel, p.heard, p.setListening)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !r.pool.Stopped() {
		p.mu.Lock()
		wait := time.Hour
		if !p.due.IsZero() {
			wait = time.Until(p.due)
		}
		p.mu.Unlock()
		if wait <= 0 {
			if err := p.promote(r.pool.TakeCtx); err != nil {
				link.Sleep(r.pool.TakeCtx, link.Jitter(link.MinTrouble))
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.wake:
		case <-r.pool.TakeCtx.Done():
		}
	}
	p.mu.Lock()
	p.keeper, p.listening, p.ended = false, false, true
	p.mu.Unlock()
	p.Yield()
	if len(r.pool.Tracked(p.in.Lane)) > 0 { // handlers run on, and may be cancelled
		<-r.pool.PoolCtx.Done()
	}
	// A mute connection must be gone when the shutdown is over, which waits no longer where Redis is known to be away.
	ctx, cancel := context.WithTimeout(r.pool.LastCtx, time.Second/2)
	defer cancel()
	hints.Forget(ctx, l)
}

// Yield leaves the keeper's place to others, if it was given.
func (p *promoter) Yield() {
	p.mu.Lock()
	granted := p.granted
	p.granted = ""
	p.mu.Unlock()
	if granted == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.r.pool.LastCtx, time.Second)
	defer cancel()
	// if that fails the place is free when its time is over
	_ = store.YieldKeeper(ctx, p.in.Site.Server.Pulse, granted, p.in.Keys)
}

// promote moves what is due, a bounded part of it, and sets the timer for the next. After an error a sweep will find
// what is due.
func (p *promoter) promote(ctx context.Context) error {
	p.mu.Lock()
	hints := p.hints
	p.due = time.Time{}
	p.mu.Unlock()
	a, err := p.move(ctx)
	if a.Moved > 0 {
		p.r.q.emit(event.Event{Kind: event.Promoted, Channel: p.in.Name, N: a.Moved})
	}
	next, any := a.Next()
	if err == nil && a.Leased && a.NextLapse <= 0 {
		next, err = 0, p.lapse(ctx) // what is left comes next
	}
	p.mu.Lock()
	if err != nil {
		p.set(time.Now().Add(link.Jitter(time.Second)), false)
	} else if any && (p.keepsTime() || !p.listening || next <= 0) {
		p.set(time.Now().Add(next), hints == p.hints)
	}
	p.mu.Unlock()
	if err != nil && p.in.Site.ReportFatal(p.in.Lane, err) {
		link.Sleep(ctx, link.MaxTrouble)
	}
	return err
}

// move runs the script, twice where the last call has left something that is due, so that Redis need not wait for the
// second question.
func (p *promoter) move(ctx context.Context) (a store.PromoteAnswer, err error) {
	if planted.Promote != nil {
		a.Moved, err = planted.Promote(do(ctx, p.in.Site.Server.Data), p.in.Delay, p.in.Prepare)
		a.Scheduled, a.NextDue = true, 100*time.Millisecond
		return a, err
	}
	times := 1
	if p.behind {
		times = 2
	}
	a, err = store.RunPromote(ctx, p.in.Site.Server.Pulse, p.in.Keys, promoteMost, promoteBytes, times)
	p.behind = err == nil && a.Scheduled && a.NextDue <= 0
	return a, err
}

// lapse ends leases that are over. They are judged by a finer sight of Redis than the heart's.
func (p *promoter) lapse(ctx context.Context) error {
	q, at := p.r.q, p.in.Site.Server
	minds, err := q.lapse(ctx, at, p.in.Keys, q.stationAt(at).sight.fence())
	p.mu.Lock()
	p.minds = later(p.minds, minds)
	p.mu.Unlock()
	return err
}
