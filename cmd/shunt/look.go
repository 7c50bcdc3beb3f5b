package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// listing says what ls shows.
type listing struct {
	filter  filter
	state   string
	latest  bool
	payload int
}

func (l *listing) flags(cmd *cobra.Command) {
	l.filter.flags(cmd, 20)
	cmd.Flags().BoolVar(&l.latest, "latest", false, "begin at the other end: with what is taken or due last, or died "+
		"first")
	cmd.Flags().IntVar(&l.payload, "payload", 40, "how many bytes of each payload; 0 is none, -1 all")
}

func lookCommands(a *app) []*cobra.Command {
	var l listing
	ls := &cobra.Command{
		Use: "ls CHANNEL", Short: "List the messages of one state, a page at a time",
		Long: "List the messages of one state, a page at a time: what is taken next, is due first or died last comes " +
			"first. What did not fit on the page is shown by --from.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error { return a.list(cmd.Context(), args[0], &l) },
	}
	ls.Flags().StringVarP(&l.state, "state", "s", "prepare", "prepare, doing, leased, delay, suspect, dead or done")
	_ = ls.RegisterFlagCompletionFunc("state", stateNames)
	l.flags(ls)

	var t target
	show := &cobra.Command{
		Use: "show REF | CHANNEL --id ID | CHANNEL --serial SERIAL", Short: "Show one message, whatever its state",
		Long: "Show one message, whatever its state: its headers, and its payload as JSON, as text or as a hex dump.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := t.ref(args[0])
			if err != nil {
				return err
			}
			q, err := a.open()
			if err != nil {
				return err
			}
			e, err := q.Peek(cmd.Context(), r)
			if err != nil {
				return err
			}
			if a.json {
				return a.document(shown{e.Ref().String(), e})
			}
			a.show(&e)
			return nil
		},
	}
	t.flags(show)

	state, n := "prepare", 1
	peek := &cobra.Command{
		Use: "peek CHANNEL", Short: "Show the messages that are taken next, whole, and take none",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error { return a.peek(cmd.Context(), args[0], state, n) },
	}
	peek.Flags().IntVarP(&n, "number", "n", 1, "how many, 1 to 1000")
	peek.Flags().StringVarP(&state, "state", "s", "prepare", "the state")
	_ = peek.RegisterFlagCompletionFunc("state", stateNames)
	return []*cobra.Command{ls, show, peek}
}

// shown is an Entry with the text that names it.
type shown struct {
	Ref string `json:"ref"`
	shunt.Entry
}

func withRefs(es []shunt.Entry) []shown {
	all := make([]shown, len(es))
	for i, e := range es {
		all[i] = shown{e.Ref().String(), e}
	}
	return all
}

func (a *app) list(ctx context.Context, channel string, l *listing) error {
	state, err := parseState(l.state)
	if err != nil {
		return err
	}
	f, err := l.filter.filter()
	if err != nil {
		return err
	}
	if l.filter.limit < 1 || l.filter.limit > 1000 {
		return usage("--limit %d: want 1 to 1000; --from shows the next page", l.filter.limit)
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	if err := a.like(ctx, channel, state, &f); err != nil {
		return err
	}
	o := shunt.BrowseOptions{Channel: channel, State: state, Latest: l.latest, Payload: l.payload, From: l.filter.from,
		Filter: f}
	var page shunt.Page
	p := a.progress("look")
	for page.Entries = []shunt.Entry{}; ; { // a page of Browse may be short or empty
		o.Limit = l.filter.limit - len(page.Entries)
		more, err := q.Browse(ctx, o)
		if err != nil {
			p.end()
			return err
		}
		p.add(more.Looked)
		page.Entries, page.Next = append(page.Entries, more.Entries...), more.Next
		page.Looked += more.Looked
		if o.From = more.Next; more.Next == "" || len(page.Entries) == l.filter.limit {
			break
		}
	}
	p.end()
	if page.Looked == 0 && o.From == "" {
		if err := a.known(ctx, channel); err != nil {
			return err
		}
	}
	if a.json {
		return a.document(struct {
			Entries []shown `json:"entries"`
			Looked  int     `json:"looked"`
			Next    string  `json:"next,omitempty"`
		}{withRefs(page.Entries), page.Looked, page.Next})
	}
	if len(page.Entries) == 0 {
		a.say("no message fits: %d in %s were looked at", page.Looked, state)
		return nil
	}
	a.entries(page.Entries)
	if page.Next != "" {
		a.say("there are more: --from %s", page.Next)
	}
	return nil
}

// entries prints a line a message.
func (a *app) entries(es []shunt.Entry) {
	t := table{head: []string{"MESSAGE", "TYPE", ">FAILED", "ENQUEUED", "DUE", "DIED", "ENDED", "HOLDER", "LEASE ENDS",
		"OUTCOME", ">SIZE", "FAILURE", "PAYLOAD"}}
	for _, e := range es {
		holder := e.Receiver
		if holder != "" {
			holder = fmt.Sprintf("%s/%d", holder, e.Worker)
		}
		t.add(printable(e.Ref().String()), cut(e.Type, 40), number(e.Attempts), clock(e.EnqueuedAt), clock(e.DueAt),
			clock(e.DiedAt), clock(e.EndedAt), printable(holder), clock(e.LeaseEndsAt), string(e.Outcome.Kind),
			size(e.PayloadSize), a.red(cut(e.Failure, 60)), brief(e.Payload, 60))
	}
	a.print(t)
}

// show prints all that is known of a message.
func (a *app) show(e *shunt.Entry) {
	line := func(name, value string) {
		if value != "" {
			a.tell("%s %s", a.dim(fmt.Sprintf("%-11s", name)), value)
		}
	}
	line("message", a.bold(printable(e.Ref().String())))
	line("channel", printable(e.Channel))
	line("state", string(e.State))
	line("serial", e.Serial)
	line("id", printable(e.ID))
	line("type", printable(e.Type))
	line("attempts", fmt.Sprint(e.Attempts))
	line("recoveries", number(e.Recoveries))
	line("enqueued", clock(e.EnqueuedAt))
	line("due", clock(e.DueAt))
	line("died", clock(e.DiedAt))
	line("ended", clock(e.EndedAt))
	line("lease ends", clock(e.LeaseEndsAt))
	if e.Receiver != "" {
		line("receiver", fmt.Sprintf("%s, worker %d", printable(e.Receiver), e.Worker))
	}
	line("failure", a.red(strings.ReplaceAll(lines(e.Failure), "\n", "\n            ")))
	if o := e.Outcome; o.Kind != "" {
		line("outcome", fmt.Sprintf("%s after attempt %d, kept until %s", o.Kind, o.Attempt, clock(o.KeptUntil)))
		line("reason", a.red(lines(o.Failure)))
		if len(o.Result) > 0 {
			_, text := pretty(o.Result)
			line("result", text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.Headers)) {
		line("header", printable(key)+"="+printable(e.Headers[key]))
	}
	if e.State == shunt.StateDone {
		return
	}
	kind, text := pretty(e.Payload)
	if n := e.PayloadSize - len(e.Payload); n > 0 {
		kind += fmt.Sprintf(", the first %s of it", size(len(e.Payload)))
	}
	line("payload", fmt.Sprintf("%s, %s", size(e.PayloadSize), kind))
	if text != "" {
		a.tell("%s", text)
	}
}

func (a *app) peek(ctx context.Context, channel, name string, n int) error {
	state, err := parseState(name)
	if err != nil {
		return err
	}
	if n < 1 || n > 1000 {
		return usage("--number %d: want 1 to 1000", n)
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	es := []shunt.Entry{}
	o := shunt.BrowseOptions{Channel: channel, State: state, Payload: -1}
	for {
		o.Limit = n - len(es)
		page, err := q.Browse(ctx, o)
		if err != nil {
			return err
		}
		es = append(es, page.Entries...)
		if o.From = page.Next; page.Next == "" || len(es) == n {
			break
		}
	}
	if len(es) == 0 {
		if err := a.known(ctx, channel); err != nil {
			return err
		}
	}
	if a.json {
		return a.document(withRefs(es))
	}
	if len(es) == 0 {
		return notFound("there is no message in %s of %q", state, channel)
	}
	for i := range es {
		if i > 0 {
			a.tell("")
		}
		a.show(&es[i])
	}
	return nil
}
