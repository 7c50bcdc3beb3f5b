package shunt

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

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
