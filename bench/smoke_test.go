package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if isChild() {
		return
	}
	os.Exit(m.Run())
}

// tiny is a load of a few seconds: what it shows is not the speed.
var tiny = load{
	n: 300, slowed: 1, workers: 4, size: 128, stall: 20 * time.Second,
	waves: 5, wakes: 3, wakeFor: 100 * time.Millisecond,
	waiting: 700, waitFor: 20 * time.Second, due: 5, dueFor: 100 * time.Millisecond,
	alive: 50, calls: 40, callFor: 20 * time.Second,
	overdue: 300, overdueBytes: 1 << 20,
	settle: 300 * time.Millisecond, idleFor: 200 * time.Millisecond, patience: 3 * time.Second, lease: time.Second,
	backlogs: []int{
		100,
		400,
		2000,
	}, handled: 400, pools: []int{1, 8}, channels: []int{1, 10}, processes: []int{1, 2}, receivers: []int{1, 3},
}

// figures are what a measure gives for tiny.
var figures = map[string][]string{
	"process":       {"process", "redis-cpu", "client-cpu", "allocs"},
	"process-tls":   {"process-tls", "redis-cpu-tls", "client-cpu-tls", "allocs-tls"},
	"process-100us": {"process-100us", "process-100us-share"},
	"process-5ms":   {"process-5ms", "process-5ms-share"},
	"enqueue":       {"enqueue", "enqueue-allocs"},
	"enqueue-100":   {"enqueue-100"},
	"wake":          {"wake-p50", "wake-p99"},
	"late":          {"late-p50", "late-p99", "late-early"},
	"promote": {"promote", "promote-p99.9-128", "promote-longest-128", "promote-p99.9-1024", "promote-longest-1024",
		"promote-p99.9-8192", "promote-longest-8192", "promote-p99.9-65536", "promote-longest-65536"},
	"ordered":       {"ordered"},
	"process-id":    {"process-id", "redis-cpu-id", "client-cpu-id", "allocs-id"},
	"enqueue-id":    {"enqueue-id", "enqueue-id-allocs"},
	"enqueue-id-1M": {"enqueue-id-1M", "enqueue-id-1M-allocs"},
	"status":        {"status-p50", "status-p99"},
	"cancel":        {"cancel-p50", "cancel-p99"},
	"interrupt":     {"interrupt-p50", "interrupt-p99", "interrupt-longest"},
	"postpone":      {"postpone-p50", "postpone-p99"},
	"bytes-id":      {"bytes-id"},
	"bytes":         {"bytes"},
	"backlog":       {"backlog-100", "backlog-400", "backlog-2k"},
	"workers":       {"workers-1", "workers-8"},
	"channels":      {"channels-1", "channels-1-connections", "channels-10", "channels-10-connections"},
	"processes":     {"processes-1", "processes-2"},
	"receivers":     {"receivers-1", "receivers-3"},
	"idle":          {"idle"},
	"recovery":      {"recovery"},
}

// TestSmoke takes every measure of every system.
func TestSmoke(t *testing.T) {
	for _, m := range slices.Backward(measures) { // the last ones wait the longest
		for _, s := range systems {
			if !m.fits(s) {
				continue
			}
			t.Run(m.name+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				if s.name == "bullmq" {
					needBullmq(t)
				}
				var notes []string
				samples, err := takeOne(
					t.Context(),
					options{load: tiny},
					s,
					m,
					func(format string, _ ...any) { notes = append(notes, format) },
				)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, a := range samples {
					got = append(got, a.measure)
					bad := a.unit == ofIdeal && a.value > 1.05 || a.measure == "process-5ms" && a.value > 850 ||
						strings.HasPrefix(a.measure, "bytes") && a.value < 128
					if zero := a.value == 0 && slices.Contains([]string{"idle", "late-early"},
						a.measure); a.value <= 0 &&
						!zero &&
						m.name != "late" ||
						a.unit == "" ||
						bad {
						t.Errorf("%+v", a)
					}
				}
				want := figures[m.name]
				switch {
				case s.name == "bullmq": // Node tells nothing of allocations
					want = slices.DeleteFunc(
						slices.Clone(want),
						func(f string) bool { return strings.HasSuffix(f, "allocs") },
					)
				case s.name == "asynq" && m.name == "recovery":
					want = nil // in 90 s at the earliest
					if len(notes) != 1 || !strings.Contains(notes[0], "nothing came back") {
						t.Errorf("notes: %q", notes)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("the figures are %q, not %q", got, want)
				}
			})
		}
	}
}

// TestInterrupt ends runs that would take long: soon, and with nothing left behind.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, only := range []string{"shunt,asynq,loop,limit,idle", "loop,process-5ms", "shunt,processes",
		"limit,backlog"} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 400*time.Millisecond, errors.New("interrupted"))
		defer cancel()
		o := options{load: tiny, rounds: 1, only: only}
		o.idleFor, o.n, o.waves, o.backlogs = time.Minute, 1e7, 1e6, []int{1e7}
		began := time.Now()
		if err := run(ctx, o, t.Output(), t.Output()); err == nil || err.Error() != "interrupted" {
			t.Errorf("%s: %v", only, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %v", only, took)
		}
		if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
			t.Errorf("%s: left behind: %v, %v", only, left, err)
		}
	}
}

func needBullmq(t *testing.T) {
	dir, err := bullmqDir()
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Skipf("go run . -only bullmq,process installs it: %v", err)
	}
}
