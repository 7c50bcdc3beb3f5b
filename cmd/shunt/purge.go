package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func purgeCommand(a *app) *cobra.Command {
	var states []string
	var dry bool
	purge := &cobra.Command{
		Use: "purge CHANNEL --state STATE[,STATE…]", Short: "Delete all messages of some states, for good",
		Long: "Delete all messages of some states, for good. What is in hand cannot be purged: shut its receivers " +
			"down.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error { return a.purge(cmd.Context(), args[0], states, dry) },
	}
	purge.Flags().StringSliceVarP(&states, "state", "s", nil, "prepare, delay, suspect, dead or done")
	purge.Flags().BoolVar(&dry, "dry-run", false, "count, and delete nothing")
	_ = purge.MarkFlagRequired("state")
	_ = purge.RegisterFlagCompletionFunc("state", stateNames)
	return purge
}

func (a *app) purge(ctx context.Context, channel string, names []string, dry bool) error {
	states, err := parseStates(names)
	if err != nil {
		return err
	}
	for _, s := range states {
		if s == shunt.StateDoing || s == shunt.StateLeased {
			return usage("what is %s cannot be purged: shut its receivers down", s)
		}
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	stats, err := q.Stats(ctx, channel)
	if err != nil {
		return err
	}
	fit := 0
	for _, s := range states {
		fit += stats[s].Count
	}
	if fit == 0 {
		if err := a.known(ctx, channel); err != nil {
			return err
		}
	}
	what := strings.Join(names, ", ")
	result := struct {
		Verb    string        `json:"verb"`
		Channel string        `json:"channel"`
		States  []shunt.State `json:"states"`
		DryRun  bool          `json:"dry_run,omitempty"`
		Fit     int           `json:"fit"`
		Changed int           `json:"changed"`
	}{"purge", channel, states, dry, fit, 0}
	if dry || fit == 0 {
		if a.json {
			return a.document(result)
		}
		a.tell("%d of %s in %s would be purged", fit, printable(channel), what)
		return nil
	}
	if err := a.confirm(ctx, "delete %s of %q in %s for good", messages(fit), channel, what); err != nil {
		return err
	}
	result.Changed, err = q.Purge(ctx, channel, states...)
	a.audit(ctx, shunt.AuditEntry{Verb: "purge", Channel: channel, Detail: what, Count: result.Changed}, err)
	if err != nil {
		return err
	}
	if a.json {
		return a.document(result)
	}
	a.tell("purged %s of %s in %s", messages(result.Changed), printable(channel), what)
	return nil
}
