package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

var (
	seeds    = flag.Int("sim.seeds", 6, "how many seeds are played")
	first    = flag.Uint64("sim.seed", 0, "the first of them; 0: one that was never played")
	repeat   = flag.Int("sim.repeat", 1, "how often each is played")
	stop     = flag.Bool("sim.stop", false, "stop at the first that fails")
	shrunk   = flag.String("sim.shrink", "", "shrink the first seed that fails, into a file of this name in testdata")
	patience = flag.Duration("sim.patience", time.Minute, "of real time, for one play")
)

// playerEnv tells the test's program that it is a player.
const playerEnv = "SHUNT_SIM_PLAYER"

func TestMain(m *testing.M) {
	if os.Getenv(playerEnv) != "" {
		flag.Parse()
		os.Exit(m.Run())
	}
	os.Exit(redistest.Main(m))
}

// outcome is how a play ended, as a player tells it.
type outcome struct {
	Seed     uint64
	Err      string // empty: well
	Broke    []string
	Commands int
	Struck   int
	Enqueued int
	Took     time.Duration
	Most     map[string]time.Duration
}

// TestPlayer plays the plots that come to it, one a line, until there are no more. It is a process of its own: a play
// that deadlocks, or does not end, takes it down.
func TestPlayer(t *testing.T) {
	if os.Getenv(playerEnv) == "" {
		t.Skip("it plays for TestSeeds")
	}
	debug.SetGCPercent(400)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.NewFile(3, "outcomes"))
	for {
		p := new(Plot)
		if err := in.Decode(p); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		defect := p.Defect
		if len(p.Crew) == 0 {
			p = draw(p.Seed)
		}
		if err := plant(defect, p); err != nil {
			t.Fatal(err)
		}
		procs := 1 // with one the same seed nearly always goes the same way
		if p.Seed%4 == 3 {
			procs = 2
		}
		runtime.GOMAXPROCS(procs)
		runtime.GC() // twice: what lies in a sync.Pool may have channels of an earlier bubble
		runtime.GC()
		o, began := outcome{Seed: p.Seed}, time.Now()
		synctest.Test(t, func(*testing.T) {
			r := play(p)
			if err := r.Err(); err != nil {
				o.Err, o.Broke = err.Error(), r.Broke()
			}
			o.Most = r.Most
			o.Commands, o.Struck, o.Enqueued = r.Commands, r.Struck, r.Verdict.Enqueued
		})
		o.Took = time.Since(began)
		if err := out.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
}

// player is a process that plays.
type player struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *os.File
	read *bufio.Reader
	said *strings.Builder
}

func newPlayer(bin string) (*player, error) {
	if bin == "" {
		var err error
		if bin, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	p := &player{cmd: exec.Command(bin, "-test.run", "^TestPlayer$", "-test.timeout", "0"), out: out,
		read: bufio.NewReader(out), said: new(strings.Builder)}
	p.cmd.Env = append(os.Environ(), playerEnv+"=1", "GOTRACEBACK=all")
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

var errPlayer = errors.New("the player ended")

// play has a plot played. After an error the player is gone.
func (p *player) play(plot *Plot) (o outcome, err error) {
	if err := json.NewEncoder(p.in).Encode(plot); err != nil {
		return o, err
	}
	slow := time.AfterFunc(*patience, func() { _ = p.cmd.Process.Signal(os.Interrupt) })
	defer slow.Stop()
	line, err := p.read.ReadBytes('\n')
	if err != nil {
		return o, errPlayer
	}
	return o, json.Unmarshal(line, &o)
}

func (p *player) close() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
	_ = p.out.Close()
}

// playAll has plots played by as many players as there are cores, and tells of each outcome, one at a time.
func playAll(t *testing.T, plots func() *Plot, tell func(p *Plot, o outcome)) {
	t.Helper()
	playBy(t, "", plots, tell)
}

// playBy does so by another program than this one, unless that is empty.
func playBy(t *testing.T, bin string, plots func() *Plot, tell func(p *Plot, o outcome)) {
	t.Helper()
	var mu sync.Mutex
	next := func() *Plot {
		mu.Lock()
		defer mu.Unlock()
		return plots()
	}
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			var pl *player
			defer func() {
				if pl != nil {
					pl.close()
				}
			}()
			for p := next(); p != nil; p = next() {
				if pl == nil {
					var err error
					if pl, err = newPlayer(bin); err != nil {
						t.Error(err)
						return
					}
				}
				o, err := pl.play(p)
				if err != nil {
					_ = pl.cmd.Process.Kill()
					pl.close()
					o = outcome{Seed: p.Seed, Err: fmt.Sprintf("%v: %s", err, last(pl.said.String(), 20<<10)),
						Broke: []string{"ended badly"}}
					pl = nil
				}
				mu.Lock()
				tell(p, o)
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

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
		return &Plot{Seed: from + uint64((n-1)%*seeds)}
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
		if strings.HasPrefix(what, "idle commands") {
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
