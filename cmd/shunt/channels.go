package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func channelCommands(a *app) []*cobra.Command {
	stats := &cobra.Command{
		Use: "stats CHANNEL", Short: "Count a channel's messages in every state, and tell their ages",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error { return a.stats(cmd.Context(), args[0]) },
	}
	var watch bool
	every := span(2 * time.Second)
	channels := &cobra.Command{
		Use: "channels [CHANNEL…]", Aliases: []string{"overview"}, Short: "Show all channels, or some, at a glance",
		Long: "Show all channels, or some, at a glance. Rates are those of the last 10 minutes. Drain is how long it " +
			"takes until nothing waits at this rate.",
		ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !watch {
				return a.channels(cmd.Context(), args)
			}
			return a.watch(cmd.Context(), time.Duration(every), func(ctx context.Context) error {
				return a.channels(ctx, args)
			})
		},
	}
	channels.Flags().BoolVarP(&watch, "watch", "w", false, "show them again and again")
	channels.Flags().Var(&every, "every", "how often --watch shows them, 100ms or more")
	receivers := &cobra.Command{
		Use: "receivers [CHANNEL…]", Short: "List the receivers of all channels, or of some",
		ValidArgsFunction: a.completeChannel,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.receivers(cmd.Context(), args) },
	}
	return []*cobra.Command{stats, channels, receivers}
}

// watch shows something until ctx ends, which is its good end. A Redis that goes away is waited for.
func (a *app) watch(ctx context.Context, every time.Duration, show func(context.Context) error) error {
	if every < 100*time.Millisecond {
		return usage("--every %v: want 100ms or more", every)
	}
	a.lines = true
	tick := time.NewTicker(every)
	defer tick.Stop()
	for shown := false; ; {
		if a.paints && !a.json {
			fmt.Fprint(a.out, "\x1b[H\x1b[2J", clock(time.Now()), "  every ", every, ", Ctrl-C ends\n")
		}
		if err := show(ctx); err == nil {
			shown = true
		} else if ctx.Err() == nil && !shown {
			return err
		} else if ctx.Err() == nil {
			a.say("%s", oneLine(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !a.paints && !a.json {
			fmt.Fprintln(a.out)
		}
	}
}

func (a *app) stats(ctx context.Context, channel string) error {
	q, err := a.open()
	if err != nil {
		return err
	}
	s, err := q.Stats(ctx, channel)
	if err != nil {
		return err
	}
	total := 0
	for _, state := range s {
		total += state.Count
	}
	if total == 0 {
		if err := a.known(ctx, channel); err != nil {
			return err
		}
	}
	if a.json {
		return a.document(s)
	}
	t := table{head: []string{"STATE", ">MESSAGES", ">OLDEST", ">NEXT DUE"}}
	for _, state := range shunt.States {
		of := s[state]
		t.add(string(state), fmt.Sprint(of.Count), ago(of.OldestAge), ago(of.NextDueIn))
	}
	a.print(t)
	return nil
}

func (a *app) channels(ctx context.Context, names []string) error {
	q, err := a.open()
	if err != nil {
		return err
	}
	os, err := q.Overview(ctx, names...)
	if err != nil {
		return err
	}
	for _, o := range os {
		if len(names) > 0 && o.Error != "" {
			a.code = exitFailed
		} else if len(names) > 0 && empty(&o) {
			if err := a.known(ctx, o.Channel); err != nil {
				return err
			}
		}
	}
	if a.json {
		if os == nil {
			os = []shunt.Overview{}
		}
		return a.document(os)
	}
	t := table{head: []string{"CHANNEL", ">READY", ">SUSPECT", ">DELAYED", ">LEASES", ">DEAD", ">DONE", ">OLDEST",
		">DRAIN", ">IN/s", ">DONE/s", ">FAILED/s", ">WORKERS", "ERROR"}}
	for i := range os {
		o := &os[i]
		per := func(n int64) string { return rate(n, o.Lately.To.Sub(o.Lately.From)) }
		oldest := ago(o.OldestAge)
		if o.OldestAge > 10*time.Minute {
			oldest = a.yellow(oldest)
		}
		workers := number(o.Workers)
		if o.Receivers == 0 && o.Prepare+o.Suspect > 0 && o.Leases == 0 {
			workers = a.red("none")
		}
		drain := ""
		switch d := o.DrainTime(); {
		case d < 0:
			drain = a.yellow("grows")
		case d > 0:
			drain = ago(d)
		}
		t.add(printable(o.Channel), fmt.Sprint(o.Prepare), number(o.Suspect), number(o.Delay), number(o.Leases),
			a.red(number(o.Dead)), number(o.Done), oldest, drain, per(o.Lately.Enqueued), per(o.Lately.Acked),
			a.yellow(per(o.Lately.Retried+o.Lately.Dead)), workers, a.red(cut(cmp.Or(o.Error, o.CountsError), 60)))
	}
	if len(os) == 0 {
		a.say("there is no channel yet")
		return nil
	}
	a.print(t)
	return nil
}

func empty(o *shunt.Overview) bool {
	return o.Prepare+o.Suspect+o.Delay+o.Dead+o.Done+o.Leases+o.Receivers+o.DeadReceivers == 0
}

// rate is so many a second, and empty for none.
func rate(n int64, in time.Duration) string {
	if n == 0 || in <= 0 {
		return ""
	}
	r := float64(n) / in.Seconds()
	switch {
	case r >= 100:
		return fmt.Sprintf("%.0f", r)
	case r >= 1:
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.3f", r)
}

// receiverOf is a Receiver with its channel.
type receiverOf struct {
	Channel string `json:"channel"`
	shunt.Receiver
}

func (a *app) receivers(ctx context.Context, names []string) error {
	q, err := a.open()
	if err != nil {
		return err
	}
	all := len(names) == 0
	if all {
		if names, err = q.Channels(ctx); err != nil {
			return err
		}
	}
	found := []receiverOf{}
	for _, name := range names {
		rs, err := q.Receivers(ctx, name)
		if err != nil {
			return err
		}
		if len(rs) == 0 && !all {
			if err := a.known(ctx, name); err != nil {
				return err
			}
		}
		for _, r := range rs {
			found = append(found, receiverOf{name, r})
		}
	}
	if a.json {
		return a.document(found)
	}
	if len(found) == 0 {
		a.say("there is no receiver")
		return nil
	}
	t := table{head: []string{
		"CHANNEL", "RECEIVER", "PROCESS", ">WORKERS", ">HOLDS", ">LONGEST", "LIFE", ">LEASE", "UNTIL",
	}}
	for _, r := range found {
		life, until := "alive", r.LeaseEndsAt
		if !r.Alive {
			life, until = a.red("dead"), r.NextSweepAt
		}
		process, longest := "-", "-"
		if r.PID != 0 {
			process = fmt.Sprintf("%s %d@%s", r.Program, r.PID, r.Host)
		}
		if len(r.Busy) > 0 {
			longest = ago(time.Since(r.Busy[0].Since))
		}
		t.add(printable(r.Channel), printable(r.Name), printable(process), fmt.Sprint(r.Workers), fmt.Sprint(r.Holding),
			longest, life, ago(r.Lease), clock(until))
	}
	a.print(t)
	return nil
}
