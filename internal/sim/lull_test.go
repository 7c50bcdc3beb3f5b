package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt/internal/sim/redis"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// storm is how long that of a test's plot is.
const storm = 20 * time.Second

// In a calm each list that holds something has a receiver that beats.
func TestHeldByNobody(t *testing.T) {
	foreign := func(what string, nth int) *Plot {
		return &Plot{Blows: []Blow{{At: storm, For: lull, Kind: "foreign", What: what, Nth: nth}}}
	}
	for name, c := range map[string]struct {
		plot  *Plot
		ends  time.Duration // from now: of the receiver's entry; 0: it has none
		cycle int
		dead  string        // how it came among the dead; empty: it is not there
		ago   time.Duration // when
		found bool
	}{
		"no receiver":                       {new(Plot), 0, 0, "", 0, true},
		"it has not beaten for long":        {new(Plot), -time.Millisecond, 0, "", 0, true},
		"it beats":                          {new(Plot), time.Second, 0, "", 0, false},
		"an older state":                    {&Plot{Lossy: true}, 0, 0, "", 0, false},
		"a foreign key for suspects":        {foreign("suspect", 1), 0, 0, "", 0, false},
		"a foreign key in another channel":  {foreign("suspect", 0), 0, 0, "", 0, true},
		"a foreign key in another lull":     {foreign("suspect", 1), 0, 1, "", 0, true},
		"handed over a moment ago":          {new(Plot), 0, 0, "c", time.Millisecond, false},
		"died a moment ago":                 {new(Plot), 0, 0, "r", time.Millisecond, true},
		"handed over long ago":              {new(Plot), 0, 0, "c", time.Second, true},
		"a foreign key where none is moved": {foreign("delay", 1), 0, 0, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(epoch))
				c.plot.Storm = storm
				c.plot.Crew = []trial.Orders{{Channels: []string{"other"}}, {Channels: []string{"plain"}}}
				w := &world{plot: c.plot, server: redis.New(redis.Options{RunID: "1"})}
				w.net = &network{server: w.server}
				k, inc := store.KeysOf("plain"), store.NewIncarnation(1, lease)
				do := func(cmd string, args ...any) {
					if _, err := w.do(cmd, args...); err != nil {
						t.Fatal(err)
					}
				}
				do("LPUSH", k.Doing(inc, 0), "a message")
				if c.ends != 0 {
					do("ZADD", k.Receivers, time.Now().Add(c.ends).UnixMilli(), inc.Name)
				}
				if c.dead != "" {
					died := time.Now().Add(-c.ago).UnixMilli()
					do("ZADD", k.DeadReceivers, 0, fmt.Sprint(inc.Name, " ", died, " ", c.dead))
				}
				w.heldByNobody(c.cycle)
				found := slices.ContainsFunc(w.result.Problems, func(p string) bool {
					return strings.HasPrefix(p, "I7 held by nobody: "+k.Doing(inc, 0))
				})
				if found != c.found || len(w.result.Problems) > 1 {
					t.Errorf("found: %t, want %t; %v", found, c.found, w.result.Problems)
				}
			})
		})
	}
}
