package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

// An entry outlives its last beat by four thirds of a lease and is extended every third, so that three beats may fail. A beat tells of
// those that have run out or are about to, so that what a killed receiver held is found as soon as its term is over; a sweep every 5 s
// or so looks after all else.
const (
	sweepEvery  = 5 * time.Second
	sweepClaims = 16       // dead receivers that one sweep looks after
	reapSerials = 32       // elements that one script reaps
	reapLists   = 16       // lists that one pipeline reaps, since on a slow line each round trip counts
	reapBytes   = 64 << 10 // after which it stops: some 0.4 ms
	existsChunk = 1000     // lists that one pipeline asks for
	keeperKeeps = 3 * sweepEvery
	minRefuse   = 225 * time.Millisecond // between beats that fail, less the jitter: 5 a second, and several within the shortest lease
)

// pulse is what the beat's goroutine knows.
type pulse struct {
	next   time.Time     // of the next beat
	last   time.Time     // sending of the last one
	refuse time.Duration // the wait after beats that failed
	good   time.Time     // sending of the last beat, if it was answered in time
	server int64         // the server's time in ms then: the fence of what is judged after it
	since  int64         // likewise of the first in an unbroken row of good ones
	swept  time.Time     // when the sweep under way has to give way to the next beat
	reaped bool          // that sweep has reaped something: one script it may always run, or on a slow line it never would
}

// beat is the goroutine that keeps the receiver alive and looks after the dead.
func (r *receiver) beat() {
	third := r.conf.Lease / 3
	p := &pulse{next: time.Now().Add(link.Jitter(third))}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := p.next
		for _, in := range r.intakes {
			if in.due.Before(next) {
				next = in.due
			}
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-r.Kicks:
			if p.refuse == 0 {
				p.next = time.Now()
			}
		case in := <-r.Looks:
			r.intakes[in.Index].due = time.Now()
		case <-r.Life.Done():
			return
		}
		if now := time.Now(); p.refuse == 0 && now.Sub(p.last) > r.conf.Lease/6 && !r.Stopped() &&
			slices.ContainsFunc(r.intakes, func(in *intake) bool { return !now.Before(in.due) }) {
			p.next = now // so that a sweep may judge, and has time to: one that began just before a beat would give way to it, again and again
		}
		if !time.Now().Before(p.next) {
			began := time.Now()
			p.last = began
			wait, err := r.beatOnce(p, began)
			if err != nil {
				p.refuse = max(min(max(2*p.refuse, third/16), third/2), minRefuse)
				wait = time.Since(began) + link.Jitter(p.refuse)
				p.good = time.Time{}
			} else {
				p.refuse = 0
			}
			p.next = began.Add(wait)
		}
		for _, in := range r.intakes {
			if !time.Now().Before(p.next) {
				break // with many channels and a slow line the rest has to wait for the beat
			}
			if now := time.Now(); !now.Before(in.due) && !r.Stopped() {
				in.due = now.Add(link.Jitter(sweepEvery))
				if in.again.After(now) { // this one came before its time, by a hint
					in.due = in.again
				}
				p.swept, p.reaped = now.Add(r.conf.Lease/6), false
				if err := r.sweep(p, in); err != nil && !r.Grave(in.Intake, err) { // what it has claimed comes up again
					in.again = time.Now().Add(r.claim() + link.Jitter(100*time.Millisecond))
					in.due = in.again
				}
			} else if r.Stopped() {
				in.due = now.Add(sweepEvery)
			}
		}
	}
}

// beatOnce beats on every channel and says how long after its sending to beat again.
func (r *receiver) beatOnce(p *pulse, sent time.Time) (time.Duration, error) {
	inc := r.Live()
	c := link.NewCall()
	c.FailFast = true
	for _, in := range r.intakes {
		c.AddScript(lists.Beat, 1, in.Living, inc.Name, inc.Term().Milliseconds())
	}
	if err := r.s.Pulse.Run(r.Life, c); err != nil {
		r.Grave(r.intakes[0].Intake, err)
		return 0, err
	}
	took := time.Since(sent)
	wait := link.Jitter(r.conf.Lease / 3)
	gone := false
	var server int64
	for i, rep := range c.Replies {
		ns, err := redis.Int64s(rep.Value, nil)
		if err != nil || len(ns) < 2 {
			return 0, fmt.Errorf("shunt: beat answered %v", rep.Value)
		}
		gone = gone || ns[0] == 0
		server = ns[1]
		if len(ns) == 3 {
			switch ends := time.Duration(ns[2]) * time.Millisecond; {
			case ends < 0:
				r.intakes[i].due = sent
			case ends < wait: // somebody has not beaten for long
				wait = ends + 5*time.Millisecond
			}
		}
	}
	if r.Live().Name != inc.Name || gone && r.Pausing() {
		return wait, nil // the one that beat has ended or is ending, and why is known
	}
	if gone {
		r.LoseLease(fmt.Errorf("shunt: the receiver's entry is gone: %w", ErrLeaseLost))
		return wait, nil
	}
	r.Renew(sent)
	// Only who has had Redis, and its clock, in sight all the time may call another dead: not who was frozen between two beats.
	steady := took <= r.conf.Lease/6 && sent.Sub(p.good) <= r.conf.Lease/2 && abs(sent.Sub(p.good).Milliseconds()-(server-p.server)) < (r.conf.Lease/4).Milliseconds()
	if !steady {
		p.since = server
	}
	p.good, p.server = sent, server
	if took > r.conf.Lease/6 {
		p.good = time.Time{}
	}
	return wait, nil
}

func abs(n int64) int64 { return max(n, -n) }

// fence is the server's time that a sweep's judgement counts from, or 0 where the last beat allows none.
func (p *pulse) fence() int64 {
	if p.good.IsZero() {
		return 0
	}
	return p.server
}

// sweep runs the sweep script and looks after whom it claims, until the next beat is due.
func (r *receiver) sweep(p *pulse, in *intake) error {
	age := (r.conf.Lease / 3).Milliseconds()
	for {
		name, hints := in.promoter.asks(r)
		v, err := r.pulseOne(r.Life, lists.Sweep, 12, in.Living, in.Gone, in.Keys.Suspect, in.Delay, in.Keeper,
			in.IDs, in.Keys.Cancelled, in.Keys.Done, in.DoneAt, in.Kept, in.Running, in.Waited,
			p.fence(), age, sweepClaims, name, keeperKeeps.Milliseconds(), p.since, r.claim().Milliseconds())
		if err != nil {
			in.promoter.unanswered(name)
			return err
		}
		vs, err := redis.Values(v, nil)
		if err != nil || len(vs) < 6 {
			return fmt.Errorf("shunt: sweep answered %v", v)
		}
		died, _ := redis.Int(vs[1], nil)
		if died > 0 {
			r.q.events.emit(Event{Kind: Died, Channel: in.Channel, Receiver: r.Live().Name, N: died})
		}
		if n, _ := redis.Int(vs[2], nil); n > 0 {
			r.Suspects(in.Intake)
		}
		switch n, _ := redis.Int(vs[3], nil); n {
		case 0:
			name = ""
		case 2:
			in.due = time.Now().Add(10 * time.Millisecond)
		}
		if ms, err := redis.Int64(vs[5], nil); err == nil {
			look := time.Now().Add(time.Duration(ms+5) * time.Millisecond)
			if ms < 0 { // no beat in time before it
				look = p.next
			}
			if look.Before(in.due) {
				in.due = look
			}
		}
		next, err := redis.Int64(vs[4], nil)
		in.promoter.told(name, next, err == nil, hints)
		if r.Stopped() {
			in.promoter.yield() // it asked before
		}
		for _, m := range vs[6:] {
			member, _ := redis.String(m, nil)
			if err := r.bury(p, in, member, age); err != nil {
				return err
			}
		}
		if len(vs)-6 < sweepClaims {
			if name != "" {
				ms, _ := redis.Int64(vs[0], nil)
				if err := r.upkeep(in, time.UnixMilli(ms)); err != nil {
					return err
				}
			}
			return r.cancels(in)
		}
		if r.late(p) {
			return errLate
		}
	}
}

// cancels ends the handlers of messages that were cancelled while nobody here could hear it.
func (r *receiver) cancels(in *intake) error {
	held := r.Tracked(in.Intake)
	if len(held) == 0 {
		return nil
	}
	c := link.NewCall()
	c.FailFast = true
	for _, serial := range held {
		c.Add("SISMEMBER", in.Keys.Cancelled, serial[:])
	}
	if err := r.s.Pulse.Run(r.Life, c); err != nil {
		return err
	}
	for i, serial := range held {
		if n, _ := redis.Int(c.Replies[i].Value, nil); n == 1 {
			r.Pool.Cancel(in.Intake, serial)
		}
	}
	return nil
}

// claim is for how long a claimed dead receiver is left to who claimed it.
func (r *receiver) claim() time.Duration { return min(sweepEvery, r.conf.Lease/2) }

var errLate = &link.Error{Class: link.NotExecuted, Err: errors.New("a sweep gave way to a beat")}

// late says that a sweep has to give way to the beat.
func (r *receiver) late(p *pulse) bool {
	now := time.Now()
	return now.After(p.swept) || now.After(p.next)
}

// bury reaps what a dead incarnation holds, and says when it is looked at again.
func (r *receiver) bury(p *pulse, in *intake, member string, age int64) error {
	dead, err := lists.ParseCorpse(member)
	if err != nil { // nothing that could be reaped
		r.q.events.emit(Event{Kind: Trouble, Channel: in.Channel, Err: err, Fatal: true})
		return nil
	}
	doings := in.Doings(dead.Incarnation)
	fence := p.fence()
	if dead.Superseded {
		fence = 0
	} else if fence == 0 {
		return nil
	}
	held, err := r.held(in, doings)
	if err != nil {
		return err
	}
	if err := r.reap(p, in, dead, held, fence, age); err != nil {
		return err
	}
	if r.late(p) {
		return errLate
	}
	_, err = r.pulseOne(r.Life, lists.Finish, 2+len(doings), append(append([]any{in.Living, in.Gone}, doings...), member, dead.Death)...)
	return err
}

// held finds out which of the doings there are: by one question for all, and only if there are some by one for each.
func (r *receiver) held(in *intake, doings []any) (held []any, err error) {
	for some := range slices.Chunk(doings, existsChunk) {
		n, err := r.count(some)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		c := link.NewCall()
		c.FailFast = true
		for _, list := range some {
			c.Add("EXISTS", list)
		}
		if err := r.s.Pulse.Run(r.Life, c); err != nil {
			return nil, err
		}
		for i, rep := range c.Replies {
			if n, _ := redis.Int(rep.Value, nil); n > 0 {
				held = append(held, some[i])
			}
		}
	}
	return held, nil
}

// count is how many of some lists there are.
func (r *receiver) count(of []any) (int, error) {
	c := link.NewCall()
	c.FailFast = true
	c.Add("EXISTS", of...)
	if err := r.s.Pulse.Run(r.Life, c); err != nil {
		return 0, err
	}
	return redis.Int(c.Replies[0].Value, nil)
}

// reap empties lists, a bounded part at a time. errLate: it has to stop, because the fence is behind it or a beat is due.
func (r *receiver) reap(p *pulse, in *intake, dead lists.Corpse, held []any, fence, age int64) error {
	raise := 1
	if dead.Superseded {
		raise = 0
	}
	reason := lists.FailureField("shunt: in the hands of a dying process 4 times")
	for len(held) > 0 {
		if r.late(p) && p.reaped {
			return errLate
		}
		p.reaped = true
		some := held[:min(len(held), reapLists)]
		c := link.NewCall()
		c.FailFast = true
		for _, list := range some {
			args := []any{in.Living, list, in.Prepare, in.Keys.Suspect, in.Dead, in.IDs, in.Keys.Cancelled, in.Keys.Done, in.DoneAt, in.Kept,
				in.Running, in.Waited,
				fence, age, raise, reapBytes / len(some), max(0, r.conf.MaxDead), max(0, r.conf.DeadFor.Milliseconds()), reason,
				max(0, r.conf.MaxDone), max(0, r.conf.MaxDoneBytes)}
			for range reapSerials {
				s := lists.NewSerial()
				args = append(args, s[:])
			}
			c.AddScript(lists.Reap, 12, args...)
		}
		err := r.s.Pulse.Run(r.Life, c) // one reply after another
		if err != nil && !c.Answered {
			return err
		}
		var left []any
		for i, rep := range c.Replies {
			ns, bad := redis.Ints(rep.Value, rep.Err)
			if bad != nil {
				continue // and err tells
			}
			if len(ns) < 5 {
				if err == nil {
					err = errLate
				}
				continue
			}
			for i, kind := range []EventKind{Recovered, Suspected, Poisoned, Trimmed} {
				if ns[i] > 0 {
					r.q.events.emit(Event{Kind: kind, Channel: in.Channel, Receiver: dead.Name, N: ns[i]})
				}
			}
			if ns[1] > 0 {
				r.Suspects(in.Intake)
			}
			if ns[4] > 0 {
				left = append(left, some[i])
			}
		}
		if err != nil {
			return err
		}
		held = append(left, held[len(some):]...)
	}
	return nil
}

// pulseOne runs one script on the link that no element delays.
func (r *receiver) pulseOne(ctx context.Context, s *link.Script, keys int, args ...any) (any, error) {
	c := link.NewCall()
	c.FailFast = true
	c.AddScript(s, keys, args...)
	if err := r.s.Pulse.Run(ctx, c); err != nil {
		return nil, err
	}
	return c.Replies[0].Any(), nil
}
