package shunt

import (
	"context"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
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
	before := moves()
	b.enqueue(0, 1)
	b.wait(EventAcked, 1, 5*time.Second)
	if after := moves(); after == before {
		t.Errorf("%d as before", after)
	}
	before = moves()
	b.must(b.one(1, In(time.Hour)))
	if after := moves(); after == before {
		t.Errorf("%d as before a delayed message", after)
	}
}
