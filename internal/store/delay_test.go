package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// RunPromote and RunSweep tell in µs when the next message is due and the next lease ends. In whole ms, both times
// would be up to 1 ms too late.
func TestNextIsExact(t *testing.T) {
	each(t, func(f *fixture) {
		at := f.now().Add(time.Hour).Truncate(time.Millisecond)
		clock := func() int64 {
			vs, err := redis.Int64s(f.s.Do("TIME"), nil)
			f.must(err)
			return 1e6*vs[0] + vs[1]
		}
		f.s.Do("ZADD", f.k.Delay, at.UnixMilli(), "x")
		f.s.Do("ZADD", f.k.Leased, at.UnixMilli(), NewLease(time.Hour, 0).Name)
		for range 10 {
			before := clock()
			p, err := RunPromote(context.Background(), f.l, f.k, 10, 1000, 1)
			f.must(err)
			s, err := RunSweep(context.Background(), f.l, f.k, Sweeping{})
			f.must(err)
			after := clock()
			for _, in := range []time.Duration{p.NextDue, p.NextLapse, s.NextDue, s.NextLapse} {
				if now := at.UnixMicro() - in.Microseconds(); now < before || now > after {
					f.Errorf("%v from %d, which is not between %d and %d", in, now, before, after)
				}
			}
		}
	})
}

// Due messages go to prepare, and the reply says when the next is due.
func TestPromote(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		f.enqueue(In, 60_000, named(""))
		f.s.Do("ZADD", f.k.Delay, 1, "one", 2, "two", 3, "three")
		p, err := RunPromote(ctx, f.l, f.k, 1, 1<<20, 2)
		if f.must(err); p.Moved != 2 || !p.Scheduled || p.NextDue >= 0 {
			f.Fatalf("%+v", p)
		}
		p, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1)
		if f.must(err); p.Moved != 1 || p.NextDue < 50*time.Second || p.NextDue > 61*time.Second {
			f.Fatalf("%+v", p)
		}
		page, err := ListPage(ctx, f, f.k, f.k.Prepare, 0, 2)
		if f.must(err); len(page) != 2 || string(page[0]) != "one" || string(page[1]) != "two" {
			f.Fatalf("%q", page)
		}
		f.s.Do("DEL", f.k.Delay)
		if _, real := f.s.(*redistest.Server); real { // miniredis gives "inf" in a form that its own Lua cannot read
			f.s.Do("ZADD", f.k.Delay, "+inf", "never")
			p, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1)
			if f.must(err); p.Moved != 0 || p.NextDue <= 0 {
				f.Fatalf("a score that no integer holds: %+v", p)
			}
			f.s.Do("DEL", f.k.Delay)
		}
		f.s.Do("SET", f.k.Delay, "no set")
		if _, err = RunPromote(ctx, f.l, f.k, 10, 1<<20, 1); err == nil {
			f.Fatal("what is no set is promoted")
		}
	})
}

// A keeper that yields makes room for the next one at once.
func TestYieldKeeper(t *testing.T) {
	each(t, func(f *fixture) {
		ctx := context.Background()
		bid := func(name string) bool {
			s, err := RunSweep(ctx, f.l, f.k, Sweeping{Bid: name, KeepFor: time.Minute})
			f.must(err)
			return s.Keeper
		}
		if !bid("one") || bid("two") {
			f.Fatal("two keep at once, or none does")
		}
		f.must(YieldKeeper(ctx, f.l, "two", f.k))
		if bid("two") {
			f.Fatal("another's place was yielded")
		}
		f.must(YieldKeeper(ctx, f.l, "one", f.k))
		if !bid("two") {
			f.Fatal("the place is not free")
		}
	})
}

// A keeper leaves a channel that needs none without a word. Where something waits for its time, it stays.
func TestLeaveKeeper(t *testing.T) {
	each(t, func(f *fixture) {
		ctx, h := context.Background(), f.hints()
		leave := func(name string, want bool) {
			f.Helper()
			needed, err := LeaveKeeper(ctx, f.l, name, f.k)
			if f.must(err); needed != want {
				f.Errorf("needed: %v", needed)
			}
		}
		keeper := func() string {
			name, _ := redis.String(f.s.Do("HGET", f.k.Keeper, "name"), nil)
			return name
		}
		f.s.Do("HSET", f.k.Keeper, "name", "one", "until", f.now().Add(time.Minute).UnixMilli())
		for _, key := range []string{f.k.Delay, f.k.Leased} {
			f.s.Do("ZADD", key, 1, "x")
			if leave("one", true); keeper() != "one" {
				f.Errorf("it has left, though %s is there", key)
			}
			f.s.Do("DEL", key)
		}
		if leave("two", false); keeper() != "one" {
			f.Error("another's place is free")
		}
		if leave("one", false); keeper() != "" {
			f.Errorf("%q keeps", keeper())
		}
		leave("one", false) // again
		if got := h.since(); len(got) > 0 {
			f.Errorf("published %q", got)
		}
		f.s.Do("HSET", f.k.Keeper, "name", "one")
		f.s.Do("ZADD", f.k.Delay, "1e15", "x")
		f.must(YieldKeeper(ctx, f.l, "two", f.k))
		f.must(YieldKeeper(ctx, f.l, "one", f.k))
		if got := h.since(); !slices.Equal(got, []string{"vacant"}) || keeper() != "" {
			f.Errorf("published %q, %q keeps", got, keeper())
		}
		f.s.Do("DEL", f.k.Delay)
		f.s.Do("SET", f.k.Keeper, "foreign")
		if _, err := LeaveKeeper(ctx, f.l, "one", f.k); err == nil {
			f.Error("left what is no hash")
		}
	})
}

// Promote says what comes next, of what is due and of what is leased.
func TestTimetable(t *testing.T) {
	each(t, func(f *fixture) {
		near := func(got, want time.Duration) bool { return got <= want && got > want-10*time.Second }
		for name, c := range map[string]struct {
			due, lapse time.Duration // 0: none
			next       time.Duration
		}{
			"nothing":           {},
			"due":               {due: time.Minute, next: time.Minute},
			"leased":            {lapse: time.Minute, next: time.Minute},
			"due first":         {time.Minute, time.Hour, time.Minute},
			"leased first":      {time.Hour, time.Minute, time.Minute},
			"due, over":         {time.Hour, -time.Minute, -time.Minute},
			"over":              {lapse: -time.Minute, next: -time.Minute},
			"leased for a year": {lapse: 365 * 24 * time.Hour, next: 365 * 24 * time.Hour},
		} {
			f.s.Do("DEL", f.k.Delay, f.k.Leased)
			now, l := f.now(), NewLease(time.Hour, 0)
			if c.due != 0 {
				f.s.Do("ZADD", f.k.Delay, now.Add(c.due).UnixMilli(), "x", now.Add(1000*time.Hour).UnixMilli(), "y")
			}
			if c.lapse != 0 {
				f.s.Do("ZADD", f.k.Leased, fmt.Sprint(now.Add(c.lapse).UnixMilli(), ".5"), l.Name)
			}
			p, err := RunPromote(context.Background(), f.l, f.k, 10, 1000, 1)
			f.must(err)
			s, err := RunSweep(context.Background(), f.l, f.k, Sweeping{})
			f.must(err)
			for _, at := range []Timetable{p.Timetable, s.Timetable} {
				if at.Scheduled != (c.due != 0) || at.Leased != (c.lapse != 0) ||
					at.Scheduled && !near(at.NextDue, c.due) ||
					at.Leased && !near(at.NextLapse, c.lapse+time.Millisecond) {
					f.Errorf("%s: %+v", name, at)
				}
				if next, any := at.Next(); any != (c.due != 0 || c.lapse != 0) ||
					any && !near(next, c.next+time.Millisecond) {
					f.Errorf("%s: %v comes next, %v", name, next, any)
				}
			}
		}
		// What is no set of leases keeps nothing from being promoted, and the sweep says so.
		f.s.Do("DEL", f.k.Delay, f.k.Leased)
		f.s.Do("SET", f.k.Leased, "foreign")
		f.s.Do("ZADD", f.k.Delay, 1, "due")
		p, err := RunPromote(context.Background(), f.l, f.k, 10, 1000, 1)
		if f.must(err); p.Moved != 1 || p.Leased {
			f.Errorf("%+v", p)
		}
		s, err := RunSweep(context.Background(), f.l, f.k, Sweeping{})
		if f.must(err); s.Leased || s.Unreadable == nil {
			f.Errorf("%+v", s)
		}
	})
}
