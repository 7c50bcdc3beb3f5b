package disturb

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSeed(t *testing.T) {
	defer Seed(0, 0)
	strikes := func(seed uint64, rate float64) (which []int) {
		Seed(seed, rate)
		for i := range 1000 {
			before := Struck()
			Point()
			if Struck() > before {
				which = append(which, i)
			}
		}
		return which
	}
	same := func(a, b []int) bool {
		if len(a) != len(b) {
			return false
		}
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return true
	}
	one := strikes(1, 0.1)
	if !same(one, strikes(1, 0.1)) {
		t.Error("a seed strikes other points when it is used again")
	}
	if same(one, strikes(2, 0.1)) {
		t.Error("two seeds strike the same points")
	}
	all := [2]int{1000, 1000}
	for rate, want := range map[float64][2]int{-1: {}, 0: {}, 0.1: {60, 140}, 1: all, 2: all} {
		if n := len(strikes(3, rate)); n < want[0] || n > want[1] {
			t.Errorf("at a rate of %v %d of 1000 points strike", rate, n)
		}
	}
}

// On one processor a goroutine is interrupted by a Point, and by nothing else.
func TestPoint(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer Seed(0, 0)
	turns := func() (n int) {
		last, all := -1, sync.WaitGroup{}
		var m sync.Mutex
		for i := range 2 {
			all.Go(func() {
				for range 100 {
					m.Lock()
					if last != i {
						n++
					}
					last = i
					m.Unlock()
					Point()
				}
			})
		}
		all.Wait()
		return n
	}
	Seed(0, 0)
	if n := turns(); n > 10 {
		t.Errorf("undisturbed the goroutines take %d turns", n)
	}
	Seed(1, 0.5)
	if n := turns(); n < 20 {
		t.Errorf("disturbed the goroutines take %d turns", n)
	}
}

// A Point may be struck by who holds a mutex. While another one waits for that, the time of a bubble stands still, and
// who sleeps is never woken.
func TestPointTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer Seed(0, 0)
		Seed(1, 1)
		start := time.Now()
		for range 1000 {
			Point()
		}
		if d := time.Since(start); d != 0 || Struck() != 1000 {
			t.Errorf("%d points took %v", Struck(), d)
		}
	})
}
