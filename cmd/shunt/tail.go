package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// What bounds one look of tail.
const (
	tailed   = 1000 // channels
	tailPage = 100  // messages of one state of a channel
	tailTurn = 25   // channels whose counts are as they were, but whose messages are looked at
)

func tailCommands(a *app) []*cobra.Command {
	every := span(time.Second)
	cmd := &cobra.Command{
		Use: "tail [CHANNEL…]", Short: "Show what happens, live",
		Long: `Show what happens in all channels, or in some, live: a line for each change of what waits, is delayed or
is dead, for each dead message, and for each retry. It asks Redis once a second.

Of a channel it looks at the latest 100 dead messages and at the first 100 delayed ones: where more happen, the
counts tell of them. What lay there before is not shown. Ctrl-C ends it.`,
		ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error {
			t := &tail{a: a, names: args, was: make(map[string]*seen)}
			return t.run(cmd.Context(), time.Duration(every))
		},
	}
	cmd.Flags().Var(&every, "every", "how often it asks, 100ms or more")
	return []*cobra.Command{cmd}
}

// tail is what was seen of each channel.
type tail struct {
	a     *app
	names []string
	was   map[string]*seen
	begun bool
	looks int
}

// seen is a channel as it was a second ago.
type seen struct {
	shunt.Overview
	shown map[shunt.State]map[string]bool // messages of the last look, with their attempts
}

// happened is a line of tail.
type happened struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"` // counts, dead or retry
	Channel string    `json:"channel"`

	Counts *tailCounts `json:"counts,omitempty"`
	*shown
}

type tailCounts struct {
	Prepare   int `json:"prepare"`
	Suspect   int `json:"suspect"`
	Delay     int `json:"delay"`
	Leases    int `json:"leases"`
	Dead      int `json:"dead"`
	Receivers int `json:"receivers"`
}

func countsIn(o *shunt.Overview) tailCounts {
	return tailCounts{o.Prepare, o.Suspect, o.Delay, o.Leases, o.Dead, o.Receivers}
}

// run looks until ctx ends, which is its good end. A Redis that goes away is waited for.
func (t *tail) run(ctx context.Context, every time.Duration) error {
	if every < 100*time.Millisecond {
		return usage("--every %v: want 100ms or more", every)
	}
	if _, err := t.a.open(); err != nil {
		return err
	}
	for _, name := range t.names {
		if err := t.a.known(ctx, name); err != nil {
			return err
		}
	}
	t.a.lines = true
	tick := time.NewTicker(every)
	defer tick.Stop()
	away := false
	for {
		err := t.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !t.begun:
			return err
		case err != nil && !away:
			t.a.say("%s", oneLine(err))
		case err == nil && away:
			t.a.say("Redis answers again")
		}
		away = err != nil
		t.begun = t.begun || err == nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (t *tail) look(ctx context.Context) error {
	q := t.a.queue
	names := t.names
	if len(names) == 0 {
		all, err := q.Channels(ctx)
		if err != nil {
			return err
		}
		if names = all[:min(len(all), tailed)]; len(names) < len(all) && !t.begun {
			t.a.say("these are %d of %d channels: name those that matter", len(names), len(all))
		}
		if len(names) == 0 {
			return nil
		}
	}
	os, err := q.Overview(ctx, names...)
	if err != nil {
		return err
	}
	t.looks++
	turns := (len(os) + tailTurn - 1) / tailTurn
	for i := range os {
		o := &os[i]
		if o.Error != "" {
			continue
		}
		was := t.was[o.Channel]
		if was == nil {
			was = &seen{shown: map[shunt.State]map[string]bool{}}
			t.was[o.Channel] = was
			if !t.begun { // a channel that is new since then was empty
				was.Overview = *o
			}
		}
		first := was.shown[shunt.StateDead] == nil && !t.begun
		counts := countsIn(o)
		changed := counts != countsIn(&was.Overview)
		if changed {
			if err := t.tell(happened{Kind: "counts", Channel: o.Channel, Counts: &counts}, was); err != nil {
				return err
			}
		}
		for _, s := range []shunt.State{shunt.StateDead, shunt.StateDelay} {
			if !changed && !first && (i+t.looks)%turns != 0 { // where one comes as another one goes, its turn shows it
				break
			}
			if n := map[shunt.State]int{shunt.StateDead: o.Dead, shunt.StateDelay: o.Delay}[s]; n == 0 && !first {
				was.shown[s] = map[string]bool{}
				continue
			}
			if err := t.messages(ctx, o.Channel, s, was, first); err != nil {
				return err
			}
		}
		was.Overview = *o
	}
	return nil
}

// messages shows those of a state that were not there a second ago.
func (t *tail) messages(ctx context.Context, channel string, s shunt.State, was *seen, first bool) error {
	o := shunt.BrowseOptions{Channel: channel, State: s, Limit: tailPage, Payload: 60}
	kind := "dead"
	if s == shunt.StateDelay {
		kind, o.Filter.MinAttempts = "retry", 1
	}
	page, err := t.a.queue.Browse(ctx, o)
	if err != nil {
		return err
	}
	before := was.shown[s]
	now := make(map[string]bool, len(page.Entries))
	for i := len(page.Entries) - 1; i >= 0; i-- {
		e := page.Entries[i]
		if s == shunt.StateDelay {
			e = page.Entries[len(page.Entries)-1-i]
		}
		key := e.Ref().String()
		if now[key] = true; first || before[key] {
			continue
		}
		if err := t.tell(happened{Kind: kind, Channel: channel, shown: &shown{key, e}}, was); err != nil {
			return err
		}
	}
	was.shown[s] = now
	return nil
}

func (t *tail) tell(h happened, was *seen) error {
	h.Time = time.Now()
	a := t.a
	if a.json {
		return a.document(h)
	}
	head := fmt.Sprintf("%s %-6s %s", a.dim(h.Time.Format("15:04:05")), h.Kind, a.bold(printable(h.Channel)))
	if h.Counts != nil {
		old := countsIn(&was.Overview)
		var parts []string
		add := func(name string, now, before int) {
			if now != before {
				parts = append(parts, fmt.Sprintf("%s %d (%+d)", name, now, now-before))
			}
		}
		add("ready", h.Counts.Prepare, old.Prepare)
		add("suspect", h.Counts.Suspect, old.Suspect)
		add("delayed", h.Counts.Delay, old.Delay)
		add("leases", h.Counts.Leases, old.Leases)
		add("dead", h.Counts.Dead, old.Dead)
		add("receivers", h.Counts.Receivers, old.Receivers)
		a.tell("%s %s", head, strings.Join(parts, ", "))
		return nil
	}
	e := &h.shown.Entry
	due := ""
	if !e.DueAt.IsZero() {
		due = ", due " + e.DueAt.Local().Format("15:04:05")
	}
	text := fmt.Sprintf("%s %s after attempt %d%s: %s", head, printable(h.shown.Ref), e.Attempts, due,
		cut(e.Failure, 200))
	if h.Kind == "dead" {
		text = strings.Replace(text, "dead  ", a.red("dead  "), 1)
	}
	a.tell("%s", text)
	return nil
}
