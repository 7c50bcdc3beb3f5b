package worker

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	auditEvery = 5 * time.Second
	auditAgain = time.Second // after a list was found that should be empty
	auditLists = 1000        // that one command asks for
)

var (
	errStray     = errors.New("shunt: the list of an idle worker holds what the receiver has not in hand")
	errRestarted = errors.New("shunt: Redis was restarted or replaced, and may have come back with an older state")
)

// audit compares the live lists with what the workers hold. The rest of this package keeps the two equal. Only a Redis
// that comes back with an older state can make them differ. So the lists of idle workers must be empty, and an
// incarnation ends with the process of Redis at which it was registered.
type audit struct {
	dials   int64       // of both links, when it was last asked who answers
	suspect []idleState // idle workers whose lists were found not empty
}

// idleState is a worker that was idle, and what shows whether it has been since.
type idleState struct {
	s     *worker
	in    *Channel
	inc   string
	moves uint64
}

// auditLoop is the audit's goroutine.
func (r *Pool) auditLoop() {
	a := &audit{dials: r.s.Data.Dials() + max(1, r.s.Pulse.Dials())} // the beats' first connection may be still to come
	for wait := link.Jitter(auditEvery); link.Sleep(r.TakeCtx, wait) == nil; {
		wait = link.Jitter(auditEvery)
		if r.pausing() {
			continue
		}
		ctx, cancel := context.WithTimeout(r.TakeCtx, auditEvery)
		if r.restarted(ctx, a) {
			r.mustHandOver(errRestarted)
		} else if r.stray(ctx, a) && !planted.IgnoreWaiterBreak {
			r.mustHandOver(errStray)
		} else if len(a.suspect) > 0 {
			wait = auditAgain
		}
		cancel()
	}
}

// restarted says whether another process of Redis answers than the one at which the incarnation is registered. It asks
// only where a link has another connection since. Where the server does not say, nothing is known.
func (r *Pool) restarted(ctx context.Context, a *audit) bool {
	if r.dials() == a.dials {
		return false
	}
	at := r.run.Load()
	c := link.NewCall()
	store.AddServerRun(c)
	if r.s.Data.Do(ctx, c) != nil {
		return false
	}
	now, err := store.ServerRunReply(c.Replies[0])
	if class := link.Classify(err); class == link.Unknown || class == link.NotExecuted {
		return false // it is asked again
	}
	a.dials = r.dials()
	return at != nil && *at != "" && now != "" && now != *at && at == r.run.Load()
}

// dials counts the connections of the links. The link of the beats learns of a restart soon. The data link is silent
// while all workers are busy, so its connection may be gone unnoticed.
func (r *Pool) dials() int64 { return r.s.Data.Dials() + r.s.Pulse.Dials() }

// stray says whether the list of a worker that was idle all the time was not empty at two looks in a row.
func (r *Pool) stray(ctx context.Context, a *audit) bool {
	again := a.suspect
	a.suspect = nil
	if len(again) > 0 {
		again = stillIdle(again, r.idle())
		found, _ := r.heldBy(ctx, again)
		return len(stillIdle(found, r.idle())) > 0
	}
	idle := r.idle()
	if n, err := r.count(ctx, idle); n > 0 && err == nil {
		a.suspect, _ = r.heldBy(ctx, idle)
	}
	return false
}

// idle are the workers that are parked, on each channel. They hold nothing, and have nothing under way but a waiter's
// block.
func (r *Pool) idle() (all []idleState) {
	if r.pausing() {
		return nil
	}
	inc := r.live.Load().Name
	for _, s := range r.parking.list() {
		moves := s.moves.Load()
		if s.busy() {
			continue
		}
		for _, in := range r.channels {
			all = append(all, idleState{s, in, inc, moves})
		}
	}
	return all
}

// stillIdle are those of some that are among the idle now, and were all the time.
func stillIdle(some, now []idleState) (left []idleState) {
	is := make(map[idleState]bool, len(now))
	for _, i := range now {
		is[i] = true
	}
	for _, i := range some {
		if is[i] {
			left = append(left, i)
		}
	}
	return left
}

// lists are the lists of some idle workers, by channel, so that no command names keys of two channels.
func (r *Pool) lists(of []idleState) [][]string {
	by := make([][]string, len(r.channels))
	for _, i := range of {
		inc, err := store.ParseIncarnation(i.inc)
		if err == nil {
			by[i.in.Index] = append(by[i.in.Index], i.in.Doing(inc, i.s.n))
		}
	}
	return by
}

// count is how many of the lists of idle workers have something: one command for each channel.
func (r *Pool) count(ctx context.Context, of []idleState) (n int, err error) {
	c := link.NewCall()
	for _, lists := range r.lists(of) {
		for len(lists) > 0 {
			some := lists[:min(len(lists), auditLists)]
			lists = lists[len(some):]
			store.AddHeld(c, some...)
		}
	}
	if c.Len() == 0 {
		return 0, nil
	}
	if err := r.s.Pulse.Run(ctx, c); err != nil {
		return 0, err
	}
	for _, rep := range c.Replies {
		some, _ := store.HeldReply(rep)
		n += some
	}
	return n, nil
}

// heldBy are those of some idle workers whose lists have something.
func (r *Pool) heldBy(ctx context.Context, of []idleState) (some []idleState, err error) {
	for len(of) > 0 {
		part := of[:min(len(of), auditLists)]
		of = of[len(part):]
		c := link.NewCall()
		for _, i := range part {
			inc, _ := store.ParseIncarnation(i.inc)
			store.AddHeld(c, i.in.Doing(inc, i.s.n))
		}
		if err := r.s.Pulse.Run(ctx, c); err != nil {
			return nil, err
		}
		for j, rep := range c.Replies {
			if n, _ := store.HeldReply(rep); n > 0 {
				some = append(some, part[j])
			}
		}
	}
	return some, nil
}
