package shunt

import (
	"cmp"
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

// One promote script moves at most this much, so that two in a row hold Redis up for well under 1 ms.
const (
	promoteMost  = 128
	promoteBytes = 32 << 10
)

// promoter brings one channel's due messages from delay to prepare. The due time is kept by a local timer. One promoter of a
// channel, the keeper, is told of each new earliest time; all look every 5 s, with the sweep, for what the keeper has missed.
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
	due       time.Time // when to promote next; zero: not known to be ever
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

// inMS is so many ms ahead as Redis tells them, within maxWait either way: in delay there may be whatever others have put there.
func inMS(ms int64) time.Duration {
	most := maxWait.Milliseconds()
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// heard takes a hint: the ms until a new earliest due time, that the keeper's place is vacant, or that a message is cancelled.
func (p *promoter) heard(payload string) {
	if serial, is := strings.CutPrefix(payload, "cancel "); is && len(serial) == len(ulid.ULID{}) {
		p.r.Pool.Cancel(p.in.Channel, ulid.ULID([]byte(serial)))
		return
	}
	ms, err := strconv.ParseInt(payload, 10, 64)
	if err != nil {
		p.r.RequestSweep(p.in.Channel)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hints++
	if p.keeper {
		p.set(time.Now().Add(inMS(ms)), false)
	}
}

// own takes in a retry of this receiver, in case nobody can hear its hint.
func (p *promoter) scheduledHere(wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.listening || p.keeper {
		p.hints++
		p.set(time.Now().Add(max(wait, 0)), false)
	}
}

// heeds is told whether hints are heard from now on.
func (p *promoter) setListening(listening bool) {
	p.mu.Lock()
	p.listening = listening && !p.ended
	if !p.listening {
		p.keeper = false
	}
	p.mu.Unlock()
	p.r.RequestSweep(p.in.Channel) // asked after the subscription, so that nothing falls between
}

// asks tells in whose name a sweep asks to be keeper, empty if it may not be, and how many hints had been heard.
func (p *promoter) keeperBid(r *receiver) (name string, hints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listening && !r.Stopped() {
		name = r.Live().Name
	}
	return name, p.hints
}

// told takes the sweep's answer: in whose name it is keeper, if it is, and the ms to the next due time, if there is one.
func (p *promoter) sweepReplied(keeper string, ms int64, any bool, hints int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.keeper
	p.granted = keeper
	p.keeper = keeper != "" && p.listening
	back := hints == p.hints
	if !back && p.keeper && !was {
		p.r.RequestSweep(p.in.Channel) // a hint that came before this answer was nobody's
	}
	switch {
	case any && (p.keeper || ms < 0 || ms < sweepEvery.Milliseconds() && !p.listening):
		p.set(time.Now().Add(inMS(ms)), back)
	case back:
		p.due = time.Time{}
	}
}

// unanswered notes a sweep without an answer: it may have made it keeper.
func (p *promoter) sweepFailed(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.granted = cmp.Or(name, p.granted)
}

// run is the promoter's goroutine.
func (p *promoter) run() {
	r := p.r
	channel := p.in.Delay
	l := r.s.Hints.Listen(channel, p.heard, p.setListening)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !r.Stopped() {
		p.mu.Lock()
		wait := time.Hour
		if !p.due.IsZero() {
			wait = time.Until(p.due)
		}
		p.mu.Unlock()
		if wait <= 0 {
			if err := p.promote(r.TakeCtx); err != nil {
				link.Sleep(r.TakeCtx, link.Jitter(link.MinTrouble))
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.wake:
		case <-r.TakeCtx.Done():
		}
	}
	p.mu.Lock()
	p.keeper, p.listening, p.ended = false, false, true
	p.mu.Unlock()
	p.yield()
	if len(r.Tracked(p.in.Channel)) > 0 { // handlers run on, and may be cancelled
		<-r.PoolCtx.Done()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r.s.Hints.Forget(ctx, l)
}

// yield leaves the keeper's place to others, if it was given.
func (p *promoter) yield() {
	p.mu.Lock()
	granted := p.granted
	p.granted = ""
	p.mu.Unlock()
	if granted != "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.r.pulseOne(ctx, store.Yield, 3, p.in.Receivers, p.in.Keeper, p.in.Delay, granted)
	}
}

// promote moves what is due, a bounded part of it, and sets the timer for the next. After an error a look will find what is due.
func (p *promoter) promote(ctx context.Context) error {
	p.mu.Lock()
	hints := p.hints
	p.due = time.Time{}
	p.mu.Unlock()
	ns, err := p.move(ctx)
	if len(ns) > 0 && ns[0] > 0 {
		p.r.q.events.emit(Event{Kind: EventPromoted, Channel: p.in.Name, N: int(ns[0])})
	}
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(ns) > 1 && (p.keeper || !p.listening || ns[1] <= 0) {
			p.set(time.Now().Add(inMS(ns[1])), hints == p.hints)
		}
		return nil
	}
	p.mu.Lock()
	p.set(time.Now().Add(link.Jitter(time.Second)), false)
	p.mu.Unlock()
	if p.r.ReportFatal(p.in.Channel, err) {
		link.Sleep(ctx, link.MaxTrouble)
	}
	return err
}

// move runs the script, twice where it has left something behind, so that Redis need not wait for the second question. It returns the reply
// as of one run; with an error what was moved before that.
func (p *promoter) move(ctx context.Context) (ns []int64, err error) {
	if planted.Promote != nil {
		n, err := planted.Promote(p.r.pulseDo, p.in.Delay, p.in.Prepare)
		return []int64{int64(n), 100}, err
	}
	c := link.NewCall()
	times := 1
	if p.behind {
		times = 2
	}
	for range times {
		c.AddScript(store.Promote, 3, p.in.Receivers, p.in.Delay, p.in.Prepare, promoteMost, promoteBytes)
	}
	p.behind = false
	if err = p.r.s.Pulse.Run(ctx, c); !c.Answered {
		return nil, err
	}
	moved := int64(0)
	for _, rep := range c.Replies {
		n, bad := redis.Int64s(rep.Value, rep.Err)
		if bad != nil || len(n) == 0 {
			err = cmp.Or(err, bad)
			continue
		}
		moved += n[0]
		n[0], ns = moved, n
	}
	if len(ns) > 1 && moved == 0 && ns[1] < 0 {
		ns[1] = math.MaxInt64 // a score that no integer holds: what is overdue would have been moved
	}
	p.behind = err == nil && len(ns) > 1 && ns[1] <= 0
	return ns, err
}
