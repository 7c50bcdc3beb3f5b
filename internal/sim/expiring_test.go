package sim

import (
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// What a worker had in hand in time does not expire there, unless a fault struck the worker, or the reply to its take
// was on its way when Redis stopped.
func TestExpired(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	struck := func(by, what string, ms, n int) trial.Entry {
		return trial.Entry{At: at(ms), By: by, Op: trial.Fault, Phase: trial.Info, ID: what, N: n}
	}
	for name, c := range map[string]struct {
		taken bool // since the look before
		fault trial.Entry
		found bool
	}{
		"no fault":                           {true, trial.Entry{}, true},
		"a fault of its process":             {false, struck("p", "freeze", 1010, 4), false},
		"of another one":                     {true, struck("q", "freeze", 1010, 4), true},
		"Redis stops behind the take":        {true, struck("harness", "stop server", 1005, 0), false},
		"it stops between take and look":     {true, struck("harness", "stop server", 995, 0), false},
		"it stops when the reply is there":   {true, struck("harness", "stop server", 1010, 0), true},
		"it stopped before the take":         {true, struck("harness", "stop server", 990, 0), true},
		"it was taken before anybody looked": {false, struck("harness", "stop server", 1005, 0), true},
		"something else befalls Redis":       {true, struck("harness", "script flush", 1005, 0), true},
	} {
		w := &world{held: map[string]holding{"s": {at: at(1000), expires: at(1500), by: "i", taken: c.taken}}}
		w.expired([]trial.Entry{{At: at(0), By: "p", Op: "started", Note: "i"}, c.fault,
			{At: at(2000), By: "p", Op: "expired", Serial: "s"}})
		if found := len(w.result.Problems) > 0; found != c.found {
			t.Errorf("%s: found %v", name, w.result.Problems)
		}
	}
}
