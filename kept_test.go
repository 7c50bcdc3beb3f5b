package shunt

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// Outcomes are listed and dropped by when they ended, whatever else kept holds and however long each is kept.
func TestKeptByEnd(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		ctx := context.Background()
		b := newBench(t, s.URL(), func(q *Queue) { q.MaxDone = 4 })
		k := store.KeysOf(b.name)
		s.Do("ZADD", k.Kept, -1, "not shunt's") // the oldest
		b.receive(1, func(context.Context, int) error { return nil })
		for i := range 6 {
			b.must(b.one(i, ID(fmt.Sprint(i)), Retain(time.Duration(10-i)*time.Hour), UniqueFor(time.Hour)))
			b.wait(EventAcked, i+1, 5*time.Second)
			b.passes(s, time.Millisecond) // no two end at the same time
		}
		listed := func(offset, limit int) (ids []string) {
			es, err := b.List(ctx, b.name, StateDone, offset, limit)
			b.must(err)
			for _, e := range es {
				ids = append(ids, e.ID)
			}
			return ids
		}
		if got := listed(0, 0); !slices.Equal(got, []string{"5", "4", "3", "2"}) {
			t.Errorf("kept: %q", got)
		}
		if got := listed(1, 2); !slices.Equal(got, []string{"4", "3"}) {
			t.Errorf("two of them: %q", got)
		}
		st, err := b.Stats(ctx, b.name)
		b.must(err)
		if done := st[StateDone]; done.Count != 4 {
			t.Errorf("%+v", done)
		}
		if n, err := b.Purge(ctx, b.name, StateDone); n != 4 || err != nil {
			t.Errorf("purged %d: %v", n, err)
		}
		if got := listed(0, 0); len(got) > 0 || s.Do("EXISTS", k.Done).(int64) != 0 {
			t.Errorf("left: %q", got)
		}
		if n := s.Do("ZCARD", k.Kept).(int64); n != 6 { // the ids that stay taken
			t.Errorf("kept has %d members", n)
		}
	})
}

// Status says until when an ID is taken, beside an outcome too; Delete of a dead message removes all that is there.
func TestUniqueBesideRetain(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	q := newBench(t, s.URL())
	q.receive(1, func(_ context.Context, i int) error {
		if i == 2 {
			return Reject(errOops)
		}
		return nil
	})
	q.must(q.one(1, ID("a"), Retain(time.Hour), UniqueFor(time.Hour)))
	q.wait(EventAcked, 1, 5*time.Second)
	if st := q.status("a"); st.Outcome.Kind != EventAcked || time.Until(st.UniqueUntil) < 50*time.Minute {
		t.Errorf("%+v", st)
	}
	q.must(q.one(2, ID("b"), Retain(time.Hour)))
	q.wait(EventRejected, 1, 5*time.Second)
	q.must(q.Delete(t.Context(), ByID(q.name, "b")))
	q.noID("b")
}
