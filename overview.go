package shunt

import (
	"context"
	"fmt"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// Overview is a channel at a glance: how many messages lie there, who takes them, and what has happened lately. Its
// numbers are not of one moment. Messages in workers' hands are not in it: Stats has them.
type Overview struct {
	Channel string `json:"channel"`
	Prepare int    `json:"prepare"` // with those that were cancelled and lie there still
	Suspect int    `json:"suspect"`
	Delay   int    `json:"delay"`
	Dead    int    `json:"dead"`
	Done    int    `json:"done"`
	Leases  int    `json:"leases"` // each holds one message or more

	OldestAge   time.Duration `json:"oldest_age_ns,omitzero"`    // since the enqueue of the message to be taken next
	NextDueIn   time.Duration `json:"next_due_in_ns,omitzero"`   // until the first is due; negative: overdue
	LeaseEndsIn time.Duration `json:"lease_ends_in_ns,omitzero"` // until the first lease ends

	Receivers     int `json:"receivers"` // that are alive
	Workers       int `json:"workers"`   // of these
	DeadReceivers int `json:"dead_receivers"`

	Lately Counts `json:"lately"` // the last 10 minutes, and the one that has begun
	// Error is why the channel could not be read, as where a key holds something that is not shunt's; all else is zero.
	Error string `json:"error,omitempty"`
}

// lately is how far back Overview.Lately goes.
const lately = 10 * time.Minute

// DrainTime is how long it takes until nothing waits if messages arrive and leave as lately; negative: it grows, or
// nothing leaves. It is 0 where nothing waits. What was not counted, as an LPUSH of a bare payload, is not in it.
func (o *Overview) DrainTime() time.Duration {
	if o.Prepare+o.Suspect == 0 {
		return 0
	}
	c := &o.Lately
	rate := float64(c.left()-c.Enqueued-c.Recovered) / c.To.Sub(c.From).Seconds()
	if rate <= 0 {
		return -1
	}
	return time.Duration(float64(o.Prepare+o.Suspect) / rate * float64(time.Second))
}

// left is how many messages have left prepare for good, or for a while.
func (c *Counts) left() int64 {
	return c.Acked + c.Retried + c.Snoozed + c.Dead + c.Cancelled + c.Expired
}

// Overview gives some channels at a glance, in their order; without any it gives all of Channels, by name. It takes one
// pipeline of a dozen commands a channel, each of constant time: a thousand channels take some 20 ms.
func (q *Queue) Overview(ctx context.Context, channels ...string) ([]Overview, error) {
	if len(channels) == 0 {
		all, err := q.Channels(ctx)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		channels = all
	}
	for _, name := range channels {
		if err := store.CheckChannel(name); err != nil {
			return nil, err
		}
	}
	form := &store.Forms[0]
	to := time.Now().Add(form.Width).Truncate(form.Width)
	from := to.Add(-lately - form.Width)
	replies, _, err := asker{q: q, each: true}.Ask(ctx, "", func(c *link.Call) {
		c.Add("TIME")
		for _, name := range channels {
			k := store.KeysOf(name)
			store.AddOverview(c, k)
			store.AddTallies(c, k, form, from, to)
		}
	})
	if err != nil {
		return nil, err
	}
	now := store.ServerTime(replies[0].Any())
	replies = replies[1:]
	all := make([]Overview, len(channels))
	for i, name := range channels {
		o := Overview{Channel: name, Lately: Counts{From: from, To: to}}
		s, left, bad := store.OverviewReply(replies)
		tallies := left[0]
		replies = left[1:]
		if bad == nil {
			bad = store.EachTally(tallies, form, from, to, func(at time.Time, s *meter.Sums) { o.Lately.add(at, s) })
		}
		if bad != nil {
			all[i] = Overview{Channel: name, Error: fmt.Sprint(q.explain(bad, "look at", name))}
			continue
		}
		o.Prepare, o.Suspect, o.Delay, o.Leases = s.Prepare, s.Suspect, s.Delay, s.Leases
		o.Dead, o.Done = s.Dead, s.Done
		o.Receivers, o.Workers, o.DeadReceivers = s.Receivers, s.Workers, s.DeadReceivers
		o.OldestAge, o.NextDueIn, o.LeaseEndsIn = oldest(
			now,
			s.Next,
		), -s.FirstDelay.Since(
			now,
		), -s.FirstLease.Since(
			now,
		)
		all[i] = o
	}
	return all, nil
}
