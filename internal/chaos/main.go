//go:build chaos

// Chaos tries to lose a message and cannot: it runs the fault matrix of shunt against the package and a real redis-server, has
// every process say what it does, and judges what was said by twelve invariants. go test ./internal/chaos is the short form; make chaos, which
// is go run ./internal/chaos, the long one, and writes docs/reliability.md.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// plan is what a long run is told, by flags or by ROUNDS=, SEED=, TIME= and ONLY= of the environment.
type plan struct {
	rounds int
	seed   uint64
	time   time.Duration
	mixes  int
	only   string
}

func (p *plan) read() {
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return otherwise
		}
		return n
	}
	length, err := time.ParseDuration(os.Getenv("TIME"))
	if err != nil {
		length = 90 * time.Second
	}
	flag.IntVar(&p.rounds, "rounds", number("ROUNDS", 0), "rounds of each row; 0: as many as the row itself says")
	flag.Uint64Var(&p.seed, "seed", uint64(number("SEED", int(time.Now().Unix()))), "of all that is drawn")
	flag.DurationVar(&p.time, "time", length, "of each random mix")
	flag.IntVar(&p.mixes, "mixes", number("MIXES", 20), "how many random mixes, of seeds that follow each other")
	flag.StringVar(&p.only, "only", os.Getenv("ONLY"), "rows to run, by patterns with commas between them, as of path.Match; cells, mix and defects are rows, too. Then nothing is written")
	flag.Parse()
}

func (p *plan) wants(id string) bool {
	for pattern := range strings.SplitSeq(p.only, ",") {
		if is, _ := path.Match(pattern, id); is || p.only == "" {
			return true
		}
	}
	return false
}

func main() {
	var p plan
	p.read()
	r := &report{Seed: p.seed, Command: "make chaos " + fmt.Sprintf("ROUNDS=%d SEED=%d TIME=%s MIXES=%d", p.rounds, p.seed, p.time, p.mixes)}
	r.setting()
	fmt.Println(r.Command, r.Commit)
	well := p.run(r)
	if p.only == "" {
		if err := r.write(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			well = false
		}
	}
	if !well {
		fmt.Println("it does not hold")
		os.Exit(1)
	}
}

// run is all of a long run; what it finds it says at once.
func (p *plan) run(r *report) (well bool) {
	well = true
	done := func(res *result) {
		fmt.Printf("%-14s rounds %d, struck %d, delivered %d, lost %d, duplicated %d (allowed %d), orphaned %d, recovery p50 %v p99 %v, late p99 %v\n",
			res.Row, res.Rounds, res.Struck, res.Delivered, res.Lost, res.Duplicated, res.Allowed, res.Orphaned,
			res.RecoveryP50.Round(time.Millisecond), res.RecoveryP99.Round(time.Millisecond), res.LateP99.Round(10*time.Microsecond))
		for _, b := range res.Breaches {
			fmt.Println(b)
		}
		well = well && res.passed()
	}
	for _, row := range rows {
		if !p.wants(row.id) {
			continue
		}
		res := &result{Row: row.id, What: row.what, Lossy: row.lossy}
		for round := range cmp.Or(p.rounds, row.rounds) {
			res.play(func(t *stage) *verdict {
				return row.play(t, redistest.Start(t, row.conf...), "", p.seed+uint64(round), true)
			})
		}
		r.Results = append(r.Results, res)
		done(res)
	}
	byRow := make(map[string]*result)
	for _, c := range cells() {
		if !p.wants(c.row) && !p.wants("cells") {
			continue
		}
		res := byRow[c.row]
		if res == nil {
			res = &result{Row: c.row + " cells", What: cellsOf[c.row]}
			byRow[c.row] = res
			r.Results = append(r.Results, res)
		}
		res.play(func(t *stage) *verdict { t.name = c.row + "/" + c.name; return c.play(t, nil) })
	}
	for _, res := range byRow {
		done(res)
	}
	for n := range p.mixes {
		if !p.wants("mix") {
			break
		}
		seed := p.seed + uint64(n)
		res := &result{Row: fmt.Sprint("mix ", seed), What: fmt.Sprintf("random mix of %v, seed %d", p.time, seed)}
		for _, b := range plot(seed, p.time) {
			fmt.Println(b)
		}
		res.play(func(t *stage) *verdict { return mix(t, redistest.Start(t, always...), "", seed, p.time) })
		r.Mixes = append(r.Mixes, res)
		done(res)
	}
	for _, d := range defects {
		if !p.wants("defects") {
			break
		}
		c := p.hunt(&d)
		r.Defects = append(r.Defects, c)
		fmt.Printf("%+v\n", *c)
		well = well && c.OnSchedule != "" && c.ByMix != "" && c.SoundSchedule
	}
	return well
}

// cellsOf says what the single cells of a row are.
var cellsOf = map[string]string{
	"F4": "handlers that panic, exit, hang, ignore their context", "F6": "a cut at each command, on each side of its execution",
	"F12": "each error reply to each command; a wrong type at each key", "F13": "SCRIPT FLUSH and CLIENT KILL, busy and idle",
	"F22": "identical, empty, large and binary payloads",
}

// hunt has one seeded defect caught, on its schedule and by random mixes of 2 minutes at most.
func (p *plan) hunt(d *defect) *catch {
	c := &catch{Name: d.name}
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	sound := &result{}
	sound.play(func(t *stage) *verdict { return d.play(t, redistest.Start(t), "") })
	c.SoundSchedule = len(sound.Breaches) == 0
	bin, err := build(dir, d.edits...)
	if err != nil {
		c.OnSchedule = ""
		fmt.Println(err)
		return c
	}
	seeded := &result{}
	v := seeded.play(func(t *stage) *verdict { return d.play(t, redistest.Start(t), bin) })
	if v != nil && v.caught() {
		c.OnSchedule = strings.Join(v.broke(), ", ")
	}
	for began, seed := time.Now(), p.seed; time.Since(began) < 2*time.Minute && c.ByMix == ""; seed++ {
		v := (&result{}).play(func(t *stage) *verdict { return mix(t, redistest.Start(t, always...), bin, seed, 40*time.Second) })
		if v != nil && v.caught() {
			c.ByMix, c.MixSeed, c.MixTook = strings.Join(v.broke(), ", "), seed, time.Since(began)
		}
	}
	return c
}
