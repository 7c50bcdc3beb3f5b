package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func deadCommands(a *app) []*cobra.Command {
	var l listing
	l.state = string(shunt.StateDead)
	list := func(cmd *cobra.Command, args []string) error { return a.list(cmd.Context(), args[0], &l) }
	dead := &cobra.Command{
		Use: "dead CHANNEL", Short: "List dead messages, group them by failure, retry or delete them",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel, RunE: list,
	}
	l.flags(dead)
	dead.AddCommand(a.deadGroups())
	for _, v := range []verb{
		{name: "retry", done: "retried", short: "Have all dead messages that fit handled again", all: retryAll},
		{name: "delete", done: "deleted", short: "Delete all dead messages that fit, for good", all: deleteAll},
	} {
		v.state = shunt.StateDead
		b := bulk{all: true}
		cmd := &cobra.Command{
			Use: v.name + " CHANNEL", Short: v.short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
			RunE: func(cmd *cobra.Command, args []string) error { return a.moveAll(cmd, &v, &b, args[0]) },
		}
		b.filter.flags(cmd, 0)
		cmd.Flags().BoolVar(&b.dry, "dry-run", false, "count what fits, and change nothing")
		dead.AddCommand(cmd)
	}
	return []*cobra.Command{dead}
}

func (a *app) deadGroups() *cobra.Command {
	var f filter
	state := string(shunt.StateDead)
	cmd := &cobra.Command{
		Use: "groups CHANNEL", Short: "Group dead messages, or delayed ones, by failure",
		Long: "Group dead messages by failure, the largest group first. What differs only in numbers and ids is one " +
			"group. It looks at up to 100,000 messages, the latest first. With --state delay it groups those that " +
			"are to be tried again, and the times are when they are due.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error { return a.groups(cmd.Context(), args[0], state, &f) },
	}
	cmd.Flags().StringVarP(&state, "state", "s", state, "dead or delay")
	f.flags(cmd, 0)
	return cmd
}

func (a *app) groups(ctx context.Context, channel, name string, flags *filter) error {
	state, err := parseState(name)
	if err != nil {
		return err
	}
	if state != shunt.StateDead && state != shunt.StateDelay {
		return usage("--state %s: want dead or delay", state)
	}
	f, err := flags.filter()
	if err != nil {
		return err
	}
	f.Limit, f.From = flags.limit, flags.from
	q, err := a.open()
	if err != nil {
		return err
	}
	if err := a.like(ctx, channel, state, &f); err != nil {
		return err
	}
	fs, err := q.Failures(ctx, channel, state, f)
	if err != nil {
		return err
	}
	if fs.Looked == 0 {
		if err := a.known(ctx, channel); err != nil {
			return err
		}
	}
	if fs.Groups == nil {
		fs.Groups = []shunt.FailureGroup{}
	}
	if a.json {
		return a.document(fs)
	}
	if len(fs.Groups) == 0 {
		a.say("no message fits: %d in %s were looked at", fs.Looked, state)
		return nil
	}
	t := table{head: []string{">MESSAGES", "FIRST", "LAST", "FAILURE"}}
	for _, g := range fs.Groups {
		t.add(fmt.Sprint(g.Count), clock(g.First), clock(g.Last), a.red(printable(g.Failure)))
	}
	a.print(t)
	if fs.More {
		a.say("these are of the latest %d messages: there are more", fs.Looked)
	}
	return nil
}
