package sim

import (
	"bufio"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt/internal/sim/chance"
)

// playerEnv tells the test's program that it is a player.
const playerEnv = "SHUNT_SIM_PLAYER"

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
	debug.SetGCPercent(-1) // its goroutines would come between those of the play
	debug.SetMemoryLimit(2 << 30)
	ballast := make([]byte, 1<<30) // never touched; the runtime keeps a tenth of that ready for the next play
	defer runtime.KeepAlive(ballast)
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	inBubble(t, draw(0), func(*Result) {}) // what is made once is there then
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.NewFile(3, "outcomes"))
	for {
		p := new(Plot)
		if err := in.Decode(p); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		defect, file := p.Defect, p.Trace
		if len(p.Crew) == 0 {
			p = draw(p.Seed)
		}
		p.Trace = file
		if err := plant(defect, p); err != nil {
			t.Fatal(err)
		}
		procs := 1
		if parallel(p.Seed) {
			procs = 2
		}
		runtime.GOMAXPROCS(procs)
		o, began := outcome{Seed: p.Seed}, time.Now()
		inBubble(t, p, func(r *Result) {
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

// parallel says whether the goroutines of a seed have two processors. With one the same seed goes the same way.
func parallel(seed uint64) bool { return seed%16 == 3 }

// inBubble plays a plot; with one processor, the same plot the same way.
func inBubble(t *testing.T, p *Plot, tell func(*Result)) {
	runtime.GC() // twice: what lies in a sync.Pool may have channels of an earlier bubble
	runtime.GC()
	entropy := crand.Reader
	defer func() { crand.Reader = entropy }()
	crand.Reader = &stream{from: rand.New(rand.NewPCG(p.Seed, 0))}
	synctest.Test(t, func(*testing.T) {
		if !parallel(p.Seed) {
			chance.Seed(p.Seed + 1)
			defer chance.Seed(0)
		}
		tell(play(p))
	})
}

// stream is what the package takes for bytes that nobody can guess.
type stream struct {
	mu   sync.Mutex
	from *rand.Rand
}

func (s *stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b {
		b[i] = byte(s.from.Uint32())
	}
	return len(b), nil
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
