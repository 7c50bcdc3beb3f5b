package store

import (
	"cmp"
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// Timetable says what of a channel waits for its time.
type Timetable struct {
	Scheduled bool          // something lies in delay
	NextDue   time.Duration // the first of it; negative if overdue
	Leased    bool          // messages are leased
	NextLapse time.Duration // the first end of a lease; negative if it is past
}

// Next is when the first of both comes, if anything does.
func (t *Timetable) Next() (in time.Duration, any bool) {
	switch {
	case !t.Leased:
		return t.NextDue, t.Scheduled
	case !t.Scheduled:
		return t.NextLapse, true
	}
	return min(t.NextDue, t.NextLapse), true
}

// PromoteAnswer is what one or more promote scripts came to.
type PromoteAnswer struct {
	Moved int
	Timetable
}

// RunPromote moves due messages from delay to prepare: up to so many, or some more than so many bytes. It does so as
// often as times says, in one pipeline. With an error the answer has what was moved before it. It may be sent again.
func RunPromote(ctx context.Context, l *link.Link, k *Keys, elements, bytes, times int) (p PromoteAnswer, err error) {
	c := link.NewCall()
	for range times {
		c.AddScript(Promote, 4, k.Receivers, k.Delay, k.Prepare, k.Leased, elements, bytes)
	}
	if err = l.Run(ctx, c); !c.Answered {
		return p, err
	}
	for _, rep := range c.Replies {
		vs, bad := redis.Values(rep.Value, rep.Err)
		if bad != nil || len(vs) < 3 {
			err = cmp.Or(err, bad)
			continue
		}
		moved, _ := redis.Int(vs[0], nil)
		p.Moved += moved
		p.NextDue, p.Scheduled = aheadOf(vs[1])
		p.NextLapse, p.Leased = aheadOf(vs[2])
	}
	if p.Scheduled && p.Moved == 0 && p.NextDue < 0 {
		p.NextDue = maxAhead // a score that no integer holds: what is overdue would have been moved
	}
	return p, err
}

// YieldKeeper leaves the keeper's place at some channels, where name has it, and asks the others to look.
func YieldKeeper(ctx context.Context, l *link.Link, name string, at ...*Keys) error {
	c := link.NewCall()
	for _, k := range at {
		addYield(c, k, name, 0)
	}
	return l.Run(ctx, c)
}

// LeaveKeeper is YieldKeeper where nothing needs a keeper, and nobody is asked to look. Where something does, nothing
// has changed.
func LeaveKeeper(ctx context.Context, l *link.Link, name string, k *Keys) (needed bool, err error) {
	c := link.NewCall()
	addYield(c, k, name, 1)
	if err := l.Run(ctx, c); err != nil {
		return false, err
	}
	n, err := CountReply(c.Replies[0])
	return n == 2, err
}

func addYield(c *link.Call, k *Keys, name string, unneeded int) {
	c.AddScript(Yield, 4, k.Receivers, k.Keeper, k.Delay, k.Leased, name, unneeded)
}

// aheadOf reads what lua/prelude.lua says of the first of a sorted set.
func aheadOf(v any) (in time.Duration, any bool) {
	n, err := redis.Int64(v, nil)
	return bounded(n, time.Microsecond), err == nil
}
