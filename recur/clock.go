package recur

import "time"

// clock estimates the server's clock from the replies of Redis.
type clock struct {
	local     time.Time // of the estimate, by the clock here
	server    float64   // ms since 1970 that the server's clock showed then
	tolerance float64   // ms by which server may be wrong
}

// observe takes in a reply in which the server's clock showed ms, between two times by the clock here. The clock had
// passed ms by less than 1. A slow reply that agrees with the estimate is ignored. The two clocks may drift apart by 1
// ms a second.
func (c *clock) observe(ms int64, sent, received time.Time) {
	half := received.Sub(sent) / 2
	local, server, tolerance := sent.Add(half), float64(ms)+0.5, millis(half)+0.5
	if !c.local.IsZero() {
		age := millis(local.Sub(c.local))
		difference := c.server + age - server
		if tolerance > c.tolerance+age/1000 && difference <= tolerance && difference >= -tolerance {
			return
		}
	}
	*c = clock{local, server, tolerance}
}

// now is what the server's clock shows, in whole ms since 1970.
func (c *clock) now() int64 { return int64(c.server + millis(time.Since(c.local))) }

// until is the time until the server's clock shows ms.
func (c *clock) until(ms int64) time.Duration {
	return time.Duration((float64(ms)-c.server)*1e6) - time.Since(c.local)
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
