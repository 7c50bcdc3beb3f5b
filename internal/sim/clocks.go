package sim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/sim/daytime"
	"github.com/shuntmq/shunt/internal/trial"
)

// watches is the stream of a seed from which come the clocks of processes.
const watches = 1300

// watch has the clocks of some processes be wrong, half of them from their begin to the end of all, and others be set
// to and fro. That is by some seconds, which is about a lease, or by far more.
func (p *Plot) watch(r *rand.Rand) {
	if p.Late > 0 || r.IntN(3) > 0 {
		return
	}
	for who := range p.Crew {
		if r.IntN(2) == 0 {
			continue
		}
		wrong := func(at, length time.Duration) {
			p.Blows = append(p.Blows, Blow{At: at, For: length, Kind: "clock", Who: who,
				Nth: pick(r, []int{-1, 1, -2, 2, 3, -300, 300, -3600, 3600})})
		}
		if r.IntN(2) == 0 {
			wrong(0, p.length())
			continue
		}
		for c := range p.Cycles {
			for at := p.cycleAt(c); ; {
				at += between(r, 100*time.Millisecond, 6*time.Second)
				length := between(r, 100*time.Millisecond, 3*lease)
				if at+length > p.lullAt(c) {
					break
				}
				wrong(at, length)
				at += length
			}
		}
	}
	p.sort()
}

// watched says whether the clocks of some processes are wrong that take from a channel; empty: from any.
func (p *Plot) watched(channel string) bool {
	return slices.ContainsFunc(p.Blows, func(b Blow) bool {
		return b.Kind == "clock" && (channel == "" || slices.Contains(p.Crew[b.Who%len(p.Crew)].Channels, channel))
	})
}

// clockOf is the clock that a process shares with those before it in its place.
func (w *world) clockOf(name string) *daytime.Clock {
	place, _, _ := strings.Cut(name, ".")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches == nil {
		w.watches = make(map[string]*daytime.Clock)
	}
	if w.watches[place] == nil {
		w.watches[place] = new(daytime.Clock)
	}
	return w.watches[place]
}

// wrong sets a process's clock wrong, and right again.
func (w *world) wrong(b Blow, p *process) {
	set := func(ahead int) {
		w.log.Say(trial.Entry{Op: trial.Fault, Phase: trial.Info, ID: b.Kind, Due: time.Now(), Note: trial.Brief})
		p.clock.Set(ahead)
	}
	set(b.Nth)
	time.Sleep(b.For)
	set(0)
}
