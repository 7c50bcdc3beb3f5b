package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// maxAudit is about how many entries the audit keeps.
const maxAudit = 10_000

// AuditEntry says what somebody has done to messages by hand: at a desk, by the command line, or by a program.
type AuditEntry struct {
	ID      string    `json:"id"` // of the entry; those of later ones are greater
	At      time.Time `json:"at"` // by the server's clock
	By      string    `json:"by"` // who, as the desk knows them: 1 to 255 bytes
	Verb    string    `json:"verb"`
	Channel string    `json:"channel,omitempty"`
	Detail  string    `json:"detail,omitempty"` // which messages: a Ref or a Filter, as text of up to 4 KB
	Count   int       `json:"count"`            // of messages that were changed
	Error   string    `json:"error,omitempty"`  // up to 4 KB
}

// Audit adds an entry, whose ID and At Redis gives. Redis keeps the latest 10,000 or some more, for all channels. The
// methods of a Queue do not call it: who acts for a person does, for only that program knows the person.
func (q *Queue) Audit(ctx context.Context, e AuditEntry) error {
	switch {
	case e.By == "" || len(e.By) > 255:
		return fmt.Errorf("shunt: AuditEntry.By has %d bytes: want 1 to 255", len(e.By))
	case e.Verb == "" || len(e.Verb) > 255:
		return fmt.Errorf("shunt: AuditEntry.Verb has %d bytes: want 1 to 255", len(e.Verb))
	case e.Channel != "" && store.CheckChannel(e.Channel) != nil:
		return fmt.Errorf("shunt: AuditEntry.Channel: %w", store.CheckChannel(e.Channel))
	case len(e.Detail) > 4<<10 || len(e.Error) > 4<<10:
		return errors.New("shunt: AuditEntry.Detail or Error has more than 4 KB: cut it")
	}
	// A lost reply makes it be asked again: an entry that is there twice is better than one that is missing.
	_, _, err := asker{q: q}.Ask(ctx, "", func(c *link.Call) {
		store.AddAudit(c, maxAudit, "by", e.By, "verb", e.Verb, "channel", e.Channel, "detail", e.Detail, "count",
			e.Count, "error", e.Error)
	})
	return err
}

// AuditLog gives up to limit entries, 1 to 1,000, the latest first: those before an entry's ID, or without one the
// latest of all.
func (q *Queue) AuditLog(ctx context.Context, before string, limit int) ([]AuditEntry, error) {
	if limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("shunt: AuditLog for %d entries: want 1 to 1000", limit)
	}
	if before != "" && !store.IsAuditID(before) {
		return nil, fmt.Errorf("shunt: AuditLog before %.40q, which is no AuditEntry.ID", before)
	}
	replies, _, err := asker{q: q}.Ask(ctx, "", func(c *link.Call) { store.AddAuditLog(c, before, limit) })
	if err != nil {
		return nil, err
	}
	var es []AuditEntry
	err = store.EachAudit(replies[0], before, func(id string, at time.Time, field func(string) string) {
		e := AuditEntry{ID: id, At: at, By: field("by"), Verb: field("verb"), Channel: field("channel"),
			Detail: field("detail"), Error: field("error")}
		_, _ = fmt.Sscan(field("count"), &e.Count)
		es = append(es, e)
	})
	return es[:min(limit, len(es))], err
}
