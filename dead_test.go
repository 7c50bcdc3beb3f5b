package shunt

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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
	t.Parallel()
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

// RetryDead of an expired one.
func TestReviveExpired(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, ExpireToDead(time.Millisecond)))
	b.must(b.one(2, ExpireToDead(time.Millisecond), ID("x")))
	b.passes(s, 400*time.Millisecond)
	seen := newTally()
	b.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.wait(EventRejected, 2, 5*time.Second)
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	n, err := b.RetryDead(ctx, b.name, dead...)
	b.must(err)
	b.until(
		5*time.Second,
		"the end",
		func() bool { return b.count(EventRejected)+b.count(EventAcked)+b.count(EventExpired) >= 4 },
	)
	t.Logf("revived %d; handled %v, rejected %d expired %d", n, seen.n, b.count(EventRejected), b.count(EventExpired))
	if len(seen.n) != 2 {
		t.Fail()
	}
}

// A plain Expire that was reaped to dead, revived: dropped.
func TestReviveDropped(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, Expire(50*time.Millisecond)))
	k := store.KeysOf(b.name)
	raw := s.Do("RPOP", k.Prepare).([]byte)
	raw[2] = 4 // as reap does with what four dying processes held
	s.Do("ZADD", k.Dead, time.Now().UnixMilli(), raw)
	b.passes(s, 51*time.Millisecond)
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	n, err := b.RetryDead(ctx, b.name, dead...)
	b.must(err)
	seen := newTally()
	b.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.until(5*time.Second, "the end", func() bool { return b.count(EventAcked)+b.count(EventExpired) >= 1 })
	t.Logf("revived %d; handled %v, expired %d", n, seen.n, b.count(EventExpired))
	if len(seen.n) != 1 {
		t.Fail()
	}
}

// Deadline.
func TestReviveLate(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	ctx := context.Background()
	b := newBench(t, s.URL())
	b.must(b.one(1, Deadline(time.Now().Add(200*time.Millisecond))))
	b.passes(s, 210*time.Millisecond)
	seen := newTally()
	b.receive(1, func(_ context.Context, i int) error { seen.add(i); return nil })
	b.wait(EventRejected, 1, 5*time.Second)
	dead, err := b.List(ctx, b.name, StateDead, 0, 0)
	b.must(err)
	_, err = b.RetryDead(ctx, b.name, dead...)
	b.must(err)
	b.until(5*time.Second, "the end", func() bool { return b.count(EventRejected)+b.count(EventAcked) >= 2 })
	if len(seen.n) != 1 {
		t.Errorf("dead again")
	}
}

// A payload that began as an element of a newer version does was taken for one: RetryDead lost all that was before it.
func TestRetryDeadKeepsPayload(t *testing.T) {
	t.Parallel()
	payload := append([]byte{0xC1, 0x20}, strings.Repeat("sealed", 10)...)
	for name, opts := range map[string][]Option{"plain": nil, "id": {ID("a"), Header("k", "v"), MaxAttempts(3)}} {
		for _, reason := range []string{"never", element.ErrNewerVersion.Error()} {
			t.Run(name+"/"+reason[:5], func(t *testing.T) {
				t.Parallel()
				s := redistest.Shared(t)
				redistest.Leaks(t)
				b := newBench(t, s.URL())
				ctx := context.Background()
				infos := make(chan Info, 10)
				handled := 0
				p := &opaque{channel: b.name}
				p.handle = func(ctx context.Context, got []byte) error {
					info, _ := FromContext(ctx)
					if !bytes.Equal(got, payload) {
						t.Errorf("handled %q", got)
					}
					infos <- info
					if handled++; handled == 1 {
						return Reject(errors.New(reason))
					}
					return nil
				}
				if _, err := b.Receive(ctx, p, 1); err != nil {
					t.Fatal(err)
				}
				b.must(b.Enqueue(ctx, Raw(b.name, payload), opts...))
				b.wait(EventRejected, 1, 5*time.Second)
				dead, err := b.List(ctx, b.name, StateDead, 0, 0)
				b.must(err)
				if n, err := b.RetryDead(ctx, b.name, dead...); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				b.wait(EventAcked, 1, 5*time.Second)
				before, after := <-infos, <-infos
				if after.Serial != before.Serial || after.ID != before.ID ||
					after.Headers["k"] != before.Headers["k"] ||
					after.Attempt != 1 {
					t.Errorf("rejected as %+v, handled again as %+v", before, after)
				}
				if ids := b.taken(s); len(ids) > 0 {
					t.Errorf("the ids %q are taken for ever", ids)
				}
			})
		}
	}
}

// Purge deletes what waits, with its ids, whatever lies at the keys of what is cancelled or waited for.
func TestPurgeBesideWrongType(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"cancelled", "waited"} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			s := redistest.Shared(t)
			b := newBench(t, s.URL())
			b.must(b.one(1, ID("a")))
			b.must(b.one(2, ID("b")))
			s.Do("SET", "{"+b.name+"}."+suffix, "not shunt's")
			if n, err := b.Purge(context.Background(), b.name, StatePrepare); n != 2 || err != nil {
				t.Errorf("%d purged, %v", n, err)
			}
			b.noID("a")
			b.noID("b")
		})
	}
}
