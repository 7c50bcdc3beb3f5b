package recur

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// TestEachTickOnce with many runners, some of which come and go.
func TestEachTickOnce(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		const every = 100 * time.Millisecond
		b := newBench(t, s.URL(), redistest.Name(t))
		names := []string{"a", "b", "c"}
		for _, name := range names {
			b.add(name, Every(every), Missed(All(MaxAll)))
		}
		b.receive()
		b.run()
		others := []*bench{newBench(t, s.URL(), b.channel), newBench(t, s.URL(), b.channel), newBench(t, s.URL(),
			b.channel)}
		for i := range 3 {
			shutdown := others[i].run()
			n := len(b.handled("a")) + 3
			b.until(20*time.Second, "some ticks", func() bool { return len(b.handled("a")) >= n })
			if i < 2 {
				others[i].end(shutdown)
			}
		}
		b.until(20*time.Second, "20 ticks", func() bool {
			return !slices.ContainsFunc(names, func(name string) bool { return len(b.handled(name)) < 20 })
		})
		for _, name := range names {
			b.once(name, every, false)
		}
		e := b.entry("a")
		if e.Count < 20 || e.Last.Add(every).After(e.Next) || e.Last.IsZero() {
			t.Errorf("%+v", e)
		}
		told := 0
		for _, o := range append(others, b) {
			told += o.sum(shunt.EventEnqueued)
		}
		if n := len(b.handled("a")) + len(b.handled("b")) + len(b.handled("c")); told > n+9 || told < n-9 {
			t.Errorf("%d enqueues told of about %d", told, n)
		}
	})
}

// TestChangesReachRunners at once, by the hints alone: no look is due for 4.5 s.
func TestChangesReachRunners(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		runs := newBench(t, s.URL(), redistest.Name(t))
		runs.receive()
		runs.run()
		b, ctx := newBench(t, s.URL(), runs.channel), context.Background()
		count := func(name string) int { return len(runs.handled(name)) }
		soon := func(what string, ok func() bool) {
			t.Helper()
			runs.until(3*time.Second, what, ok)
		}

		b.add("a", Every(time.Hour))
		b.add("a", Every(100*time.Millisecond)) // replaced: sooner
		soon("2 ticks", func() bool { return count("a") >= 2 })
		if err := b.Pause(ctx, b.channel, "a"); err != nil {
			t.Fatal(err)
		}
		b.add("other", Every(100*time.Millisecond))
		soon("5 ticks of another", func() bool { return count("other") >= 5 })
		paused := count("a") // what was enqueued before the pause was handled before those
		soon("5 more", func() bool { return count("other") >= 10 })
		if n := count("a"); n != paused {
			t.Errorf("%d ticks while paused", n-paused)
		}
		if err := b.Timetable.Enqueue(ctx, b.channel, "a"); err != nil {
			t.Fatal(err)
		}
		soon("the one at once", func() bool { return count("a") == paused+1 })
		if h := runs.handled("a")[paused]; !h.tick.IsZero() {
			t.Errorf("a message of no tick has %v", h.tick)
		}
		if err := b.Resume(ctx, b.channel, "a"); err != nil {
			t.Fatal(err)
		}
		soon("a tick", func() bool { return count("a") >= paused+2 })
		if err := b.Remove(ctx, b.channel, "a"); err != nil {
			t.Fatal(err)
		}
		n := count("other")
		soon("5 ticks of another", func() bool { return count("other") >= n+5 })
		removed := count("a")
		soon("5 more", func() bool { return count("other") >= n+10 })
		if n := count("a"); n != removed {
			t.Errorf("%d ticks after Remove", n-removed)
		}
		runs.once("other", 100*time.Millisecond, false)
	})
}

// TestWithoutHints: a Redis user that may neither publish nor subscribe.
func TestWithoutHints(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels")
	url := fmt.Sprintf("redis://mute:secret@%s/0", s.Addr())
	runs := newBench(t, url, redistest.Name(t))
	runs.receive()
	runs.run()
	b := newBench(t, url, runs.channel)
	b.add("a", Every(100*time.Millisecond), Missed(All(MaxAll)))
	runs.until(8*time.Second, "a few ticks", func() bool { return len(runs.handled("a")) >= 3 })
	b.run() // who does not hear of the other's ticks
	runs.until(8*time.Second, "more", func() bool { return len(runs.handled("a")) >= 20 })
	runs.once("a", 100*time.Millisecond, false)
}

func TestMissedTicks(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		b := newBench(t, s.URL(), redistest.Name(t))
		every, now := time.Hour, time.Now()
		for now.UnixMilli()%every.Milliseconds() < 10_000 || now.UnixMilli()%every.Milliseconds() > 59*60_000 {
			every += time.Minute // no tick is near
		}
		since := time.Duration(now.UnixMilli()%every.Milliseconds()) * time.Millisecond
		ended := now.Add(-since).Truncate(time.Millisecond)
		cases := []struct {
			name string
			p    Policy
			ago  int // intervals since the first that was missed
			want int
		}{
			{"skip", Skip, 5, 0}, {"one", One, 5, 1}, {"all", All(1000), 5, 6}, {"latest", All(3), 5, 3}, {"many",
				All(1000), 250, 251},
		}
		for _, c := range cases {
			b.add(c.name, Every(every), Missed(c.p))
			b.set(s, c.name, func(r *record) { r.next = ended.Add(time.Duration(-c.ago) * every).UnixMilli() })
		}
		b.receive()
		b.run()
		for _, c := range cases {
			b.until(5*time.Second, c.name, func() bool {
				return b.entry(c.name).Next.Equal(ended.Add(every)) && len(b.handled(c.name)) >= c.want
			})
			hs := b.handled(c.name)
			b.once(c.name, every, false)
			if len(hs) != c.want {
				t.Errorf("%s: %d messages, want %d", c.name, len(hs), c.want)
			}
			for _, h := range hs {
				if h.tick.After(ended) || h.tick.Before(ended.Add(time.Duration(1-c.want)*every)) {
					t.Errorf("%s: tick %v is none of the latest %d", c.name, h.tick, c.want)
				}
			}
			b.until(5*time.Second, "the Event of "+c.name, func() bool {
				return b.missed(c.name,
					ended.Add(time.Duration(-c.ago)*every))
			})
			if e := b.entry(c.name); e.Count != c.want || c.want > 0 && !e.Last.Equal(ended) {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
	})
}

// A slow reply may set a runner's clock wrong. It does not decide by that which ticks were missed.
func TestMissedByAWrongClock(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	every := time.Hour
	for now := time.Now().UnixMilli(); now%every.Milliseconds() < 10_000; {
		every += time.Minute // no tick is near
	}
	now := time.Now()
	justNow := now.Add(-300 * time.Millisecond).Truncate(time.Millisecond)
	since := time.Duration(now.UnixMilli()%every.Milliseconds()) * time.Millisecond
	latest := now.Add(-since).Truncate(time.Millisecond)
	for name, c := range map[string]struct {
		p    Policy
		next time.Time
		off  time.Duration // of the clock
		want time.Time
	}{
		"behind": {One, latest.Add(-2 * every), latest.Sub(now) - time.Minute, latest},
		"ahead":  {Skip, justNow, 5 * time.Second, justNow},
	} {
		b := newBench(t, s.URL(), redistest.Name(t)+name)
		b.add(name, Every(every), Missed(c.p))
		b.set(s, name, func(r *record) { r.next = c.next.UnixMilli() })
		r := b.still()
		r.clock.server += millis(c.off)
		r.clock.tolerance = millis(c.off.Abs()) + 1
		if err := r.fire(); err != nil {
			t.Fatal(err)
		}
		if e := b.entry(name); e.Count != 1 || !e.Last.Equal(c.want) {
			t.Errorf("%s: enqueued %d, the last %v, want one of %v", name, e.Count, e.Last, c.want)
		}
	}
}

// TestLostReplyOfTick: the connection breaks before and after the script has run.
func TestLostReplyOfTick(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	r := newBench(t, s.URL(), b.channel)
	r.receive()
	b.add("a", Every(100*time.Millisecond), Missed(All(MaxAll)))
	var rules []*redistest.Rule
	for i, act := range []redistest.Action{redistest.CutAfter, redistest.CutUnread, redistest.CutBefore,
		redistest.CutAfter} {
		rules = append(rules, p.On(fires, 3*i+2, act))
	}
	b.run()
	for _, rule := range rules {
		if err := rule.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	n := len(r.handled("a"))
	b.until(10*time.Second, "10 ticks more", func() bool { return len(r.handled("a")) >= n+10 })
	r.once("a", 100*time.Millisecond, false)
	if told, n := b.sum(shunt.EventEnqueued), len(r.handled("a")); told < n-1 || told > n+1 {
		t.Errorf("%d enqueues told of %d", told, n)
	}
}

// TestLostReplyTellsNothingUntrue: where the reply of a tick is lost, no Event tells of a message that was refused.
func TestLostReplyTellsNothingUntrue(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	b.add("a", Every(100*time.Millisecond), With(shunt.ID("a")), Missed(All(MaxAll)))
	var rules []*redistest.Rule
	for i := range 3 {
		rules = append(rules, p.On(fires, 3*i+3, redistest.CutAfter))
	}
	b.run()
	for _, rule := range rules {
		if err := rule.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	n := b.entry("a").Count
	b.until(10*time.Second, "more ticks", func() bool { return b.entry("a").Count >= n+3 })
	if told := b.sum(shunt.EventEnqueued); told != 1 {
		t.Errorf("%d enqueues told of 1", told)
	}
}

// TestLostReplyOfMissedTicks: an Event tells of missed ticks also where the reply was lost.
func TestLostReplyOfMissedTicks(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	first := time.Now().Truncate(24 * time.Hour).Add(-48 * time.Hour)
	b.add("a", Every(24*time.Hour))
	b.add("b", Every(24*time.Hour), Missed(Skip))
	for _, name := range []string{"a", "b"} {
		b.set(s, name, func(r *record) { r.next = first.UnixMilli() })
	}
	rule := p.On(fires, 1, redistest.CutAfter)
	b.run()
	if err := rule.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		b.until(5*time.Second, "the Event of "+name, func() bool { return b.missed(name, first) })
	}
}

// TestRedisGoes and comes back with its data.
func TestRedisGoes(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t, "appendonly yes", "appendfsync always")
	b := newBench(t, s.URL(), redistest.Name(t))
	b.add("a", Every(100*time.Millisecond), Missed(All(MaxAll)))
	b.receive()
	b.run()
	b.until(5*time.Second, "a tick", func() bool { return len(b.handled("a")) >= 1 })
	s.Kill()
	b.until(5*time.Second, "trouble", func() bool { return b.sum(shunt.EventReceiverError) >= 1 })
	s.Restart()
	n := len(b.handled("a"))
	b.until(20*time.Second, "ticks again", func() bool { return len(b.handled("a")) >= n+20 })
	b.once("a", 100*time.Millisecond, true) // what was in a worker's hands may be handled twice
}

// TestFullRedis: ticks wait for memory, and nobody spins.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	b.NoCounts = true // whose trouble is no runner's
	b.add("a", Every(time.Hour), Missed(All(MaxAll)))
	next := time.Now().Truncate(time.Hour).Add(-30 * time.Hour) // so no tick is near
	b.set(s, "a", func(r *record) { r.next = next.UnixMilli() })
	r := newBench(t, s.URL(), b.channel)
	r.receive()
	s.Do("CONFIG", "SET", "maxmemory", 1)
	b.run()
	b.until(10*time.Second, "trouble", func() bool { return b.sum(shunt.EventReceiverError) >= 2 })
	p.ResetCounts()
	began, before := time.Now(), b.sum(shunt.EventReceiverError)
	b.until(20*time.Second, "more of it", func() bool { return b.sum(shunt.EventReceiverError) >= before+2 })
	// the third wait is of half a second, the fourth of one, and so on
	if n, took := p.Count(fires), time.Since(began); n > 4 || took < time.Second {
		t.Errorf("%d scripts while full, in %v", n, took)
	}
	s.Do("CONFIG", "SET", "maxmemory", 0)
	b.until(20*time.Second, "what had waited", func() bool { return len(r.handled("a")) >= 20 })
	r.once("a", time.Hour, false)
}

// TestOneThatCannot is of a message that no runner can enqueue, and others that can be.
func TestOneThatCannot(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	b.add("a", Every(100*time.Millisecond))
	b.add("lost", Every(100*time.Millisecond))
	s.Do("SET", store.KeysOf(b.channel).IDs, "no hash")
	b.add("refused", Every(100*time.Millisecond), With(shunt.ID("x")))
	b.set(s, "lost", func(r *record) { r.body = strings.Replace(r.body, "@every 100ms\n", "@hourly\nNo/Where", 1) })
	s.Do("HSET", store.KeysOf(b.channel).Recur, "foreign", "what ever")
	b.receive()
	b.run()
	b.until(5*time.Second, "ticks", func() bool {
		return len(b.handled("a")) >= 5 &&
			b.sum(shunt.EventReceiverError) >= 3
	})
	b.once("a", 100*time.Millisecond, false)
	if n := b.sum(shunt.EventReceiverError); n != 3 {
		t.Errorf("told %d times, want once each", n)
	}
	es, err := b.Timetable.List(context.Background(), b.channel)
	if len(es) != 3 || es[1].Spec.Err() == nil || err == nil {
		t.Errorf("%v, %v", es, err)
	}
}

// TestOneThatIsRefused in one pipeline with others holds none of them up.
func TestOneThatIsRefused(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	s.Do("SET", store.KeysOf(b.channel).IDs, "no hash")
	const n, month = 20, 30 * 24 * time.Hour                        // so that no further tick comes meanwhile
	ago := func(r *record) { r.next -= (5 * month).Milliseconds() } // so that all are due at once
	for i := range n {
		b.add(fmt.Sprint(i), Every(month))
		b.set(s, fmt.Sprint(i), ago)
	}
	b.add("refused", Every(month), With(shunt.ID("x")))
	b.set(s, "refused", ago)
	b.run()
	b.until(3*time.Second, "the others", func() bool {
		return s.Do("LLEN",
			store.KeysOf(b.channel).Prepare) == int64(n)
	})
	b.until(5*time.Second, "their Events", func() bool { return b.sum(shunt.EventEnqueued) == n })
	s.Do("DEL", store.KeysOf(b.channel).IDs)
	b.until(8*time.Second, "the one", func() bool { return b.sum(shunt.EventEnqueued) == n+1 })
}

// TestWrongType: what waits for a person is tried every 5 s, and goes on then.
func TestWrongType(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	k := store.KeysOf(b.channel)
	s.Do("SET", k.Prepare, "no list")
	b.add("a", Every(100*time.Millisecond), Missed(All(MaxAll)))
	b.add("b", Every(100*time.Millisecond), Missed(All(MaxAll)))
	b.run()
	b.until(5*time.Second, "trouble", func() bool { return b.sum(shunt.EventReceiverError) >= 2 })
	s.Do("DEL", k.Prepare)
	b.receive()
	b.until(10*time.Second, "ticks", func() bool { return len(b.handled("a")) >= 20 && len(b.handled("b")) >= 20 })
	b.once("a", 100*time.Millisecond, false)
	b.once("b", 100*time.Millisecond, false)
	if n := b.sum(shunt.EventReceiverError); n > 8 {
		t.Errorf("told %d times", n)
	}
}

// TestForgottenScripts: SCRIPT FLUSH costs no tick.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	b.add("a", Every(100*time.Millisecond), Missed(Skip))
	b.receive()
	b.run()
	for range 3 {
		n := len(b.handled("a"))
		b.until(5*time.Second, "ticks", func() bool { return len(b.handled("a")) >= n+2 })
		s.Do("SCRIPT", "FLUSH")
	}
	if err := b.Pause(context.Background(), b.channel, "a"); err != nil {
		t.Error(err)
	}
	b.once("a", 100*time.Millisecond, false)
}

// TestCost of being idle, and of a tick with several runners.
func TestCost(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	b.add("a", Every(time.Hour))
	b.run()
	looks := redistest.Command("TIME")
	// Add's, the start's, the subscription's
	b.until(15*time.Second, "two looks", func() bool { return p.Count(looks) >= 5 })
	if n := p.Commands(); n > 20 {
		t.Errorf("%d commands:\n%s", n, strings.Join(p.Log(), "\n"))
	}

	r := newBench(t, s.URL(), b.channel)
	r.receive()
	var others []*bench
	for range 3 {
		o := newBench(t, p.URL(), b.channel)
		o.run()
		others = append(others, o)
	}
	others[0].add("fast", Every(100*time.Millisecond))
	var scripts []int
	for range 3 { // where the machine is busy they fire together more often: a hint of the first comes too late
		had := len(r.handled("fast"))
		p.ResetCounts()
		b.until(20*time.Second, "30 ticks", func() bool { return len(r.handled("fast")) >= had+30 })
		if scripts = append(scripts, p.Count(fires)); scripts[len(scripts)-1] <= 60 {
			return
		}
	}
	t.Errorf("%d scripts for 30 ticks of 4 runners each", scripts)
}

// TestManyAtOnce fall due at one tick. The last is sent within a second, or, where the machine is slow, before a client
// that sends one command at a time would have sent as many.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	const n = 1000
	began := time.Now()
	for i := range n {
		b.add(fmt.Sprint(i), Every(3*time.Second))
	}
	bound := max(time.Since(began), time.Second)
	b.run()
	names := make(map[string]map[string]time.Duration) // by tick, when each was sent
	var all map[string]time.Duration
	b.until(15*time.Second, "a tick of all", func() bool {
		raws, _ := redis.ByteSlices(s.Do("LRANGE", store.KeysOf(b.channel).Prepare, 0, -1), nil)
		clear(names)
		for _, raw := range raws {
			e, err := element.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			tick := e.Headers()[tickHeader]
			at, err := time.Parse(tickFormat, tick)
			if err != nil {
				t.Fatal(err)
			}
			if names[tick] == nil {
				names[tick] = make(map[string]time.Duration)
			}
			if _, again := names[tick][string(e.Payload)]; again {
				t.Fatalf("%s of %s came twice", e.Payload, tick)
			}
			names[tick][string(e.Payload)] = element.EnqueuedAt(e.Serial).Sub(at)
			if len(names[tick]) == n {
				all = names[tick]
			}
		}
		return all != nil
	})
	latest := slices.Max(slices.Collect(maps.Values(all)))
	redistest.Tell(fmt.Sprintf("recur: of %d messages with the same tick the last was sent after %v\n", n, latest))
	if latest > bound {
		t.Errorf("the last was sent after %v, where %v are allowed", latest, bound)
	}
}

// TestID: a tick enqueues nothing while the message of a former one lives; and an id that expires frees its name.
func TestID(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		b := newBench(t, s.URL(), redistest.Name(t))
		b.add("a", Every(100*time.Millisecond), With(shunt.ID("a")))
		b.add("b", Every(100*time.Millisecond), With(shunt.ID("b"), shunt.Expire(300*time.Millisecond)))
		b.run()
		b.until(5*time.Second, "ticks", func() bool { return b.entry("a").Count >= 5 && b.entry("b").Count >= 8 })
		status, err := b.Status(context.Background(), shunt.ByID(b.channel, "a"))
		if err != nil || status.State != shunt.StatePrepare {
			t.Errorf("%+v, %v", status, err)
		}
		n := map[string]int{}
		raws, _ := redis.ByteSlices(s.Do("LRANGE", store.KeysOf(b.channel).Prepare, 0, -1), nil)
		for _, raw := range raws {
			e, _ := element.Decode(raw)
			n[e.ID()]++
		}
		if n["a"] != 1 || n["b"] < 2 {
			t.Errorf("%v messages by id: want 1 of a, and of b those that expired too", n)
		}
		b.until(5*time.Second, "Events", func() bool { return b.sum(shunt.EventDuplicate) >= 4 })
		b.receive()
		b.until(5*time.Second, "one handled, and the next", func() bool {
			return len(b.handled("a")) >= 3 &&
				len(b.handled("b")) >= 1
		})
	})
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	b, ctx := newBench(t, s.URL(), redistest.Name(t)), context.Background()
	if _, err := b.Run(ctx); err == nil {
		t.Error("no channel is no error")
	}
	if _, err := b.Run(ctx, b.channel, "a b"); err == nil || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("a bad channel: %v", err)
	}
	if _, err := new(Timetable).Run(ctx, b.channel); err == nil {
		t.Error("no Queue is no error")
	}
	p := redistest.NewProxy(t, s.Addr())
	p.Refuse(true)
	away := newBench(t, p.URL(), b.channel)
	began := time.Now()
	if _, err := away.Run(ctx, b.channel); err == nil || time.Since(began) > 6*time.Second {
		t.Errorf("Redis away: %v after %v", err, time.Since(began))
	}
}

// TestEnds of a runner: shutdown, twice; the context; a closed Queue.
func TestEnds(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	ctx, cancel := context.WithCancel(context.Background())
	shutdown, err := b.Run(ctx, b.channel, b.channel, b.channel+".2")
	if err != nil {
		t.Fatal(err)
	}
	subscribers := func(want int64) {
		b.until(5*time.Second, "the subscription", func() bool {
			n, _ := redis.Int64Map(s.Do("PUBSUB", "NUMSUB", store.KeysOf(b.channel).Recur), nil)
			return n[store.KeysOf(b.channel).Recur] == want
		})
	}
	subscribers(1)
	b.end(shutdown)
	b.end(shutdown)
	over, end := context.WithCancel(context.Background())
	end()
	if shutdown, err = b.Run(ctx, b.channel); err != nil {
		t.Fatal(err)
	}
	if err := shutdown(over); err != nil {
		t.Errorf("cut short: %v", err)
	}
	if shutdown, err = b.Run(ctx, b.channel); err != nil {
		t.Fatal(err)
	}
	cancel()
	b.end(shutdown)
	if _, err = b.Run(context.Background(), b.channel); err != nil {
		t.Fatal(err)
	}
	subscribers(1)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	s.Do("PUBLISH", store.KeysOf(b.channel).Recur, "\nx") // so that it asks Redis, and ends
	subscribers(0)
}

// TestEndsWhileRedisIsMute: shutdown's context cuts short what is under way.
func TestEndsWhileRedisIsMute(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	b := newBench(t, p.URL(), redistest.Name(t))
	b.add("a", Every(100*time.Millisecond))
	shutdown := b.run()
	b.until(5*time.Second, "a tick", func() bool { return p.Count(fires) > 0 })
	n := p.Commands() // one may be under way when the server stops
	s.Stop()
	b.until(5*time.Second, "a command under way", func() bool { return p.Commands() > n })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := shutdown(ctx); err != nil || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	s.Cont()
}

// TestFireScript answers as its header says, however often and late it is asked.
func TestFireScript(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		b := newBench(t, s.URL(), redistest.Name(t))
		b.add("a", Every(time.Hour))
		engine, err := queues.Open(b.Queue)
		if err != nil {
			t.Fatal(err)
		}
		k := store.KeysOf(b.channel)
		read, err := readOne(t.Context(), engine, k, "a")
		if err != nil {
			t.Fatal(err)
		}
		now, head := read.now, read.head
		then, e := read.record.written(), read.record.message(now.UnixMilli(), now.UnixMilli())
		changed := func(head string) store.RecurFiringReply {
			return store.RecurFiringReply{HeadChanged: true,
				Head: head}
		}
		notTheTime := store.RecurFiringReply{NotTheTime: true}
		for _, c := range []struct {
			what, head  string
			from, until time.Time
			want        store.RecurFiringReply
		}{
			{"early", head, now.Add(time.Minute), time.Time{}, notTheTime},
			{"late", head, now.Add(-2 * time.Millisecond), now.Add(-time.Millisecond), notTheTime},
			{"of another head", then.head(), now, time.Time{}, changed(head)},
			{"in time", head, now, now.Add(time.Minute), store.RecurFiringReply{Enqueued: 1}},
			{"again", head, now, now.Add(time.Minute), changed(then.head())},
		} {
			replies, twice, err := store.FireRecur(t.Context(), engine, k, store.RecurFiring{
				Name: "a", Head: c.head, Next: then.head(), From: c.from, Until: c.until,
				Elements: [][]byte{e.Encode()},
			})
			if err != nil || twice {
				t.Fatalf("%s: twice %v, %v", c.what, twice, err)
			}
			got := replies[0]
			if got.Now.Before(now.Truncate(time.Millisecond)) {
				t.Errorf("%s: at %v, before %v", c.what, got.Now, now)
			}
			if got.Now = (time.Time{}); got != c.want {
				t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
			}
		}
		if n := s.Do("LLEN", store.KeysOf(b.channel).Prepare); n != int64(1) {
			t.Errorf("%v messages", n)
		}
	})
}

// TestHints: one that comes late does not put back what is known, and one of a body that is not known is not believed.
func TestHints(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	b := newBench(t, s.URL(), redistest.Name(t))
	b.add("a", Every(time.Hour))
	r := b.still()
	first := r.known["a"].record
	second := first.written()
	second.next += 3_600_000
	third := second.written()
	third.paused = true
	other := third.written()
	other.revision = other.writer
	for _, c := range []struct {
		what string
		hint record
		next int64
		held int
	}{
		{"the next", second, second.next, 1}, {"one before", first, second.next, 1}, {"a pause", third, second.next, 0},
		{"of another body", other, first.next, 1}, // so what is in Redis was read
	} {
		if err := r.refresh([]string{c.hint.head() + "a"}, false, false); err != nil {
			t.Fatal(err)
		}
		if e := r.known["a"]; e.next != c.next || len(r.scheduled) != c.held {
			t.Errorf("%s: next %d, want %d; %d scheduled, want %d", c.what, e.next, c.next, len(r.scheduled), c.held)
		}
	}
	if err := b.Remove(t.Context(), b.channel, "a"); err != nil {
		t.Fatal(err)
	}
	if err := r.refresh([]string{"\na"}, false, false); err != nil || len(r.known) != 0 || len(r.scheduled) != 0 {
		t.Errorf("removed: %v, %v", r.known, err)
	}
	for range maxHints + 10 {
		r.hint("\na")
	}
	if len(r.hints) != maxHints || !r.readRequested {
		t.Errorf("%d hints wait", len(r.hints))
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	t0 := time.Now().Add(-time.Second)
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	c.observe(1000, ms(0), ms(2))
	if c.server != 1000.5 || c.tolerance != 1.5 {
		t.Fatalf("%+v", c)
	}
	c.observe(1100, ms(0), ms(200)) // slow, and in accord
	if c.server != 1000.5 {
		t.Errorf("a worse reply was taken: %+v", c)
	}
	c.observe(1500, ms(100), ms(300)) // slow, but the clock was set
	if c.server != 1500.5 {
		t.Errorf("a clock that was set is not believed: %+v", c)
	}
	c.observe(1600, ms(299), ms(301))
	if c.server != 1600.5 || c.tolerance != 1.5 {
		t.Errorf("a better reply was not taken: %+v", c)
	}
	if now := c.now(); now < 2290 || now > 2400 {
		t.Errorf("now %d", now)
	}
	if d := c.until(c.now() + 100); d < 90*time.Millisecond || d > 101*time.Millisecond {
		t.Errorf("until %v", d)
	}
}
