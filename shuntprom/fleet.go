package shuntprom

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
)

// mostBehind is how far back the counters of the fleet add what was not asked for. Redis keeps minutes for 3 h.
const mostBehind = time.Hour

// atOnce are the channels of one call of Counts, which gives up to 50,000 parts.
const atOnce = 800

// bounds are the upper bounds of all histograms, in seconds: 64 µs and each next one four times as much, up to 4.8 h.
// shunt.Histogram has all of them, and one between each two.
var bounds = prometheus.ExponentialBuckets(64e-6, 4, 15)

// counted are the counters of the fleet.
var counted = []struct {
	desc  *prometheus.Desc
	value string // of the label beside the channel
	of    func(*shunt.Counts) int64
}{
	{fleetEnqueued, "", func(c *shunt.Counts) int64 { return c.Enqueued }},
	{fleetBytes, "", func(c *shunt.Counts) int64 { return c.EnqueuedBytes }},
	{fleetOutcomes, acked, func(c *shunt.Counts) int64 { return c.Acked }},
	{fleetOutcomes, retried, func(c *shunt.Counts) int64 { return c.Retried }},
	{fleetOutcomes, snoozed, func(c *shunt.Counts) int64 { return c.Snoozed }},
	{fleetOutcomes, dead, func(c *shunt.Counts) int64 { return c.Dead }},
	{fleetOutcomes, cancelled, func(c *shunt.Counts) int64 { return c.Cancelled }},
	{fleetOutcomes, expired, func(c *shunt.Counts) int64 { return c.Expired }},
	{fleetMoves, "recovered", func(c *shunt.Counts) int64 { return c.Recovered }},
	{fleetMoves, "released", func(c *shunt.Counts) int64 { return c.Released }},
	{fleetMoves, "trimmed", func(c *shunt.Counts) int64 { return c.Trimmed }},
	{fleetIncidents, "timed-out", func(c *shunt.Counts) int64 { return c.TimedOut }},
	{fleetIncidents, "late", func(c *shunt.Counts) int64 { return c.Late }},
}

const (
	ofFleet   = " By all processes, up to the last whole minute."
	estimated = " The sum is estimated from the buckets, to a third."
)

var (
	fleetEnqueued = describe("fleet_enqueued_total", "Messages enqueued."+ofFleet, "channel")
	fleetBytes    = describe("fleet_enqueued_bytes_total", "Bytes of the elements enqueued."+ofFleet, "channel")
	fleetOutcomes = describe("fleet_outcomes_total", "What became of messages after each handling, or in place of one."+
		ofFleet, "channel", "outcome")
	fleetMoves = describe("fleet_moves_total", "Messages that were moved or dropped without a verdict. Recovered has "+
		"those of dead receivers and of leases that ended."+ofFleet, "channel", "kind")
	fleetIncidents = describe("fleet_incidents_total", "What went wrong; late: verdicts that came too late, or of "+
		"which nobody knows."+ofFleet, "channel", "kind")
	fleetWait = describe("fleet_wait_seconds", "Time from when messages were enqueued, or due, until their first "+
		"handling."+ofFleet+estimated, "channel")
	fleetHandling = describe("fleet_handling_seconds", handlingHelp+ofFleet+estimated, "channel")
	fleetEndToEnd = describe("fleet_end_to_end_seconds", "Time from when messages were enqueued, or due, until they "+
		"were acked."+ofFleet+estimated, "channel")

	fleetDescs = []*prometheus.Desc{fleetEnqueued, fleetBytes, fleetOutcomes, fleetMoves, fleetIncidents, fleetWait,
		fleetHandling, fleetEndToEnd}
)

// fleet makes counters of what all processes have counted. The scrape under way owns it.
type fleet struct {
	until time.Time // the minutes before it are in; zero: it has not begun
	of    map[string]*tally
}

// tally has the counters of one channel.
type tally struct {
	since                    time.Time // it was zero
	sums                     []int64   // as counted has them
	wait, handling, endToEnd distribution
}

func newFleet() *fleet { return &fleet{of: make(map[string]*tally)} }

// minuteOf is when the minute of Redis' clock began in which all were looked at: the minutes before it are over. It is
// zero where no channel could be read.
func minuteOf(all []shunt.Overview) (at time.Time) {
	for i := range all {
		if began := all[i].Lately.To.Add(-time.Minute); all[i].Error == "" && (at.IsZero() || began.Before(at)) {
			at = began
		}
	}
	return at
}

// advance adds the minutes before the given one that are not in yet. Processes add what they have counted to the minute
// that Redis' clock shows then: so a minute that is over changes no more.
func (f *fleet) advance(ctx context.Context, q *shunt.Queue, all []shunt.Overview, minute time.Time) error {
	if minute.IsZero() {
		return nil
	}
	if ahead := f.until.Sub(minute); f.until.IsZero() || ahead > mostBehind { // somebody has set that clock back
		f.until = minute
	}
	from := f.until
	if oldest := minute.Add(-mostBehind); from.Before(oldest) {
		from = oldest
	}
	before := f.of
	f.of = make(map[string]*tally, len(all))
	var names []string // whose counts can be read: Counts refuses all for one
	for i := range all {
		o := &all[i]
		if f.of[o.Channel] = before[o.Channel]; f.of[o.Channel] == nil {
			f.of[o.Channel] = &tally{since: time.Now(), sums: make([]int64, len(counted))}
		}
		if o.Error == "" && o.CountsError == "" {
			names = append(names, o.Channel)
		}
	}
	if !from.Before(minute) {
		return nil
	}
	// All of them come before any is added: so what fails is asked for again as a whole.
	var parts [][]shunt.Counts
	for some := range slices.Chunk(names, atOnce) {
		more, err := q.Counts(ctx, shunt.CountsOptions{Channels: some, From: from, To: minute, Step: time.Minute})
		if err != nil {
			return err
		}
		parts = append(parts, more...)
	}
	for i, name := range names {
		for j := range parts[i] {
			f.of[name].add(&parts[i][j])
		}
	}
	f.until = minute
	return nil
}

func (t *tally) add(c *shunt.Counts) {
	for i := range counted {
		t.sums[i] += counted[i].of(c)
	}
	t.wait.add(&c.Wait)
	t.handling.add(&c.Handling)
	t.endToEnd.add(&c.EndToEnd)
}

func (f *fleet) describe(to chan<- *prometheus.Desc) {
	for _, d := range fleetDescs {
		to <- d
	}
}

func (f *fleet) collect(ms *metrics) {
	for name, t := range f.of {
		for i, c := range counted {
			labels := []string{name}
			if c.value != "" {
				labels = append(labels, c.value)
			}
			*ms = append(*ms, prometheus.MustNewConstMetricWithCreatedTimestamp(c.desc, prometheus.CounterValue,
				float64(t.sums[i]), t.since, labels...))
		}
		t.wait.collect(ms, fleetWait, name, t.since)
		t.handling.collect(ms, fleetHandling, name, t.since)
		t.endToEnd.collect(ms, fleetEndToEnd, name, t.since)
	}
}

// distribution is a histogram as Prometheus has it.
type distribution struct {
	upTo  [15]uint64 // how many are at most as much as each of bounds
	count uint64
	sum   float64 // s
}

// add adds a histogram. Where its durations lie within their buckets nobody knows: the middle stands for them.
func (d *distribution) add(h *shunt.Histogram) {
	h.Each(func(below time.Duration, n int64) {
		end := below.Seconds()
		for i, bound := range bounds {
			if end <= bound*(1+1e-9) {
				d.upTo[i] += uint64(n)
			}
		}
		d.count += uint64(n)
		middle := 0.75 * end
		if end <= bounds[0]*(1+1e-9) {
			middle = 0.5 * end // the first begins at 0
		}
		d.sum += middle * float64(n)
	})
}

func (d *distribution) collect(ms *metrics, desc *prometheus.Desc, name string, since time.Time) {
	buckets := make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		buckets[bound] = d.upTo[i]
	}
	*ms = append(*ms, prometheus.MustNewConstHistogramWithCreatedTimestamp(desc, d.count, d.sum, buckets, since, name))
}
