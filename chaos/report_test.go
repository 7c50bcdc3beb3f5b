package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// The page of a run has a row for each result, and prose of at most 100 columns. What it is made of can be read again.
func TestPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "docs")
	r := &report{Date: "2026-01-02", Commit: "0123456789ab", Command: "make chaos", Redis: "Redis 7", System: "linux",
		Took:  time.Hour,
		Again: []*report{{Date: "2026-01-03", Command: "make chaos ONLY=F1"}},
		Results: []*result{{Row: "F1", What: "a fault", Rounds: 2, Struck: 3, Enqueued: 400}, {Row: "F10 everysec",
			Lossy: true}},
		Mixes:   []*result{{Row: "mix 7", Struck: 5, Enqueued: 600}},
		Defects: []*catch{{Name: "a mistake", OnSchedule: "I1 lost", SoundSchedule: true}},
	}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| F1 | a fault | 2 | 3 | 400 |", "| mix 7 | 5 | 600 |",
		"| a mistake | I1 lost | passes |",
		"(not promised)", "commit 0123456789ab", "```\nmake chaos ONLY=F1\n```\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for line := range strings.Lines(string(text)) {
		if n := utf8.RuneCountInString(line) - 1; n > 100 && !strings.HasPrefix(line, "|") {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "data", "reliability.json"))
	if err != nil {
		t.Fatal(err)
	}
	var again report
	if err := json.Unmarshal(raw, &again); err != nil || len(again.Results) != 2 || again.Results[0].Enqueued != 400 {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

// A row that is run again takes the place of the one before, and the page says what that one did not hold.
// A pattern of -only that matches no row is an error, which lists all rows.
func TestKnown(t *testing.T) {
	for _, only := range []string{"", "F1,F2*,cells,mix,defects", "F12 cells", "F10 everysec"} {
		if err := (&plan{only: only}).known(); err != nil {
			t.Errorf("%q: %v", only, err)
		}
	}
	for only, wrong := range map[string]string{"F12 cell": "F12 cell", "F1, F2": " F2", "F1,": "", "F[": "F["} {
		err := (&plan{only: only}).known()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("no row is %q;", wrong)) ||
			!strings.Contains(err.Error(), "\n  F12 cells\n") {
			t.Errorf("%q: %v", only, err)
		}
	}
}

func TestAgain(t *testing.T) {
	dir := t.TempDir()
	first := &report{Command: "make chaos",
		Results: []*result{
			{Row: "F0", Struck: 1, Breaches: []string{"enqueued 9: lost 0\nI9 late: p99 6ms\nand its history\n"},
				Said: []string{"a timer beside it: p99 5ms"}},
			{Row: "F1", Struck: 1},
		},
		Mixes:   []*result{{Row: "mix 7"}},
		Defects: []*catch{{Name: "a mistake", OnSchedule: "I1 lost", SoundSchedule: true}},
	}
	if err := first.write(dir); err != nil {
		t.Fatal(err)
	}
	p := &plan{only: "F*", out: dir}
	for _, part := range []*report{
		{Command: "make chaos ONLY=F*", Results: []*result{{Row: "F0", Struck: 1}, {Row: "F1", Struck: 1}},
			Mixes:   []*result{{Row: "mix 7", Struck: 1}},
			Defects: []*catch{{Name: "a mistake", OnSchedule: "I1 lost", ByMix: "I1 lost", SoundSchedule: true}}},
		{Command: "make chaos ONLY=F0", Results: []*result{{Row: "F0", Struck: 2}}},
	} {
		if err := p.publish(part); err != nil {
			t.Fatal(err)
		}
	}
	r, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []failure{
		{"F0", "I9 late: p99 6ms; a timer beside it: p99 5ms"},
		{"mix 7", "never struck"},
		{"a mistake", first.Defects[0].String()},
	}
	if got := r.Again[0].Failed; !slices.Equal(got, want) {
		t.Errorf("the first part took the place of what did not hold: %+v, want %+v", got, want)
	}
	if got := r.Again[1].Failed; len(got) > 0 || r.Results[0].Struck != 2 || len(r.Results) != 2 {
		t.Errorf("the second part: %+v, of %+v", got, r.Results)
	}
	text, err := os.ReadFile(filepath.Join(dir, "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := "| did not hold before | why |\n|---|---|\n| F0 | I9 late: p99 6ms; a timer beside it: p99 5ms |\n"
	if n := strings.Count(string(text), row); n != 1 {
		t.Errorf("the page has %d times %q", n, row)
	}
}
