package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
)

func TestSummary(t *testing.T) {
	r := &report{}
	for _, v := range []float64{7, 1, 4} {
		r.add("limit", []sample{{"process", v / 2, perSecond}})
		r.add("shunt-1", []sample{{"wake-p50", v, "ms"}, {"process", 5, perSecond}})
		r.add("shunt", []sample{{"ordered", v, perSecond}, {"process", v, perSecond}, {"process-id", v / 4, perSecond}})
	}
	r.summarize()
	if w := r.find("shunt", "process"); w.Value != 4 || w.PerLimit == nil || *w.PerLimit != 2 || w.Lower ||
		len(w.Rounds) != 3 {
		t.Errorf("process: %+v", w)
	}
	if w := r.find("shunt-1", "wake-p50"); w.Value != 4 || w.PerLimit != nil || !w.Lower {
		t.Errorf("wake: %+v", w)
	}
	if w := r.find("shunt", "ordered-share"); w == nil || w.Value != 0.8 {
		t.Errorf("ordered-share: %+v", w)
	}
	if w := r.find("shunt", "process-id-share"); w == nil || w.Value != 0.25 || w.Unit != "of process" {
		t.Errorf("process-id-share: %+v", w)
	}
	got := names(r.Rows[:3], func(w *row) string { return w.System + " " + w.Measure })
	if got != "shunt process, shunt-1 process, limit process" {
		t.Errorf("the order: %s", got)
	}
}

// TestFiles measures a little, through the same door as the program, and reads what it wrote.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options{
		load:   tiny,
		rounds: 2,
		only:   "loop, limit,process,wake,backlog",
		json:   filepath.Join(dir, "new.json"),
		chart:  filepath.Join(dir, "charts"),
	}
	var table, progress bytes.Buffer
	if err := run(t.Context(), o, &table, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	text, err := os.ReadFile(o.json)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Date, Command string
		Machine       struct{ Cores int }
		Versions      map[string]string
		Rows          []struct {
			System, Measure, Unit string
			Value                 float64
			PerLimit              *float64 `json:"per_limit"`
			Lower                 bool     `json:"lower_is_better"`
			Rounds                []float64
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if file.Date == "" || file.Command == "" || file.Machine.Cores == 0 || file.Versions["redis"] == "" ||
		file.Versions["go"] == "" {
		t.Errorf("%s", text)
	}
	found := 0
	for _, w := range file.Rows {
		if w.System == "loop" && (w.Measure == "process" || w.Measure == "wake-p99") {
			found++
			if w.Value <= 0 || w.PerLimit == nil || w.Lower != (w.Unit == "ms") || len(w.Rounds) != 2 {
				t.Errorf("%+v", w)
			}
		}
	}
	if found != 2 || !strings.Contains(table.String(), "wake-p99") || !strings.Contains(progress.String(), "round 2") {
		t.Errorf("%s\n%s\n%s", text, &table, &progress)
	}
	for _, name := range []string{"rates.png", "wake.png", "growth.png"} {
		f, err := os.Open(filepath.Join(o.chart, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		img, err := png.Decode(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// The limit is the best, so it is in the upper half.
		ink, half := 0, img.Bounds().Dy()/2
		for x := range img.Bounds().Dx() {
			for y := 0; y < half; y += 3 {
				if img.At(x, y) == colorOf(reference) {
					ink++
				}
			}
		}
		if img.Bounds().Dx() != 1720 || ink < 50 {
			t.Errorf("%s: %v, %d pixels of the limit's", name, img.Bounds(), ink)
		}
	}

	again := options{load: tiny, rounds: 1, from: o.json, compare: o.json}
	table.Reset()
	if err := run(t.Context(), again, &table, &progress); err != nil ||
		!strings.Contains(table.String(), "as far as their rounds can tell") {
		t.Errorf("%v\n%s", err, &table)
	}
}

func TestCompare(t *testing.T) {
	of := func(measure string, lower bool, rounds ...float64) *row {
		return &row{System: "shunt", Measure: measure, Value: median(rounds), Unit: "u", Lower: lower, Rounds: rounds}
	}
	old := &report{
		Rows: []*row{
			of("less", false, 100, 102, 98),
			of("more", false, 100, 102, 98),
			of("later", true, 1, 1.1, 1.2),
			of("sooner", true, 1, 1.1, 1.2),
			of(
				"noisy",
				false,
				100,
				80,
				120,
			),
			of("near", false, 100, 100, 100),
			of("gone", false, 1),
			of("faults", true, 0),
			of("single", false, 100),
		},
	}
	now := &report{
		Rows: []*row{
			of("less", false, 80, 82, 81),
			of("more", false, 120, 121, 122),
			of("later", true, 2, 2.1, 2.2),
			of("sooner", true, 0.5, 0.6, 0.7),
			of(
				"noisy",
				false,
				85,
				86,
				87,
			),
			of("near", false, 96, 96, 96),
			of("new", false, 1),
			of("faults", true, 3),
			of("single", false, 85),
		},
	}
	var out bytes.Buffer
	compare(&out, old, now)
	var got []string
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "shunt" {
			got = append(got, f[0]+" "+f[2])
		}
	}
	if want := []string{"worse less", "better more", "worse later", "better sooner", "worse faults"}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("%q, want %q:\n%s", got, want, &out)
	}
	if !strings.Contains(out.String(), "3 figures") {
		t.Errorf("%s", &out)
	}
}

func TestChoose(t *testing.T) {
	for only, want := range map[string][2]int{
		"": {len(systems), len(measures)}, "asynq": {1, len(measures)}, "wake, process": {len(systems), 2},
		"asynq, shunt,wake": {2, 1}, "redis": {}, "shunt,": {},
	} {
		c, err := choose(only, false)
		if got := [2]int{len(c.systems), len(c.measures)}; got != want || (err != nil) != (want[0] == 0) {
			t.Errorf("%q: %v, %v", only, got, err)
		}
		if err != nil &&
			!(strings.Contains(err.Error(), "asynq-fast") && strings.Contains(err.Error(), "process-5ms")) {
			t.Errorf("the error does not list the names: %v", err)
		}
	}
	c, err := choose("", true)
	if got := names(c.measures, func(m measure) string { return m.name }); got != "process, enqueue, wake, bytes, "+
		"idle" ||
		err != nil {
		t.Errorf("-quick: %s, %v", got, err)
	}
}

// TestPlan sees every system at every measure in every round, and another one first in each.
func TestPlan(t *testing.T) {
	c := chosen{
		systems[:3],
		[]measure{
			{name: "a", fits: every},
			{name: "b", fits: every, once: true},
			{name: "c", fits: func(s system) bool { return s.name != "shunt-1" }},
		},
	}
	got := names(c.plan(2), func(s step) string {
		return s.measure.name + " " + names(s.systems, func(s system) string { return s.name })
	})
	want := "a shunt, a shunt-1, a shunt-pull, c shunt, c shunt-pull, a shunt-1, a shunt-pull, a shunt, " +
		"c shunt-pull, c shunt, b shunt, shunt-1, shunt-pull"
	if got != want {
		t.Errorf("%s", got)
	}
}

func TestWrongFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(`{"rows": [{"system": "shunt"}]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*options){
		"-rounds":          func(o *options) { o.rounds = 0 },
		"-n":               func(o *options) { o.n = 99 },
		"-workers":         func(o *options) { o.workers = 10_001 },
		"there is no":      func(o *options) { o.only = "asyncq" },
		"missing.json":     func(o *options) { o.compare = filepath.Join(file, "missing.json") },
		"no file of -json": func(o *options) { o.compare = file },
		"not a directory":  func(o *options) { o.json = filepath.Join(file, "x") },
	} {
		o := options{load: tiny, rounds: 1}
		change(&o)
		if err := run(t.Context(), o, t.Output(), t.Output()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAppendOnly(t *testing.T) {
	for aof, want := range map[bool]string{false: "no", true: "yes"} {
		srv, err := startServer(aof)
		if err != nil {
			t.Fatal(err)
		}
		defer srv.stop()
		v, err := redis.Strings(srv.conn.Do("CONFIG", "GET", "appendonly"))
		if err != nil || v[1] != want {
			t.Errorf("%t: %v, %v", aof, v, err)
		}
	}
}

func TestNice(t *testing.T) {
	if setNice == nil {
		t.Skip("only on Linux")
	}
	srv, err := startServer(false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	if err := srv.nice(3); err != nil { // any user may
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", srv.process.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name may have blanks
	if nice := strings.Fields(after)[16]; nice != "3" {
		t.Errorf("a niceness of %s, want 3", nice)
	}
}
