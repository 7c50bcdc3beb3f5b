package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// What a killed process held in a lull is begun by another one when its term is over, four thirds of a lease, and a
// beat that may judge it was made, which is as old as a sixth of a lease at most. Workers that are busy come on top.
const (
	busyFor  = 100 * time.Millisecond
	most     = 6 // messages that are posted before such a kill
	recovers = lease*4/3 + lease/6 + most*busyFor
)

// bounds are the most that a run may take of each. Time is virtual, so what a machine is busy with does not count.
var bounds = map[string]time.Duration{
	"recovery": recovers,
	// Once no handler runs each has ReplyTimeout, 3 s. The pool looks every 10 ms whether one runs.
	"shutdown":                              3050 * time.Millisecond,
	"close":                                 3050 * time.Millisecond,
	"shutdown beside a handler":             4 * time.Second,
	"shutdown of a runner":                  4 * time.Second, // it waits for its commands
	"call of an operator":                   7 * time.Second,
	"call of an operator after its context": 5 * time.Millisecond,
	"lateness in a calm run":                60 * time.Millisecond,
	"lateness of pulls in a calm run":       160 * time.Millisecond, // a bell that has rung in vain pauses up to 100 ms
	"wait for a pull in a calm run":         500 * time.Millisecond,
	"tick in a calm":                        30 * time.Millisecond,
}

// mostBusy are the commands that a process may send in a second, by its kind, beside perWord for each thing that it
// says in this second and the one before. A look at a dead receiver comes on top, once a second for each that is dead:
// where Redis comes back, all of them may be looked at.
var mostBusy = map[string]int{"worker": 450, "lanes": 600, "batch": 800, "upkeep": 130, "ticks": 250}

const perWord = 10

// mostRefused are the moments in a second at which Redis may refuse something of a process, by its kind. A handover
// asks something for each worker, and a slow line spreads the replies.
var mostRefused = map[string]int{"worker": 60, "lanes": 60, "batch": 120, "upkeep": 30, "ticks": 30}

// mostIdle are the commands a minute that an idle process may send, by its kind, beside looks at the dead and pulls.
var mostIdle = map[string]int{"worker": 390, "lanes": 540, "batch": 260, "puller": 240, "upkeep": 390, "ticks": 300}

// mostOf are the commands a minute that a process may send while it is idle.
func (w *world) mostOf(p *process) int {
	n := mostIdle[p.kind()]
	if p.Pull > 0 {
		n += p.Workers * int(time.Minute/p.Wait) // a pull that waits in vain asks once
		if w.plot.Idle > 0 {
			n *= 2 // a PING before each, for the server may have ended the connection
		}
	}
	return n
}

// margins are those of simulated processes, whose words take no time.
var margins = trial.Margins{
	Order:     20 * time.Millisecond,
	Lease:     2900 * time.Millisecond,
	Told:      30 * time.Millisecond,
	Aftermath: 500 * time.Millisecond,
	Read:      60 * time.Millisecond,
	Held:      10 * time.Millisecond,
}

// took notes how long something took, and complains where that is beyond its bound.
func (w *world) took(what string, d time.Duration, story ...any) {
	w.mu.Lock()
	if w.result.Most == nil {
		w.result.Most = make(map[string]time.Duration)
	}
	w.result.Most[what] = max(w.result.Most[what], d)
	w.mu.Unlock()
	if most, is := bounds[what]; is && d > most {
		w.problem("I25 bound: %s took %v, of at most %v: %v", what, d, most, story)
	}
}

// clearKills draws kills in lulls, of processes that have something in hand and are not alone. What they held is begun
// by others within the bound.
func (p *Plot) clearKills(r *rand.Rand) {
	for c := range p.Cycles {
		p.clearKill(r, p.lullAt(c)+half+200*time.Millisecond)
	}
	p.sort()
}

func (p *Plot) clearKill(r *rand.Rand, at time.Duration) {
	who := r.IntN(len(p.Crew))
	o := p.Crew[who]
	on := o.Channels[r.IntN(len(o.Channels))]
	if o.Upkeep || o.Pull > 0 || o.Batch > 0 || on == ticks || on == desk || !p.stays(o.Name, on) {
		return
	}
	for range 1 + r.IntN(most) {
		p.Posts = append(p.Posts, Post{At: at - between(r, 0, busyFor), Channel: on, How: "direct",
			Plan: trial.PlanSlow + fmt.Sprint(busyFor.Milliseconds())})
	}
	p.Blows = append(p.Blows, Blow{At: at, Kind: "kill", Who: who, Nth: r.IntN(2)})
}

// recovered judges how long what a killed process had in hand waits for another one. It counts where no other fault
// strikes meanwhile, and another process of the channel lives on. That a server ends idle connections is no fault then:
// who is to judge beats by another one at once.
func (w *world) recovered(es []trial.Entry) {
	const clear = 4 * time.Second
	var faults []trial.Entry
	for _, e := range es {
		if e.Op == trial.Fault && (w.plot.Idle == 0 || e.ID != trial.CutIdle && e.ID != trial.HungUp) {
			faults = append(faults, e)
		}
	}
	alone := func(f trial.Entry) bool {
		return !slices.ContainsFunc(faults, func(o trial.Entry) bool {
			ends := o.At
			if o.Due.After(ends) && !o.Due.Equal(trial.ForEver) {
				ends = o.Due
			}
			return o != f && o.At.Before(f.At.Add(clear)) && ends.Add(clear).After(f.At)
		})
	}
	for _, f := range faults {
		if f.ID != "kill" || !w.calm(f.At) || !alone(f) {
			continue
		}
		held := make(map[string]bool)
		for _, e := range es {
			switch {
			case e.Op != trial.Handle:
			case e.At.Before(f.At) && e.By == f.By && e.Phase == trial.Invoke:
				channel, _, _ := strings.Cut(e.ID, "/")
				held[e.ID] = w.plot.stays(f.By, channel)
			case e.At.Before(f.At) && e.By == f.By:
				delete(held, e.ID)
			case e.At.After(f.At) && held[e.ID]:
				w.took("recovery", e.At.Sub(f.At), f.By, e.ID)
				delete(held, e.ID)
			}
		}
	}
}

// kind is what a process is, as far as it costs an idle Redis something.
func (p *process) kind() string {
	switch {
	case p.Upkeep:
		return "upkeep"
	case p.Pull > 0:
		return "puller"
	case p.Batch > 0:
		return "batch"
	case len(p.Channels) > 1:
		return "lanes"
	case len(p.Channels) == 1 && p.Channels[0] == ticks:
		return "ticks"
	}
	return "worker"
}
