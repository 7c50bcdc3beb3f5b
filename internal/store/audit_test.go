package store

import (
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
)

// The log is read backwards, from the latest entry or from one that was read before.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	redistest.EachOwn(t, func(t *testing.T, s redistest.Backend) {
		f := &fixture{T: t, s: s, l: newLink(t, s.Addr())}
		for _, n := range []string{"1", "2", "3"} {
			f.run(func(c *link.Call) { AddAudit(c, 10, "n", n) })
		}
		page := func(before string, limit int) (ns []string, last string) {
			rep := f.run(func(c *link.Call) { AddAuditLog(c, before, limit) })
			f.must(EachAudit(rep, before, func(id string, _ time.Time, field func(string) string) {
				ns, last = append(ns, field("n")), id
			}))
			return ns, last
		}
		latest, last := page("", 2)
		earlier, _ := page(last, 2)
		if !slices.Equal(latest, []string{"3", "2"}) || !slices.Equal(earlier, []string{"1"}) {
			f.Errorf("%q, and before these %q", latest, earlier)
		}
	})
}
