package worker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/shuntmq/shunt/internal/custody"
)

// What an item may go through, and what each state means of it. The walk begins where a take files an item.
func TestTransitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		it := &Item{}
		ran, doubted := false, false
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := it.state
			var may []happening
			for h := range happenings {
				if transitions[before][h] != 0 {
					may = append(may, h)
				}
			}
			if len(may) == 0 {
				if before != gone && before != goneAgain {
					t.Fatalf("nothing can happen in state %d, and the item is still held", before)
				}
				return
			}
			h := rapid.SampledFrom(may).Draw(t, "happening")
			if !it.move(h) {
				t.Fatalf("%d did not happen in state %d", h, before)
			}
			ran = ran || h == begin
			doubted = doubted || h == silence || h == forsake
			if it.state == queued {
				ran, doubted = false, false // a release that was withdrawn
			}
			switch {
			case it.runs() && !ran, it.state == lost && !ran, it.state == handedBack && !ran:
				t.Fatalf("no handler has begun, in state %d", it.state)
			case it.inDoubt() != doubted && it.state != gone && it.state != lost && it.state != handedBack:
				t.Fatalf("in doubt: %v, in state %d", it.inDoubt(), it.state)
			case it.hasVerdict() && before < judging && h != judge:
				t.Fatalf("a verdict without one, in state %d", it.state)
			case it.unsent() && it.runs():
				t.Fatal("it runs, and is decided")
			}
		}
	})
}

// Each state is reached, and from each the item can leave the worker's hands.
func TestStatesAreReached(t *testing.T) {
	reached := map[itemState]bool{queued: true}
	for range states {
		for from := range reached {
			for _, to := range transitions[from] {
				if to != 0 {
					reached[to-1] = true
				}
			}
		}
	}
	ends := map[itemState]bool{gone: true, goneAgain: true}
	for range states {
		for from := range states {
			for _, to := range transitions[from] {
				if to != 0 && ends[to-1] {
					ends[from] = true
				}
			}
		}
	}
	for s := range states {
		if !reached[s] || !ends[s] {
			t.Errorf("state %d: reached %v, ends %v", s, reached[s], ends[s])
		}
	}
}

// What cannot happen changes nothing: a verdict that comes too late is not filed.
func TestImpossible(t *testing.T) {
	it := &Item{}
	for s := range states {
		for h := range happenings {
			if it.state = s; transitions[s][h] == 0 && (it.move(h) || it.state != s) {
				t.Errorf("%d happened in state %d", h, s)
			}
		}
	}
	it.state = lost
	if it.decide(custody.Ack); it.verdict != nil || it.state != lost {
		t.Error("a verdict was filed for a message that is lost")
	}
}
