package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// A lull says nothing of a channel whose foreign key may keep all from taking, and of what is delayed where it may not.
func TestLulled(t *testing.T) {
	kill := []Blow{{At: storm - time.Second, For: time.Second, Kind: "kill"}}
	for name, c := range map[string]struct {
		what    string
		plot    Plot
		channel string
		delayed bool
	}{
		"nothing":                      {"", Plot{}, "", false},
		"prepare":                      {"prepare", Plot{}, "plain", false},
		"dead":                         {"dead", Plot{}, "plain", true},
		"leased":                       {"leased", Plot{}, "plain", true},
		"suspect":                      {"suspect", Plot{}, "plain", true},
		"suspect, and some are":        {"suspect", Plot{Blows: kill}, "plain", false},
		"receivers.dead":               {"receivers.dead", Plot{}, "plain", true},
		"receivers.dead, and some are": {"receivers.dead", Plot{Blows: kill}, "plain", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pull := range []int{0, 1} { // which tell themselves what Redis refuses them
				p := c.plot
				p.Storm = storm
				p.Crew = []trial.Orders{{Channels: []string{"plain"}, Pull: pull}}
				if c.what != "" {
					p.Blows = append(slices.Clone(p.Blows), Blow{At: storm, For: lull, Kind: "foreign", What: c.what})
				}
				if channel, delayed := (&world{plot: &p}).lulled(0); channel != c.channel || delayed != c.delayed {
					t.Errorf("pull %d: %q, %t", pull, channel, delayed)
				}
				if channel, _ := (&world{plot: &p}).lulled(1); channel != "" {
					t.Errorf("pull %d: %q in the next lull", pull, channel)
				}
			}
		})
	}
}

// Nor does it of a channel of which a receiver has handed over while nobody can be put among the dead.
func TestLulledAfterAHandover(t *testing.T) {
	for name, c := range map[string]struct {
		what, channel string // the foreign key, and who takes from what
		at            time.Duration
		delayed       bool
	}{
		"after it came":          {"receivers.dead", "plain", storm + 1, false},
		"before it came":         {"receivers.dead", "plain", storm - 1, true},
		"of another channel":     {"receivers.dead", "other", storm + 1, true},
		"beside another's":       {"dead", "plain", storm + 1, true},
		"beside that of suspect": {"suspect", "plain", storm + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{began: time.Unix(1000, 0), plot: &Plot{
				Storm: storm,
				Crew:  []trial.Orders{{Name: "p0", Channels: []string{"plain"}}},
				Blows: []Blow{{At: storm, For: lull, Kind: "foreign", What: c.what}},
			}}
			w.crew = []*process{{Orders: trial.Orders{Name: "p1", Channels: []string{c.channel}}}}
			w.said.Ledger("p1").Say(trial.Entry{Op: "handed-over", Phase: trial.Info, At: w.began.Add(c.at)})
			if _, delayed := w.lulled(0); delayed != c.delayed {
				t.Errorf("delayed alone: %t", delayed)
			}
		})
	}
}
