package shunt

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// One look at the leases of a channel ends at most so many, and moves at most so much, so that it holds Redis up for
// well under 1 ms at a time.
const (
	lapseLeases   = 32
	lapseElements = 32       // of each lease
	lapseBytes    = 32 << 10 // of each lease; it moves one element at least
)

// refusedLapse is how long a lease waits that could not be ended.
const refusedLapse = 5 * time.Second

var errLapsed = errors.New("shunt: the lease ended before the message was settled, and that was its last attempt")

// lapse ends leases of a channel that are over, a bounded part of them. Where Redis refuses one for good, as with a key
// of a wrong type, an Event says so, and its end is put off: so it holds up neither others nor promotions. Where
// the script has put off an end, the caller keeps the channel's time until minds, although another one may be its
// keeper.
func (q *Queue) lapse(
	ctx context.Context, s *link.Server, k *store.Keys, fence store.Fence,
) (minds time.Time, err error) {
	over, err := store.OverLeases(ctx, s.Pulse, k, lapseLeases)
	if err != nil || len(over) == 0 {
		return minds, q.lapseFailed(k, err)
	}
	c := link.NewCall()
	for _, l := range over {
		store.AddLapse(c, k, l, fence, lapseElements, lapseBytes/len(over), &q.conf.Bounds)
	}
	err = s.Data.Run(ctx, c) // one reply after another
	if !c.Answered {
		return minds, err
	}
	var back, dead, dropped, trimmed int
	var refused []store.Lease
	for i, rep := range c.Replies {
		a, bad := store.LapseReply(rep)
		if bad != nil {
			refused = append(refused, over[i])
			continue
		}
		if a.Early {
			minds = later(minds, time.Now().Add(over[i].Grace()+time.Second)) // a timer may be late
		}
		back, dead, dropped, trimmed = back+a.Prepare, dead+a.Dead, dropped+a.Dropped, trimmed+a.Trimmed
	}
	for _, e := range []event.Event{{Kind: event.Lapsed, N: back}, {Kind: event.Lapsed, N: dead, Err: errLapsed},
		{Kind: event.Trimmed, N: trimmed}} {
		if e.Channel = k.Name; e.N > 0 {
			q.emit(e)
		}
	}
	q.dropped(k, "", dropped)
	if err = q.lapseFailed(k, err); err == nil && len(refused) > 0 {
		err = store.PutOff(ctx, s.Pulse, k, refused, refusedLapse)
	}
	return minds, err
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dropped reports and counts messages that were cancelled, and ended with their lease or with their receiver.
func (q *Queue) dropped(k *store.Keys, receiver string, n int) {
	if n > 0 {
		q.counter.count(k.Name, func(to meter.Adder) { to.Add(meter.Cancelled, n) })
		q.emit(event.Event{Kind: event.Cancelled, Channel: k.Name, Receiver: receiver, N: n})
	}
}

// lapseFailed reports an error that waiting does not mend; any other is the caller's.
func (q *Queue) lapseFailed(k *store.Keys, err error) error {
	if class := link.Classify(err); class != link.Fatal && class != link.Failed {
		return err
	}
	q.emit(event.Event{Kind: event.ReceiverError, Channel: k.Name, Err: err, Fatal: true})
	return nil
}

// bringDue promotes what is due in a channel, and ends leases that are over, a bounded part of both. It says what comes
// next, and until when the caller keeps the time, as lapse does.
func (q *Queue) bringDue(
	ctx context.Context, s *link.Server, k *store.Keys, fence func() store.Fence,
) (next store.Timetable, minds time.Time, err error) {
	a, err := store.RunPromote(ctx, s.Pulse, k, promoteMost, promoteBytes, 1)
	if a.Moved > 0 {
		q.emit(event.Event{Kind: event.Promoted, Channel: k.Name, N: a.Moved})
	}
	if err == nil && a.Leased && a.NextLapse <= 0 {
		minds, err = q.lapse(ctx, s, k, fence())
	}
	return a.Timetable, minds, err // where leases were over, what is left comes next
}
