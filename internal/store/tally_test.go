package store

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/redistest"
)

// tallyAt is script tally with a clock of its own: the last argument, in ms.
var tallyAt = link.NewScript(`
local function clock() return tonumber(ARGV[6]) end
local function printed(ms) return string.format('%.0f', ms) end
` + source("tally"))

func (f *fixture) tally(at time.Time, process string, number int64, s *meter.Sums) bool {
	f.Helper()
	n, err := redis.Int(f.run(func(c *link.Call) {
		c.AddScript(tallyAt, 5, f.k.Counts, f.k.Prepare, f.k.Suspect, f.k.Delay, f.k.Dead, process, number,
			s.Append(nil), talliesFor.Milliseconds(), talliesBytes, at.UnixMilli())
	}).Any(), nil)
	f.must(err)
	return n == 1
}

// tallies are what is kept of a form from one time to another, by the time of each record.
func (f *fixture) tallies(form *Form, from, to time.Time) map[time.Time]meter.Sums {
	f.Helper()
	all := make(map[time.Time]meter.Sums)
	_, err := EachTally(f.run(func(c *link.Call) { AddTallies(c, f.k, form, from, to) }), form, from, to,
		func(at time.Time, s *meter.Sums) {
			if _, twice := all[at.UTC()]; twice {
				f.Errorf("two records of %v", at)
			}
			all[at.UTC()] = *s
		})
	f.must(err)
	return all
}

// What several processes count adds up, by minute, by ten minutes and by day, and stays as long as it is to be kept.
func TestTally(t *testing.T) {
	each(t, func(f *fixture) {
		rnd := rand.New(rand.NewPCG(1, 2))
		start := time.Date(2026, 1, 31, 23, 30, 17, 0, time.UTC)
		now := start
		want := make([]map[time.Time]meter.Sums, len(Forms))
		for i := range want {
			want[i] = make(map[time.Time]meter.Sums)
		}
		var numbers [3]int64
		for range 3000 {
			switch p := rnd.IntN(100); {
			case p < 1:
				now = now.Add(rand.N(5 * 24 * time.Hour))
			case p < 20:
				now = now.Add(rand.N(3 * time.Minute))
			default:
				now = now.Add(rand.N(10 * time.Second))
			}
			var s meter.Sums
			s.Add(meter.Kind(rnd.IntN(8)), rnd.IntN(1_000_000))
			s.Took(meter.Wait, rand.N(time.Hour))
			process := rnd.IntN(len(numbers))
			numbers[process]++
			if !f.tally(now, string(rune('a'+process)), numbers[process], &s) {
				f.Fatal("a new flush counts nothing")
			}
			if rnd.IntN(10) == 0 && f.tally(now, string(rune('a'+process)), numbers[process], &s) {
				f.Fatal("a flush is counted twice")
			}
			for i := range Forms {
				at := now.Truncate(Forms[i].Width)
				of := want[i][at]
				of.AddAll(&s)
				want[i][at] = of
			}
		}
		for i := range Forms {
			form := &Forms[i]
			from, to := now.Add(-form.Kept), now.Add(time.Second)
			got := f.tallies(form, from, to)
			for at, s := range want[i] {
				if got[at] != s && !at.Before(from) {
					f.Errorf("%v at %v: %v, want %v", form.Width, at, got[at], s)
				}
			}
			for at := range got {
				if _, is := want[i][at]; !is {
					f.Errorf("%v at %v: %v, want nothing", form.Width, at, got[at])
				}
			}
		}
		f.s.Do("LPUSH", f.k.Prepare, "a", "b")
		f.s.Do("LPUSH", f.k.Suspect, "c")
		f.s.Do("ZADD", f.k.Delay, 1, "d")
		var s meter.Sums
		s.Add(meter.Acked, 1)
		f.tally(now, "a", 1<<40, &s)
		f.s.Do("DEL", f.k.Suspect)
		f.tally(now, "a", 1<<40+1, &s)
		for i := range Forms {
			got := f.tallies(&Forms[i], now, now.Add(time.Second))[now.Truncate(Forms[i].Width)]
			if got[meter.Waiting] != 2 || got[meter.Delayed] != 1 || got[meter.Dead] != 0 {
				f.Errorf("by %v %d wait, %d are delayed and %d dead", Forms[i].Width, got[meter.Waiting],
					got[meter.Delayed], got[meter.Dead])
			}
		}
		if ms := f.length("PTTL", f.k.Counts); ms <= 0 || int64(ms) > talliesFor.Milliseconds() {
			f.Errorf("it is kept for %d ms", ms)
		}
	})
}

// However much is counted, and by however many processes, a channel's counts take at most 64 KB. Of each form what is
// oldest goes first, and from when on records are kept is known.
func TestTallyIsBounded(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	f := &fixture{t, s, newLink(t, s.Addr()), KeysOf(redistest.Name(t)), Incarnation{}}
	now := time.Date(2026, 1, 31, 23, 30, 17, 0, time.UTC)
	var sums meter.Sums
	for i := range sums {
		sums[i] = 1 << 30
	}
	most := 0
	flush := func(i int) {
		f.tally(now, NewIncarnation(1, 0).Name, int64(i+1), &sums)
		n, err := redis.Int(s.Do("MEMORY", "USAGE", f.k.Counts, "SAMPLES", 0), nil)
		f.must(err)
		most = max(most, n)
	}
	for i := range 600 {
		flush(i)
		now = now.Add(time.Minute)
		if i%10 == 0 {
			now = now.Add(24 * time.Hour)
		}
	}
	for i := range 600 { // as where many programs run for a moment
		flush(i)
	}
	t.Logf("at most %d bytes", most)
	if most > 64<<10 {
		t.Errorf("it takes %d bytes", most)
	}
	for i := range Forms {
		form := &Forms[i]
		from, to := now.Add(-form.Kept), now.Add(time.Second)
		var first time.Time
		n := 0
		kept, err := EachTally(f.run(func(c *link.Call) { AddTallies(c, f.k, form, from, to) }), form, from, to,
			func(at time.Time, _ *meter.Sums) {
				if n++; first.IsZero() || at.Before(first) {
					first = at
				}
			})
		f.must(err)
		if n == 0 || kept.IsZero() || first.Before(kept) {
			t.Errorf("by %v %d records are left, the first of %v; they are kept from %v on", form.Width, n, first, kept)
		}
	}
}

// A clock that was set far ahead for a while, and a record that somebody has broken, do not stop the counts.
func TestTallyGoesOn(t *testing.T) {
	each(t, func(f *fixture) {
		now := time.Date(2026, 1, 31, 23, 30, 17, 0, time.UTC)
		var s meter.Sums
		s.Add(meter.Acked, 1)
		f.tally(now.AddDate(9, 0, 0), "a", 1, &s)
		f.tally(now, "a", 2, &s)
		f.tally(now.Add(-time.Minute), "a", 3, &s) // set back a little
		f.s.Do("HSET", f.k.Counts, "d", "\xff\xff")
		f.tally(now, "a", 4, &s)
		for i, want := range []uint64{3, 3, 1} {
			got := f.tallies(&Forms[i], now.Add(-Forms[i].Width), now.Add(time.Second))
			if n := got[now.Truncate(Forms[i].Width)][meter.Acked]; n != want {
				f.Errorf("by %v: %d, want %d", Forms[i].Width, n, want)
			}
		}
	})
}

// After the clock was set far ahead for a while, what is counted since is not said to be dropped.
func TestTallyKeptAfterAClockAhead(t *testing.T) {
	each(t, func(f *fixture) {
		now := time.Date(2026, 1, 31, 23, 30, 17, 0, time.UTC)
		var s meter.Sums
		s.Add(meter.Acked, 1)
		f.tally(now.Add(-time.Hour), "a", 1, &s)
		f.tally(now.Add(-time.Minute), "a", 2, &s)
		f.tally(now.AddDate(9, 0, 0), "a", 3, &s)
		f.tally(now, "a", 4, &s)
		now = now.Add(time.Minute)
		f.tally(now, "a", 5, &s)
		for i := range Forms {
			form := &Forms[i]
			from, to := now.Add(-form.Width).Truncate(form.Width), now.Add(time.Second)
			n, sum := 0, uint64(0)
			kept, err := EachTally(f.run(func(c *link.Call) { AddTallies(c, f.k, form, from, to) }), form, from, to,
				func(_ time.Time, s *meter.Sums) { n, sum = n+1, sum+s[meter.Acked] })
			f.must(err)
			if sum != 2 || kept.After(now) {
				t.Errorf("by %v: %d of 2 in %d records; kept from %v on", form.Width, sum, n, kept)
			}
			if kept.Before(now.Add(-time.Minute).Truncate(form.Width)) {
				t.Errorf("by %v: what was dropped is said to be kept from %v on", form.Width, kept)
			}
		}
	})
}

// What is no tally's is said, and harms no other.
func TestTallyRefused(t *testing.T) {
	each(t, func(f *fixture) {
		var s meter.Sums
		s.Add(meter.Acked, 1)
		f.s.Do("SET", f.k.Counts, "foreign")
		c := link.NewCall()
		AddTally(c, f.k, "p", 1, s.Append(nil))
		if err := f.l.Run(context.Background(), c); link.Code(err) != "WRONGTYPE" {
			f.Error(err)
		}
		f.s.Do("DEL", f.k.Counts)
		now := f.now()
		name := Forms[0].letter + strconv.FormatInt(now.UnixMilli()/Forms[0].Width.Milliseconds()/Forms[0].of, 10)
		f.s.Do("HSET", f.k.Counts, name, "\x01\xff")
		rep := f.run(func(c *link.Call) { AddTallies(c, f.k, &Forms[0], now.Add(-time.Second), now.Add(time.Second)) })
		_, err := EachTally(rep, &Forms[0], now.Add(-time.Second), now.Add(time.Second), nil)
		if err == nil {
			f.Error("a record that is cut off is read")
		}
	})
}
