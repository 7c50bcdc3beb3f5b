package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func auditCommand(a *app) *cobra.Command {
	limit, before := 20, ""
	audit := &cobra.Command{
		Use: "audit", Short: "Show who did what by hand, the latest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.auditLog(cmd.Context(), before, limit) },
	}
	audit.Flags().IntVar(&limit, "limit", 20, "how many entries, 1 to 1000")
	audit.Flags().StringVar(&before, "before", "", "those before the entry of that `id`")
	return audit
}

// whoever is the name of who calls, for the audit.
func (a *app) whoever() string {
	if a.as != "" {
		return a.as
	}
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// audit writes down what was done. Where that fails it is said, for what was done is done.
func (a *app) audit(ctx context.Context, e shunt.AuditEntry, did error) {
	patience := a.timeout
	if did != nil && e.Count == 0 { // most likely Redis is away, and nothing was done
		patience = min(patience, 300*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	cut := func(text string) string { return strings.ToValidUTF8(text[:min(len(text), 4<<10)], "") }
	e.By, e.Detail = cut(a.whoever()), cut(e.Detail)
	e.By = e.By[:min(len(e.By), 255)]
	if did != nil {
		e.Error = cut(did.Error())
	}
	if err := a.queue.Audit(ctx, e); err != nil && (did == nil || e.Count > 0) {
		a.say("this is not in the audit: %s", oneLine(err))
	}
}

func (a *app) auditLog(ctx context.Context, before string, limit int) error {
	if limit < 1 || limit > 1000 {
		return usage("--limit %d: want 1 to 1000", limit)
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	es, err := q.AuditLog(ctx, before, limit)
	if err != nil {
		return err
	}
	if a.json {
		if es == nil {
			es = []shunt.AuditEntry{}
		}
		return a.document(es)
	}
	if len(es) == 0 {
		a.say("there is no entry")
		return nil
	}
	t := table{head: []string{"AT", "BY", "VERB", "CHANNEL", ">MESSAGES", "DETAIL", "ERROR"}}
	for _, e := range es {
		t.add(clock(e.At), cut(e.By, 40), cut(e.Verb, 20), printable(e.Channel), fmt.Sprint(e.Count), cut(e.Detail, 80),
			a.red(cut(e.Error, 60)))
	}
	a.print(t)
	if len(es) == limit {
		a.say("there may be more: --before %s", es[limit-1].ID)
	}
	return nil
}
