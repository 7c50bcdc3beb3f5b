package shunt

import (
	"context"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	reapSerials = 32       // elements that one script reaps
	reapLists   = 16       // lists that one pipeline reaps at most, since on a slow line each round trip counts
	reapBytes   = 64 << 10 // after which all scripts of a pipeline stop: some 0.4 ms; each moves one element at least
	existsChunk = 1000     // lists that one pipeline asks for
)

// undertaker empties the lists of a channel's dead receivers, a bounded part at a time.
type undertaker struct {
	q        *Queue
	ctx      context.Context
	server   *link.Server
	keys     *store.Keys
	fence    func() store.Fence
	fatal    func(error) bool // reports an error that waiting does not mend, and says whether it is one
	suspects func()           // there are some

	claimed []string  // members of receivers.dead whose lists are still to be emptied
	asked   time.Time // when they were claimed
	burial  burial    // of the first of them
	lists   int       // that the next pipeline reaps, by the bytes that the last one moved
}

// burial is the progress on one dead receiver.
type burial struct {
	member  string
	unasked []string // its lists of which it is not known whether they hold anything
	held    []string // those that do
}

// claims takes in what a sweep has claimed. It goes on with the one that it was about.
func (u *undertaker) claims(members []string) {
	u.claimed, u.asked = members, time.Now()
	if len(u.claimed) == 0 || u.claimed[0] != u.burial.member {
		u.burial = burial{}
	}
}

// buryAll empties the lists of the dead receivers that were claimed, if others may not have claimed them since.
func (u *undertaker) buryAll(until time.Time, claimFor time.Duration) (late bool, err error) {
	if time.Since(u.asked) >= claimFor {
		u.claimed = nil
	}
	for len(u.claimed) > 0 {
		late, err := u.bury(u.claimed[0], until)
		if late || err != nil && !u.fatal(err) {
			return late, err
		}
		u.claimed, u.burial = u.claimed[1:], burial{}
	}
	return false, nil
}

// bury reaps what a dead receiver holds, and says when it is looked at again. late: it goes on with the next visit.
func (u *undertaker) bury(member string, until time.Time) (late bool, err error) {
	dead, err := store.ParseDeadReceiver(member)
	if err != nil { // nothing that could be reaped
		u.q.emit(event.Event{Kind: event.ReceiverError, Channel: u.keys.Name, Err: err, Fatal: true})
		return false, nil
	}
	b := &u.burial
	if b.member != member {
		*b = burial{member: member, unasked: u.keys.AllDoing(dead.Incarnation)}
	}
	for first := true; ; first = false { // a step is always taken, or on a slow line it never would get on
		if !first && time.Now().After(until) {
			return true, nil
		}
		switch {
		case len(b.held) > 0:
			late, err = u.reap(dead)
		case len(b.unasked) > 0:
			err = u.askLists()
		default:
			// short, as the sweep is
			return false, store.FinishDead(u.ctx, u.server.Pulse, u.keys, member, dead)
		}
		if late || err != nil {
			return late, err
		}
	}
}

// askLists asks for the next lists, in one command where that will do.
func (u *undertaker) askLists() error {
	ctx, l, b := u.ctx, u.server.Data, &u.burial
	some := b.unasked[:min(len(b.unasked), existsChunk)]
	n, err := store.CountNonEmpty(ctx, l, some)
	if err != nil {
		return err
	}
	switch n {
	case 0:
	case len(some):
		b.held = append(b.held, some...)
	default:
		held, err := store.NonEmpty(ctx, l, some)
		if err != nil {
			return err
		}
		b.held = append(b.held, held...)
	}
	b.unasked = b.unasked[len(some):]
	return nil
}

// reap empties the next of the lists, a bounded part of them. late: the fence is too old.
func (u *undertaker) reap(dead store.DeadReceiver) (late bool, err error) {
	b, fence := &u.burial, u.fence()
	if dead.Superseded {
		fence = store.Fence{} // its own receiver has ended it, so it may be reaped at any time
	} else if fence.At.IsZero() {
		return true, nil
	}
	some := b.held[:min(len(b.held), max(1, u.lists))]
	if planted.Reap != nil {
		return false, u.reapPlanted(some)
	}
	c := link.NewCall()
	c.Repeats = true // what it has moved it does not find again
	for _, list := range some {
		store.AddReap(c, u.keys, list, fence, dead, reapSerials, reapBytes/len(some), &u.q.conf.Bounds)
	}
	err = u.server.Data.Run(u.ctx, c) // one reply after another
	if err != nil && !c.Answered {
		return false, err
	}
	var left []string
	moved := 0
	for i, rep := range c.Replies {
		a, bad := store.ReapReply(rep)
		if bad != nil {
			continue // err is the first of these
		}
		late = late || a.Late
		u.report(dead, a)
		if a.Left > 0 || a.Late {
			left = append(left, some[i])
		}
		moved += a.Bytes
	}
	if u.lists = min(4*len(some), reapLists); moved > reapBytes {
		u.lists = 1 // large elements go one by one, so that nobody waits for Redis meanwhile
	}
	if err == nil {
		b.held = append(left, b.held[len(some):]...)
	}
	return late, err
}

// report emits what one reap has moved.
func (u *undertaker) report(dead store.DeadReceiver, a store.ReapAnswer) {
	for _, m := range []struct {
		kind event.Kind
		n    int
	}{{event.Recovered, a.Prepare}, {event.Suspected, a.Suspect}, {event.Poisoned, a.Dead}, {event.Trimmed,
		a.Trimmed}} {
		if m.n > 0 {
			u.q.emit(event.Event{Kind: m.kind, Channel: u.keys.Name, Receiver: dead.Name, N: m.n})
		}
	}
	u.q.dropped(u.keys, dead.Name, a.Dropped)
	if a.Suspect > 0 {
		u.suspects()
	}
}

// reapPlanted is reap with the mistake that the fault harness has planted.
func (u *undertaker) reapPlanted(some []string) error {
	for _, list := range some {
		if _, err := planted.Reap(do(u.ctx, u.server.Data), list, u.keys.Prepare); err != nil {
			return err
		}
	}
	u.burial.held = u.burial.held[len(some):]
	return nil
}

// do runs single commands on a link, for planted mistakes.
func do(ctx context.Context, l *link.Link) planted.Do {
	return func(name string, args ...any) (any, error) { return store.Do(ctx, l, name, args...) }
}
