package dashboard

import "github.com/shuntmq/shunt"

type auditPage struct {
	Entries []shunt.AuditEntry
	Next    string
}

const auditShown = 100

// auditLog shows who did what, the latest first.
func (q *request) auditLog() error {
	es, err := q.q.AuditLog(q.r.Context(), q.form.Get("before"), auditShown)
	if err != nil {
		return err
	}
	p := auditPage{Entries: es}
	if len(es) == auditShown {
		p.Next = es[len(es)-1].ID
	}
	return q.show("audit", q.T("audit"), p)
}
