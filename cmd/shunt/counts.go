package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func countCommands(a *app) []*cobra.Command {
	var since, until string
	var step span
	cmd := &cobra.Command{
		Use: "counts [CHANNEL…]", Short: "Show what has happened in a time: rates, shares and percentiles",
		Long: `Show what has happened in a time: rates, shares of failures, and percentiles.

Wait is from the enqueue, or the due time, until the first handling; handling is one attempt; end to end is until
the ack. Percentiles are of buckets that double, so they are right within a factor of two. Processes tell what
they did once in 10 s. What is asked for begins and ends with whole minutes of the last 3 hours, with ten minutes
of 2 days, and else with days of UTC.`,
		ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.counts(cmd.Context(), args, since, until, time.Duration(step))
		},
	}
	cmd.Flags().StringVar(&since, "since", "1h", "from that `time`")
	cmd.Flags().StringVar(&until, "until", "", "to that `time` (default now)")
	cmd.Flags().Var(&step, "step", "a row for each part of that length: whole minutes, up to 1000 parts")
	return []*cobra.Command{cmd}
}

// countsOf are a channel's.
type countsOf struct {
	Channel string         `json:"channel"`
	Parts   []shunt.Counts `json:"parts"`
}

func (a *app) counts(ctx context.Context, names []string, since, until string, step time.Duration) error {
	o := shunt.CountsOptions{Channels: names, Step: step, To: time.Now()}
	var err error
	if o.From, err = parseTime(since); err != nil {
		return err
	}
	if until != "" {
		if o.To, err = parseTime(until); err != nil {
			return err
		}
	}
	if !o.From.Before(o.To) {
		return usage("--since %s is not before --until", since)
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if o.Channels, err = q.Channels(ctx); err != nil {
			return err
		}
	}
	all := []countsOf{}
	each := 1000
	if step > 0 {
		each = max(1, min(each, int(50_000/(o.To.Sub(o.From)/step+2)))) // so many parts Counts gives at once
	}
	for from := 0; from < len(o.Channels); from += each {
		some := o
		some.Channels = o.Channels[from:min(from+each, len(o.Channels))]
		parts, err := q.Counts(ctx, some)
		if err != nil {
			return err
		}
		for i, name := range some.Channels {
			if len(names) > 0 && idleIn(parts[i]) {
				if err := a.known(ctx, name); err != nil {
					return err
				}
			}
			all = append(all, countsOf{name, parts[i]})
		}
	}
	if a.json {
		return a.document(all)
	}
	if len(all) == 0 {
		a.say("there is no channel yet")
		return nil
	}
	t := table{head: []string{"CHANNEL", "FROM", ">ENQUEUED", ">/s", ">ACKED", ">/s", ">RETRIED", ">DEAD", ">FAILED",
		">WAITING", ">WAIT p50", ">p99", ">HANDLING p50", ">p99", ">END TO END p50", ">p99", "NOTE"}}
	missing := false
	for _, c := range all {
		for i := range c.Parts {
			p := &c.Parts[i]
			over := p.To.Sub(p.From)
			from, note := "", ""
			if step > 0 {
				from = clock(p.From)
			}
			if p.Missing {
				note, missing = a.yellow("some missing"), true
			}
			t.add(printable(c.Channel), from, fmt.Sprint(p.Enqueued), rate(p.Enqueued, over), fmt.Sprint(p.Acked),
				rate(p.Acked, over), number(p.Retried), a.red(number(p.Dead)), a.failed(p), number(p.Waiting),
				quantile(&p.Wait, .5), quantile(&p.Wait, .99), quantile(&p.Handling, .5), quantile(&p.Handling, .99),
				quantile(&p.EndToEnd, .5), quantile(&p.EndToEnd, .99), note)
		}
	}
	a.print(t)
	if missing {
		a.say("some parts had more records than a channel keeps: take a longer --step")
	}
	return nil
}

func idleIn(parts []shunt.Counts) bool {
	for i := range parts {
		p := &parts[i]
		if p.Enqueued+p.Acked+p.Retried+p.Dead+p.Cancelled+p.Expired+p.Waiting+p.Delayed+p.DeadLetters > 0 {
			return false
		}
	}
	return true
}

// failed is the share of attempts that failed.
func (a *app) failed(c *shunt.Counts) string {
	bad, all := c.Retried+c.Dead, c.Retried+c.Dead+c.Acked
	if bad == 0 {
		return ""
	}
	text := fmt.Sprintf("%.1f%%", 100*float64(bad)/float64(all))
	if bad*20 > all {
		return a.red(text)
	}
	return a.yellow(text)
}

func quantile(h *shunt.Histogram, p float64) string {
	if h.Count() == 0 {
		return ""
	}
	return ago(h.Quantile(p))
}
