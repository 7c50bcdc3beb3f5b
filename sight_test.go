package shunt

import (
	"testing"
	"time"
)

// A row of looks is broken by an absence of Redis, whether it lies between two looks or within one.
func TestSightBreaks(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(d time.Duration) time.Time { return began.Add(d) }
	for name, c := range map[string]struct {
		sent, seen, answered time.Duration // of the second look
		breaks               bool
	}{
		"none":                    {lookEvery, lookEvery, lookEvery, false},
		"a blink":                 {lookEvery, lookEvery + lookEvery/2, lookEvery + lookEvery/2, false},
		"between":                 {longestBlink + 1, longestBlink + 1, longestBlink + 1, true},
		"between, and within":     {longestBlink - 100, longestBlink + lookEvery, longestBlink + lookEvery, true},
		"the clock was set ahead": {lookEvery, time.Hour, lookEvery, true},
		"the clock was set back":  {lookEvery, -time.Hour, lookEvery, true},
	} {
		var s sight
		s.saw(at(0), at(0), at(0))
		s.saw(at(c.sent), at(c.answered), at(c.seen))
		if broke := s.since.Equal(at(c.seen)); broke != c.breaks {
			t.Errorf("%s: since %v", name, s.since.Sub(began))
		}
	}
}
