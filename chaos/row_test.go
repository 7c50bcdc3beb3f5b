package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// One round of each row that make test has time for, or of all without -short.
func TestRows(t *testing.T) {
	t.Parallel()
	for _, r := range rows {
		t.Run(r.id, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && !r.short {
				t.Skip("make chaos has it")
			}
			v := r.play(t, redistest.Start(t, r.conf...), "", 1, false)
			t.Log(v)
			if err := v.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each seeded defect is caught on its own schedule, and the package as it is passes the very same one.
func TestDefects(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for name, planted := range map[string]string{"sound": "", "seeded": d.name} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					began := time.Now()
					v := d.play(t, redistest.Start(t), planted)
					// a slow machine misses a step of the schedule
					for try := 1; name == "seeded" && !v.Caught() && try < 3; try++ {
						v = d.play(t, redistest.Start(t), planted)
					}
					t.Logf("after %v: %s: %v", time.Since(began), v, v.Broke())
					err := v.Err()
					switch {
					case name == "sound" && err != nil:
						t.Error(err)
					case name == "seeded" && !v.Caught():
						t.Errorf("not caught: %v\n%s", err, v.Chronicle)
					case name == "seeded":
						text, _, _ := strings.Cut(err.Error(), "\n\n")
						t.Logf("%.1500s", text)
					}
				})
			}
		})
	}
}

// Every cell of F4, F6, F12, F13 and F22.
func TestCells(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	all, well := make(map[string]int), make(map[string]int)
	t.Cleanup(func() {
		for _, row := range slices.Sorted(maps.Keys(all)) {
			redistest.Tell(fmt.Sprintf("%-4s %3d of %3d cells hold: %s\n", row, well[row], all[row], cellsOf[row]))
		}
	})
	for _, c := range cells() {
		all[c.row]++
		t.Run(c.row+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				mu.Lock()
				defer mu.Unlock()
				if !t.Failed() && !t.Skipped() {
					well[c.row]++
				}
			})
			if testing.Short() && c.long {
				t.Skip("make chaos has it")
			}
			server := redistest.Shared(t)
			if c.own {
				server = nil
			}
			v := c.play(t, server)
			if err := v.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each defect has a schedule here.
func TestEveryDefect(t *testing.T) {
	of := make(map[string]bool)
	for _, d := range defects {
		of[d.name] = true
	}
	for _, d := range trial.Defects {
		if !of[d.Name] {
			t.Errorf("%q has no schedule", d.Name)
		}
	}
	if len(of) != len(trial.Defects) {
		t.Errorf("%d schedules, of %d defects", len(of), len(trial.Defects))
	}
}

// What keeps an ID taken is not hurried with the outcomes: its record would outlive it.
func TestHurryForgetting(t *testing.T) {
	w := newWorld(t, redistest.Start(t), "")
	kept, soon := store.KeysOf(w.channels[0]).Kept, time.Now().Add(30*time.Second).UnixMilli()
	w.server.Do("ZADD", kept, soon, "utaken", soon, "routcome")
	w.hurryForgetting()
	due, err := redis.Strings(w.server.TryDo("ZRANGEBYSCORE", kept, 0, time.Now().UnixMilli()))
	if want := []string{"routcome"}; err != nil || !slices.Equal(due, want) {
		t.Errorf("%v %v are forgotten at the next sweep, want %v", due, err, want)
	}
}
