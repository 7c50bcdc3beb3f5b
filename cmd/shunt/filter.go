package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// filter is a shunt.Filter as flags.
type filter struct {
	failure, like, typ, idPrefix, since, until, from string
	headers                                          []string
	attempts, limit                                  int
}

func (f *filter) flags(cmd *cobra.Command, limit int) {
	fs := cmd.Flags()
	fs.StringVar(&f.failure, "failure", "", "a part of the text of the last failure")
	fs.StringVar(&f.like, "like", "", "the last failure as dead groups shows it")
	fs.StringVar(&f.typ, "type", "", "the type name")
	fs.StringVar(&f.idPrefix, "id-prefix", "", "how the ID begins")
	fs.StringArrayVar(&f.headers, "header", nil, "a header `key=value`; may be given again")
	fs.IntVar(&f.attempts, "min-attempts", 0, "how many attempts have failed at least")
	fs.StringVar(&f.since, "since", "", "died, is due or, of other states, was enqueued at that `time` or later")
	fs.StringVar(&f.until, "until", "", "the same at that `time` or earlier")
	fs.StringVar(&f.from, "from", "", "go on where an earlier call ended, as it said")
	fs.IntVar(&f.limit, "limit", limit, "how many messages at most")
}

// given says whether any flag was set.
func (f *filter) given() bool {
	return f.failure+f.like+f.typ+f.idPrefix+f.since+f.until+f.from != "" || len(f.headers)+f.attempts+f.limit != 0
}

// filter is what the flags ask for.
func (f *filter) filter() (to shunt.Filter, err error) {
	to = shunt.Filter{
		Failure: f.failure, FailureLike: f.like, Type: f.typ, IDPrefix: f.idPrefix, MinAttempts: f.attempts,
	}
	if f.attempts < 0 || f.limit < 0 {
		return to, usage("--min-attempts %d --limit %d: want 0 or more", f.attempts, f.limit)
	}
	if to.Headers, err = pairs(f.headers); err != nil {
		return to, err
	}
	if f.since != "" {
		if to.Since, err = parseTime(f.since); err != nil {
			return to, err
		}
	}
	if f.until != "" {
		if to.Until, err = parseTime(f.until); err != nil {
			return to, err
		}
	}
	return to, nil
}

// pairs reads key=value.
func pairs(texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	m := make(map[string]string)
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, usage("--header %.60q: want key=value", text)
		}
		m[key] = value
	}
	return m, nil
}

// given are the flags of a filter that were set, as text for the audit.
func given(cmd *cobra.Command) string {
	var b strings.Builder
	for _, name := range []string{"failure", "like", "type", "id-prefix", "header", "min-attempts", "since", "until",
		"limit", "from", "in", "at"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			fmt.Fprintf(&b, " --%s %q", name, f.Value)
		}
	}
	return strings.TrimSpace(b.String())
}

// parseStates reads names of states.
func parseStates(names []string) ([]shunt.State, error) {
	var states []shunt.State
	for _, name := range names {
		state, err := parseState(name)
		if err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	return states, nil
}

func parseState(name string) (shunt.State, error) {
	for _, s := range shunt.States {
		if string(s) == name {
			return s, nil
		}
	}
	return "", usage("there is no state %q: want one of %v", name, shunt.States)
}

func stateNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := make([]string, len(shunt.States))
	for i, s := range shunt.States {
		names[i] = string(s)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// like finds what --like means: dead groups escapes control characters, such as those between the lines of a failure.
func (a *app) like(ctx context.Context, channel string, state shunt.State, f *shunt.Filter) error {
	if !strings.Contains(f.FailureLike, `\`) || state != shunt.StateDead && state != shunt.StateDelay {
		return nil
	}
	fs, err := a.queue.Failures(ctx, channel, state, shunt.Filter{})
	if err != nil {
		return err
	}
	found := f.FailureLike
	for _, g := range fs.Groups {
		if g.Failure == f.FailureLike {
			return nil
		}
		if printable(g.Failure) == f.FailureLike {
			found = g.Failure
		}
	}
	f.FailureLike = found
	return nil
}

// target names one message by flags and arguments.
type target struct{ id, serial string }

func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.id, "id", "", "the message of the channel that has this ID")
	cmd.Flags().StringVar(&t.serial, "serial", "", "the message of the channel that has this serial")
}

// ref is the message that is meant: the argument is a Ref's text, or a channel.
func (t *target) ref(arg string) (shunt.Ref, error) {
	r := shunt.Ref{Channel: arg, ID: t.id, Serial: t.serial}
	if t.id == "" && t.serial == "" {
		if !strings.HasPrefix(arg, "{") {
			return r, usage("%.60q names a channel: give --id or --serial, too, or the text that ls prints", arg)
		}
		r, err := shunt.ParseRef(arg)
		if err != nil {
			return r, usageError{err}
		}
		return r, nil
	}
	if _, err := shunt.ParseRef(r.String()); err != nil {
		return r, usageError{err}
	}
	return r, nil
}

// count counts what fits, with progress on standard error.
func (a *app) count(ctx context.Context, channel string, state shunt.State, f shunt.Filter) (n int, err error) {
	p := a.progress("count")
	defer p.end()
	o := shunt.BrowseOptions{Channel: channel, State: state, Limit: 1000, Filter: f}
	for {
		page, err := a.queue.Browse(ctx, o)
		if err != nil {
			return n, err
		}
		n += len(page.Entries)
		p.add(page.Looked)
		if page.Next == "" {
			return n, nil
		}
		o.From = page.Next
	}
}
