package shunt

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

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

// A process that has put off the ends of leases ends them when the grace of each is over, although another process is
// the channel's keeper, and may be dead. It did so with its next look, up to 5 s later.
func TestPutOffIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*bench){
		"receiver": func(b *bench) { b.receive(1, func(context.Context, int) error { return nil }) },
		"upkeep":   func(b *bench) { b.must(b.Upkeep(b.t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t) // an Upkeep keeps all that is there
			b := newBench(t, s.URL())
			k := b.keys()
			hour := time.Now().Add(time.Hour).UnixMilli()
			s.Do("HSET", k.Keeper, "name", "killed", "until", time.Now().Add(keeperKeeps).UnixMilli())
			s.Do("ZADD", k.Receivers, hour, store.NewIncarnation(1, time.Hour).Name)
			s.Do("SADD", store.ChannelsKey, b.name)
			begin(b)
			redistest.Until(t, 5*time.Second, "it hears hints", func() bool {
				return s.Do("PUBSUB", "NUMPAT").(int64)+s.Do("PUBSUB", "NUMSUB", k.Delay).([]any)[1].(int64) > 0
			})
			b.passes(s, 100*time.Millisecond)
			sight := b.stationAt(b.server).sight
			sight.fence()
			b.until(5*time.Second, "the Queue has seen Redis", func() bool { return sight.fence() != store.Fence{} })
			sight.mu.Lock()
			sight.since = sight.at.Add(time.Hour) // as if it had been away
			sight.mu.Unlock()

			// A quarter of 10 s is the grace of the longer one.
			short, long := store.NewLease(time.Second, 0), store.NewLease(10*time.Second, 0)
			for _, lease := range []store.Lease{short, long} {
				e := element.Element{Serial: element.NewSerial(), Payload: []byte("1")}
				s.Do("LPUSH", k.LeaseList(lease.Name), e.Encode())
				s.Do("ZADD", k.Leased, time.Now().Add(time.Second).UnixMilli(), lease.Name)
			}
			b.until(10*time.Second, "the ends are put off", func() bool {
				score, _ := redis.String(s.TryDo("ZSCORE", k.Leased, long.Name))
				return strings.HasSuffix(score, ".5")
			})
			off := time.Now()
			for n, grace := range []time.Duration{short.Grace(), long.Grace()} {
				b.wait(EventLapsed, n+1, 10*time.Second)
				if took := time.Since(off); took > grace+time.Second {
					t.Errorf("put off by %v, it has ended after %v", grace, took)
				}
			}
		})
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
