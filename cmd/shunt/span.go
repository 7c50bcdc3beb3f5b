package main

import (
	"strings"
	"time"
)

// span is a length of time as a flag: that of time.ParseDuration, and days.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }
func (s *span) Type() string   { return "duration" }

func (s *span) Set(text string) error {
	d, err := parseSpan(text)
	*s = span(d)
	return err
}

func parseSpan(text string) (time.Duration, error) {
	if days, is := strings.CutSuffix(text, "d"); is {
		hours, err := time.ParseDuration(days + "h")
		if err == nil && hours.Abs() < 100*365*time.Hour {
			return 24 * hours, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, usage("%.40q is no length of time: want 10s, 5m, 2h or 7d", text)
	}
	return d, nil
}

// parseTime reads a time: one of the calendar, a length of time ago, or one ahead with a +.
func parseTime(text string) (time.Time, error) {
	for _, form := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	ahead, is := strings.CutPrefix(text, "+")
	d, err := parseSpan(ahead)
	if err != nil {
		return time.Time{}, usage("%.40q is no time: want 2026-11-25T10:00:00Z, 2026-11-25 10:00, 2026-11-25, "+
			"90m (ago) or +90m (ahead)", text)
	}
	if !is {
		d = -d.Abs()
	}
	return time.Now().Add(d), nil
}
