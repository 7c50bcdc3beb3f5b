package store

import (
	"cmp"
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

// PromoteAnswer is what one or more promote scripts came to.
type PromoteAnswer struct {
	Moved     int
	Scheduled bool          // something is left in delay
	NextDue   time.Duration // the first of it; negative if overdue
}

// RunPromote moves due messages from delay to prepare: up to so many, or some more than so many bytes. It does so as
// often as times says, in one pipeline. With an error the answer has what was moved before it. It may be sent again.
func RunPromote(ctx context.Context, l *link.Link, k *Keys, elements, bytes, times int) (p PromoteAnswer, err error) {
	c := link.NewCall()
	for range times {
		c.AddScript(Promote, 3, k.Receivers, k.Delay, k.Prepare, elements, bytes)
	}
	if err = l.Run(ctx, c); !c.Answered {
		return p, err
	}
	for _, rep := range c.Replies {
		ns, bad := redis.Int64s(rep.Value, rep.Err)
		if bad != nil || len(ns) == 0 {
			err = cmp.Or(err, bad)
			continue
		}
		p.Moved += int(ns[0])
		if p.Scheduled = len(ns) > 1; p.Scheduled {
			p.NextDue = boundedMS(ns[1])
		}
	}
	if p.Scheduled && p.Moved == 0 && p.NextDue < 0 {
		p.NextDue = maxAhead // a score that no integer holds: what is overdue would have been moved
	}
	return p, err
}

// YieldKeeper leaves the keeper's place, if the incarnation has it, and asks the others to look.
func YieldKeeper(ctx context.Context, l *link.Link, k *Keys, name string) error {
	c := link.NewCall()
	c.AddScript(Yield, 3, k.Receivers, k.Keeper, k.Delay, name)
	return l.Run(ctx, c)
}
