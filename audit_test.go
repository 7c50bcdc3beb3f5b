package shunt

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// What was done is told, the latest first, a page at a time, and no more is kept than is said.
func TestAudit(t *testing.T) {
	t.Parallel()
	redistest.EachOwn(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		ctx := context.Background()
		b := newBench(t, s.URL())
		const n = 25
		for i := range n {
			b.must(b.Audit(ctx, AuditEntry{By: "ann", Verb: "retry", Channel: b.name, Detail: "failure: no time",
				Count: i, Error: strings.Repeat("x", i%2)}))
		}
		before, seen := "", n
		for {
			es, err := b.AuditLog(ctx, before, 10)
			b.must(err)
			for _, e := range es {
				seen--
				if e.Count != seen || e.By != "ann" || e.Verb != "retry" || e.Channel != b.name ||
					e.Detail != "failure: no time" || len(e.Error) != seen%2 || e.At.IsZero() {
					t.Fatalf("%+v, want %d", e, seen)
				}
				before = e.ID
			}
			if len(es) < 10 {
				break
			}
		}
		if seen != 0 {
			t.Errorf("%d are missing", seen)
		}
		s.Do("XADD", store.AuditKey, "*", "by", "bob", "verb", "purge", "count", "no number")
		if es, err := b.AuditLog(ctx, "", 1); err != nil || len(es) != 1 || es[0].By != "bob" || es[0].Count != 0 {
			t.Errorf("%+v, %v", es, err)
		}
	})
}

// Bad input gets an error that names it.
func TestAuditRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, redistest.Shared(t).URL())
	good := AuditEntry{By: "ann", Verb: "retry"}
	for name, change := range map[string]func(e *AuditEntry){
		"By":      func(e *AuditEntry) { e.By = "" },
		"By ":     func(e *AuditEntry) { e.By = strings.Repeat("x", 256) },
		"Verb":    func(e *AuditEntry) { e.Verb = "" },
		"Channel": func(e *AuditEntry) { e.Channel = "a b" },
		"Detail":  func(e *AuditEntry) { e.Detail = strings.Repeat("x", 5000) },
	} {
		e := good
		change(&e)
		if err := b.Audit(ctx, e); err == nil || !strings.Contains(fmt.Sprint(err), strings.TrimSpace(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, limit := range []int{0, 1001} {
		if _, err := b.AuditLog(ctx, "", limit); err == nil {
			t.Errorf("%d entries", limit)
		}
	}
	if _, err := b.AuditLog(ctx, "x", 1); err == nil || !strings.Contains(err.Error(), "x") {
		t.Error(err)
	}
}
