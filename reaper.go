package shunt

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// A lease is extended every third of it, so that two beats may fail. A sweep follows a beat, every 5 s or when the beat saw a
// lease that has run out; so what a killed receiver held is found at most one lease and a third of the finder's after its last beat.
const (
	sweepEvery  = 5 * time.Second
	sweepClaims = 16       // dead receivers that one sweep looks after
	reapSerials = 32       // elements that one script reaps
	reapBytes   = 64 << 10 // after which it stops: some 0.4 ms
	keeperKeeps = 3 * sweepEvery
)

// pulse is what the beat's goroutine knows.
type pulse struct {
	good   time.Time // sending of the last beat that was answered in time, zero after one that was not
	since  time.Time // of the first in the unbroken row of good ones
	swept  time.Time // sending of the last sweep
	refuse time.Duration
}

// kick makes the beat's goroutine beat at once.
func (r *receiver) kick() {
	select {
	case r.kicks <- struct{}{}:
	default:
	}
}

// lookSoon asks for a sweep of one channel that judges nobody, for what it says of delay.
func (r *receiver) lookSoon(in *intake) {
	select {
	case r.looks <- in:
	default: // a regular one will do
	}
}

// beat is the goroutine that keeps the receiver alive and looks after the dead.
func (r *receiver) beat() {
	ctx := r.life
	third := r.conf.Lease / 3
	p := &pulse{since: *r.lease.last.Load(), good: *r.lease.last.Load()}
	next := time.Now().Add(jitter(third))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.kicks:
		case in := <-r.looks:
			due := in.due
			r.sweep(ctx, in, 0)
			in.due = due
			continue
		case <-ctx.Done():
			return
		}
		wait, err := r.beatOnce(ctx, p)
		if err != nil {
			p.refuse = min(max(2*p.refuse, third/16), third/2)
			wait = jitter(p.refuse)
		} else {
			p.refuse = 0
		}
		timer.Reset(wait)
	}
}

// beatOnce beats on every channel, sweeps if it may, and says when to beat again.
func (r *receiver) beatOnce(ctx context.Context, p *pulse) (time.Duration, error) {
	third := r.conf.Lease / 3
	stale := !r.lease.fresh()
	inc := *r.live.Load()
	c := link.NewCall()
	c.FailFast = true
	for _, in := range r.intakes {
		c.AddScript(beatScript, 1, in.living, inc.name, inc.lease.Milliseconds())
	}
	sent := time.Now()
	err := r.s.pulse.Do(ctx, c)
	took := time.Since(sent)
	if err != nil {
		return 0, err
	}
	fences := make([]int64, len(r.intakes))
	wait := jitter(third)
	gone := false
	for i, rep := range c.Replies {
		if rep.Err != nil {
			p.good = time.Time{}
			if link.Code(rep.Err) == "NOSCRIPT" {
				return 0, rep.Err
			}
			if class := link.Classify(rep.Err); class == link.Fatal || class == link.Failed {
				r.q.events.emit(Event{Kind: Trouble, Channel: r.intakes[i].channel, Receiver: inc.name, Err: rep.Err, Fatal: true})
			}
			return 0, rep.Err
		}
		ns, err := redis.Int64s(rep.Value, nil)
		if err != nil || len(ns) < 2 {
			return 0, fmt.Errorf("shunt: beat answered %v", rep.Value)
		}
		gone = gone || ns[0] == 0
		fences[i] = ns[1]
		if len(ns) == 3 {
			ends := time.Duration(ns[2]) * time.Millisecond
			switch {
			case ends < 0:
				r.intakes[i].due = sent
			case ends < wait: // somebody's lease ends before the next beat: a dead one's
				wait = ends + 5*time.Millisecond
			}
		}
	}
	if r.live.Load().name != inc.name {
		return wait, nil // a handover came between
	}
	if gone {
		r.loseLease(fmt.Errorf("shunt: the receiver's entry is gone: %w", ErrLeaseLost))
		return wait, nil
	}
	if !r.lease.lost.Load() {
		r.lease.renew(sent)
	}
	if stale {
		r.parking.wakeAll()
	}
	if took > r.conf.Lease/6 {
		p.good = time.Time{}
		return wait, nil
	}
	if p.good.IsZero() {
		p.since = sent
	}
	p.good = sent
	if r.stopped() {
		return wait, nil
	}
	// Leases are judged only after a quarter of one in which Redis was there all the time: after a pause all have run out, and
	// whoever was away with it needs the time to come back.
	for i, in := range r.intakes {
		fence := fences[i]
		if sent.Sub(p.since) < r.conf.Lease/4 {
			fence = 0
		}
		if !sent.Before(in.due) {
			if err := r.sweep(ctx, in, fence); err != nil {
				return 0, err
			}
		}
	}
	return wait, nil
}

// sweep runs the sweep script and looks after whom it claims. fence is the server's time of a good beat; 0: judge no lease.
func (r *receiver) sweep(ctx context.Context, in *intake, fence int64) error {
	in.due = time.Now().Add(jitter(sweepEvery))
	age := (r.conf.Lease / 3).Milliseconds()
	for {
		name, hints := in.promoter.asks(r)
		v, err := r.pulseOne(ctx, sweepScript, 5, in.living, in.gone, in.suspect, in.delay, in.keeper,
			fence, age, sweepClaims, name, keeperKeeps.Milliseconds())
		if err != nil {
			return err
		}
		vs, err := redis.Values(v, nil)
		if err != nil || len(vs) < 5 {
			return fmt.Errorf("shunt: sweep answered %v", v)
		}
		died, _ := redis.Int(vs[1], nil)
		if died > 0 {
			r.q.events.emit(Event{Kind: Died, Channel: in.channel, Receiver: r.live.Load().name, N: died})
		}
		if n, _ := redis.Int(vs[2], nil); n > 0 {
			r.suspects(in)
		}
		if n, _ := redis.Int(vs[3], nil); n == 0 {
			name = ""
		}
		next, err := redis.Int64(vs[4], nil)
		in.promoter.told(name, next, err == nil, hints)
		if r.stopped() {
			in.promoter.yield() // it asked before
		}
		for _, m := range vs[5:] {
			member, _ := redis.String(m, nil)
			if err := r.bury(ctx, in, member, fence, age); err != nil {
				return err
			}
		}
		if len(vs)-5 < sweepClaims {
			return nil
		}
	}
}

// suspects sends a worker for them.
func (r *receiver) suspects(in *intake) {
	in.suspects.Store(true)
	r.parking.wakeOne()
}

// bury reaps what a dead incarnation holds, and says when it is looked at again.
func (r *receiver) bury(ctx context.Context, in *intake, member string, fence, age int64) error {
	dead, err := parseCorpse(member)
	if err != nil { // nothing that could be reaped
		r.q.events.emit(Event{Kind: Trouble, Channel: in.channel, Err: err, Fatal: true})
		return nil
	}
	lists := in.doings(dead.incarnation)
	v, err := r.pulseOne(ctx, nil, 0, lists...)
	if err != nil {
		return err
	}
	if n, _ := redis.Int(v, nil); n > 0 {
		if dead.superseded {
			fence = 0
		} else if fence == 0 {
			return nil
		}
		for _, list := range lists {
			if ok, err := r.reap(ctx, in, dead, list, fence, age); !ok || err != nil {
				return err
			}
		}
	}
	_, err = r.pulseOne(ctx, finishScript, 2+len(lists), append(append([]any{in.living, in.gone}, lists...), member, dead.death)...)
	return err
}

// reap empties one list, a bounded part at a time. False: the fence is behind us.
func (r *receiver) reap(ctx context.Context, in *intake, dead corpse, list any, fence, age int64) (bool, error) {
	raise := 1
	if dead.superseded {
		raise = 0
	}
	reason := failureField("shunt: in the hands of a dying process 4 times")
	for {
		args := []any{in.living, list, in.prepare, in.keys.suspect, in.dead, fence, age, raise, reapBytes,
			max(0, r.conf.MaxDead), max(0, r.conf.DeadFor.Milliseconds()), reason}
		for range reapSerials {
			s := newSerial()
			args = append(args, s[:])
		}
		v, err := r.pulseOne(ctx, reapScript, 5, args...)
		if err != nil {
			return false, err
		}
		ns, err := redis.Ints(v, nil)
		if err != nil || len(ns) < 5 {
			return false, err
		}
		for i, kind := range []EventKind{Recovered, Suspected, Poisoned, Trimmed} {
			if ns[i] > 0 {
				r.q.events.emit(Event{Kind: kind, Channel: in.channel, Receiver: dead.name, N: ns[i]})
			}
		}
		if ns[1] > 0 {
			r.suspects(in)
		}
		if ns[4] == 0 {
			return true, nil
		}
	}
}

// pulseOne runs one script, or without one EXISTS, on the link that no element delays.
func (r *receiver) pulseOne(ctx context.Context, s *link.Script, keys int, args ...any) (any, error) {
	c := link.NewCall()
	c.FailFast = true
	if s == nil {
		c.Add("EXISTS", args...)
	} else {
		c.AddScript(s, keys, args...)
	}
	if err := run(ctx, r.s.pulse, c); err != nil {
		return nil, err
	}
	return c.Replies[0].Value, nil
}
