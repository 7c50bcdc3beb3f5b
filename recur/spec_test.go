package recur

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // whatever the host has

	"pgregory.net/rapid"
)

func TestCronErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expression, zone string
		column           int // 0: no CronError
		field, problem   string
	}{
		{"", "", 1, "", "empty"},
		{"0 61 * * *", "", 3, "hour", "above maximum (23)"},
		{"61 0 * * *", "", 1, "minute", "above maximum (59)"},
		{"60 0 0 * * *", "", 1, "second", "above maximum (59)"},
		{"0  0   32 * *", "", 8, "day of the month", "above maximum (31)"},
		{"0 0 0 * *", "", 5, "day of the month", "below minimum (1)"},
		{"0 0 1 foo *", "", 7, "month", "foo"},
		{"0 0 1 jan,fob *", "", 11, "month", "fob"},
		{"0 0 * * mon-sux", "", 9, "weekday", "sux"},
		{"0 0 * * 7", "", 9, "weekday", "above maximum (6)"},
		{"1,2,,3 0 * * *", "", 5, "minute", "empty"},
		{"1, 0 * * *", "", 3, "minute", "empty"},
		{"*5 0 * * *", "", 1, "minute", "only /step"},
		{"*/0 0 * * *", "", 1, "minute", "step"},
		{"*/x 0 * * *", "", 1, "minute", "x"},
		{"0 5-2 * * *", "", 3, "hour", "beyond end"},
		{"0 0 * *", "", 8, "", "after 4 fields"},
		{"0 0 0 * * * 2030", "", 13, "", "seventh"},
		{"TZ=UTC", "", 1, "", "beside"},
		{" CRON_TZ=UTC 0 0 * * *", "", 2, "", "beside"},
		{"@dayly", "", 1, "", `"@dayly" is unknown`},
		{"@every soon", "", 8, "", "1m30s"},
		{"é 0 * * *", "", 1, "minute", "é"},
		{"0,é,x 0 * * *", "", 3, "minute", "é"},
		{"é 0 61 * *", "", 1, "minute", "é"},
		{"0 0 * * *", "Europe/Berlni", 0, "", `zone "Europe/Berlni"`},
		{"0 0 * * *", "Local", 0, "", "differs from host to host"},
		{"0 0 30 2 *", "", 0, "", "never comes"},
		{"@every 99ms", "", 0, "", "at least 100ms"},
	} {
		err := Cron(c.expression, c.zone).Err()
		var at *CronError
		if errors.As(err, &at) != (c.column > 0) {
			t.Errorf("%q: %v", c.expression, err)
			continue
		}
		if at != nil && (at.Column != c.column || at.Field != c.field || at.Expression != c.expression ||
			!strings.Contains(err.Error(), fmt.Sprintf("column %d", c.column))) {
			t.Errorf("%q: %v: want column %d, field %q", c.expression, err, c.column, c.field)
		}
		if !strings.Contains(err.Error(), c.problem) || !strings.HasPrefix(err.Error(), "recur: ") {
			t.Errorf("%q: %v: want a word on %q", c.expression, err, c.problem)
		}
	}
	for _, d := range []time.Duration{0, -time.Second, 99 * time.Millisecond, time.Second + time.Microsecond} {
		if Every(d).Err() == nil {
			t.Errorf("every %v is no error", d)
		}
	}
	if (Spec{}).Err() == nil {
		t.Error("an empty Spec is no error")
	}
}

// previews formats the n ticks after a time.
func previews(t *testing.T, s Spec, from string, n int) []string {
	t.Helper()
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	ts, err := Next(s, at, n)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, u := range ts {
		out = append(out, u.Format(time.RFC3339))
	}
	return out
}

// What is written as text is read again, as it is in a program's configuration.
func TestText(t *testing.T) {
	t.Parallel()
	type entry struct {
		Spec   Spec
		Missed Policy
	}
	for _, e := range []entry{
		{Cron("0 8 * * MON-FRI", "Europe/Berlin"), Skip}, {Cron("*/10 * * * * *", ""), One},
		{Every(90 * time.Second), All(7)},
		{Cron("@daily", "America/New_York"), All(MaxAll)}, {Cron("0 30 2 29 2 *", "EST"), One},
	} {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var read entry
		if err := json.Unmarshal(b, &read); err != nil || !reflect.DeepEqual(read, e) {
			t.Errorf("%s reads as %v: %v", b, read, err)
		}
	}
	for text, want := range map[string]string{
		`{"Missed":"all"}`: "want skip, one, or all and a number", `{"Missed":"all 0"}`: "want all 1 to all 1000",
		`{"Missed":"all 1001"}`: "want all 1 to all 1000", `{"Missed":"all x"}`: "want all 1 to all 1000",
		`{"Spec":""}`: "it is empty", `{"Spec":"61 * * * *"}`: "61", `{"Spec":"* * * * * * Mars/Base"}`: "Mars/Base",
		`{"Spec":"0 9 * * * Europe/Berlinn"}`: "unknown time zone",
	} {
		if err := json.Unmarshal([]byte(text), new(entry)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		spec Spec
		from string
		want []string
	}{
		{"five fields", Cron("30 2 * * *", ""), "2026-01-01T02:30:00Z", []string{"2026-01-02T02:30:00Z",
			"2026-01-03T02:30:00Z"}},
		{"six fields", Cron("*/20 0 0 1 * *", ""), "2026-01-01T00:00:00Z", []string{"2026-01-01T00:00:20Z",
			"2026-01-01T00:00:40Z", "2026-02-01T00:00:00Z"}},
		{"blanks and names", Cron("\t0  9 ? JAN mon-fri ", ""), "2026-01-02T09:00:00Z",
			[]string{"2026-01-05T09:00:00Z"}},
		{"day of the month or weekday", Cron("0 0 13 * fri", ""), "2026-02-06T00:00:00Z",
			[]string{"2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z",
				"2026-03-13T00:00:00Z"}},
		{"leap day", Cron("0 0 29 2 *", ""), "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		{"descriptor", Cron("@hourly", "Asia/Kolkata"), "2026-01-01T00:00:00Z", []string{"2026-01-01T06:00:00+05:30"}},
		{"interval", Every(90 * time.Second), "2026-01-01T00:00:01Z", []string{"2026-01-01T00:01:30Z",
			"2026-01-01T00:03:00Z"}},
		{"interval as text", Cron("@every  1m30s", "Europe/Berlin"), "2026-01-01T00:01:30Z",
			[]string{"2026-01-01T00:03:00Z"}},
		{"interval before 1970", Every(time.Minute), "1969-12-31T23:58:30Z", []string{"1969-12-31T23:59:00Z"}},

		{"Berlin, spring: 02:30 does not come", Cron("30 2 * * *", "Europe/Berlin"), "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00"}},
		{"Berlin, spring: every half hour", Cron("*/30 * * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"}},
		{"Berlin, spring: the first tick after the gap", Cron("0 3 * * *", "Europe/Berlin"), "2026-03-29T00:59:59Z",
			[]string{"2026-03-29T03:00:00+02:00"}},
		{"Berlin, autumn: 02:30 comes twice", Cron("30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"}},
		{"Berlin, autumn: every half hour", Cron("*/30 * * * *", "Europe/Berlin"), "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00",
				"2026-10-25T03:00:00+01:00"}},
		{"Berlin, autumn: 03:00 comes once", Cron("0 3 * * *", "Europe/Berlin"), "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00"}},

		{"New York, spring: 02:30 does not come", Cron("0 30 2 * * *", "America/New_York"), "2026-03-07T12:00:00Z",
			[]string{"2026-03-09T02:30:00-04:00"}},
		{"New York, spring: midnight is not shifted", Cron("@daily", "America/New_York"), "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00"}},
		{"New York, autumn: 01:30 comes twice", Cron("30 1 * * *", "America/New_York"), "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-02T01:30:00-05:00"}},
		{"New York, autumn: hourly", Cron("@hourly", "America/New_York"), "2026-11-01T04:30:00Z",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"}},

		{"an interval knows of no change", Every(time.Hour), "2026-03-29T00:00:00Z", []string{"2026-03-29T01:00:00Z",
			"2026-03-29T02:00:00Z"}},
		// What the parser's own schedule gets wrong: it would say Sunday.
		{"São Paulo, no midnight", Cron("0 5 * * sat", "America/Sao_Paulo"), "2018-11-03T12:00:00Z",
			[]string{"2018-11-10T05:00:00-02:00"}},
		// And here it would pass over the day of the change.
		{"Lord Howe, half an hour", Cron("0 3 * * *", "Australia/Lord_Howe"), "2026-10-03T14:00:00Z",
			[]string{"2026-10-04T03:00:00+11:00", "2026-10-05T03:00:00+11:00"}},
		{"only ever in a gap", Cron("30 2 29 3 *", "Europe/Berlin"), "2026-01-01T00:00:00Z",
			[]string{"2027-03-29T02:30:00+02:00"}},
	} {
		if got := previews(t, c.spec, c.from, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %s after %s: %v, want %v", c.name, c.spec, c.from, got, c.want)
		}
	}
	for _, n := range []int{0, -1, 10001} {
		if _, err := Next(Every(time.Second), time.Now(), n); err == nil {
			t.Errorf("a preview of %d is no error", n)
		}
	}
	if _, err := Next(Cron("x", ""), time.Now(), 1); err == nil {
		t.Error("a preview of a bad Spec is no error")
	}
	if got := Cron(" 0  2 * * *", "Europe/Berlin").String(); got != "0 2 * * * Europe/Berlin" {
		t.Errorf("String %q", got)
	}
}

// TestNextIsWhatTheClockShows compares with a walk over every minute, around the changes of clocks of all kinds.
func TestNextIsWhatTheClockShows(t *testing.T) {
	t.Parallel()
	changes := map[string][]string{
		"UTC": {"2026-01-01T00:00:00Z"}, "Europe/Berlin": {"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"},
		"America/New_York":    {"2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"},
		"America/Sao_Paulo":   {"2018-11-04T03:00:00Z", "2018-02-18T02:00:00Z"},
		"Australia/Lord_Howe": {"2026-10-03T15:30:00Z", "2026-04-04T15:00:00Z"},
		"Asia/Kolkata":        {"2026-03-01T00:00:00Z"},
		"Pacific/Apia":        {"2011-12-30T10:00:00Z"},
		"Africa/Cairo":        {"2026-04-23T22:00:00Z", "2026-10-29T21:00:00Z"},
	}
	zones := make([]string, 0, len(changes))
	for z := range changes {
		zones = append(zones, z)
	}
	slices.Sort(zones)
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(t, "zone")
		near, _ := time.Parse(time.RFC3339, rapid.SampledFrom(changes[zone]).Draw(t, "change"))
		from := near.Add(time.Duration(rapid.IntRange(-40*60, 10*60).Draw(t, "minutes")) * time.Minute)
		// field draws a field, and whether a value matches it; nil where that is any.
		field := func(name string, low, high int) (string, func(int) bool) {
			switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
			case 0:
				n := rapid.IntRange(low, high).Draw(t, name)
				return fmt.Sprint(n), func(v int) bool { return v == n }
			case 1:
				a := rapid.IntRange(low, high).Draw(t, name+" from")
				b := rapid.IntRange(a, high).Draw(t, name+" to")
				step := rapid.IntRange(1, 7).Draw(t, name+" step")
				return fmt.Sprintf("%d-%d/%d", a, b, step), func(v int) bool {
					return v >= a && v <= b &&
						(v-a)%step == 0
				}
			}
			return "*", nil
		}
		minute, isMinute := field("minute", 0, 59)
		hour, isHour := field("hour", 0, 23)
		dom, isDom := field("day", 1, 28)
		dow, isDow := field("weekday", 0, 6)
		matches := func(u time.Time) bool {
			fits := func(is func(int) bool, v int) bool { return is == nil || is(v) }
			days := fits(isDom, u.Day()) && fits(isDow, int(u.Weekday()))
			if isDom != nil && isDow != nil {
				days = isDom(u.Day()) || isDow(int(u.Weekday()))
			}
			return fits(isMinute, u.Minute()) && fits(isHour, u.Hour()) && days
		}
		s := Cron(strings.Join([]string{minute, hour, dom, "*", dow}, " "), zone)
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		loc, _ := time.LoadLocation(zone)
		want := int64(0)
		for u := from.Add(time.Minute); u.Before(from.AddDate(0, 0, 5)); u = u.Add(time.Minute) {
			if matches(u.In(loc)) {
				want = u.UnixMilli()
				break
			}
		}
		got := s.next(from.UnixMilli())
		if want == 0 && got != 0 && got < from.AddDate(0, 0, 5).UnixMilli() || want != 0 && got != want {
			t.Fatalf("%s after %v: %v, want %v", s, from.In(loc), time.UnixMilli(got).In(loc),
				time.UnixMilli(want).In(loc))
		}
	})
}

// TestEndOfLeapYear: the last day of a leap year, of which Go's zones give no end, ends nothing. Go knows the changes
// of some years one by one, and to 2037 at most; for later years it reads a rule.
func TestEndOfLeapYear(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "Europe/London"} {
		in, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, year := range []int{2028, 2040} {
			for _, from := range []time.Time{time.Date(year, 12, 2, 0, 0, 0, 0, in),
				time.Date(year, 12, 31, 0, 30, 0, 0, in), time.Date(year, 12, 31, 23, 0, 0, 0, in)} {
				for text, want := range map[string]time.Time{
					"0 0 1 * *":  time.Date(year+1, 1, 1, 0, 0, 0, 0, in),
					"0 12 1 7 *": time.Date(year+1, 7, 1, 12, 0, 0, 0, in),
				} {
					got := make(chan int64, 1)
					s := Cron(text, zone)
					go func() { got <- s.next(from.UnixMilli()) }()
					select {
					case ms := <-got:
						if ms != want.UnixMilli() {
							t.Errorf("%v after %v: %v", s, from, time.UnixMilli(ms).In(in))
						}
					case <-time.After(5 * time.Second):
						t.Fatalf("%v after %v: it looks for ever", s, from)
					}
				}
			}
		}
	}
}
