package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// verb is what can be done to messages.
type verb struct {
	name, done, short, long string
	destructive             bool
	state                   shunt.State                 // of those that --all is for; empty: --state says it
	ready                   func(f *shunt.Filter) error // nil, or what is looked at before anything is asked
	one                     func(ctx context.Context, q *shunt.Queue, r shunt.Ref) error
	all                     func(ctx context.Context, q *shunt.Queue, channel string, s shunt.State,
		f shunt.Filter) (shunt.BulkResult, error)
}

// bulk is what a call for many messages was given.
type bulk struct {
	all, dry bool
	state    string
	filter   filter
}

// verb makes the command of a verb.
func (a *app) verb(v verb) *cobra.Command {
	var t target
	var b bulk
	cmd := &cobra.Command{
		Use:   v.name + " REF | CHANNEL --id ID | CHANNEL --serial SERIAL | --all CHANNEL",
		Short: v.short, Long: v.long, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !b.all {
				if b.dry || b.filter.given() {
					return usage("%s of one message takes no filter and no --dry-run: give --all CHANNEL", v.name)
				}
				return a.moveOne(cmd.Context(), &v, &t, args[0])
			}
			if t.id != "" || t.serial != "" || strings.HasPrefix(args[0], "{") {
				return usage("--all is for a channel: give its name alone")
			}
			return a.moveAll(cmd, &v, &b, args[0])
		},
	}
	t.flags(cmd)
	b.filter.flags(cmd, 0)
	cmd.Flags().BoolVar(&b.all, "all", false, "all messages of the channel that fit the flags")
	cmd.Flags().BoolVar(&b.dry, "dry-run", false, "count what fits, and change nothing")
	if v.state == "" {
		cmd.Flags().StringVarP(&b.state, "state", "s", "", "with --all: prepare, delay or suspect")
		_ = cmd.RegisterFlagCompletionFunc("state", stateNames)
	}
	return cmd
}

// moved is the result of a verb as JSON.
type moved struct {
	Verb    string      `json:"verb"`
	Channel string      `json:"channel"`
	Ref     string      `json:"ref,omitempty"`
	State   shunt.State `json:"state,omitempty"`
	DryRun  bool        `json:"dry_run,omitempty"`
	Fit     *int        `json:"fit,omitempty"` // counted before
	shunt.BulkResult
}

func (a *app) moveOne(ctx context.Context, v *verb, t *target, arg string) error {
	r, err := t.ref(arg)
	if err != nil {
		return err
	}
	if v.ready != nil {
		if err := v.ready(&shunt.Filter{}); err != nil {
			return err
		}
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	if v.destructive {
		if err := a.confirm(ctx, "%s 1 message, %s", v.name, r); err != nil {
			return err
		}
	}
	err = v.one(ctx, q, r)
	changed := 1
	if err != nil {
		changed = 0
	}
	a.audit(ctx, shunt.AuditEntry{Verb: v.name, Channel: r.Channel, Detail: r.String(), Count: changed}, err)
	if err != nil {
		return err
	}
	if a.json {
		return a.document(moved{Verb: v.name, Channel: r.Channel, Ref: r.String(),
			BulkResult: shunt.BulkResult{Looked: 1, Changed: 1}})
	}
	a.tell("%s %s", v.done, printable(r.String()))
	return nil
}

func (a *app) moveAll(cmd *cobra.Command, v *verb, b *bulk, channel string) error {
	ctx := cmd.Context()
	state, err := b.stateFor(v)
	if err != nil {
		return err
	}
	f, err := b.filter.filter()
	if err == nil && v.ready != nil {
		err = v.ready(&f)
	}
	if err != nil {
		return err
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	if err := a.like(ctx, channel, state, &f); err != nil {
		return err
	}
	result := moved{Verb: v.name, Channel: channel, State: state, DryRun: b.dry}
	detail := strings.TrimSpace("all of " + string(state) + " " + given(cmd))
	if b.dry || !a.yes {
		if goOn, err := a.foresee(ctx, v, b, f, &result); err != nil || !goOn {
			return err
		}
	}
	p := a.progress(v.name)
	f.Limit, f.From = b.filter.limit, b.filter.from
	f.Match = func(shunt.Entry) bool { // for its progress alone
		p.add(1)
		return true
	}
	result.BulkResult, err = v.all(ctx, q, channel, state, f)
	p.end()
	if result.Changed > 0 || err != nil {
		a.audit(ctx, shunt.AuditEntry{Verb: v.name, Channel: channel, Detail: detail, Count: result.Changed}, err)
	}
	if err == nil && result.Looked == 0 && result.Changed == 0 {
		err = a.known(ctx, channel)
	}
	return a.tellMoved(v, &result, err)
}

// stateFor is the one state that the verb looks at, or else what --state names.
func (b *bulk) stateFor(v *verb) (shunt.State, error) {
	if v.state != "" {
		return v.state, nil
	}
	if b.state == "" {
		return "", usage("%s --all wants --state prepare, delay or suspect", v.name)
	}
	state, err := parseState(b.state)
	if err != nil {
		return "", err
	}
	if state != shunt.StatePrepare && state != shunt.StateDelay && state != shunt.StateSuspect {
		return "", usage("%s --all --state %s: want prepare, delay or suspect", v.name, state)
	}
	return state, nil
}

// foresee counts what the filter fits, and tells of it or asks. goOn says whether the verb is to be done.
func (a *app) foresee(ctx context.Context, v *verb, b *bulk, f shunt.Filter, r *moved) (goOn bool, err error) {
	fit, err := 0, error(nil)
	if b.filter.from == "" {
		fit, err = a.count(ctx, r.Channel, r.State, f)
	} else { // the verb itself goes through what lies behind that place, and changes nothing
		f.From = b.filter.from
		f.Match = func(shunt.Entry) bool {
			fit++
			return false
		}
		_, err = v.all(ctx, a.queue, r.Channel, r.State, f)
	}
	if err != nil {
		return false, err
	}
	if fit == 0 {
		if err := a.known(ctx, r.Channel); err != nil {
			return false, err
		}
	}
	if b.filter.limit > 0 {
		fit = min(fit, b.filter.limit)
	}
	r.Fit = &fit
	switch {
	case !b.dry && fit > 0:
		return true, a.confirm(ctx, "%s %s of %q in %s", v.name, messages(fit), r.Channel, r.State)
	case a.json:
		return false, a.document(*r)
	}
	a.tell("%d of %s in %s would be %s", fit, printable(r.Channel), r.State, v.done)
	return false, nil
}

// tellMoved prints the result of a verb, and passes on why it ended early.
func (a *app) tellMoved(v *verb, r *moved, err error) error {
	if a.json {
		if e := a.document(*r); err == nil {
			err = e
		}
	} else if err == nil || r.Changed > 0 {
		a.tell("%s %s of %s in %s", v.done, messages(r.Changed), printable(r.Channel), r.State)
		if r.Refused > 0 {
			a.say("%d fitted and stayed: the ID is another's by now, or somebody was faster", r.Refused)
		}
	}
	if r.Next != "" {
		a.say("go on with the same command and --from %s", r.Next)
	}
	return err
}
