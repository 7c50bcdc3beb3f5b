package shunt

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// What happens to messages changes the number, and a receiver that waits does not.
func TestMoves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second }) // it beats often
	b.receive(1, func(context.Context, int) error { return nil })
	b.wait(EventStarted, 1, 5*time.Second)
	moves := func() int64 {
		n, err := b.Moves(t.Context())
		b.must(err)
		return n
	}
	redistest.Until(t, 5*time.Second, "the receiver is idle", func() bool {
		before := moves()
		time.Sleep(time.Second)
		return moves() == before
	})
	b.must(b.one(3, ID("done"), UniqueFor(time.Hour)))
	b.wait(EventAcked, 1, 5*time.Second)
	var ref Ref
	var more *bench
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"a message", func() { b.enqueue(0, 1); b.wait(EventAcked, 2, 5*time.Second) }},
		{"a delayed message", func() { b.must(b.one(1, In(time.Hour))) }},
		{"one that is due later", func() { b.must(b.one(2, In(2*time.Hour), RefTo(&ref))) }},
		{"to postpone it", func() { b.must(b.Postpone(t.Context(), ref, In(3*time.Hour))) }},
		{"to delete it", func() { b.must(b.Delete(t.Context(), ref)) }},
		{"a purge beside a message with an ID", func() {
			if n, err := b.Purge(t.Context(), b.name, StateDelay); err != nil || n != 1 {
				t.Errorf("%d are purged: %v", n, err)
			}
		}},
		{"a receiver", func() {
			more = newBench(t, s.URL())
			more.name = b.name
			more.receive(1, func(context.Context, int) error { return nil })
			redistest.Until(t, 5*time.Second, "it tells of itself", func() bool {
				rs, err := b.Receivers(t.Context(), b.name)
				b.must(err)
				return len(rs) == 2 && rs[0].Host != "" && rs[1].Host != ""
			})
		}},
		{"its end", func() { b.must(more.Close()) }},
		{"its end, and a last beat", func() {
			replies, _, err := asker{q: b.Queue}.Ask(t.Context(), "", func(c *link.Call) {
				store.AddBeat(c, b.keys(), store.NewIncarnation(1, time.Second))
				c.Add("DEL", b.name)
			})
			b.must(errors.Join(err, replies[0].Err, replies[1].Err))
		}},
		{"what somebody did", func() { b.must(b.Audit(t.Context(), AuditEntry{By: "ann", Verb: "purge"})) }},
	} {
		before := moves()
		c.do()
		if after := moves(); after == before {
			t.Errorf("%d as before %s", after, c.what)
		}
	}
	rs, err := b.Receivers(t.Context(), b.name)
	b.must(err)
	inc, err := store.ParseIncarnation(rs[0].Name)
	b.must(err)
	before := moves()
	// It tells of itself once in half an hour.
	replies, _, err := asker{q: b.Queue}.Ask(t.Context(), "", func(c *link.Call) {
		store.AddAbout(c, b.keys(), inc, "pid=1", time.Now())
	})
	b.must(errors.Join(err, replies[0].Err))
	_, err = b.Health(t.Context())
	b.must(err)
	_, err = b.Stats(t.Context(), b.name)
	b.must(err)
	if after := moves(); after != before && moves() == after { // nothing else had it change just then
		t.Errorf("%d, and %d after it was looked at", before, after)
	}
}
