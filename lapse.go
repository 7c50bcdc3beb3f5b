package shunt

import (
	"context"
	"errors"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// One look at the leases of a channel ends at most so many, and moves at most so much, so that it holds Redis up for
// well under 1 ms at a time.
const (
	lapseLeases   = 32
	lapseElements = 32       // of each lease
	lapseBytes    = 32 << 10 // of each lease; it moves one element at least
)

var errLapsed = errors.New("shunt: the lease ended before the message was settled, and that was its last attempt")

// lapse ends leases of a channel that are over, a bounded part of them.
func (q *Queue) lapse(ctx context.Context, s *link.Server, k *store.Keys, fence store.Fence) error {
	over, err := store.OverLeases(ctx, s.Pulse, k, lapseLeases)
	if err != nil || len(over) == 0 {
		return err
	}
	c := link.NewCall()
	for _, l := range over {
		store.AddLapse(c, k, l, fence, lapseElements, lapseBytes/len(over), &q.conf.Bounds)
	}
	err = s.Data.Run(ctx, c) // one reply after another
	if !c.Answered {
		return err
	}
	var back, dead, trimmed int
	for _, rep := range c.Replies {
		if a, bad := store.LapseReply(rep); bad == nil {
			back, dead, trimmed = back+a.Prepare, dead+a.Dead, trimmed+a.Trimmed
		}
	}
	for _, e := range []event.Event{{Kind: event.Lapsed, N: back}, {Kind: event.Lapsed, N: dead, Err: errLapsed},
		{Kind: event.Trimmed, N: trimmed}} {
		if e.Channel = k.Name; e.N > 0 {
			q.events.Emit(e)
		}
	}
	return err
}

// bringDue promotes what is due in a channel, and ends leases that are over, a bounded part of both. It says what comes
// next.
func (q *Queue) bringDue(
	ctx context.Context, s *link.Server, k *store.Keys, fence func() store.Fence,
) (next store.Timetable, err error) {
	a, err := store.RunPromote(ctx, s.Pulse, k, promoteMost, promoteBytes, 1)
	if a.Moved > 0 {
		q.events.Emit(event.Event{Kind: event.Promoted, Channel: k.Name, N: a.Moved})
	}
	if err == nil && a.Leased && a.NextLapse <= 0 {
		err = q.lapse(ctx, s, k, fence())
	}
	return a.Timetable, err // where leases were over, what is left comes next
}
