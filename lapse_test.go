package shunt

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// What was cancelled while it was leased ends with its lease: an Event says so, and it is counted.
func TestCancelledEndsWithItsLease(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		b := newBench(t, s.URL())
		b.byHand()
		b.must(b.one(0, ID("a")))
		b.must(b.one(1))
		b.pull(2, PullOptions{Max: 2, Lease: 500 * time.Millisecond})
		_, err := b.Cancel(t.Context(), ByID(b.name, "a"))
		b.must(err)
		b.wait(EventLapsed, 1, 10*time.Second)
		b.wait(EventCancelled, 1, 5*time.Second)
		b.counter.flush(t.Context())
		if c := b.counted(); c.Cancelled != 1 || c.Recovered != 1 || c.Dead != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// What was cancelled, and has died with its receivers too often, ends as cancelled: an Event says so, and it is
// counted.
func TestCancelledEndsWithItsReceiver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := newBench(t, s.URL(), func(q *Queue) { q.Lease = time.Second })
	b.byHand()
	k, dead := b.keys(), store.NewIncarnation(1, time.Second)
	e := element.Element{Serial: element.NewSerial(), Recoveries: 3, Payload: []byte("1"),
		Extra: &element.Extra{ID: "a"}}
	s.Do("LPUSH", k.Doing(dead, 0), e.Encode())
	s.Do("SADD", k.Cancelled, e.Serial[:])
	s.Do("ZADD", k.Receivers, 1, dead.Name)
	s.Do("SADD", store.ChannelsKey, b.name)
	b.must(b.Upkeep(t.Context()))
	b.wait(EventCancelled, 1, 10*time.Second)
	b.counter.flush(t.Context())
	if c := b.counted(); c.Cancelled != 1 || c.Dead != 0 || b.count(EventPoisoned) > 0 {
		t.Errorf("%+v", c)
	}
}

// BenchmarkLeaseEnds is how late leases end, with 100,000 others out that do not.
func BenchmarkLeaseEnds(b *testing.B) {
	s := redistest.Start(b)
	pool, err := NewPool(s.URL())
	if err != nil {
		b.Fatal(err)
	}
	q := &Queue{Pool: pool, Quiet: true}
	b.Cleanup(func() { q.Close(); pool.Close() })
	ctx := context.Background()
	fill := func(n int) {
		ms := make([]IMessage, n)
		for i := range ms {
			ms[i] = Raw("c", []byte("x"))
		}
		if err := q.EnqueueAll(ctx, ms); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		fill(100_000)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range 100_000 / 16 {
					if _, err := q.Pull(ctx, PullOptions{Channels: []string{"c"}, Lease: time.Hour}); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		var late []time.Duration
		fill(500)
		ends := make(map[string]time.Time)
		for i := range 500 {
			term := 3*time.Second + time.Duration(i)*7*time.Millisecond
			ms, err := q.Pull(ctx, PullOptions{Channels: []string{"c"}, Lease: term})
			if err != nil || len(ms) != 1 {
				b.Fatal(len(ms), err)
			}
			ends[ms[0].Serial] = ms[0].EndsAt
		}
		for range 500 {
			ms, err := q.Pull(ctx, PullOptions{Channels: []string{"c"}, Lease: time.Hour, Wait: 20 * time.Second})
			if err != nil || len(ms) != 1 {
				b.Fatal(len(ms), err)
			}
			late = append(late, time.Since(ends[ms[0].Serial]))
		}
		slices.Sort(late)
		b.ReportMetric(float64(late[0])/1e6, "earliest-ms")
		b.ReportMetric(float64(late[len(late)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(late[len(late)*99/100])/1e6, "p99-ms")
	}
}
