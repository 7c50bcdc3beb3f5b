package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/recur"
)

// A busy Redis with messages in every state has no finding.
func TestHealthy(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := start(t)
	ctx := context.Background()
	work := &shunt.Queue{Pool: b.pool, Quiet: true, NoCounts: true, Backoff: func(int) time.Duration {
		return 20 * time.Millisecond
	}}
	t.Cleanup(func() {
		soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_ = work.Shutdown(soon) // ends the slow handlers
		_ = work.Close()
	})
	handled := make(chan struct{}, 1)
	kind := shunt.Define("busy", func(ctx context.Context, n int) error {
		info, _ := shunt.FromContext(ctx)
		select {
		case handled <- struct{}{}:
		default:
		}
		time.Sleep(time.Millisecond) // work
		switch {
		case n%7 == 0 && info.Attempt == 1:
			return errors.New("once more")
		case n%11 == 0 && info.Attempt == 1:
			return shunt.Snooze(100 * time.Millisecond)
		case n%50 == 0:
			return shunt.Reject(errors.New("never"))
		}
		return nil
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := work.Receive(ctx, kind, 8)
	must(err)
	slow := shunt.Define("slow", func(ctx context.Context, n int) error { <-ctx.Done(); return ctx.Err() })
	_, err = work.Receive(ctx, slow, 2)
	must(err)
	for i := range 4 { // two are handled, two wait
		must(work.Enqueue(ctx, slow.Message(i), shunt.ID(fmt.Sprint("slow", i))))
		must(work.Enqueue(ctx, slow.Message(i), shunt.ID(fmt.Sprint("later", i)), shunt.In(time.Hour)))
		must(work.Enqueue(ctx, shunt.Raw("pulled", []byte("x")), shunt.ID(fmt.Sprint("pulled", i))))
	}
	pulled, err := work.Pull(ctx, shunt.PullOptions{Channels: []string{"pulled"}, Max: 2, Lease: time.Minute})
	must(err)
	if len(pulled) == 0 {
		t.Fatal("none was pulled")
	}
	_, err = work.EnqueueOnce(ctx, shunt.Once{Channel: "busy", Key: "key"}, kind.Message(1))
	must(err)
	must((&recur.Timetable{Queue: work}).Add(ctx, "often", recur.Every(100*time.Millisecond), kind.Message(1)))

	feed, stop := context.WithCancel(ctx)
	var feeding sync.WaitGroup
	defer func() { stop(); feeding.Wait() }()
	feeding.Go(func() {
		for n := 0; feed.Err() == nil; n++ {
			_ = work.Enqueue(feed, kind.Message(n), shunt.ID(fmt.Sprint(n)), shunt.Retain(50*time.Millisecond))
			_ = work.Enqueue(feed, kind.Message(n))
			if n%20 == 0 {
				_, _ = work.Cancel(feed, kind.ByID(fmt.Sprint(n)))
			}
		}
	})
	<-handled
	for range 3 {
		r := b.examine()
		if !r.Healthy() {
			t.Errorf("a healthy Redis has findings:\n%s", kinds(r))
		}
		if r.Channels != 3 || r.Keys < 10 || len(r.Limits) > 0 {
			t.Errorf("%d channels, %d keys, limits %q", r.Channels, r.Keys, r.Limits)
		}
	}
}

// A Redis of millions of keys is looked at for a bounded time, in short commands, and the report says what was left.
func TestBounded(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := start(t, "slowlog-log-slower-than 2000", "slowlog-max-len 1000")
	b.list("big")
	const fill = "for i = 1, 20000 do redis.call('SET', 'other.' .. ARGV[1] .. i, 'x') " +
		"redis.call('LPUSH', KEYS[1], ARGV[2]) end"
	for i := range 5 {
		b.do("EVAL", fill, 1, "{big}.prepare", i, element(0, "hello"))
	}
	b.do("EVAL", "for i = 1, 30000 do redis.call('HSET', KEYS[1], i, ARGV[1]) end", 1, "{big}.ids",
		element(0, "")[4:20]+"p0 0 0 \n")
	var r Report
	var slow map[string]bool // commands that were slow in each look: a busy machine stops Redis at another each time
	for look := 0; look < 4 && (look == 0 || len(slow) > 0); look++ {
		b.do("SLOWLOG", "RESET")
		r = b.examine()
		entries, _ := b.do("SLOWLOG", "GET", 1000).([]any)
		now := make(map[string]bool)
		for _, v := range entries {
			if text := fmt.Sprintf("%s", v.([]any)[3]); look == 0 || slow[text] {
				now[text] = true
			}
		}
		slow = now
	}
	if len(slow) > 0 {
		t.Errorf("these commands took more than 2 ms each time: %v", slow)
	}
	said := fmt.Sprint(r.Limits)
	if len(r.Limits) == 0 || find(r, IDs) != nil {
		t.Errorf("limits: %s", said)
	}
	b.o.Within = 30 * time.Millisecond
	b.o.Pause = 5 * time.Millisecond
	began := time.Now()
	if r = b.examine(); time.Since(began) > 2*time.Second || len(r.Limits) == 0 {
		t.Errorf("took %v, limits %q", time.Since(began), r.Limits)
	}
}

// What cannot be planted is judged by what Redis would say.
func TestJudgeInfo(t *testing.T) {
	t.Parallel()
	for kind, info := range map[Kind]map[string]string{
		HostMemory: {"used_memory": "900000000", "total_system_memory": "1000000000"},
		Fragmented: {"used_memory": "200000000", "used_memory_rss": "900000000"},
		Swapped:    {"used_memory": "900000000", "used_memory_rss": "100000000", "used_memory_startup": "1"},
		SlowFork:   {"latest_fork_usec": "1500000"},
		Loading:    {"loading": "1"},
		Cluster:    {"cluster_enabled": "1"},
		TooOld:     {"redis_version": "4.0.14"},
		Lag:        {"connected_slaves": "1", "slave0": "ip=a,port=1,state=online,offset=0,lag=60"},
	} {
		e := &examination{info: info, o: Options{}.withDefaults()}
		e.judgeInfo()
		if len(e.report.Findings) != 1 || e.report.Findings[0].Kind != kind || e.report.Findings[0].Why == "" {
			t.Errorf("%s: %+v", kind, e.report.Findings)
		}
	}
	e := &examination{info: map[string]string{"redis_version": "7.0.15", "used_memory": "200000000", "loading": "0",
		"used_memory_rss": "220000000", "cluster_enabled": "0", "total_system_memory": "900000000"}}
	if e.judgeInfo(); len(e.report.Findings) > 0 {
		t.Errorf("false alarm: %+v", e.report.Findings)
	}
}

// A user with the rights of docs/access.md and no more gets a report, and what it cannot see is in its limits.
func TestFewRights(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.do("ACL", "SETUSER", "few", "on", ">p", "~{*}.*", "resetchannels", "+eval", "+evalsha", "+time", "+lpush",
		"+rpush",
		"+rpoplpush", "+brpoplpush", "+lrem", "+lrange", "+ltrim", "+llen", "+lindex", "+exists", "+zadd", "+zrem",
		"+zscore", "+zcard", "+zcount", "+zrange", "+zrevrange", "+zrangebyscore", "+zremrangebyrank", "+scard")
	b.connect("redis://few:p@" + b.s.Addr())
	b.o.Channels = []string{"c"}
	r := b.examine()
	if f := find(r, RightsNeeded); f != nil {
		t.Errorf("%+v", *f)
	}
	if find(r, RightsLacking) == nil || len(r.Limits) < 3 {
		t.Errorf("%s\n%q", kinds(r), r.Limits)
	}
}

// A dead receiver is mended once all its messages are back, and not when it has but been claimed.
func TestMendWaits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := start(t)
	channelFaults["dead-unswept"].plant(b)
	const fill = "for i = 2, 500 do redis.call('LPUSH', KEYS[1], ARGV[1] .. i) end"
	b.do("EVAL", fill, 1, c+"doing."+somebody+".0", element(0, ""))
	f := find(b.examine(), DeadUnswept)
	if f == nil {
		t.Fatal("not found")
	}
	p := redistest.NewProxy(t, b.s.Addr())
	b.connect(p.URL())
	p.On(redistest.ByScript(store.Reap)("c"), 0, redistest.Delay(10*time.Millisecond))
	if err := Mend(context.Background(), b.q, b.pool, *f, b.o); err != nil {
		t.Fatal(err)
	}
	b.has("prepare", 500)
}

// Mend does nothing where a new look finds nothing, and Examine returns an error where nobody answers.
func TestErrors(t *testing.T) {
	t.Parallel()
	b := start(t)
	ctx := context.Background()
	f := Finding{Kind: IDs, Channel: "c", Fix: Safe}
	if err := Mend(ctx, b.q, b.pool, f, b.o); !errors.Is(err, ErrGone) {
		t.Errorf("Mend: %v", err)
	}
	b.s.Kill()
	if _, err := Examine(ctx, b.q, b.pool, b.o); err == nil {
		t.Error("no error of a Redis that is gone")
	}
}
