package shunt

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// Counts are what has happened to the messages of a channel from one time to another, by the server's clock. Each
// process counts what it does, and adds it to Redis once in 10 s and when its Queue is closed: one that is killed loses
// what it has not added. So does one whose Close gets no answer from Redis, and an Event says so. What programs without
// a Queue do is not counted, as an LPUSH of a bare payload.
type Counts struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	Enqueued      int64 `json:"enqueued"`
	EnqueuedBytes int64 `json:"enqueued_bytes"` // of their elements
	Acked         int64 `json:"acked"`
	Retried       int64 `json:"retried"`
	Snoozed       int64 `json:"snoozed"`
	Dead          int64 `json:"dead"` // went to dead, for whatever reason
	Cancelled     int64 `json:"cancelled"`
	Expired       int64 `json:"expired"`
	Recovered     int64 `json:"recovered"` // from dead receivers, and after leases that ended
	Released      int64 `json:"released"`
	Trimmed       int64 `json:"trimmed"` // dropped from dead
	TimedOut      int64 `json:"timed_out"`
	Late          int64 `json:"late"` // verdicts that came too late, or of which nobody knows

	// What lay in the channel when something was counted last, in this part or one before it: ready or suspect,
	// delayed, and dead.
	Waiting     int64 `json:"waiting"`
	Delayed     int64 `json:"delayed"`
	DeadLetters int64 `json:"dead_letters"`

	// Wait is the time from when a message was enqueued, or due, until its first handling began, or until each pull of
	// it that had no attempt behind it.
	Wait Histogram `json:"wait"`
	// Handling is how long a handler took for one attempt. What was pulled is not in it.
	Handling Histogram `json:"handling"`
	// EndToEnd is the time from when a message was enqueued, or due, until it was acked.
	EndToEnd Histogram `json:"end_to_end"`

	// Missing says that records of this part were dropped, because the channel had too many.
	Missing bool `json:"missing,omitempty"`

	last time.Time // of the records that were added
}

// Histogram is a distribution of durations. Its buckets end at 64 µs, and each next one at twice as much; the last has
// all from 19 hours on. Times that begin with an enqueue are known to the millisecond.
type Histogram struct{ buckets [meter.Buckets]int64 }

// Count is how many durations there are.
func (h *Histogram) Count() (n int64) {
	for _, c := range h.buckets {
		n += c
	}
	return n
}

// Quantile is a duration that a part p of them, from 0 to 1, do not exceed: 0.99 of the last percentile. It lies in the
// right bucket, so from 64 µs to 19 hours it is between a half and twice the true one; it is 0 where there are none.
func (h *Histogram) Quantile(p float64) time.Duration {
	rank := p * float64(h.Count())
	for i, n := range h.buckets {
		if n == 0 {
			continue
		}
		if rank -= float64(n); rank > 0 {
			continue
		}
		low := time.Duration(0)
		if i > 0 {
			low = meter.Bound(i - 1)
		}
		return low + time.Duration(float64(meter.Bound(i)-low)*(1+rank/float64(n)))
	}
	return 0
}

// Each gives the buckets that have any: the least duration beyond each, and how many it has.
func (h *Histogram) Each(give func(below time.Duration, n int64)) {
	for i, n := range h.buckets {
		if n > 0 {
			give(meter.Bound(i), n)
		}
	}
}

// MarshalJSON writes the count and some quantiles.
func (h Histogram) MarshalJSON() ([]byte, error) {
	return stdjson.Marshal(struct {
		Count int64         `json:"count"`
		P50   time.Duration `json:"p50_ns"`
		P95   time.Duration `json:"p95_ns"`
		P99   time.Duration `json:"p99_ns"`
	}{h.Count(), h.Quantile(0.5), h.Quantile(0.95), h.Quantile(0.99)})
}

func (h *Histogram) add(sums *meter.Sums, from int) {
	for i := range h.buckets {
		h.buckets[i] += int64(sums[from+i])
	}
}

// add adds a record.
func (c *Counts) add(at time.Time, s *meter.Sums) {
	if !at.Before(c.last) {
		c.last, c.Waiting, c.Delayed, c.DeadLetters = at, int64(s[meter.Waiting]), int64(s[meter.Delayed]),
			int64(s[meter.Dead])
	}
	c.Enqueued += int64(s[meter.Enqueued])
	c.EnqueuedBytes += int64(s[meter.EnqueuedBytes])
	c.Acked += int64(s[meter.Acked])
	c.Retried += int64(s[meter.Retried])
	c.Snoozed += int64(s[meter.Snoozed])
	c.Dead += int64(s[meter.Died])
	c.Cancelled += int64(s[meter.Cancelled])
	c.Expired += int64(s[meter.Expired])
	c.Recovered += int64(s[meter.Recovered])
	c.Released += int64(s[meter.Released])
	c.Trimmed += int64(s[meter.Trimmed])
	c.TimedOut += int64(s[meter.TimedOut])
	c.Late += int64(s[meter.Late])
	c.Wait.add(s, meter.Wait)
	c.Handling.add(s, meter.Handling)
	c.EndToEnd.add(s, meter.EndToEnd)
}

// CountsOptions says which Counts are asked for. Its zero times are the last hour.
type CountsOptions struct {
	Channels []string // 1 to 1,000
	From     time.Time
	To       time.Time
	// Step divides the time into parts: whole minutes, at most 1,000 of them, and 50,000 of all channels. Zero is the
	// whole time as one.
	Step time.Duration
}

// Counts gives what has happened in some channels: of each, in their order, the parts from From to To. What it gives
// begins and ends with whole minutes within the last 3 hours, with whole ten minutes within the last 2 days, and else
// with days of UTC, up to 360. Of a channel where very much differs less is kept, for counts take at most 64 KB:
// then what it gives is coarser or, where Step forbids that, Missing. A channel that is idle for 35 days keeps none.
// All are asked for in one pipeline, and in another one for each coarser form. Channels that cannot be read have no
// parts, and the error names them; the others have theirs.
func (q *Queue) Counts(ctx context.Context, o CountsOptions) ([][]Counts, error) {
	now := time.Now()
	form := o.bounds(now)
	if err := o.check(&store.Forms[form]); err != nil {
		return nil, fmt.Errorf("shunt: %w", err)
	}
	all := make([][]Counts, len(o.Channels))
	left := make([]int, len(all))
	for i := range left {
		left[i] = i
	}
	var failed error
	for {
		dropped, err := q.countsOf(ctx, &o, &store.Forms[form], left, all)
		failed = errors.Join(failed, err)
		if form++; len(dropped) == 0 || form == len(store.Forms) || o.Step%store.Forms[form].Width != 0 {
			return all, failed
		}
		left = dropped
	}
}

// countsOf fills in the counts of some of the channels in one form, and gives those of which records were dropped.
func (q *Queue) countsOf(ctx context.Context, o *CountsOptions, form *store.Form, some []int, all [][]Counts) (
	dropped []int, err error,
) {
	from, to := o.From.Truncate(form.Width), o.To.Add(form.Width-1).Truncate(form.Width)
	step := cmp.Or(o.Step, to.Sub(from))
	replies, _, err := asker{q: q, each: true}.Ask(ctx, "", func(c *link.Call) {
		for _, i := range some {
			store.AddTallies(c, store.KeysOf(o.Channels[i]), form, from, to)
		}
	})
	if err != nil {
		return nil, err
	}
	var failed []error
	for n, i := range some {
		parts := make([]Counts, 0, (to.Sub(from)+step-1)/step)
		for at := from; at.Before(to); at = at.Add(step) {
			end := at.Add(step)
			if end.After(to) {
				end = to
			}
			parts = append(parts, Counts{From: at, To: end})
		}
		kept, err := store.EachTally(replies[n], form, from, to, func(at time.Time, s *meter.Sums) {
			parts[max(0, at.Sub(from))/step].add(at, s)
		})
		if err != nil {
			all[i], failed = nil, append(failed, q.explain(err, "look at the counts of", o.Channels[i]))
			continue
		}
		if kept.After(from) {
			dropped = append(dropped, i)
		}
		for j := range parts {
			c := &parts[j]
			c.Missing = c.From.Before(kept)
			if before := parts[max(0, j-1)]; c.last.IsZero() {
				c.last, c.Waiting, c.Delayed, c.DeadLetters = before.last, before.Waiting, before.Delayed,
					before.DeadLetters
			}
		}
		all[i] = parts
	}
	return dropped, errors.Join(failed...)
}

// bounds sets the times that are not given, and cuts them to what can be kept. It gives the finest form that has all
// that is asked for, and no finer than it is asked for.
func (o *CountsOptions) bounds(now time.Time) (form int) {
	last := len(store.Forms) - 1
	if o.To.IsZero() {
		o.To = now.Add(time.Minute) // the clocks may differ
	} else if far := now.Add(store.Forms[last].Width); o.To.After(far) {
		o.To = far
	}
	if o.From.IsZero() {
		o.From = o.To.Add(-time.Hour)
	} else if first := now.Add(-store.Forms[last].Kept); o.From.Before(first) && first.Before(o.To) {
		o.From = first
	}
	for form < last {
		coarser := o.Step > 0 && o.Step%store.Forms[form+1].Width == 0
		// A caller's From is some time old, and may be the whole minute before: Redis keeps a little more.
		if f := &store.Forms[form]; !coarser && now.Sub(o.From) <= f.Kept+3*f.Width {
			break
		}
		form++
	}
	return form
}

func (o *CountsOptions) check(f *store.Form) error {
	switch {
	case len(o.Channels) == 0 || len(o.Channels) > 1000:
		return fmt.Errorf("CountsOptions.Channels has %d: want 1 to 1000", len(o.Channels))
	case !o.From.Before(o.To):
		return fmt.Errorf("CountsOptions.From is %v and To %v: want From before To", o.From, o.To)
	case o.Step < 0 || o.Step%f.Width != 0:
		return fmt.Errorf("CountsOptions.Step is %v: want a multiple of %v that far back, or 0 for one part", o.Step,
			f.Width)
	case o.Step > 0 && o.To.Sub(o.From)/time.Duration(min(1000, 50_000/len(o.Channels))) > o.Step:
		return errors.New("CountsOptions.Step is too short, for more than 1000 parts or 50,000 of all channels: ask " +
			"for a longer one, or for fewer channels")
	}
	for _, name := range o.Channels {
		if err := store.CheckChannel(name); err != nil {
			return fmt.Errorf("CountsOptions.Channels: %w", err)
		}
	}
	return nil
}
