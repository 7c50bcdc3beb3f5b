package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
)

type row struct {
	System  string    `json:"system"`
	Measure string    `json:"measure"`
	Value   float64   `json:"value"` // the rounds' median
	Unit    string    `json:"unit"`
	Ratio   *float64  `json:"ratio_to_asynq"` // of the medians; null where asynq was not measured
	Rounds  []float64 `json:"rounds"`
}

func find(rows []*row, system, measure string) *row {
	i := slices.IndexFunc(rows, func(r *row) bool { return r.System == system && r.Measure == measure })
	if i < 0 {
		return nil
	}
	return rows[i]
}

// add puts one round's samples into the rows of their measures.
func add(rows []*row, system string, samples []sample) []*row {
	for _, s := range samples {
		r := find(rows, system, s.measure)
		if r == nil {
			r = &row{System: system, Measure: s.measure, Unit: s.unit}
			rows = append(rows, r)
		}
		r.Rounds = append(r.Rounds, s.value)
	}
	return rows
}

// summarize fills in the medians and ratios, and brings each measure's systems together.
func summarize(rows []*row) {
	slices.SortStableFunc(rows, func(a, b *row) int { return strings.Compare(a.Measure, b.Measure) })
	for _, r := range rows {
		v := slices.Sorted(slices.Values(r.Rounds))
		r.Value = (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	}
	for _, r := range rows {
		if base := find(rows, reference, r.Measure); base != nil {
			ratio := r.Value / base.Value
			r.Ratio = &ratio
		}
	}
}

func printTable(w io.Writer, rows []*row) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "measure\tsystem\tmedian\tlowest\thighest\t\t÷ %s\t\n", reference)
	for _, r := range rows {
		ratio := "-"
		if r.Ratio != nil {
			ratio = fmt.Sprintf("%.2f", *r.Ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Measure, r.System, short(r.Value),
			short(slices.Min(r.Rounds)), short(slices.Max(r.Rounds)), r.Unit, ratio)
	}
	t.Flush()
}

// short is a value to three or more digits.
func short(value float64) string {
	if value < 100 {
		return fmt.Sprintf("%.3g", value)
	}
	return fmt.Sprintf("%.0f", value)
}

// writeJSON writes the rows and all that one must know to judge them.
func writeJSON(w io.Writer, srv *server, rows []*row) error {
	info, err := redis.String(srv.conn.Do("INFO", "server"))
	if err != nil {
		return fmt.Errorf("ask redis-server for its version: %w", err)
	}
	versions := map[string]string{"go": runtime.Version(), "redis": field(info, "redis_version")}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == "github.com/hibiken/asynq" {
				versions["asynq"] = m.Version
			}
		}
	}
	// shunt is the tree around this module: go run records no revision of it. Empty where git has none.
	revision, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	versions["shunt"] = strings.TrimSpace(string(revision))
	cpu, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the name stays empty
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"date":    time.Now().UTC().Format(time.RFC3339),
		"command": strings.Join(append([]string{"go run ."}, os.Args[1:]...), " "),
		"machine": map[string]any{
			"os": runtime.GOOS, "arch": runtime.GOARCH, "cpu": field(string(cpu), "model name"), "cores": runtime.NumCPU(),
		},
		"versions": versions,
		"rows":     rows,
	})
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
