package dashboard

import (
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

// ranges are those that the charts of a channel have: how far back, and the parts.
var ranges = []struct {
	Key        string
	back, step time.Duration
}{
	{"1h", time.Hour, time.Minute},
	{"3h", 3 * time.Hour, 2 * time.Minute},
	{"2d", 48 * time.Hour, 20 * time.Minute},
	{"30d", 30 * 24 * time.Hour, 24 * time.Hour},
}

type channelPage struct {
	Channel   string
	States    []stateRow
	Fields    map[string]string
	Range     string
	Ranges    []string
	Sum       *shunt.Counts
	Parts     []point
	Receivers []shunt.Receiver
	Findings  []shunt.Finding
	Job       *job
	Error     string
}

type stateRow struct {
	State shunt.State
	shunt.StateStats
}

// point is a part of the time in the charts, with what happened a second.
type point struct {
	shunt.Counts
	In, Out, Failed float64
}

func (q *request) channel() error {
	channel, err := q.channelOf()
	if err != nil {
		return err
	}
	ctx := q.r.Context()
	p := channelPage{Channel: channel, Job: q.bulks.of(channel)}
	r := ranges[0]
	for _, other := range ranges {
		p.Ranges = append(p.Ranges, other.Key)
		if other.Key == q.form.Get("range") {
			r = other
		}
	}
	p.Range = r.Key
	// They go over one connection, together.
	var asks sync.WaitGroup
	var stats shunt.Stats
	var errs [4]error
	asks.Go(func() { stats, errs[0] = q.q.Stats(ctx, channel) })
	asks.Go(func() { errs[1] = q.glance(&p) })
	asks.Go(func() { p.Receivers, errs[2] = q.q.Receivers(ctx, channel) })
	asks.Go(func() { p.Sum, p.Parts, errs[3] = q.counts(channel, r.back, r.step) })
	asks.Wait()
	for _, err := range errs[:3] {
		if err != nil {
			return err
		}
	}
	for _, s := range shunt.States {
		p.States = append(p.States, stateRow{s, stats[s]})
	}
	if errs[3] != nil {
		p.Error = errs[3].Error()
	}
	return q.show("channel", channel, p)
}

// glance fills in what an Overview tells.
func (q *request) glance(p *channelPage) error {
	began := time.Now()
	all, err := q.q.Overview(q.r.Context(), p.Channel)
	if err != nil {
		return err
	}
	q.hub.learn(all, began, false)
	p.Fields, p.Error = q.fields(&all[0]), all[0].Error
	p.Findings, err = q.q.HealthOf(q.r.Context(), all)
	return err
}

// counts are the charts, and their sum.
func (q *request) counts(channel string, back, step time.Duration) (sum *shunt.Counts, parts []point, err error) {
	now, sum := time.Now(), new(shunt.Counts)
	// Parts end where records do: a last one that has but begun would look like a fall.
	o := shunt.CountsOptions{Channels: []string{channel}, From: now.Add(-back).Truncate(step), To: now, Step: step}
	all, err := q.q.Counts(q.r.Context(), o)
	if err != nil {
		return sum, nil, err
	}
	for _, c := range all[0] {
		d := c.To.Sub(c.From)
		if c.To.After(now) {
			d = now.Sub(c.From)
		}
		a := max(1, d.Seconds())
		parts = append(parts, point{c, float64(c.Enqueued) / a, float64(c.Acked) / a,
			float64(c.Retried+c.Dead) / a})
	}
	o.Step = 0
	if all, err = q.q.Counts(q.r.Context(), o); err != nil {
		return sum, parts, err
	}
	return &all[0][0], parts, nil
}

// Quantiles are those of a table of times.
func (v view) Quantiles() []float64 { return []float64{0.5, 0.95, 0.99} }

// ChannelTiles are the fields on top of a channel's page.
func (v view) ChannelTiles() []string {
	return []string{"waiting", "oldest", "in", "out", "failed", "p95", "wait95", "drain", "workers"}
}

// BulkVerbs are what may be done to all messages of a state.
func (v view) BulkVerbs(s shunt.State) (verbs []string) {
	for _, verb := range []string{"retry-all", "promote-all", "delete-all", "cancel-all", "purge"} {
		if slices.Contains(bulkStates[verb], s) {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}
