package recur

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/robfig/cron/v3"
)

// MinInterval is the shortest interval of Every. Cron expressions go down to a second.
const MinInterval = 100 * time.Millisecond

// Spec says when a message recurs. Cron and Every make one; the zero value never comes. It may be used by many
// goroutines at once.
type Spec struct {
	text  string // the expression, or @every and the interval
	zone  string // empty for an interval
	every int64  // ms; 0 for a cron expression
	cron  *cron.SpecSchedule
	in    *time.Location
	err   error
}

// Cron recurs at the times of an expression: minute, hour, day of the month, month and weekday. With six fields the
// first one is the second. A field is *, a number, a name (jan, mon), a range a-b, or a list of these with commas. *
// and a range may have a /step, and ? is *. If both the day of the month and the weekday are given, a day has to match
// only one of them. @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly stand for expressions, and
// @every 1m30s is Every.
//
// zone is a name of the IANA database, such as Europe/Berlin, and "" is UTC. The host's own zone cannot be named,
// because processes may run on several hosts. The package's documentation says what daylight saving does. Err returns
// the fault of an expression or zone, and so does every function that gets the Spec.
func Cron(expression, zone string) Spec {
	s := Spec{text: strings.Join(strings.Fields(expression), " "), zone: zone, in: time.UTC}
	if d, ok := strings.CutPrefix(s.text, "@every "); ok {
		every, err := time.ParseDuration(d)
		if err != nil {
			s.err = &CronError{Expression: expression, Column: column(expression, d),
				Problem: fmt.Sprintf("%q is no interval: want one such as 1m30s", d)}
			return s
		}
		return Every(every)
	}
	if s.cron, s.err = parse(expression); s.err != nil {
		return s
	}
	if zone == "Local" {
		s.err = errors.New(`recur: zone "Local" differs from host to host: ` +
			`want a name such as Europe/Berlin, or "" for UTC`)
		return s
	}
	var err error
	if s.in, err = time.LoadLocation(zone); err != nil {
		s.err = fmt.Errorf("recur: zone %q: want a name of the IANA database such as Europe/Berlin, or \"\" for "+
			"UTC; a host without that database needs a program that imports time/tzdata: %w", zone, err)
		return s
	}
	// From the first of a leap year every date comes within the five years for which the parser's schedule looks.
	if s.cron.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		s.err = fmt.Errorf("recur: cron %q never comes: no month has that day", s.text)
	}
	return s
}

// Every recurs at every multiple of d, counted from 1970-01-01 00:00 UTC, so that all processes agree. So an hour is on
// the hour, a day at midnight UTC, and a week on Thursdays. d is at least MinInterval and in whole milliseconds.
func Every(d time.Duration) Spec {
	s := Spec{text: "@every " + d.String(), every: d.Milliseconds(), in: time.UTC}
	if d < MinInterval || d%time.Millisecond != 0 {
		s.err = fmt.Errorf("recur: every %v: want at least %v, in whole milliseconds", d, MinInterval)
	}
	return s
}

// Err says what is wrong with the Spec: a *CronError where it is the expression.
func (s Spec) Err() error {
	if s.err == nil && s.every == 0 && s.cron == nil {
		return errors.New("recur: the Spec is empty: make one with Cron or Every")
	}
	return s.err
}

// MarshalText is String.
func (s Spec) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes: an expression, and behind it a zone where that is not UTC. Its error is
// that of Err.
func (s *Spec) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	n := len(words)
	*s = Cron(strings.Join(words, " "), "")
	if s.Err() != nil && n > 1 { // the last word may be a zone; it never is one in an expression that is right
		spec := strings.Join(words[:n-1], " ")
		if Cron(spec, "").Err() == nil { // so an error is the zone's
			*s = Cron(spec, words[n-1])
		}
	}
	return s.Err()
}

// String is the expression, with its zone behind it where that is not UTC.
func (s Spec) String() string {
	if s.zone != "" {
		return s.text + " " + s.zone
	}
	return s.text
}

// Next is a preview: the n ticks after from, 1 to 10,000, in the Spec's zone. There are fewer where the expression has
// no more within some ten years.
func Next(s Spec, from time.Time, n int) ([]time.Time, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if n < 1 || n > 10000 {
		return nil, fmt.Errorf("recur: a preview of %d ticks: want 1 to 10,000", n)
	}
	ts := make([]time.Time, 0, n)
	for ms := s.next(from.UnixMilli()); ms != 0 && len(ts) < n; ms = s.next(ms) {
		ts = append(ts, time.UnixMilli(ms).In(s.in))
	}
	return ts, nil
}

// next is the first tick after a time, both in ms since 1970; 0 if there is none.
//
// The parser's own schedule counts hours through a change of the clock. So it misses a change of the day where there is
// no midnight, and of the minute where the clock moves by half an hour. That is why it is only asked for UTC, where
// nothing changes. As long as a zone's offset stays, its clock is one of UTC that is set wrong.
func (s Spec) next(ms int64) int64 {
	if s.every > 0 {
		since := ms % s.every
		if since < 0 {
			since += s.every
		}
		return ms - since + s.every
	}
	after := time.UnixMilli(ms).In(s.in)
	limit := after.AddDate(10, 0, 0)
	for span := after; ; {
		_, offset := span.Zone()
		shift := time.Duration(offset) * time.Second
		shown := s.cron.Next(after.Add(shift).UTC())
		if shown.IsZero() {
			return 0
		}
		at := shown.Add(-shift)
		_, end := span.ZoneBounds()
		if !end.IsZero() && !end.After(span) { // on the last day of a leap year Go gives no end that is ahead
			end = span.Add(time.Hour)
		}
		if end.IsZero() || at.Before(end) {
			return at.UnixMilli()
		}
		if end.After(limit) {
			return 0 // it asks only for what changes of the clock leave out
		}
		span, after = end, end.Add(-1) // the end itself may be a tick
	}
}

// location is the zone, UTC where it is not known.
func (s Spec) location() *time.Location {
	if s.in == nil {
		return time.UTC
	}
	return s.in
}

// CronError says what is wrong with an expression, and where.
type CronError struct {
	Expression string
	Column     int    // of the mistake, in characters from 1
	Field      string // the name of the field, empty where it is no single one
	Problem    string
}

func (e *CronError) Error() string {
	field := ""
	if e.Field != "" {
		field = " (" + e.Field + ")"
	}
	return fmt.Sprintf("recur: cron %q: column %d%s: %s", e.Expression, e.Column, field, e.Problem)
}

// column is where a part that is the end of the expression, but for blanks, begins.
func column(expression, part string) int {
	return len([]rune(strings.TrimRightFunc(expression, unicode.IsSpace))) - len([]rune(part)) + 1
}

// fields are the names of an expression's, and which of the parser's each is.
var fields = []struct {
	name  string
	place cron.ParseOption
}{
	{"second", cron.Second}, {"minute", cron.Minute}, {"hour", cron.Hour}, {"day of the month", cron.Dom}, {"month",
		cron.Month}, {"weekday", cron.Dow},
}

var parser = cron.NewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parse has every part of every field parsed alone first, because the parser does not say where a mistake is.
func parse(expression string) (*cron.SpecSchedule, error) {
	wrong := func(column int, field, problem string) error {
		return &CronError{expression, column, field, problem}
	}
	words, columns := split(expression)
	switch {
	case len(words) == 0:
		return nil, wrong(1, "", "it is empty")
	case strings.HasPrefix(words[0], "TZ=") || strings.HasPrefix(words[0], "CRON_TZ="):
		return nil, wrong(columns[0], "", "a zone is given beside the expression, not in it")
	case words[0][0] == '@':
		schedule, err := parser.Parse(strings.Join(words, " "))
		if err != nil {
			return nil, wrong(columns[0], "", fmt.Sprintf("%q is unknown: want @yearly, @annually, @monthly, "+
				"@weekly, @daily, @midnight, @hourly, or @every and an interval",
				strings.Join(words, " ")))
		}
		return inUTC(schedule), nil
	case len(words) < 5:
		return nil, wrong(len([]rune(expression))+1, "", fmt.Sprintf("it ends after %d fields: want 5 (minute, "+
			"hour, day of the month, month, weekday), or 6 with the second before them", len(words)))
	case len(words) > 6:
		return nil, wrong(columns[6], "", "there is a seventh field: want 5 (minute, hour, day of the month, month, "+
			"weekday), or 6 with the second before them")
	}
	for i, word := range words {
		field := fields[i+6-len(words)]
		at := columns[i]
		for part := range strings.SplitSeq(word, ",") {
			if problem := check(part, field.place); problem != "" {
				return nil, wrong(at, field.name, problem)
			}
			at += len([]rune(part)) + 1
		}
	}
	schedule, err := parser.Parse(strings.Join(words, " "))
	if err != nil {
		return nil, wrong(columns[0], "", err.Error())
	}
	return inUTC(schedule), nil
}

// check says what is wrong with one part of a list. The parser passes over an empty one, and over what follows a *.
func check(part string, place cron.ParseOption) (problem string) {
	switch {
	case part == "":
		return "a part of the list is empty"
	case strings.Contains(part, "="): // the parser slices past the end of "TZ=" with nothing behind it
		return fmt.Sprintf("%q has an =: a zone is given beside the expression, not in it", part)
	case (part[0] == '*' || part[0] == '?') && len(part) > 1 && part[1] != '/':
		return fmt.Sprintf("only /step may follow the %c of %s", part[0], part)
	}
	if _, err := cron.NewParser(place).Parse(part); err != nil {
		return err.Error()
	}
	return ""
}

func inUTC(s cron.Schedule) *cron.SpecSchedule {
	schedule := *s.(*cron.SpecSchedule) // all but @every are
	schedule.Location = time.UTC
	return &schedule
}

// split gives an expression's words and the columns where they begin, in characters from 1.
func split(expression string) (words []string, columns []int) {
	column, start := 0, -1
	flush := func(end int) {
		if start >= 0 {
			words, start = append(words, expression[start:end]), -1
		}
	}
	for i, r := range expression {
		column++
		switch {
		case unicode.IsSpace(r):
			flush(i)
		case start < 0:
			start, columns = i, append(columns, column)
		}
	}
	flush(len(expression))
	return words, columns
}
