package worker

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/lane"
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
	pool    *Pool
	site    *lane.Site
	dials   int64       // of both links, when it was last asked who answers
	suspect []idleState // idle workers whose lists were found not empty
}

// idleState is a worker that was idle, and what shows whether it has been since.
type idleState struct {
	s     *worker
	lane  *lane.Lane
	inc   string
	moves uint64
}

// loop is the audit's goroutine.
func (a *audit) loop() {
	taking, s := a.pool.TakeCtx, a.site
	a.dials = s.Server.Data.Dials() + max(1, s.Server.Pulse.Dials()) // the beats' first connection may be still to come
	for wait := link.Jitter(auditEvery); link.Sleep(taking, wait) == nil; {
		wait = link.Jitter(auditEvery)
		if s.Pausing() {
			continue
		}
		ctx, cancel := context.WithTimeout(taking, auditEvery)
		if a.restarted(ctx) {
			s.MustHandOver(errRestarted)
		} else if a.stray(ctx) && !planted.IgnoreWaiterBreak {
			s.MustHandOver(errStray)
		} else if len(a.suspect) > 0 {
			wait = auditAgain
		}
		cancel()
	}
}

// restarted says whether another process of Redis answers than the one at which the incarnation is registered. It asks
// only where a link has another connection since. Where the server does not say, nothing is known.
func (a *audit) restarted(ctx context.Context) bool {
	if a.site.Dials() == a.dials {
		return false
	}
	at := a.site.Run()
	c := link.NewCall()
	store.AddServerRun(c)
	if a.site.Server.Data.Do(ctx, c) != nil {
		return false
	}
	now, err := store.ServerRunReply(c.Replies[0])
	if class := link.Classify(err); class == link.Unknown || class == link.NotExecuted {
		return false // it is asked again
	}
	a.dials = a.site.Dials()
	return a.site.Replaced(now) && at == a.site.Run()
}

// stray says whether the list of a worker that was idle all the time was not empty at two looks in a row.
func (a *audit) stray(ctx context.Context) bool {
	again := a.suspect
	a.suspect = nil
	if len(again) > 0 {
		again = stillIdle(again, a.idle())
		found, _ := a.heldBy(ctx, again)
		return len(stillIdle(found, a.idle())) > 0
	}
	idle := a.idle()
	if n, err := a.count(ctx, idle); n > 0 && err == nil {
		a.suspect, _ = a.heldBy(ctx, idle)
	}
	return false
}

// idle are the workers that are parked, on each lane. They hold nothing, and have nothing under way but a waiter's
// block.
func (a *audit) idle() (all []idleState) {
	if a.site.Pausing() {
		return nil
	}
	inc := a.site.Live().Name
	for _, s := range a.pool.parking.list() {
		moves := s.moves.Load()
		if s.busy() {
			continue
		}
		for _, l := range a.site.Lanes {
			all = append(all, idleState{s, l, inc, moves})
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

// lists are the lists of some idle workers, by lane, so that no command names keys of two channels.
func lists(of []idleState) map[*lane.Lane][]string {
	by := make(map[*lane.Lane][]string)
	for _, i := range of {
		if inc, err := store.ParseIncarnation(i.inc); err == nil {
			by[i.lane] = append(by[i.lane], i.lane.Doing(inc, i.s.n))
		}
	}
	return by
}

// count is how many of the lists of idle workers have something: one command for each lane.
func (a *audit) count(ctx context.Context, of []idleState) (n int, err error) {
	c := link.NewCall()
	for _, lists := range lists(of) {
		for len(lists) > 0 {
			some := lists[:min(len(lists), auditLists)]
			lists = lists[len(some):]
			store.AddHeld(c, some...)
		}
	}
	if c.Len() == 0 {
		return 0, nil
	}
	if err := a.site.Server.Pulse.Run(ctx, c); err != nil {
		return 0, err
	}
	for _, rep := range c.Replies {
		some, _ := store.HeldReply(rep)
		n += some
	}
	return n, nil
}

// heldBy are those of some idle workers whose lists have something.
func (a *audit) heldBy(ctx context.Context, of []idleState) (some []idleState, err error) {
	for len(of) > 0 {
		part := of[:min(len(of), auditLists)]
		of = of[len(part):]
		c := link.NewCall()
		for _, i := range part {
			inc, _ := store.ParseIncarnation(i.inc)
			store.AddHeld(c, i.lane.Doing(inc, i.s.n))
		}
		if err := a.site.Server.Pulse.Run(ctx, c); err != nil {
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
