package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/sim/chance"
)

var (
	seeds    = flag.Int("sim.seeds", 6, "how many seeds are played")
	first    = flag.Uint64("sim.seed", 0, "the first of them; 0: one that was never played")
	repeat   = flag.Int("sim.repeat", 1, "how often each is played")
	stop     = flag.Bool("sim.stop", false, "stop at the first that fails")
	shrunk   = flag.String("sim.shrink", "", "shrink the first seed that fails, into a file of this name in testdata")
	trace    = flag.String("sim.trace", "", "write the commands of each play to a file of this name and its seed")
	patience = flag.Duration("sim.patience", time.Minute, "of real time, for one play")
)

func TestMain(m *testing.M) {
	if os.Getenv(playerEnv) != "" {
		flag.Parse()
		os.Exit(m.Run())
	}
	os.Exit(redistest.Main(m))
}

// New seeds are played, and hold.
func TestSeeds(t *testing.T) {
	t.Parallel()
	from := *first
	if from == 0 {
		from = uint64(time.Now().UnixMicro())
	}
	began, n := time.Now(), 0
	sum, bad := outcome{}, map[uint64]int{}
	var worst time.Duration
	most, who := make(map[string]time.Duration), make(map[string]uint64)
	var fails []*Plot
	playAll(t, func() *Plot {
		if n == *seeds**repeat || *stop && len(bad) > 0 {
			return nil
		}
		n++
		p := &Plot{Seed: from + uint64((n-1)%*seeds)}
		if *trace != "" {
			p.Trace = fmt.Sprint(*trace, ".", p.Seed)
		}
		return p
	}, func(p *Plot, o outcome) {
		sum.Commands, sum.Struck, sum.Enqueued = sum.Commands+o.Commands, sum.Struck+o.Struck, sum.Enqueued+o.Enqueued
		worst = max(worst, o.Took)
		for what, d := range o.Most {
			if d >= most[what] {
				most[what], who[what] = d, o.Seed
			}
		}
		if o.Err != "" {
			if bad[o.Seed]++; bad[o.Seed] == 1 {
				fails = append(fails, draw(o.Seed))
				t.Errorf("seed %d:\n%s", o.Seed, o.Err)
			}
		}
	})
	took := time.Since(began)
	text := fmt.Sprintf("sim: %d seeds from %d in %v, %.0f a minute: %d messages, %d faults, %d commands, at most %v\n",
		n, from, took.Round(time.Second), float64(n)/took.Minutes(), sum.Enqueued, sum.Struck, sum.Commands, worst)
	for _, what := range slices.Sorted(maps.Keys(most)) {
		d := any(most[what])
		if strings.Contains(what, " a second") || strings.Contains(what, " a minute") {
			d = int(most[what])
		}
		text += fmt.Sprintf("sim: %s: at most %v, of seed %d\n", what, d, who[what])
	}
	for seed, times := range bad {
		text += fmt.Sprintf("sim: seed %d failed %d times of %d\n", seed, times, *repeat)
	}
	redistest.Tell(text)
	if *shrunk != "" && len(fails) > 0 {
		p := shrink(t, fails[0])
		b, err := json.MarshalIndent(p, "", "  ")
		if err == nil {
			err = os.MkdirAll("testdata", 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join("testdata", *shrunk+".json"), append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// The same seed goes the same way, to the last command, whatever its player has played before.
func TestSameStory(t *testing.T) {
	t.Parallel()
	if !chance.Seeded {
		t.Skip("the runtime draws as it likes: see make sim")
	}
	const n, times = 4, 3
	ways := make(map[uint64]map[string]bool)
	played := 0
	playAll(t, func() *Plot {
		if played == n*times {
			return nil
		}
		played++
		return &Plot{Seed: uint64(played%n) + 16*7 + 4}
	}, func(p *Plot, o outcome) {
		o.Took = 0
		if ways[o.Seed] == nil {
			ways[o.Seed] = make(map[string]bool)
		}
		ways[o.Seed][fmt.Sprint(o)] = true
	})
	for seed, w := range ways {
		if len(w) > 1 {
			t.Errorf("seed %d went %d ways of %d: %v", seed, len(w), times, slices.Collect(maps.Keys(w)))
		}
	}
}

// What once failed is played again, shrunk to what it took.
func TestKept(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	const times = 3
	of := make(map[*Plot]string)
	var plots []*Plot
	for _, name := range names {
		b, err := os.ReadFile(name)
		p := new(Plot)
		if err == nil {
			err = json.Unmarshal(b, p)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		of[p] = name
		plots = append(plots, slices.Repeat([]*Plot{p}, times)...)
	}
	playAll(t, func() (p *Plot) {
		if len(plots) > 0 {
			p, plots = plots[0], plots[1:]
		}
		return p
	}, func(p *Plot, o outcome) {
		if o.Err != "" {
			t.Errorf("%s:\n%s", of[p], o.Err)
		}
	})
}
