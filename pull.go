package shunt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/bell"
	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// PullOptions says what a Pull takes. Its zero fields are the defaults.
type PullOptions struct {
	// Channels are the channels that are asked, 1 to 64, the highest first.
	Channels []string
	// Max bounds how many messages one Pull takes: 1 to 1,000, default 1. All of them are of one channel. What waits in
	// StateSuspect comes alone. After 256 KB, or Queue.PrefetchBytes, no further one is taken.
	Max int
	// Lease is how long the messages are the caller's: 10 ms to 7 days, default 30 s.
	Lease time.Duration
	// Wait is how long to wait for a first message where there is none: up to a day. Zero is not at all.
	Wait time.Duration
}

const (
	maxPull   = 1000
	leastTerm = 10 * time.Millisecond
	mostTerm  = 7 * 24 * time.Hour
	longest   = 24 * time.Hour
)

// pull is one call of Pull.
type pull struct {
	q       *Queue
	from    []*store.Keys
	station *station
	max     int
	term    time.Duration
	wait    time.Duration
	brought bool         // what was due has been done
	caller  *bell.Caller // while it waits; nil: it does not
}

// newPull checks the options.
func (q *Queue) newPull(o PullOptions) (p *pull, err error) {
	p = &pull{q: q, max: o.Max, term: o.Lease, wait: o.Wait}
	if p.max == 0 {
		p.max = 1
	}
	if p.term == 0 {
		p.term = 30 * time.Second
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("shunt: PullOptions."+format, args...))
		}
	}
	check(len(o.Channels) > 0 && len(o.Channels) <= 64, "Channels has %d: want 1 to 64", len(o.Channels))
	check(p.max > 0 && p.max <= maxPull, "Max is %d: want 1 to %d, or 0 for 1", o.Max, maxPull)
	check(p.term >= leastTerm && p.term <= mostTerm, "Lease is %v: want %v to %v, or 0 for 30s", o.Lease, leastTerm,
		mostTerm)
	check(p.wait >= 0 && p.wait <= longest, "Wait is %v: want 0 to %v", o.Wait, longest)
	if len(o.Channels) <= 64 {
		for i, name := range o.Channels {
			k, bad := q.keysFor(name)
			errs = append(errs, bad)
			for _, before := range p.from[:min(i, len(p.from))] {
				check(before.Name != name, "Channels has %q twice", name)
			}
			if k != nil {
				p.from = append(p.from, k)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p.station = q.stationOf(p.from[0])
	return p, nil
}

// Pull takes messages under a lease, for callers that cannot hold a receiver: a request of another process, a program
// in another language, a job that runs once. It returns none, and no error, where there was none within Wait. What is
// cancelled, expired or past its Deadline is settled on the way, as a receiver does it, and not returned. So is what
// Queue.Payloads cannot decode.
//
// Every message is the caller's until the lease ends by the server's clock. It is settled by Ack, Fail or Release, by
// whoever has its Receipt, in whichever process. A message that is not settled in time is pulled again, from the other
// end of its channel and with one attempt counted. If that was its last one, it goes to dead. After an absence of Redis
// leases end later, by a quarter of their length and at most 5 s, so that what could not be settled meanwhile can be.
//
// While Redis is away Pull waits for it for as long as Wait says, and for EnqueueTimeout at least. Where ctx ends
// first, nothing stays taken: what a command under way brings all the same is released. So is what comes so late that
// its lease may be over.
func (q *Queue) Pull(ctx context.Context, o PullOptions) ([]*Leased, error) {
	if err := q.open(ctx); err != nil {
		return nil, err
	}
	p, err := q.newPull(o)
	if err != nil {
		return nil, err
	}
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.waits.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.ending, func() { cancel(ErrClosed) })()
	defer p.station.pulls(p.from)()
	ms, err := p.run(ctx)
	if err != nil {
		return nil, q.explain(err, "pull from", p.from[0].Name)
	}
	return ms, nil
}

// run takes; where there is nothing, it waits for a bell and takes again.
func (p *pull) run(ctx context.Context) ([]*Leased, error) {
	began := time.Now()
	var over <-chan time.Time
	defer func() {
		if p.caller != nil {
			p.caller.Leave()
		}
	}()
	var why error // why the last take failed
	for again := (link.Resend{}); ; {
		ms, dropped, err := p.take(ctx)
		if len(ms) > 0 {
			return ms, nil
		}
		if ctx.Err() != nil {
			return nil, p.ended(context.Cause(ctx), why)
		}
		why = err
		took := time.Since(began)
		switch {
		case err != nil && !p.mayMend(err, took):
			return nil, err
		case err != nil:
			again.Pause(ctx, 0)
			continue
		case dropped && took < max(p.wait, p.q.conf.EnqueueTimeout), p.bringDue(ctx):
			continue
		case took >= p.wait:
			return nil, nil
		}
		if over == nil {
			timer := time.NewTimer(p.wait - took)
			defer timer.Stop()
			over = timer.C
		}
		if p.caller == nil {
			p.caller = p.station.bells.Join(p.from)
		}
		select {
		case <-p.caller.C:
		case <-over:
			return nil, nil
		case <-ctx.Done():
		}
	}
}

// ended is the error of a pull whose context has ended, with what had kept it from Redis.
func (p *pull) ended(cause, why error) error {
	if why = cmp.Or(p.station.server.Why(), why); why != nil && cause != ErrClosed {
		cause = fmt.Errorf("%w (%w)", why, cause)
	}
	return &link.Error{Class: link.NotExecuted, Err: cause}
}

// looked answers the bell that has woken the pull, if one has. Who has taken something waits no more: others are woken
// while it decodes that and settles what it does not return.
func (p *pull) looked(some bool) {
	if p.caller == nil {
		return
	}
	if p.caller.Took(some); some {
		p.caller.Leave()
		p.caller = nil
	}
}

// mayMend says whether a take that failed is to be tried again, so long after the pull began: Redis is away, or did not
// answer in time.
func (p *pull) mayMend(err error, took time.Duration) bool {
	return waits(err) && p.station.server.Hopeless() == nil &&
		!errors.Is(err, link.ErrClosed) && took < max(p.wait, p.q.conf.EnqueueTimeout)
}

// bringDue does, once, what is due in channels that this process does not keep yet, and says whether it did: so a
// program that lives for a moment need not rely on others.
func (p *pull) bringDue(ctx context.Context) (some bool) {
	if p.brought {
		return false
	}
	p.brought = true
	for _, k := range p.from {
		if !p.station.upkeep.tends(k) {
			_, _, err := p.q.bringDue(ctx, p.station.server, k, p.station.sight.fence)
			some = some || err == nil
		}
	}
	return some
}

// take takes once, from the first channel that has something. dropped: something was taken, and settled.
func (p *pull) take(ctx context.Context) (ms []*Leased, dropped bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.q.conf.EnqueueTimeout)
	defer cancel()
	h, err := p.haul(ctx)
	p.looked(len(h.all) > 0)
	if len(h.all) == 0 {
		return nil, false, err
	}
	h.tell()
	if h.isLate() { // the reply comes so late that others may have what it brings
		p.giveBack(h.lease)
		return nil, true, nil
	}
	for i, s := range h.all {
		p.refuses(s, h.said[i])
	}
	payloads := p.payloads(ctx, h)
	var refused []*settlement
	for _, s := range h.all {
		if s.verdict != nil {
			refused = append(refused, s)
		}
	}
	p.settle(ctx, refused)
	if len(refused) == len(h.all) {
		return nil, true, nil
	}
	if h.isLate() && !h.renew(ctx) { // so long has that taken
		p.giveBack(h.lease)
		return nil, true, nil
	}
	for i, s := range h.all {
		if s.verdict != nil {
			continue
		}
		p.q.counter.count(s.held.Keys.Name, func(to meter.Adder) { s.held.CountWait(to, h.sent) })
		m := p.q.leased(s.held, h.lease, h.sent.Add(p.term))
		if payloads != nil {
			m.Payload = payloads[i]
		}
		ms = append(ms, m)
	}
	return ms, true, nil
}

// settle settles what is not given out. Where ctx ends first, that goes on, on a goroutine of its own, until Redis has
// answered or the lease is over.
func (p *pull) settle(ctx context.Context, refused []*settlement) {
	p.q.settle(ctx, refused)
	var left []*settlement
	for _, s := range refused {
		switch {
		case s.err == nil:
		case ctx.Err() != nil && waits(s.err):
			s.over, s.err = false, nil
			left = append(left, s)
		default:
			p.strands(s)
		}
	}
	if len(left) == 0 {
		return
	}
	p.beyond(func(ctx context.Context) {
		p.q.settle(ctx, left)
		for _, s := range left {
			if s.err != nil {
				p.strands(s)
			}
		}
	})
}

// strands reports that a message could not be settled: it is pulled again when its lease ends.
func (p *pull) strands(s *settlement) {
	p.q.emit(event.Event{Kind: event.ReceiverError, Channel: s.held.Keys.Name, Serial: s.held.Serial, ID: s.held.ID(),
		Err: s.err})
}

// pullDecodes is how many payloads of one Pull are decoded at once.
const pullDecodes = 8

// payloads decodes those of messages without a verdict, and gives one to those that fail. What it has not begun in half
// of what is left of the lease goes back: else that might end meanwhile, each time anew. nil: they are as they came.
func (p *pull) payloads(ctx context.Context, h haul) [][]byte {
	if p.q.conf.Payloads.Decode == nil {
		return nil
	}
	decoded, half := make([][]byte, len(h.all)), time.Now().Add(time.Until(h.sent.Add(p.term))/2)
	var group errgroup.Group
	group.SetLimit(pullDecodes)
	for i, s := range h.all {
		group.Go(func() error {
			if s.verdict == nil && time.Now().After(half) {
				s.verdict = custody.Release
			}
			if s.verdict != nil {
				return nil
			}
			returned := false
			var err error
			defer func() {
				if !returned {
					err = fmt.Errorf("shunt: decode the payload: %w", panicked("Payloads.Decode", nil))
				}
				if err == nil {
					return
				}
				if s.verdict = custody.Release; ctx.Err() == nil {
					s.verdict = p.q.judge(s.held, err)
				}
			}()
			decoded[i], err = p.q.decode(ctx, payloadOf(s.held.Keys.Name, s.held.Element))
			returned = true
			return nil
		})
	}
	_ = group.Wait() // each error is a verdict
	return decoded
}

// refuses gives a message that is not to be handled its verdict, as a receiver does.
func (p *pull) refuses(s *settlement, k custody.Known) {
	switch h := s.held; {
	case h.Newer:
		s.verdict = p.q.judge(h, custody.Undecodable(element.ErrNewerVersion))
	case h.Extra != nil:
		h.OwnsID = h.Owns(k)
		s.verdict = h.Admit(k, p.q.conf.MaxSize)
	}
}
