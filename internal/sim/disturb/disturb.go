// Package disturb makes goroutines interleave badly on purpose. Package seam puts a Point before each statement by
// which goroutines meet, in an overlay; a normal build has none.
package disturb

import (
	"fmt"
	"os"
	"runtime"
)

// Env has the seed of a process, and after a comma the rate where that is not 0.1.
const Env = "SHUNT_DISTURB"

// These are written without a lock and without atomic operations. Either would order the goroutines at every Point for
// the race detector, and so hide the races that a disturbance is to show. A draw that two of them share does no harm.
var (
	below  uint64 // a draw below it strikes; 0: none does
	seed   uint64
	drawn  uint64
	struck uint64
)

const fewYields, mostYields = 4, 20

func init() {
	if text := os.Getenv(Env); text != "" {
		s, rate := uint64(0), 0.1
		if n, err := fmt.Sscanf(text, "%d,%g", &s, &rate); n == 0 {
			panic(fmt.Sprintf("%s=%q: %v", Env, text, err))
		}
		Seed(s, rate)
	}
}

// Seed begins a disturbance: so many of the points strike, from 0, which ends it, to 1. It is called while none of the
// goroutines to be disturbed runs.
//
//go:norace
func Seed(s uint64, rate float64) {
	seed, drawn, struck = mix(s), 0, 0
	below = uint64(max(0, min(1, rate)) * (1 << 32))
}

// Point yields a drawn number of times, or not at all. It never sleeps: where a sleeper holds a mutex, the time of a
// synctest bubble stands still.
//
//go:norace
func Point() {
	if below == 0 {
		return
	}
	drawn++
	draw := mix(seed + drawn)
	if draw>>32 >= below {
		return
	}
	struck++
	n := 1 + draw%fewYields
	if draw>>8%8 == 0 {
		n = 1 + draw%mostYields
	}
	for range n {
		runtime.Gosched()
	}
}

// Struck is about how many points have yielded since Seed.
//
//go:norace
func Struck() uint64 { return struck }

// mix is the output function of SplitMix64 (Steele, Lea, Flood, 2014).
//
//go:norace
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
