package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
)

// report is what a run came to, and all that one must know to judge it.
type report struct {
	Date     string            `json:"date"`
	Command  string            `json:"command"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Load     string            `json:"load"`
	Notes    []string          `json:"notes,omitempty"` // what was left out or done otherwise, and why
	Rows     []*row            `json:"rows"`

	mu sync.Mutex // guards Notes
}

type machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	CPU   string `json:"cpu,omitempty"`
	Cores int    `json:"cores"`
}

type row struct {
	System   string    `json:"system"`
	Measure  string    `json:"measure"`
	Value    float64   `json:"value"` // the rounds' median
	Unit     string    `json:"unit"`
	PerLimit *float64  `json:"per_limit,omitempty"` // of the medians; absent where the limit was not measured
	Lower    bool      `json:"lower_is_better,omitempty"`
	Rounds   []float64 `json:"rounds"`
}

// newReport describes the run that is about to begin.
func newReport(o options) (*report, error) {
	srv, err := startServer(o.aof)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	if err := srv.nice(o.nice); err != nil {
		return nil, err
	}
	info, err := redis.String(srv.conn.Do("INFO", "server"))
	if err != nil {
		return nil, fmt.Errorf("ask redis-server for its version: %w", err)
	}
	cpu, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the name stays empty
	r := &report{
		Date:    time.Now().UTC().Format(time.RFC3339),
		Command: strings.Join(append([]string{"go run ."}, os.Args[1:]...), " "),
		Machine: machine{runtime.GOOS, runtime.GOARCH, field(string(cpu), "model name"), runtime.NumCPU()},
		Versions: map[string]string{
			"go":     runtime.Version(),
			"redis":  field(info, "redis_version"),
			"bullmq": bullmqVersion,
		},
		Load: fmt.Sprintf(
			"%d messages of %d bytes, %d workers, medians of %d rounds, append-only file: %t, niceness of Redis: %d",
			o.n,
			o.size,
			o.workers,
			o.rounds,
			o.aof,
			o.nice,
		),
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if name, ok := strings.CutPrefix(m.Path, "github.com/hibiken/"); ok {
				r.Versions[name] = m.Version
			}
		}
	}
	// shunt is the tree around this module: go run records no revision of it. Empty where git has none.
	revision, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	r.Versions["shunt"] = strings.TrimSpace(string(revision))
	return r, nil
}

// note is told what the figures do not show; again and again, it is noted once.
func (r *report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

func (r *report) find(system, measure string) *row {
	i := slices.IndexFunc(r.Rows, func(w *row) bool { return w.System == system && w.Measure == measure })
	if i < 0 {
		return nil
	}
	return r.Rows[i]
}

// add puts one round's samples into the rows of their measures.
func (r *report) add(system string, samples []sample) {
	for _, s := range samples {
		w := r.find(system, s.measure)
		if w == nil {
			w = &row{System: system, Measure: s.measure, Unit: s.unit, Lower: s.unit != perSecond && s.unit != ofIdeal}
			r.Rows = append(r.Rows, w)
		}
		w.Rounds = append(w.Rounds, s.value)
	}
}

// summarize fills in what is made of other figures, and brings each measure's systems together.
func (r *report) summarize() {
	for _, w := range r.Rows {
		w.Value = median(w.Rounds)
	}
	if ordered, single := r.find("shunt", "ordered"), r.find("shunt-1", "process"); ordered != nil && single != nil {
		share := ordered.Value / single.Value
		r.Rows = append(r.Rows,
			&row{System: "shunt", Measure: "ordered-share", Value: share, Unit: "of shunt-1", Rounds: []float64{share}})
	}
	for _, m := range []struct{ name, plain string }{{"process-tls", "process"}, {"process-id", "process"},
		{"enqueue-id", "enqueue"}, {"enqueue-id-1M", "enqueue"}} {
		for _, s := range systems {
			if w, plain := r.find(s.name, m.name), r.find(s.name, m.plain); w != nil && plain != nil {
				share := w.Value / plain.Value
				r.Rows = append(
					r.Rows,
					&row{
						System:  s.name,
						Measure: m.name + "-share",
						Value:   share,
						Unit:    "of " + m.plain,
						Rounds:  []float64{share},
					},
				)
			}
		}
	}
	for _, w := range r.Rows {
		none := w.Unit == perMessage || w.Unit == connections || w.Unit == ofCore
		if base := r.find(reference, w.Measure); base != nil && base.Value != 0 && !none {
			per := w.Value / base.Value
			w.PerLimit = &per
		}
	}
	var measures []string
	for _, w := range r.Rows {
		if !slices.Contains(measures, w.Measure) {
			measures = append(measures, w.Measure)
		}
	}
	slices.SortStableFunc(r.Rows, func(a, b *row) int {
		if a.Measure != b.Measure {
			return slices.Index(measures, a.Measure) - slices.Index(measures, b.Measure)
		}
		place := func(w *row) int {
			return slices.IndexFunc(systems,
				func(s system) bool { return s.name == w.System })
		}
		return place(a) - place(b)
	})
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s\nRedis %s, %d cores %s\n\n", r.Load, r.Versions["redis"], r.Machine.Cores, r.Machine.CPU)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "measure\tsystem\tmedian\tlowest\thighest\t\t÷ %s\t\n", reference)
	for i, row := range r.Rows {
		name, ratio := row.Measure, ""
		if i > 0 && r.Rows[i-1].Measure == name {
			name = ""
		}
		if row.PerLimit != nil {
			ratio = fmt.Sprintf("%.3g", *row.PerLimit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, row.System, short(row.Value),
			short(slices.Min(row.Rounds)), short(slices.Max(row.Rounds)), row.Unit, ratio)
	}
	t.Flush()
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\n%s", n)
	}
	fmt.Fprintln(w)
}

// short is a value to three or more digits.
func short(value float64) string {
	if value > -100 && value < 100 {
		return fmt.Sprintf("%.3g", value)
	}
	return fmt.Sprintf("%.0f", value)
}

func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}

func readReport(file string) (*report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &report{}
	err = json.Unmarshal(text, r)
	if err == nil &&
		(len(r.Rows) == 0 || slices.ContainsFunc(r.Rows, func(w *row) bool { return len(w.Rounds) == 0 })) {
		err = errors.New("it has no rows, or one without rounds")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no file of -json: %w", file, err)
	}
	return r, nil
}

// field finds the first "name: value" in lines of such.
func field(text, name string) string {
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
