package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/cmd/shunt/internal/doctor"
)

// checkup is one call of doctor.
type checkup struct {
	a           *app
	fix, config bool
	user        string
	within      span
}

// mending is what became of one finding that was to be mended.
type mending struct {
	Kind    doctor.Kind `json:"kind"`
	Channel string      `json:"channel,omitempty"`
	Key     string      `json:"key,omitempty"`
	Mended  bool        `json:"mended"`
	Error   string      `json:"error,omitempty"`
}

func doctorCommands(a *app) []*cobra.Command {
	c := checkup{a: a, within: span(30 * time.Second)}
	cmd := &cobra.Command{
		Use: "doctor [CHANNEL…]", Short: "Examine Redis and channels, and mend what is safe to mend",
		Long: `Examine Redis and all channels, or some: its settings, memory, replicas, clock and rights, and every key
that shunt has there. Each finding says why it matters and what mends it, the worst first. It only reads, by short
commands with pauses between them.

With --fix it mends what is safe: no message is lost, and none is handled twice. Settings of Redis are changed
with --fix-config alone. It asks before, looks at each finding anew, and writes what it did into the audit.

The exit status is 4 where something critical was found and stays, else 0.`,
		ValidArgsFunction: a.completeChannel,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.fix, "fix", false, "mend what is safe to mend")
	f.BoolVar(&c.config, "fix-config", false, "as --fix, and change settings of Redis, too")
	f.StringVar(&c.user, "user", "", "the Redis `user` whose rights are looked at (default the one of the URL)")
	f.Var(&c.within, "within", "what is not seen by then is left out, 1s to 1h")
	return []*cobra.Command{cmd}
}

func (c *checkup) run(ctx context.Context, names []string) error {
	a, within := c.a, time.Duration(c.within)
	if within < time.Second || within > time.Hour {
		return usage("--within %v: want 1s to 1h", within)
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := a.known(ctx, name); err != nil {
			return err
		}
	}
	o := doctor.Options{Channels: names, Within: within, Timeout: a.timeout, User: c.user, Config: c.config}
	report, err := doctor.Examine(ctx, q, a.pool, o)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	if !a.json {
		c.print(&report)
	}
	stays, todo := 0, make([]doctor.Finding, 0, len(report.Findings))
	for _, f := range report.Findings {
		switch {
		case (c.fix || c.config) && f.Fix == doctor.Safe, c.config && f.Fix == doctor.Setting:
			todo = append(todo, f)
		case f.Severity == shunt.Critical:
			stays++
		}
	}
	var did []mending
	if len(todo) > 0 {
		if err := a.confirm(ctx, "mend %s", many(len(todo), "finding")); err != nil {
			return err
		}
		did, err = c.mend(ctx, q, todo, o)
	}
	for i, f := range todo {
		if f.Severity == shunt.Critical && (i >= len(did) || !did[i].Mended) {
			stays++
		}
	}
	if stays > 0 {
		a.code = exitCritical
	}
	if a.json {
		if report.Findings == nil {
			report.Findings = []doctor.Finding{}
		}
		err = errors.Join(err, a.document(struct {
			doctor.Report
			Mending []mending `json:"mending,omitempty"`
		}{report, did}))
	}
	return err
}

// mend mends one finding after another, tells what it did and writes it into the audit. An error ends it early.
func (c *checkup) mend(
	ctx context.Context, q *shunt.Queue, todo []doctor.Finding, o doctor.Options,
) ([]mending, error) {
	var did []mending
	for _, f := range todo {
		err := doctor.Mend(ctx, q, c.a.pool, f, o)
		if errors.Is(err, doctor.ErrGone) {
			did = append(did, mending{Kind: f.Kind, Channel: f.Channel, Key: f.Key, Mended: true})
			c.told("gone", &f, "it was not there any more")
			continue
		}
		m := mending{Kind: f.Kind, Channel: f.Channel, Key: f.Key, Mended: err == nil}
		if err != nil {
			m.Error = strings.TrimPrefix(oneLine(err), "doctor: ")
			c.told("not mended", &f, m.Error)
		} else {
			c.told("mended", &f, f.Text)
		}
		did = append(did, m)
		e := shunt.AuditEntry{Verb: "mend", Channel: f.Channel, Detail: fmt.Sprintf("%s: %s", f.Kind, f.Text)}
		c.a.audit(ctx, e, err)
		if ctx.Err() != nil {
			return did, errInterrupted
		}
	}
	return did, nil
}

func (c *checkup) told(what string, f *doctor.Finding, text string) {
	if !c.a.json {
		c.a.tell("%s: %s of %s: %s", what, f.Kind, where(f), printable(text))
	}
}

func where(f *doctor.Finding) string { return cmp.Or(printable(f.Channel), "redis") }

// print is the report for people: a table of three lines a finding, and before it what was looked at.
func (c *checkup) print(r *doctor.Report) {
	a := c.a
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		versions = append(versions, name+" "+r.Versions[name])
	}
	a.tell("%s", printable(strings.Join(versions, ", ")))
	a.tell("%s and %s in %v", many(r.Channels, "channel"), many(r.Keys, "key"), r.Took.Round(time.Millisecond))
	for _, limit := range r.Limits {
		a.tell("%s", a.yellow("not seen: "+printable(limit)))
	}
	a.tell("")
	if r.Healthy() {
		a.tell("nothing is wrong")
		return
	}
	paint := map[shunt.Severity]func(string) string{shunt.Critical: a.red, shunt.Warning: a.yellow}
	t := table{head: []string{"SEVERITY", "WHERE", "KIND", "WHAT"}}
	for i := range r.Findings {
		f := &r.Findings[i]
		p := paint[f.Severity]
		if p == nil {
			p = a.dim
		}
		t.add(p(string(f.Severity)), a.bold(where(f)), printable(string(f.Kind)), printable(f.Text))
		t.add("", "", a.dim("why"), a.dim(printable(f.Why)))
		do := printable(f.Do)
		switch {
		case c.config: // it is told what becomes of it
		case f.Fix == doctor.Safe && !c.fix:
			do += a.dim(" (or --fix)")
		case f.Fix == doctor.Setting:
			do += a.dim(" (or --fix-config)")
		}
		t.add("", "", a.dim("do"), do)
	}
	a.print(t)
}
