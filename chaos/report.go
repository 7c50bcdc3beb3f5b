package main

import (
	"github.com/shuntmq/shunt/internal/trial"

	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"
)

// result is one line of the table: all rounds of a row.
type result struct {
	Row, What                                  string
	Rounds, Struck                             int
	Faults                                     map[string]int
	Attempted, Enqueued, Unknown, Recovered    int
	Handled, Dead, Acked, LateAcks             int
	Lost, Duplicated, Allowed                  int
	Unexpected, Orphaned                       int
	RecoveryP50, RecoveryP99, LateP50, LateP99 time.Duration
	TooLate, Skipped                           int           // of leases: late verdicts, and takes nobody saw
	EndsP99, WaitsP99                          time.Duration // a lease's end to the next take; enqueued to pulled
	Lossy                                      bool
	Breaches                                   []string      // with their histories
	Said                                       []string      `json:",omitempty"` // what its rounds have to say
	Plan                                       []string      `json:",omitempty"` // what was drawn
	Took                                       time.Duration // all rounds, one after another

	mu                 sync.Mutex
	recovery, lateness []time.Duration
	ends, waits        []time.Duration
}

// add takes in a round.
func (r *result) add(v *trial.Verdict, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Rounds++
	r.Took += took
	if r.Faults == nil {
		r.Faults = make(map[string]int)
	}
	for what, n := range v.Faults {
		r.Struck += n
		r.Faults[what] += n
	}
	r.Attempted += v.Attempted
	r.Enqueued += v.Enqueued
	r.Unknown += v.Unknown
	r.Recovered += v.Recovered
	r.Handled += v.Handled
	r.Dead += v.Dead
	r.Acked += v.Acked
	r.LateAcks += v.LateAcks
	r.Lost += v.Lost
	r.Duplicated += v.Duplicated
	r.Allowed += v.Allowed
	r.Unexpected += v.Unexpected
	r.Orphaned += v.Orphaned
	r.recovery = append(r.recovery, v.Recovery...)
	r.lateness = slices.Concat(r.lateness, v.Lateness, v.PulledLate)
	r.TooLate += v.TooLate
	r.Skipped += v.Skipped
	r.ends, r.waits = append(r.ends, v.Ends...), append(r.waits, v.Waits...)
	r.EndsP99, r.WaitsP99 = trial.Percentile(r.ends, 99), trial.Percentile(r.waits, 99)
	r.RecoveryP50, r.RecoveryP99 = trial.Percentile(r.recovery, 50), trial.Percentile(r.recovery, 99)
	r.LateP50, r.LateP99 = trial.Percentile(r.lateness, 50), trial.Percentile(r.lateness, 99)
	if err := v.Err(); err != nil {
		r.Breaches = append(r.Breaches, err.Error())
	}
}

// passed says whether the row holds; one whose fault never struck proves nothing.
func (r *result) passed() bool { return len(r.Breaches) == 0 && r.Struck > 0 }

// report is what is published: docs/reliability.md and the raw figures beside it. Nothing else writes them.
type report struct {
	Date, Commit, Command, Redis, System string
	Seed                                 uint64
	Took                                 time.Duration
	// parts that were run again later, without what they came to
	Again []*report `json:",omitempty"`
	// of a part: what it took the place of, where that did not hold
	Failed  []failure `json:",omitempty"`
	Results []*result
	Mixes   []*result
	Defects []*catch
}

// sort puts the rows into the order of the matrix: F1 before F10.
func (r *report) sort() {
	number := func(id string) (n int) {
		if _, err := fmt.Sscanf(id, "F%d", &n); err != nil {
			return 1000 // what has no number comes last
		}
		return n
	}
	slices.SortStableFunc(r.Results, func(a, b *result) int { return cmp.Compare(number(a.Row), number(b.Row)) })
}

// catch is how a seeded defect was caught.
type catch struct {
	Name          string
	OnSchedule    string        // the invariants that did not hold
	ByMix         string        // those that did not hold in a mix; empty: not caught
	MixSeed       uint64        // of the mix that caught it
	MixTook       time.Duration // all mixes until then
	SoundSchedule bool          // the package as it is passes the same schedule
	Rare          bool          // nothing at random was tried
}

// caught says whether it was, wherever it was looked for, by what lets the package as it is pass.
func (c *catch) caught() bool {
	return c.OnSchedule != "" && (c.ByMix != "" || c.Rare) && c.SoundSchedule
}

func (c *catch) String() string {
	return fmt.Sprintf("%s: on its schedule %q (sound %t), by the mix of seed %d after %v %q", c.Name, c.OnSchedule,
		c.SoundSchedule, c.MixSeed, c.MixTook.Round(time.Second), c.ByMix)
}

//go:embed reliability.md.tmpl
var page string

// home is dir or, where that is empty, where the report belongs in the module's tree.
func home(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	root, err := moduleRoot()
	return filepath.Join(root, "docs"), err
}

// render writes the page anew from the figures of an earlier run.
func render(dir string) error {
	r, err := read(dir)
	if err != nil {
		return err
	}
	return r.write(dir)
}

// read gets the figures of an earlier run.
func read(dir string) (*report, error) {
	dir, err := home(dir)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "data", "reliability.json"))
	if err != nil {
		return nil, err
	}
	r := new(report)
	return r, json.Unmarshal(raw, r)
}

// failure is what did not hold in an earlier run, and why.
type failure struct{ Name, Why string }

func (r *result) failure() *failure {
	if r.passed() {
		return nil
	}
	why := []string{"never struck"}
	if len(r.Breaches) > 0 { // a breach follows the line of its verdict's figures
		_, breach, _ := strings.Cut(r.Breaches[0], "\n")
		breach, _, _ = strings.Cut(breach, "\n")
		why = []string{breach}
	}
	return &failure{r.Row, strings.Join(append(why, r.Said...), "; ")}
}

func (c *catch) failure() *failure {
	if c.caught() {
		return nil
	}
	return &failure{c.Name, c.String()}
}

// into takes the rows of a part that was run later into the report that is in a directory.
func (r *report) into(dir string) (*report, error) {
	whole, err := read(dir)
	if err != nil {
		return nil, err
	}
	part := *r
	part.Results, part.Mixes, part.Defects = nil, nil, nil
	row := func(x *result) string { return x.Row }
	whole.Results = instead(&part, whole.Results, r.Results, row)
	whole.Mixes = instead(&part, whole.Mixes, r.Mixes, row)
	whole.Defects = instead(&part, whole.Defects, r.Defects, func(c *catch) string { return c.Name })
	whole.Again = append(whole.Again, &part)
	return whole, nil
}

// instead puts each of the new in the place of the old one of the same name, and has the part tell what that did not
// hold.
func instead[T interface{ failure() *failure }](part *report, old, now []T, name func(T) string) []T {
	for _, x := range now {
		i := slices.IndexFunc(old, func(y T) bool { return name(y) == name(x) })
		if i < 0 {
			old = append(old, x)
			continue
		}
		if f := old[i].failure(); f != nil {
			part.Failed = append(part.Failed, *f)
		}
		old[i] = x
	}
	return old
}

// write puts the report into a directory, which it makes where there is none.
func (r *report) write(dir string) error {
	dir, err := home(dir)
	if err != nil {
		return err
	}
	ms := func(d time.Duration) string {
		switch {
		case d == 0:
			return ""
		case d < 10*time.Millisecond:
			return fmt.Sprintf("%.1f ms", float64(d)/1e6)
		case d < time.Second:
			return fmt.Sprintf("%d ms", d.Milliseconds())
		}
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	verdict := func(x *result) string {
		switch {
		case x.Struck == 0:
			return "never struck"
		case x.passed():
			return "holds"
		}
		return "**does not hold**"
	}
	t, err := template.New("page").Funcs(template.FuncMap{"ms": ms, "verdict": verdict}).Parse(page)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, r); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "reliability.md"), b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "data", "reliability.json"), append(raw, '\n'), 0o644)
}

// setting is what a report says of where it was made.
func (r *report) setting() {
	line := func(name string, args ...string) string {
		out, _ := exec.Command(name, args...).Output()
		return strings.TrimSpace(string(out))
	}
	r.Date = time.Now().UTC().Format("2006-01-02")
	r.Commit = line("git", "rev-parse", "--short=12", "HEAD")
	if line("git", "status", "--porcelain", "--", "*.go", "*.lua") != "" {
		r.Commit += " and changes that are not committed"
	}
	server := os.Getenv("REDIS_SERVER")
	if server == "" {
		server = "redis-server"
	}
	r.Redis, _, _ = strings.Cut(line(server, "--version"), " sha=")
	r.System = line("uname", "-sr") + ", " + line("go", "version") + ", " + line("nproc") + " cores"
}
