package sim

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt/internal/sim/redis"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// What a living receiver has in its list all through a calm is in some handler's hands.
func TestStrayed(t *testing.T) {
	handle := func(at time.Duration, phase string, worker int) trial.Entry {
		return trial.Entry{At: epoch.Add(at), By: "p1", Op: trial.Handle, Phase: phase, N: worker}
	}
	for name, c := range map[string]struct {
		plot  *Plot
		beats time.Duration // to which its receiver's entry lasts at the end
		comes bool          // the message, amid the calm
		said  []trial.Entry
		found bool
	}{
		"in no hand":      {new(Plot), time.Second, false, nil, true},
		"an older state":  {&Plot{Lossy: true}, time.Second, false, nil, true},
		"its worker ends": {new(Plot), -time.Second, false, nil, false},
		"it came amid it": {new(Plot), time.Second, true, nil, false},
		"its worker was busy before": {new(Plot), time.Second, false, []trial.Entry{
			handle(-2*time.Second, trial.Invoke, 0), handle(-time.Second, trial.OK, 0)}, true},
		"its worker is busy": {new(Plot), time.Second, false, []trial.Entry{
			handle(-2*time.Second, trial.Invoke, 0)}, false},
		"its worker was busy since": {new(Plot), time.Second, false, []trial.Entry{
			handle(time.Second, trial.Invoke, 0), handle(2*time.Second, trial.Fail, 0)}, false},
		"another worker is busy": {new(Plot), time.Second, false, []trial.Entry{
			handle(-2*time.Second, trial.Invoke, 1)}, true},
		"one of two has ended": {new(Plot), time.Second, false, []trial.Entry{
			handle(-3*time.Second, trial.Invoke, 0), handle(-2*time.Second, trial.Invoke, 0),
			handle(-time.Second, trial.OK, 0)}, false},
		"a foreign key there": {&Plot{Blows: []Blow{{At: storm, For: lull, Kind: "foreign", What: "dead"}}},
			time.Second, false, nil, false},
		"a foreign key in another lull": {&Plot{Blows: []Blow{{At: 2*storm + shots + lull, For: lull, Kind: "foreign",
			What: "dead"}}}, time.Second, false, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(epoch))
				c.plot.Storm = storm
				c.plot.Crew = []trial.Orders{{Channels: []string{"plain"}}}
				w := &world{plot: c.plot, server: redis.New(redis.Options{RunID: "1"})}
				w.net = &network{server: w.server}
				k, inc := store.KeysOf("plain"), store.NewIncarnation(1, lease)
				do := func(cmd string, args ...any) {
					if _, err := w.do(cmd, args...); err != nil {
						t.Fatal(err)
					}
				}
				beat := func(d time.Duration) { do("ZADD", k.Receivers, time.Now().Add(d).UnixMilli(), inc.Name) }
				beat(time.Second)
				log := w.said.Ledger("p1")
				log.Say(trial.Entry{Op: "started", At: epoch.Add(-time.Minute), Note: inc.Name})
				log.Say(c.said...)
				lay, since := map[lying]bool{}, time.Now()
				if c.comes {
					lay = w.lies(0)
				}
				do("LPUSH", k.Doing(inc, 0), "a message")
				if !c.comes {
					lay = w.lies(0)
				}
				time.Sleep(lull)
				beat(c.beats)
				w.strayed(0, lay, since)
				found := slices.ContainsFunc(w.result.Problems, func(p string) bool {
					return strings.HasPrefix(p, "I7 stray: ") && strings.Contains(p, k.Doing(inc, 0))
				})
				if found != c.found || len(w.result.Problems) > 1 {
					t.Errorf("found: %t, want %t; %v", found, c.found, w.result.Problems)
				}
			})
		})
	}
}
