package sandbox

import (
	"testing"
	"time"
)

func TestGate(t *testing.T) {
	t.Parallel()
	var g gate
	now := time.Now()
	if w := g.wait(now); w > 0 {
		t.Errorf("a new gate is shut for %v", w)
	}
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		want *= time.Millisecond
		g.fail(now)
		g.fail(now) // one of several children
		w := g.wait(now)
		if w > want || w < want-want/10-1 {
			t.Errorf("shut for %v, want %v less up to a tenth", w, want)
		}
		now = now.Add(w)
	}
	g.pass()
	if w := g.wait(now); w > 0 {
		t.Errorf("after a success it is shut for %v", w)
	}
	g.fail(now)
	if w := g.wait(now); w > firstWait {
		t.Errorf("after a success and a failure it is shut for %v", w)
	}
}

// The waits differ from each other.
func TestGateJitter(t *testing.T) {
	t.Parallel()
	waits := make(map[time.Duration]bool)
	for range 20 {
		var g gate
		now := time.Now()
		g.fail(now)
		waits[g.wait(now)] = true
	}
	if len(waits) < 10 {
		t.Errorf("20 waits have %d values", len(waits))
	}
}
