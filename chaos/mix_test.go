package main

import (
	"flag"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

var (
	mixSeed = flag.Uint64("mix.seed", 0, "run the random mix with that seed; 0: not at all")
	mixTime = flag.Duration("mix.time", 90*time.Second, "for so long")
	mixWith = flag.String("mix.defect", "", "with that defect seeded")
)

// The random mix of one seed, as make chaos runs twenty.
func TestMix(t *testing.T) {
	if *mixSeed == 0 {
		t.Skip("make chaos has it; -mix.seed gives it here")
	}
	for _, b := range plot(*mixSeed, *mixTime) {
		t.Log(b)
	}
	v := mix(t, redistest.Start(t, always...), *mixWith, *mixSeed, *mixTime)
	t.Log(v, v.Faults)
	if err := v.Err(); err != nil {
		t.Error(err)
	}
}
