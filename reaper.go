package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	sweepEvery  = 5 * time.Second
	sweepClaims = 16       // dead receivers that one sweep looks after
	reapSerials = 32       // elements that one script reaps
	reapLists   = 16       // lists that one pipeline reaps at most, since on a slow line each round trip counts
	reapBytes   = 64 << 10 // after which all scripts of a pipeline stop: some 0.4 ms; each moves one element at least
	existsChunk = 1000     // lists that one pipeline asks for
	keeperKeeps = 3 * sweepEvery
)

// sweep runs the sweep script and looks after whom it claims, until the next beat is due. What it had no time for it begins with the
// next time.
func (r *receiver) sweep(p *heart, in *channel) error {
	age := (r.conf.Lease / 3).Milliseconds()
	if time.Since(in.asked) >= r.claim() {
		in.claimed = nil // others may claim them now
	}
	if err := r.buryAll(p, in, age); err != nil {
		return err
	}
	for {
		name, hints := in.promoter.keeperBid(r)
		v, err := r.pulseOne(r.PoolCtx, store.Sweep, 12, in.Receivers, in.DeadReceivers, in.Keys.Suspect, in.Delay, in.Keeper,
			in.IDs, in.Keys.Cancelled, in.Keys.Done, in.DoneAt, in.Kept, in.Running, in.Waited,
			p.fence(), age, sweepClaims, name, keeperKeeps.Milliseconds(), p.since, r.claim().Milliseconds())
		if err != nil {
			in.promoter.sweepFailed(name)
			return err
		}
		vs, err := redis.Values(v, nil)
		if err != nil || len(vs) < 6 {
			return fmt.Errorf("shunt: sweep answered %v", v)
		}
		died, _ := redis.Int(vs[1], nil)
		if died > 0 {
			r.q.events.emit(Event{Kind: EventReceiversDied, Channel: in.Name, Receiver: r.Live().Name, N: died})
		}
		if n, _ := redis.Int(vs[2], nil); n > 0 {
			r.Suspects(in.Channel)
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
		in.promoter.sweepReplied(name, next, err == nil, hints)
		if r.Stopped() {
			in.promoter.yield() // it asked before
		}
		if in.claimed, err = redis.Strings(vs[6:], nil); err != nil {
			return err
		}
		if in.asked = time.Now(); len(in.claimed) == 0 || in.claimed[0] != in.burying {
			in.burying = ""
		}
		if err := r.cancels(in); err != nil && !r.ReportFatal(in.Channel, err) {
			return err
		}
		if err := r.buryAll(p, in, age); err != nil {
			return err
		}
		if len(vs)-6 < sweepClaims {
			if name != "" {
				ms, _ := redis.Int64(vs[0], nil)
				return r.upkeep(in, time.UnixMilli(ms))
			}
			return nil
		}
		if r.late(p) {
			return errLate
		}
	}
}

// cancels ends the handlers of messages that were cancelled while nobody here could hear it.
func (r *receiver) cancels(in *channel) error {
	held := r.Tracked(in.Channel)
	if len(held) == 0 {
		return nil
	}
	c := link.NewCall()
	for _, serial := range held {
		c.Add("SISMEMBER", in.Keys.Cancelled, serial[:])
	}
	if err := r.s.Pulse.Run(r.PoolCtx, c); err != nil {
		return err
	}
	for i, serial := range held {
		if n, _ := redis.Int(c.Replies[i].Value, nil); n == 1 {
			r.Pool.Cancel(in.Channel, serial)
		}
	}
	return nil
}

// claim is for how long a claimed dead receiver is left to who claimed it.
func (r *receiver) claim() time.Duration { return min(sweepEvery, r.conf.Lease/2) }

var errLate = &link.Error{Class: link.NotExecuted, Err: errors.New("a sweep gave way to a beat")}

// late says that a sweep has to give way to the beat.
func (r *receiver) late(p *heart) bool {
	now := time.Now()
	return now.After(p.swept) || now.After(p.next)
}

// buryAll buries whom the sweep has claimed.
func (r *receiver) buryAll(p *heart, in *channel, age int64) error {
	for len(in.claimed) > 0 {
		if err := r.bury(p, in, in.claimed[0], age); err != nil && !r.ReportFatal(in.Channel, err) {
			return err
		}
		in.claimed, in.burying = in.claimed[1:], ""
	}
	return nil
}

// bury reaps what a dead incarnation holds, and says when it is looked at again. After errLate it goes on where it was.
func (r *receiver) bury(p *heart, in *channel, member string, age int64) error {
	dead, err := store.ParseDeadReceiver(member)
	if err != nil { // nothing that could be reaped
		r.q.events.emit(Event{Kind: EventReceiverError, Channel: in.Name, Err: err, Fatal: true})
		return nil
	}
	fence := p.fence()
	if dead.Superseded {
		fence = 0
	} else if fence == 0 {
		return errLate
	}
	if in.burying != member {
		in.burying, in.unasked, in.held = member, store.Args(in.AllDoing(dead.Incarnation)), nil
	}
	for {
		if !r.mayGoOn(p) {
			return errLate
		}
		switch {
		case len(in.held) > 0:
			err = r.reap(p, in, dead, fence, age)
		case len(in.unasked) > 0:
			err = r.ask(in)
		default:
			doings := store.Args(in.AllDoing(dead.Incarnation))
			_, err = r.pulseOne(r.PoolCtx, store.Finish, 2+len(doings), append(append([]any{in.Receivers, in.DeadReceivers}, doings...), member, dead.Death)...)
			return err
		}
		if err != nil {
			return err
		}
	}
}

// mayGoOn says whether a sweep may take a step. One it may always take, or on a slow line it never would get on.
func (r *receiver) mayGoOn(p *heart) bool {
	first := !p.stepped
	p.stepped = true
	return first || !r.late(p)
}

// ask finds out which there are of the next of the lists: by one question for all, and only if there are some but not all by one for each.
func (r *receiver) ask(in *channel) error {
	some := in.unasked[:min(len(in.unasked), existsChunk)]
	n, err := r.count(some)
	if err != nil {
		return err
	}
	switch n {
	case 0:
	case len(some):
		in.held = some
	default:
		c := link.NewCall()
		for _, list := range some {
			c.Add("EXISTS", list)
		}
		if err := r.s.Pulse.Run(r.PoolCtx, c); err != nil {
			return err
		}
		for i, rep := range c.Replies {
			if n, _ := redis.Int(rep.Value, nil); n > 0 {
				in.held = append(in.held, some[i])
			}
		}
	}
	in.unasked = in.unasked[len(some):]
	return nil
}

// count is how many of some lists there are.
func (r *receiver) count(of []any) (int, error) {
	c := link.NewCall()
	c.Add("EXISTS", of...)
	if err := r.s.Pulse.Run(r.PoolCtx, c); err != nil {
		return 0, err
	}
	return redis.Int(c.Replies[0].Value, nil)
}

// reap empties the next of the lists, a bounded part of them. errLate: the fence is behind it.
func (r *receiver) reap(p *heart, in *channel, dead store.DeadReceiver, fence, age int64) error {
	raise := 1
	if !dead.Counted {
		raise = 0
	}
	reason := element.FailureField("shunt: in the hands of a dying process 4 times")
	if dead.Superseded {
		reason = element.FailureField("shunt: in the hands of a receiver whose connection broke, or whose process died, 4 times: look at the size of its take and its verdict")
	}
	some := in.held[:min(len(in.held), max(1, p.lists))]
	c := link.NewCall()
	for _, list := range some {
		args := []any{in.Receivers, list, in.Prepare, in.Keys.Suspect, in.Dead, in.IDs, in.Keys.Cancelled, in.Keys.Done, in.DoneAt, in.Kept,
			in.Running, in.Waited,
			fence, age, raise, reapBytes / len(some), max(0, r.conf.MaxDead), max(0, r.conf.DeadFor.Milliseconds()), reason,
			max(0, r.conf.MaxDone), max(0, r.conf.MaxDoneBytes)}
		for range reapSerials {
			s := element.NewSerial()
			args = append(args, s[:])
		}
		c.AddScript(store.Reap, 12, args...)
	}
	err := r.s.Pulse.Run(r.PoolCtx, c) // one reply after another
	if err != nil && !c.Answered {
		return err
	}
	var left []any
	moved := 0
	for i, rep := range c.Replies {
		ns, bad := redis.Ints(rep.Value, rep.Err)
		if bad != nil {
			continue // and err tells
		}
		if len(ns) < 6 {
			if err == nil {
				err = errLate
			}
			continue
		}
		for i, kind := range []EventKind{EventRecovered, EventSuspected, EventPoisoned, EventTrimmed} {
			if ns[i] > 0 {
				r.q.events.emit(Event{Kind: kind, Channel: in.Name, Receiver: dead.Name, N: ns[i]})
			}
		}
		if ns[1] > 0 {
			r.Suspects(in.Channel)
		}
		if ns[4] > 0 {
			left = append(left, some[i])
		}
		moved += ns[5]
	}
	if p.lists = min(4*len(some), reapLists); moved > reapBytes {
		p.lists = 1 // large elements go one by one, so that nobody waits for Redis meanwhile
	}
	if err != nil {
		return err
	}
	in.held = append(left, in.held[len(some):]...)
	return nil
}

// pulseOne runs one script on the link that no element delays.
func (r *receiver) pulseOne(ctx context.Context, s *link.Script, keys int, args ...any) (any, error) {
	c := link.NewCall()
	c.AddScript(s, keys, args...)
	if err := r.s.Pulse.Run(ctx, c); err != nil {
		return nil, err
	}
	return c.Replies[0].Any(), nil
}
