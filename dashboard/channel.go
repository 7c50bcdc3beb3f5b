package dashboard

import (
	"slices"
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
	p := channelPage{Channel: channel, Job: q.bulks.of(channel), Sum: new(shunt.Counts)}
	r := ranges[0]
	for _, other := range ranges {
		p.Ranges = append(p.Ranges, other.Key)
		if other.Key == q.form.Get("range") {
			r = other
		}
	}
	p.Range = r.Key
	stats, err := q.q.Stats(ctx, channel)
	if err != nil {
		return err
	}
	for _, s := range shunt.States {
		p.States = append(p.States, stateRow{s, stats[s]})
	}
	began := time.Now()
	all, err := q.q.Overview(ctx, channel)
	if err != nil {
		return err
	}
	q.hub.learn(all, began, false)
	p.Fields, p.Error = q.fields(&all[0]), all[0].Error
	if p.Receivers, err = q.q.Receivers(ctx, channel); err != nil {
		return err
	}
	if p.Findings, err = q.q.HealthOf(ctx, all); err != nil {
		return err
	}
	if err := q.counts(&p, r.back, r.step); err != nil {
		p.Error = err.Error()
	}
	return q.show("channel", channel, p)
}

// counts fills in the charts, and their sum.
func (q *request) counts(p *channelPage, back, step time.Duration) error {
	now := time.Now()
	// Parts end where records do: a last one that has but begun would look like a fall.
	o := shunt.CountsOptions{Channels: []string{p.Channel}, From: now.Add(-back).Truncate(step), To: now, Step: step}
	all, err := q.q.Counts(q.r.Context(), o)
	if err != nil {
		return err
	}
	for _, c := range all[0] {
		d := c.To.Sub(c.From)
		if c.To.After(now) {
			d = now.Sub(c.From)
		}
		a := max(1, d.Seconds())
		p.Parts = append(p.Parts, point{c, float64(c.Enqueued) / a, float64(c.Acked) / a,
			float64(c.Retried+c.Dead) / a})
	}
	o.Step = 0
	if all, err = q.q.Counts(q.r.Context(), o); err != nil {
		return err
	}
	p.Sum = &all[0][0]
	return nil
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
