package redistest

import (
	"sync"
	"testing"
	"time"
)

const (
	pulseEvery = 10 * time.Millisecond
	longPause  = 100 * time.Millisecond // shorter ones are not kept
	unfair     = 250 * time.Millisecond // bounds of real time are not fair to a test meanwhile
)

// pulse notes when this process stood still: a goroutine that wakes every 10 ms was woken late. The machine was busy
// elsewhere then, or had stopped the process.
type pulse struct {
	mu     sync.Mutex
	pauses []pause
	end    chan struct{}
}

type pause struct {
	until time.Time
	took  time.Duration
}

// beats is that of Main.
var beats pulse

func (p *pulse) start() {
	p.end = make(chan struct{})
	go func() {
		tick := time.NewTicker(pulseEvery)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-p.end:
				return
			case <-tick.C:
			}
			now := time.Now()
			if took := now.Sub(last); took >= longPause {
				p.mu.Lock()
				p.pauses = append(p.pauses, pause{now, took})
				p.mu.Unlock()
			}
			last = now
		}
	}()
}

// StoodStill is how long this process stood still at most since then: 100 ms or more, else 0. It is known under Main
// only.
func StoodStill(since time.Time) (longest time.Duration) {
	time.Sleep(2 * pulseEvery) // the pulse may be about to tell
	beats.mu.Lock()
	defer beats.mu.Unlock()
	for _, p := range beats.pauses {
		if p.until.After(since) {
			longest = max(longest, p.took)
		}
	}
	return longest
}

var watched sync.Map // of the tests that watch knows

// watch has a test that fails say whether the process stood still meanwhile. CI runs what says so once more.
func watch(t testing.TB) {
	if _, known := watched.LoadOrStore(t, nil); known {
		return
	}
	began := time.Now()
	t.Cleanup(func() {
		watched.Delete(t)
		if !t.Failed() {
			return
		}
		if longest := StoodStill(began); longest >= unfair {
			t.Logf("the process stood still for %v while this test ran", longest.Round(time.Millisecond))
		}
	})
}
