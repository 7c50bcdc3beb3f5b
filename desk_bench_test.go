package shunt

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// fill sends commands a thousand at a time.
func fill(b *testing.B, s *redistest.Server, n int, command func(i int) (string, []any)) {
	b.Helper()
	c := s.Pool(b).Get()
	defer c.Close()
	for i := range n {
		name, args := command(i)
		if err := c.Send(name, args...); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 || i == n-1 {
			if _, err := c.Do(""); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// held is the longest time in ms for which a command has held up Redis since the last call.
func held(s *redistest.Server) (ms float64) {
	log, _ := redis.Values(s.Do("SLOWLOG", "GET", 128), nil)
	for _, v := range log {
		entry, _ := redis.Values(v, nil)
		us, _ := redis.Int64(entry[2], nil)
		ms = max(ms, float64(us)/1000)
	}
	s.Do("SLOWLOG", "RESET")
	return ms
}

// peak runs do, and gives the largest heap in MB meanwhile, above that before.
func peak(do func()) float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, m.HeapAlloc
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}()
	do()
	close(end)
	<-ended
	return float64(most-before) / (1 << 20)
}

// One page of overview over 1,000 channels, each with messages of all kinds, a receiver, and counts of 10 minutes.
func BenchmarkOverview(b *testing.B) {
	s := redistest.Start(b)
	q := &Queue{Pool: s.Pool(b), NoCounts: true}
	defer func() { _ = q.Close() }()
	const channels = 1000
	names := make([]string, channels)
	for i := range names {
		names[i] = fmt.Sprint("channel-", i)
		s.Do("SADD", "shunt.channels", names[i])
	}
	now := time.Now()
	sums := new(meter.Sums)
	for i := range sums[:16+3*meter.Buckets] {
		sums[i] = uint64(i * 100)
	}
	fill(b, s, channels*30, func(i int) (string, []any) {
		k := store.KeysOf(names[i/30])
		e := element.Element{Serial: element.NewSerial(), Payload: make([]byte, 128)}
		switch i % 3 {
		case 0:
			return "LPUSH", []any{k.Prepare, e.Encode()}
		case 1:
			return "ZADD", []any{k.Delay, now.UnixMilli(), e.Encode()}
		}
		return "ZADD", []any{k.Dead, now.UnixMilli(), e.Encode()}
	})
	fill(b, s, channels, func(i int) (string, []any) {
		k := store.KeysOf(names[i])
		return "ZADD", []any{k.Receivers, now.Add(time.Hour).UnixMilli(), store.NewIncarnation(8, time.Minute).Name}
	})
	minute := now.Unix() / 60
	fill(b, s, channels*11, func(i int) (string, []any) {
		k, m := store.KeysOf(names[i/11]), minute-int64(i%11)
		record := sums.Append(nil)
		chunk := append([]byte{byte(m % 20)}, byte(len(record)%128+128), byte(len(record)/128))
		return "HSET", []any{k.Counts, fmt.Sprint("m", m/20), append(chunk, record...)}
	})
	s.Do("CONFIG", "SET", "slowlog-log-slower-than", "200", "slowlog-max-len", "128")
	held(s)
	for b.Loop() {
		all, err := q.Overview(b.Context())
		if err != nil || len(all) != channels || all[5].Prepare != 10 {
			b.Fatalf("%d channels, %v", len(all), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/page")
	b.ReportMetric(held(s), "ms-longest")
}

// A million dead letters are searched, grouped and retried.
func BenchmarkMillionDead(b *testing.B) {
	s := redistest.Start(b)
	q := &Queue{Pool: s.Pool(b), NoCounts: true}
	defer func() { _ = q.Close() }()
	const n, name = 1_000_000, "jobs"
	k := store.KeysOf(name)
	for b.Loop() {
		fill(b, s, n, func(i int) (string, []any) {
			e := element.Element{Serial: element.NewSerial(), Payload: make([]byte, 128), Attempts: 3}
			e.SetFailure(fmt.Sprintf("order %d: %s", 10_000+i, []string{"timeout", "refused", "no space"}[i%3]))
			if i%100_000 == 0 {
				_ = e.SetHeader("needle", "yes")
			}
			return "ZADD", []any{k.Dead, 1_700_000_000_000 + i, e.Encode()}
		})
		s.Do("CONFIG", "SET", "slowlog-log-slower-than", "200", "slowlog-max-len", "128")
		held(s)
		measure := func(what string, do func() error) {
			begun := time.Now()
			mb := peak(func() {
				if err := do(); err != nil {
					b.Fatal(what, err)
				}
			})
			b.ReportMetric(time.Since(begun).Seconds(), "s-"+what)
			b.ReportMetric(mb, "MB-"+what)
			b.ReportMetric(held(s), "ms-longest-"+what)
		}
		measure("search", func() error {
			found := 0
			needle := Filter{Headers: map[string]string{"needle": "yes"}}
			o := BrowseOptions{Channel: name, State: StateDead, Filter: needle}
			for {
				page, err := q.Browse(b.Context(), o)
				found += len(page.Entries)
				if o.From = page.Next; err != nil || page.Next == "" {
					if found != 10 && err == nil {
						err = fmt.Errorf("found %d", found)
					}
					return err
				}
			}
		})
		measure("group", func() error {
			fs, err := q.Failures(b.Context(), name, StateDead, Filter{})
			if len(fs.Groups) != 3 && err == nil {
				err = fmt.Errorf("%+v", fs)
			}
			return err
		})
		measure("retry", func() error {
			res, err := q.RetryAllDead(b.Context(), name, Filter{FailureLike: "order #: timeout"})
			if res.Changed != (n+2)/3 && err == nil {
				err = fmt.Errorf("%+v", res)
			}
			return err
		})
		s.Do("DEL", k.Dead, k.Prepare)
	}
}
