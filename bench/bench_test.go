package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSmoke runs every measure of every system, small, through the same door as the program.
func TestSmoke(t *testing.T) {
	var table, progress bytes.Buffer
	file := filepath.Join(t.TempDir(), "result.json")
	o := options{load: load{n: 2000, workers: 16, size: 128, stall: 20 * time.Second}, rounds: 1, json: file}
	if err := run(t.Context(), o, &table, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct{ Rows []*row }
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	for _, s := range systems {
		for _, m := range measures {
			if r := find(report.Rows, s.name, m.name); r == nil || r.Value <= 0 || r.Ratio == nil {
				t.Errorf("%s, %s: no result in\n%s", s.name, m.name, text)
			}
		}
		if !strings.Contains(table.String(), s.name) {
			t.Errorf("%s is missing in the table:\n%s", s.name, &table)
		}
	}
}

// faulty is a queue in memory that hands one message out so many times.
type faulty struct {
	queue
	messages chan []byte
	times    int
}

func (f *faulty) deliver(_ context.Context, payload []byte) error { f.messages <- payload; return nil }

func (f *faulty) receive(_ context.Context, _ int, handle func([]byte)) (func() error, error) {
	first := <-f.messages
	for len(f.messages) > 0 {
		handle(<-f.messages)
	}
	for range f.times {
		handle(first)
	}
	return func() error { return nil }, nil
}

func (f *faulty) left(context.Context) (int, error) { return len(f.messages), nil }

func TestFaultsAreErrors(t *testing.T) {
	l := load{n: 10, workers: 2, size: 128, stall: time.Millisecond}
	for _, c := range []struct {
		times int
		want  string
	}{
		{0, "of 10 messages 1 were not handled, 0 were handled again"},
		{1, ""},
		{3, "of 10 messages 0 were not handled, 2 were handled again"},
	} {
		_, err := process(t.Context(), &faulty{messages: make(chan []byte, l.n), times: c.times}, l)
		if got := err != nil; got != (c.want != "") || got && !strings.Contains(err.Error(), c.want) {
			t.Errorf("one message handled %d times: %v, want %q", c.times, err, c.want)
		}
	}
	before := &faulty{messages: make(chan []byte, l.n+1)}
	before.messages <- nil
	if _, err := deliver(t.Context(), before, l); err == nil || !strings.Contains(err.Error(), "11 messages in Redis, not 10") {
		t.Errorf("one message too many: %v", err)
	}
}

func TestSummary(t *testing.T) {
	var rows []*row
	for _, v := range []float64{7, 1, 4} {
		rows = add(rows, "shunt", []sample{{"process", v, "msg/s"}})
		rows = add(rows, reference, []sample{{"process", v / 2, "msg/s"}})
	}
	rows = add(rows, "shunt", []sample{{"alone", 1, "ms"}})
	summarize(rows)
	if r := find(rows, "shunt", "process"); r.Value != 4 || r.Ratio == nil || *r.Ratio != 2 {
		t.Errorf("process: %+v", r)
	}
	if r := find(rows, "shunt", "alone"); r.Value != 1 || r.Ratio != nil || rows[0] != r {
		t.Errorf("alone: %+v, rows %v", r, rows)
	}
}

func TestChoose(t *testing.T) {
	for only, want := range map[string]int{"": len(systems), "asynq": 1, "asynq, shunt": 2, "redis": 0, "shunt,": 0} {
		if got, err := choose(only); len(got) != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d systems, %v", only, len(got), err)
		}
	}
}
