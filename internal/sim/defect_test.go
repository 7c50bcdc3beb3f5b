package sim

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/sim/chance"
	"github.com/shuntmq/shunt/internal/trial"
)

var hunted = flag.Int("sim.hunt", 2000, "how many seeds may be played until a defect is caught")

// planted is the defect that this player has planted. It plays nothing else.
var planted *trial.Defect

// plant plants the defect of that name, if it is none yet, and has the crew of a plot make it.
func plant(name string, p *Plot) (err error) {
	if name == "" {
		return nil
	}
	if planted == nil {
		if planted, err = trial.Plant(name); err != nil {
			return err
		}
	}
	if planted.Name != name {
		return fmt.Errorf("the player has %q, and cannot play %q", planted.Name, name)
	}
	for i := range p.Crew {
		if planted.Mislead != nil {
			planted.Mislead(&p.Crew[i])
		}
	}
	return nil
}

// Each defect is caught by seeds that hold without it.
func TestDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes thousands of seeds")
	}
	var table strings.Builder
	for _, d := range trial.Defects {
		t.Run(d.Name, func(t *testing.T) {
			n, broke := hunt(t, "", "", func(seed uint64) *Plot { return &Plot{Seed: seed, Defect: d.Name} })
			fmt.Fprintf(&table, "sim: %5d seeds: %s: %v\n", n, d.Name, broke)
			if len(broke) == 0 {
				t.Errorf("not caught in %d seeds", n)
			}
		})
	}
	redistest.Tell(table.String())
}

// hunt has a player's program play seeds until one fails that holds without the defect, by a program that is sound. It
// gives how many there were, and what broke.
func hunt(t *testing.T, bin, sound string, plot func(seed uint64) *Plot) (n int, broke []string) {
	from := *first
	if from == 0 {
		from = uint64(time.Now().UnixMicro())
	}
	for n < *hunted {
		var suspects []outcome
		played := 0
		playBy(t, bin, func() *Plot {
			if n+played == *hunted || len(suspects) > 0 {
				return nil
			}
			played++
			return plot(from + uint64(n+played-1))
		}, func(_ *Plot, o outcome) {
			if o.Err != "" {
				suspects = append(suspects, o)
			}
		})
		n += played
		slices.SortFunc(suspects, func(a, b outcome) int { return int(a.Seed) - int(b.Seed) })
		for _, o := range suspects {
			if b := failsBy(t, sound, &Plot{Seed: o.Seed}, nil); len(b) > 0 {
				t.Logf("seed %d fails by itself: %v", o.Seed, b)
				continue
			}
			t.Logf("after %d seeds:\n%s", n, o.Err)
			fails(t, bin, plot(o.Seed), (bin != "" || chance.Seeded) && !parallel(o.Seed))
			return n, slices.Compact(slices.Sorted(slices.Values(o.Broke)))
		}
	}
	return n, nil
}

// fails plays a plot that has failed again. always: it has to fail each time.
func fails(t *testing.T, bin string, p *Plot, always bool) {
	const times = 5
	played, failed := 0, 0
	playBy(t, bin, func() *Plot {
		if played++; played > times {
			return nil
		}
		return p
	}, func(_ *Plot, o outcome) {
		if o.Err != "" {
			failed++
		}
	})
	if t.Logf("seed %d fails again %d times of %d", p.Seed, failed, times); always && failed < times {
		t.Errorf("seed %d fails only %d times of %d", p.Seed, failed, times)
	}
}
