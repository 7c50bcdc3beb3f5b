// Chaos tries to lose a message and cannot. It runs the fault matrix of shunt against the package and a real
// redis-server. Every process says what it does, and the invariants judge what was said. The short form is go test. The
// long one is make chaos, which is go run . in this directory, and it writes docs/reliability.md.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/trial"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// plan is what a long run is told, by flags or by ROUNDS=, SEED=, TIME=, MIXES= and ONLY= of the environment.
type plan struct {
	rounds int
	seed   uint64
	time   time.Duration
	mixes  int
	only   string
	out    string
	render bool

	mu   sync.Mutex // of what follows, and of standard output
	well bool
}

// Most of a run is waiting, so some of it goes on at once; what measures rates or loads the machine does not.
const (
	rowsAtOnce  = 2
	cellsAtOnce = 16
	mixesAtOnce = 2
	mixOfHunt   = 40 * time.Second // two storms and two lulls
	hunting     = 2 * time.Minute
)

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
	flag.StringVar(&p.only, "only", os.Getenv("ONLY"),
		"rows to run, by patterns with commas between them, as of path.Match; cells, mix, defects and the names of "+
			"defects are rows, too. Then nothing is written")
	flag.StringVar(&p.out, "out", "",
		"directory to write to, made where there is none; empty: docs, and of a part nowhere. The rows of a part take "+
			"the place of those that are there")
	flag.BoolVar(&p.render, "render", false, "run nothing: write the page anew from the figures beside it")
	flag.Parse()
}

// known is an error where a pattern of -only matches no row. It lists all rows.
func (p *plan) known() error {
	if p.only == "" {
		return nil
	}
	ids := []string{"cells", "mix", "defects"}
	for _, r := range rows {
		ids = append(ids, r.id)
	}
	for _, c := range cells() {
		ids = append(ids, c.row, c.cells())
	}
	for _, d := range defects {
		ids = append(ids, d.name)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for pattern := range strings.SplitSeq(p.only, ",") {
		if one := (&plan{only: pattern}); pattern == "" || !one.wants(ids...) {
			return fmt.Errorf("-only: no row is %q; there are:\n  %s", pattern, strings.Join(ids, "\n  "))
		}
	}
	return nil
}

func (p *plan) wants(ids ...string) bool {
	if p.only == "" {
		return true
	}
	for pattern := range strings.SplitSeq(p.only, ",") {
		for _, id := range ids {
			if is, _ := path.Match(pattern, id); is {
				return true
			}
		}
	}
	return false
}

func main() {
	p := plan{well: true}
	p.read()
	if err := p.known(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if p.render {
		if err := render(p.out); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	began := time.Now()
	r := &report{
		Seed: p.seed,
		Command: strings.TrimSuffix(
			fmt.Sprintf("make chaos ROUNDS=%d SEED=%d TIME=%s MIXES=%d ONLY='%s'", p.rounds, p.seed, p.time, p.mixes,
				p.only),
			" ONLY=''",
		),
	}
	r.setting()
	fmt.Println(r.Command, r.Commit)
	p.run(r)
	r.Took = time.Since(began).Round(time.Second)
	if p.out != "" || p.only == "" {
		if err := p.publish(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			p.well = false
		}
	}
	fmt.Println(r.Took)
	if !p.well {
		fmt.Println("it does not hold")
		os.Exit(1)
	}
}

// publish writes a report; that of a part goes into the one that is there.
func (p *plan) publish(r *report) error {
	if p.only != "" {
		whole, err := r.into(p.out)
		if err == nil {
			return whole.write(p.out)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return r.write(p.out)
}

// atOnce runs f(0) to f(n-1), no more than width at a time.
func atOnce(width, n int, f func(i int)) {
	var g errgroup.Group
	g.SetLimit(width)
	for i := range n {
		g.Go(func() error { f(i); return nil })
	}
	_ = g.Wait()
}

// done says of a result what there is to say, as soon as it is there.
func (p *plan) done(res *result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.well = p.well && res.passed()
	fmt.Printf(
		"%-12s rounds %3d, struck %4d, enqueued %7d, lost %d, duplicated %d (allowed %d), orphaned %d, recovery "+
			"p50 %v p99 %v, late p99 %v, took %v\n",
		res.Row,
		res.Rounds,
		res.Struck,
		res.Enqueued,
		res.Lost,
		res.Duplicated,
		res.Allowed,
		res.Orphaned,
		res.RecoveryP50.Round(time.Millisecond),
		res.RecoveryP99.Round(time.Millisecond),
		res.LateP99.Round(10*time.Microsecond),
		res.Took.Round(time.Second),
	)
	if res.WaitsP99 > 0 {
		fmt.Printf("%-12s of leases: too late %d, attempts of takes that nobody saw %d, ended to taken p99 %v, waited "+
			"p99 %v\n", "", res.TooLate, res.Skipped, res.EndsP99.Round(time.Millisecond),
			res.WaitsP99.Round(time.Millisecond))
	}
	for _, line := range res.Said {
		fmt.Printf("%-12s %s\n", "", line)
	}
	if res.Struck == 0 {
		fmt.Println("its fault never struck")
	}
	for _, b := range res.Breaches {
		fmt.Println(b)
	}
}

// run is all of a long run.
func (p *plan) run(r *report) {
	p.rows(r)
	p.cells(r)
	p.randomly(r)
	for _, d := range defects {
		if p.wants("defects", d.name) {
			c := p.hunt(&d)
			r.Defects = append(r.Defects, c)
			fmt.Println(c)
			p.well = p.well && c.caught()
		}
	}
}

func (p *plan) rows(r *report) {
	play := func(res *result, row *row) {
		for round := range cmp.Or(p.rounds, row.rounds) {
			res.play(func(t *stage) *trial.Verdict {
				return row.play(t, redistest.Start(t, row.conf...), "", p.seed+uint64(round), true)
			})
		}
		p.done(res)
	}
	for _, alone := range []bool{true, false} { // what is measured comes first, before the machine has worked
		var some []*row
		var results []*result
		for i := range rows {
			if row := &rows[i]; p.wants(row.id) && row.alone == alone {
				res := &result{Row: row.id, What: row.what, Lossy: row.lossy}
				some, results, r.Results = append(some, row), append(results, res), append(r.Results, res)
			}
		}
		width := rowsAtOnce
		if alone {
			width = 1
		}
		atOnce(width, len(some), func(i int) { play(results[i], some[i]) })
	}
	r.sort()
}

func (p *plan) cells(r *report) {
	var some []cell
	results := make(map[string]*result)
	for _, c := range cells() {
		if !p.wants(c.row, c.cells(), "cells") {
			continue
		}
		if results[c.row] == nil {
			results[c.row] = &result{Row: c.cells(), What: cellsOf[c.row]}
			r.Results = append(r.Results, results[c.row])
		}
		some = append(some, c)
	}
	host := &result{} // of the server that they share
	host.play(func(t *stage) *trial.Verdict {
		if len(some) == 0 {
			return nil
		}
		server := redistest.Start(t)
		atOnce(cellsAtOnce, len(some), func(i int) {
			c := &some[i]
			results[c.row].play(func(t *stage) *trial.Verdict {
				t.name = c.row + "/" + c.name
				if c.own {
					return c.play(t, nil)
				}
				return c.play(t, server)
			})
		})
		return nil
	})
	for _, res := range results {
		p.done(res)
	}
	r.sort()
}

// cellsOf says what the single cells of a row are.
var cellsOf = map[string]string{
	"F4": "handlers that panic, exit, hang, ignore their context", "F6": "a cut at each command, on each side of " +
		"its execution",
	"F12": "each error reply to each command; a wrong type at each key", "F13": "SCRIPT FLUSH and CLIENT KILL, busy " +
		"and idle",
	"desk": "what is done by hand to all messages of a state: a cut at each of its first commands, and a forgotten " +
		"script",
	"F22":     "identical, empty, large and binary payloads",
	"P-reply": "of pullers: a cut at each command, on each side of its execution, and error replies",
	"ids": "of messages with IDs, and what follows: a cut, an error reply, SCRIPT FLUSH and CLIENT KILL at each " +
		"command",
}

func (p *plan) randomly(r *report) {
	if !p.wants("mix") {
		return
	}
	r.Mixes = make([]*result, p.mixes)
	atOnce(mixesAtOnce, p.mixes, func(i int) {
		seed := p.seed + uint64(i)
		res := &result{Row: fmt.Sprint("mix ", seed), What: fmt.Sprintf("random mix of %v, seed %d", p.time, seed)}
		for _, b := range plot(seed, p.time) {
			res.Plan = append(res.Plan, b.String())
		}
		p.mu.Lock()
		fmt.Printf("%s\n%s\n", res.What, strings.Join(res.Plan, "\n"))
		p.mu.Unlock()
		res.play(func(t *stage) *trial.Verdict { return mix(t, redistest.Start(t, always...), "", seed, p.time) })
		r.Mixes[i] = res
		p.done(res)
	})
}

// hunt has one seeded defect caught, on its schedule, which the package as it is has to pass, and by random mixes
// within 2 minutes.
func (p *plan) hunt(d *defect) *catch {
	c := &catch{Name: d.name, Rare: d.rare}
	atOnce(2, 2, func(i int) {
		v := (&result{}).play(func(t *stage) *trial.Verdict {
			return d.play(t, redistest.Start(t), []string{"",
				d.name}[i])
		})
		if i == 0 {
			if err := v.Err(); err != nil {
				fmt.Printf("the package as it is, on the schedule of %q: %v\n", d.name, err)
			}
			c.SoundSchedule = v.Err() == nil
		} else if v.Caught() {
			c.OnSchedule = strings.Join(v.Broke(), ", ")
		}
	})
	var mu sync.Mutex
	began := time.Now()
	for seed := p.seed; !d.rare && time.Since(began) < hunting-mixOfHunt && c.ByMix == ""; seed += mixesAtOnce {
		atOnce(mixesAtOnce, mixesAtOnce, func(i int) {
			seed := seed + uint64(i)
			v := (&result{}).play(func(t *stage) *trial.Verdict { return d.atRandom(t, seed) })
			mu.Lock()
			defer mu.Unlock()
			if took := time.Since(began); v.Caught() && c.ByMix == "" && took < hunting {
				c.ByMix, c.MixSeed, c.MixTook = strings.Join(v.Broke(), ", "), seed, took
			}
		})
	}
	return c
}
