package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// The page of a run has a row for each result, and prose of at most 100 columns. What it is made of can be read again.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
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
