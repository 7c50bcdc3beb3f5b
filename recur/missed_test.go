package recur

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// at is a time of 2026-01-01 in ms.
func at(clock string) int64 {
	t, err := time.Parse("2006-01-02 15:04:05.000", "2026-01-01 "+clock)
	if err != nil {
		panic(err)
	}
	return t.UnixMilli()
}

func TestDue(t *testing.T) {
	t.Parallel()
	hourly, tenth := Cron("@hourly", ""), Every(100*time.Millisecond)
	for _, c := range []struct {
		name      string
		spec      Spec
		next, now string
		policy    Policy
		want      []string
		after     string
	}{
		{"on time", hourly, "03:00:00.000", "03:00:00.001", Skip, []string{"03:00:00.000"}, "04:00:00.000"},
		{"late, in time", hourly, "03:00:00.000", "03:00:01.000", Skip, []string{"03:00:00.000"}, "04:00:00.000"},
		{"missed, skip", hourly, "03:00:00.000", "03:00:01.001", Skip, nil, "04:00:00.000"},
		{"missed, one", hourly, "03:00:00.000", "03:00:01.001", One, []string{"03:00:00.000"}, "04:00:00.000"},
		{"several missed, skip", hourly, "03:00:00.000", "07:30:00.000", Skip, nil, "08:00:00.000"},
		{"several missed, one", hourly, "03:00:00.000", "07:30:00.000", One, []string{"07:00:00.000"}, "08:00:00.000"},
		{"several missed, all", hourly, "03:00:00.000", "05:30:00.000", All(5), []string{"03:00:00.000",
			"04:00:00.000", "05:00:00.000"}, "06:00:00.000"},
		{"more missed than all", hourly, "03:00:00.000", "07:30:00.000", All(2), []string{"06:00:00.000",
			"07:00:00.000"}, "08:00:00.000"},
		{"missed and just now", hourly, "03:00:00.000", "07:00:00.000", Skip, nil, "08:00:00.000"},
		{"several on time", tenth, "03:00:00.000", "03:00:00.250", Skip, []string{"03:00:00.000", "03:00:00.100",
			"03:00:00.200"}, "03:00:00.300"},
		{"next is no tick here", hourly, "03:20:00.000", "03:20:00.001", Skip, []string{"03:20:00.000"},
			"04:00:00.000"},
		{"nor when missed", hourly, "03:20:00.000", "05:20:00.000", All(9), []string{"03:20:00.000", "04:00:00.000",
			"05:00:00.000"}, "06:00:00.000"},
	} {
		ticks, after := c.spec.due(at(c.next), at(c.now), c.policy)
		var want []int64
		for _, w := range c.want {
			want = append(want, at(w))
		}
		if !slices.Equal(ticks, want) || after != at(c.after) {
			t.Errorf("%s: %v then %d, want %v then %d", c.name, ticks, after, want, at(c.after))
		}
	}
	if ticks, _ := tenth.due(at("03:00:00.000"), at("03:00:01.000"), Skip); len(ticks) != 11 {
		t.Errorf("%d ticks within the grace, want all 11", len(ticks))
	}
}

// TestDueOfYears: what was missed for long is not walked through.
func TestDueOfYears(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	long := now.AddDate(-30, 0, 0).UnixMilli()
	began := time.Now()
	for _, s := range []Spec{Every(100 * time.Millisecond), Cron("* * * * * *", ""), Cron("0 0 29 2 *", "")} {
		ticks, after := s.due(long, now.UnixMilli(), All(1000))
		if want := 1000; s.text == "0 0 29 2 *" && len(ticks) != 8 || s.text != "0 0 29 2 *" && len(ticks) != want {
			t.Errorf("%s: %d ticks", s, len(ticks))
		}
		if !slices.IsSorted(ticks) || after <= now.UnixMilli() {
			t.Errorf("%s: not in order", s)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestLatestIsTheEndOfAll(t *testing.T) {
	t.Parallel()
	specs := []Spec{Every(700 * time.Millisecond), Cron("*/7 * * * * *", ""), Cron("*/10 1-2,9 * * *",
		"Europe/Berlin"), Cron("0 0 1 * *", "America/New_York")}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(specs).Draw(t, "spec")
		after := rapid.Int64Range(at("00:00:00.000"), at("23:59:59.999")).Draw(t, "after")
		span := rapid.Int64Range(0, int64(1)<<rapid.IntRange(1, 28).Draw(t, "bits")).Draw(t, "span")
		if s.every > 0 || s.text[:3] == "*/7" {
			span %= 3_600_000
		}
		n := rapid.IntRange(0, 50).Draw(t, "n")
		var all []int64
		for u := s.next(after); u <= after+span; u = s.next(u) {
			all = append(all, u)
		}
		want := all[max(0, len(all)-n):]
		if got := s.latest(after, after+span, n); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// Each message of a record has the header of its own tick, beside those that were given.
func TestTickHeaders(t *testing.T) {
	t.Parallel()
	rec := &record{spec: Spec{in: time.UTC}}
	if err := rec.element.SetHeader("k", "v"); err != nil {
		t.Fatal(err)
	}
	first, second := rec.message(1000, 0), rec.message(2000, 0)
	if a, b := first.Headers()[tickHeader], second.Headers()[tickHeader]; a == "" || a == b {
		t.Errorf("ticks %q and %q", a, b)
	}
	if n := len(rec.element.Headers()); n != 1 {
		t.Errorf("the record has %d headers", n)
	}
}
