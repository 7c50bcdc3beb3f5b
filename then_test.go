package shunt

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Then with the own id.
func TestThenOwnID(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	b.receive(1, func(ctx context.Context, i int) error {
		if i == 2 {
			return nil
		}
		return Then(ctx, With(b.kind(nil).Message(2), ID("a")))
	})
	b.must(b.one(1, ID("a")))
	b.wait(EventAcked, 2, 5*time.Second)
	if n := b.count(EventDuplicate); n != 0 {
		t.Errorf("%d duplicates", n)
	}
}

// Then with many.
func TestThenMany(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	next := Define(b.name+".next", func(context.Context, int) error { return nil })
	b.receive(1, func(ctx context.Context, i int) error {
		var ms []IMessage
		for j := range 1000 {
			ms = append(ms, With(next.Message(j), ID(fmt.Sprint(j)), In(time.Duration(j%2)*time.Hour)))
		}
		return Then(ctx, ms...)
	})
	b.must(b.one(1))
	b.wait(EventAcked, 1, 10*time.Second)
	st, _ := b.Stats(context.Background(), b.name+".next")
	if st[StatePrepare].Count != 500 || st[StateDelay].Count != 500 {
		t.Errorf("%+v", st)
	}
}

// Who had the expired message could not be read, and that ended the script after what was to follow had been pushed,
// each time anew.
func TestFollowBesideForeignRunning(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	b, d := newBench(t, s.URL()), newBench(t, s.URL())
	d.name += ".d"
	d.expires(s, "x")
	b.receive(1, func(ctx context.Context, _ int) error {
		return Then(
			ctx,
			d.kind(nil).Message(1),
			d.kind(nil).Message(2),
			With(d.kind(nil).Message(3), ID("x")),
			With(d.kind(nil).Message(4), In(time.Hour)),
		)
	})
	b.enqueue(0, 1)
	b.until(
		5*time.Second,
		"it is acked, or refused",
		func() bool { return b.count(EventAcked)+b.count(EventReceiverError) > 0 },
	)
	if b.count(EventAcked) == 0 {
		b.wait(EventReceiverError, 2, 5*time.Second)
	}
	if got := fmt.Sprint(d.waiting()); got != "[- - - x]" || b.count(EventAcked) != 1 || b.sum(EventDuplicate) != 1 {
		t.Errorf("%d acked, %d refused for their id, there are %s", b.count(EventAcked), b.sum(EventDuplicate), got)
	}
	s.Do("DEL", store.KeysOf(d.name).Running)
	d.must(d.one(5, ID("x")))
}

// A follow-up that is not enqueued, because its ID is taken, is a warning that names the message it was to follow.
func TestFollowUpWhoseIDIsTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	q.must(q.one(2, ID("taken"), In(time.Hour)))
	var first Ref
	q.receive(1, func(ctx context.Context, _ int) error {
		return Then(ctx, With(q.kind(nil).Message(3), ID("taken")))
	})
	q.must(q.one(1, RefTo(&first)))
	q.wait(EventDuplicate, 1, 5*time.Second)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.events {
		if e.Kind == EventDuplicate && (e.Err == nil || !strings.Contains(e.Err.Error(), first.Serial) ||
			levelOf(e) != slog.LevelWarn) {
			t.Errorf("%+v", e)
		}
	}
}

// A user who may do all but take an ID: what follows without one was enqueued anew with each try of the ack.
func TestFollowWithoutRightToIDs(t *testing.T) {
	t.Parallel()
	s := aclServer(t)
	must, may, _ := aclLines(t)
	password, _ := aclWords(must)
	name := aclUser(s, slices.Concat(must, may)...)
	b := newBench(t, fmt.Sprintf("redis://%s:%s@%s/0", name, password, s.Addr()))
	next := Define(b.name+".next", func(context.Context, int) error { return nil })
	b.receive(1, func(ctx context.Context, _ int) error {
		return Then(ctx, next.Message(1), With(next.Message(2), ID("x")))
	})
	b.enqueue(0, 1)
	b.until(10*time.Second, "the ack is refused", func() bool {
		return b.count(EventReceiverError) > 0 && denials(s, name)["hsetnx"]
	})
	if n := s.Do("LLEN", store.KeysOf(b.name+".next").Prepare); n != int64(0) {
		t.Errorf("%v messages follow one that was not acked", n)
	}
}

// The Event of what follows later says when it is due, as that of an enqueue does; of what follows at once it says
// nothing.
func TestFollowUpTellsWhenItIsDue(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	b := newBench(t, s.URL())
	next := Define(b.name+".next", func(context.Context, int) error { return nil })
	at := time.Now().Add(2 * time.Hour).Truncate(time.Millisecond)
	b.receive(1, func(ctx context.Context, _ int) error {
		return Then(ctx, next.Message(1), With(next.Message(2), In(time.Hour)), With(next.Message(3), At(at)))
	})
	began := time.Now()
	b.enqueue(0, 1)
	b.wait(EventAcked, 1, 5*time.Second)
	var due []time.Time
	b.mu.Lock()
	for _, e := range b.events {
		if e.Kind == EventEnqueued && e.Channel == next.Channel() {
			due = append(due, e.DueAt)
		}
	}
	b.mu.Unlock()
	if len(due) != 3 || !due[0].IsZero() || due[1].Sub(began.Add(time.Hour)).Abs() > time.Minute || !due[2].Equal(at) {
		t.Errorf("due at %v", due)
	}
}
