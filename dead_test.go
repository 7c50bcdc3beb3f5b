package shunt

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// When one more dies, the oldest beyond MaxDead and those that died longer than DeadFor ago are dropped, with an Event.
func TestTrimmed(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		ages := map[string]time.Duration{
			"half an hour": 30 * time.Minute,
			"two hours":    2 * time.Hour,
			"forty days":   40 * 24 * time.Hour,
		}
		for _, c := range []struct {
			name    string
			maxDead int
			deadFor time.Duration
			want    []string // the latest first
		}{
			{"by default", 0, 0, []string{"now", "half an hour", "two hours"}},
			{"MaxDead", 2, -1, []string{"now", "half an hour"}},
			{"DeadFor", -1, time.Hour, []string{"now", "half an hour"}},
			{"both", 1, time.Hour, []string{"now"}},
			{"no bound", -1, -1, []string{"now", "half an hour", "two hours", "forty days"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				redistest.Leaks(t)
				q := newBench(t, b.URL(), func(q *Queue) { q.MaxDead, q.DeadFor = c.maxDead, c.deadFor })
				for payload, age := range ages {
					b.Do("ZADD", store.KeysOf(q.name).Dead, time.Now().Add(-age).UnixMilli(), strconv.Quote(payload))
				}
				k := Define(q.name, func(context.Context, string) error { return Reject(errors.New("never")) })
				if _, err := q.Receive(t.Context(), k, 1); err != nil {
					t.Fatal(err)
				}
				if err := q.Enqueue(t.Context(), k.Message("now")); err != nil {
					t.Fatal(err)
				}
				q.wait(EventRejected, 1, 5*time.Second)
				es, err := q.List(t.Context(), q.name, StateDead, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, e := range es {
					payload, _ := strconv.Unquote(string(e.Payload))
					got = append(got, payload)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("dead: %q, want %q", got, c.want)
				}
				q.Close() // all events have been told
				if got, want := q.sum(EventTrimmed), len(ages)+1-len(c.want); got != want {
					t.Errorf("told of %d dropped, want %d", got, want)
				}
			})
		}
	})
}

// What was in dying hands too often goes to dead and is trimmed there like anything else.
func TestTrimmedByReap(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		q := newBench(t, b.URL(), func(q *Queue) { q.Lease, q.MaxDead = time.Second, 1 })
		k, gone := store.KeysOf(q.name), store.NewIncarnation(1, time.Second)
		for i := range 3 {
			e := element.Element{
				Recoveries: 3,
				Serial:     element.NewSerial(),
				Payload:    strconv.AppendInt(nil, int64(i), 10),
			}
			b.Do("LPUSH", k.Doing(gone, 0), e.Encode())
		}
		b.Do("ZADD", k.DeadReceivers, 1, gone.Name+" 1 r")
		q.receive(1, func(context.Context, int) error { return nil })
		q.until(
			10*time.Second,
			"it is told",
			func() bool { return q.sum(EventPoisoned) == 3 && q.sum(EventTrimmed) == 2 },
		)
		if es, err := q.List(t.Context(), q.name, StateDead, 0, 0); len(es) != 1 || err != nil {
			t.Errorf("%d are dead: %v", len(es), err)
		}
	})
}
