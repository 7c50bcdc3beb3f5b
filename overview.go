package shunt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// Overview is a channel at a glance: how many messages lie there, who takes them, and what has happened lately.
// Messages in workers' hands are not in it: Stats has them.
type Overview struct {
	Channel string `json:"channel"`
	Prepare int    `json:"prepare"` // with those that were cancelled and lie there still
	Suspect int    `json:"suspect"`
	Delay   int    `json:"delay"`
	Dead    int    `json:"dead"`
	Done    int    `json:"done"`
	Leases  int    `json:"leases"` // each holds messages, but for those that were given up within the last minute

	// OldestAge is since the enqueue of the message to be taken next, or since it was to come; 0 where none waits, or
	// nobody knows, as of a bare payload.
	OldestAge   time.Duration `json:"oldest_age_ns,omitzero"`
	NextDueIn   time.Duration `json:"next_due_in_ns,omitzero"`   // until the first is due; negative: overdue
	LeaseEndsIn time.Duration `json:"lease_ends_in_ns,omitzero"` // until the first lease ends

	Receivers     int `json:"receivers"` // that are alive, up to 1,000
	Workers       int `json:"workers"`   // of these
	DeadReceivers int `json:"dead_receivers"`

	// Lately is what was counted in the last 10 minutes and in the one that has begun. CountsError is why nobody knows.
	Lately      Counts `json:"lately"`
	CountsError string `json:"counts_error,omitempty"`
	// Trend is by how many more messages wait than at the beginning of the records of Lately, in TrendOver; both are 0
	// where there is no record before the last minute.
	Trend     int           `json:"trend"`
	TrendOver time.Duration `json:"trend_over_ns"`

	// Error is why the channel could not be read, as where a key holds something that is not shunt's; all else is zero.
	Error string `json:"error,omitempty"`

	since       time.Time // of the first record of Lately; zero: nothing was counted
	leftJustNow int64     // in the last minutes
	waited      bool      // messages waited a while ago already, by those records
}

const (
	// lately is how far back Overview.Lately goes.
	lately = 10 * time.Minute
	// justNow is within how long something must have left, or nobody takes.
	justNow = 4 * time.Minute
	// clocksDiffer is how far this clock may be from the server's where records are asked for.
	clocksDiffer = 20 * time.Minute
	// overviewsAtOnce is how many channels one pipeline looks at.
	overviewsAtOnce = 1000
)

// DrainTime is how long it takes until nothing waits, if that goes on as in TrendOver; negative: it grows, or nothing
// leaves. It is 0 where nothing waits, or there is no trend yet.
func (o *Overview) DrainTime() time.Duration {
	waiting := float64(o.Prepare + o.Suspect)
	switch {
	case waiting == 0 || o.TrendOver == 0:
		return 0
	case o.Trend >= 0:
		return -1
	}
	const most = float64(100 * 365 * 24 * time.Hour)
	return time.Duration(min(most, waiting/float64(-o.Trend)*float64(o.TrendOver)))
}

// left is how many messages have left prepare for good, or for a while.
func (c *Counts) left() int64 {
	return c.Acked + c.Retried + c.Snoozed + c.Dead + c.Cancelled + c.Expired
}

// Overview gives some channels at a glance, in their order; without any it gives all of Channels, by name. It takes one
// pipeline for each 1,000 channels, of a script and a command a channel. An error is about all: where one channel
// cannot be read, or its name is wrong, its Overview says so.
func (q *Queue) Overview(ctx context.Context, channels ...string) ([]Overview, error) {
	if len(channels) == 0 {
		var err error
		if channels, err = q.Channels(ctx); err != nil {
			return nil, err
		}
	}
	all := make([]Overview, 0, len(channels))
	for some := range slices.Chunk(channels, overviewsAtOnce) {
		more, err := q.overviews(ctx, some)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func (q *Queue) overviews(ctx context.Context, channels []string) ([]Overview, error) {
	form := &store.Forms[0]
	now := time.Now()
	from, to := now.Add(-lately-clocksDiffer), now.Add(clocksDiffer)
	replies, _, err := asker{q: q, each: true}.Ask(ctx, "", func(c *link.Call) {
		for _, name := range channels {
			if store.CheckChannel(name) == nil {
				k := store.KeysOf(name)
				store.AddOverview(c, k)
				store.AddTallies(c, k, form, from, to)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	all := make([]Overview, len(channels))
	for i, name := range channels {
		if err := store.CheckChannel(name); err != nil {
			all[i] = Overview{Channel: name, Error: err.Error()}
			continue
		}
		two := replies[:2]
		replies = replies[2:]
		s, err := store.OverviewReply(two[0])
		if err != nil {
			all[i] = Overview{Channel: name, Error: fmt.Sprint(q.explain(err, "look at", name))}
			continue
		}
		o := Overview{Channel: name, Prepare: s.Prepare, Suspect: s.Suspect, Delay: s.Delay, Leases: s.Leases,
			Dead: s.Dead, Done: s.Done, Receivers: s.Receivers, Workers: s.Workers, DeadReceivers: s.DeadReceivers,
			NextDueIn: s.DueIn, LeaseEndsIn: s.LapseIn}
		if !s.Next.IsZero() {
			o.OldestAge = max(time.Millisecond, s.Now.Sub(s.Next))
		}
		o.Lately.To = s.Now.Truncate(form.Width).Add(form.Width)
		o.Lately.From = o.Lately.To.Add(-lately - form.Width)
		if err := o.recall(two[1], form, from, to, s.Now); err != nil {
			o.Lately, o.CountsError = Counts{From: o.Lately.From, To: o.Lately.To}, err.Error()
		}
		all[i] = o
	}
	return all, nil
}

// recall takes in what was counted lately.
func (o *Overview) recall(rep link.Reply, form *store.Form, from, to, now time.Time) error {
	first := 0
	_, err := store.EachTally(rep, form, from, to, func(at time.Time, s *meter.Sums) {
		if at.Before(o.Lately.From) || !at.Before(o.Lately.To) {
			return
		}
		if o.since.IsZero() || at.Before(o.since) {
			o.since, first = at, int(s[meter.Waiting])
		}
		o.Lately.add(at, s)
		if at.Before(now.Add(-waitsLong - form.Width)) { // that record is over since a while
			o.waited = o.waited || s[meter.Waiting] > 0
		}
		if !at.Before(o.Lately.To.Add(-justNow)) {
			var c Counts
			c.add(at, s)
			o.leftJustNow += c.left()
		}
	})
	if err == nil && !o.since.IsZero() && now.Sub(o.since) >= 2*form.Width {
		o.Trend, o.TrendOver = o.Prepare+o.Suspect-first, now.Sub(o.since)
	}
	return err
}
