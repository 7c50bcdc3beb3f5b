package shunt

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A snoozed message is looked at again as often as its handler wants, and no look counts: neither in the element nor in
// the record of its id. A failure in between does, and stays.
func TestSnooze(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "a"} {
		t.Run("id "+id, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			redistest.Leaks(t)
			q := newBench(t, s.URL(), func(q *Queue) {
				q.MaxAttempts = 2
				q.Backoff = func(int) time.Duration { return 0 }
			})
			looks := 0
			var infos []Info
			q.receive(1, func(ctx context.Context, _ int) error {
				info, _ := FromContext(ctx)
				infos = append(infos, info)
				switch looks++; looks {
				case 4:
					return errors.New("no stamps")
				case 6:
					return nil
				}
				return fmt.Errorf("not yet: %w", Snooze(0))
			})
			opts := []Option{Header("k", "v")}
			if id != "" {
				opts = append(opts, ID(id), Retain(time.Minute))
			}
			began := time.Now()
			q.enqueue(0, 1, opts...)
			q.wait(EventSnoozed, 1, 5*time.Second)
			if id != "" {
				q.until(5*time.Second, "its record says so", func() bool {
					st, err := q.Status(t.Context(), ByID(q.name, id))
					return err == nil && (st.State == StateDone || st.State == StateDoing || st.Attempt <= 1)
				})
			}
			q.wait(EventAcked, 1, 10*time.Second)
			if took := time.Since(began); took < 4*leastSnooze {
				t.Errorf("four looks came within %v", took)
			}
			for i, info := range infos {
				want, failure := 1, ""
				if i > 3 {
					want, failure = 2, "no stamps"
				}
				if info.Attempt != want || info.Failure != failure || info.Headers["k"] != "v" {
					t.Errorf("look %d: %+v", i, info)
				}
			}
			if n := q.count(EventSnoozed); n != 4 || len(infos) != 6 || q.count(EventRetried) != 1 {
				t.Errorf("%d snoozed, %d looks", n, len(infos))
			}
			if id != "" {
				out, err := q.Wait(t.Context(), ByID(q.name, id))
				if err != nil || out.Attempt != 2 || out.Kind != EventAcked {
					t.Errorf("%+v, %v", out, err)
				}
			}
		})
	}
}

// A snoozed message keeps the attempts that its record had.
func TestSnoozeKeepsRecord(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	q.receive(1, func(context.Context, int) error { return Snooze(time.Hour) })
	q.enqueue(0, 1, ID("a"))
	q.wait(EventSnoozed, 1, 5*time.Second)
	st, err := q.Status(t.Context(), ByID(q.name, "a"))
	if err != nil || st.State != StateDelay || st.Attempt != 0 || time.Until(st.DueAt) < 50*time.Minute {
		t.Errorf("%+v, %v", st, err)
	}
}

// Deadline ends what is snoozed for ever.
func TestSnoozeEndsAtDeadline(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL())
	q.receive(1, func(context.Context, int) error { return Snooze(0) })
	q.enqueue(0, 1, Deadline(time.Now().Add(500*time.Millisecond)))
	q.wait(EventRejected, 1, 10*time.Second)
}
