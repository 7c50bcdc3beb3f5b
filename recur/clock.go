package recur

import "time"

// clock is the clock of Redis, as known from replies.
type clock struct {
	at    time.Time // when, here
	there float64   // it showed this, in ms
	err   float64   // give or take this
}

// hear takes in that the clock showed ms, which it had not passed by more than 1, between two times here. A reply that
// took long and does not contradict what is known is passed over; clocks may part by 1 ms a second.
func (c *clock) hear(ms int64, sent, came time.Time) {
	half := came.Sub(sent) / 2
	at, there, err := sent.Add(half), float64(ms)+0.5, millis(half)+0.5
	if !c.at.IsZero() {
		age := millis(at.Sub(c.at))
		if off := c.there + age - there; err > c.err+age/1000 && off <= err && off >= -err {
			return
		}
	}
	*c = clock{at, there, err}
}

// now is what it shows, in whole ms.
func (c *clock) now() int64 { return int64(c.there + millis(time.Since(c.at))) }

// until is how long it takes to show ms.
func (c *clock) until(ms int64) time.Duration {
	return time.Duration((float64(ms)-c.there)*1e6) - time.Since(c.at)
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
