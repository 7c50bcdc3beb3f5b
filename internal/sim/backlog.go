package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// backlogs is the stream of a seed from which the backlog is drawn on which its processes begin.
const backlogs = 400

// takes is how long a handling of a backlog takes at most.
const takes = lease * 3 / 4

// longest is how long handlings take for which a shutdown waits beside those of any run.
func (p *Plot) longest() time.Duration {
	switch {
	case p.Late > 0:
		return takes
	case p.Hangs:
		return hangs
	}
	return 0
}

// backlog has the processes begin on more than they can handle for a while, and each handler take long. So none of
// their workers is idle when the first faults strike, and the server is killed amid that.
func (p *Plot) backlog(r *rand.Rand) {
	if !p.Lossy || r.IntN(3) == 0 {
		return
	}
	p.Late = 50 * time.Millisecond
	if r.IntN(2) == 0 {
		p.untold(r)
		return
	}
	p.begins(func(o *trial.Orders) {
		for range o.Workers * (4 + r.IntN(7)) {
			p.Posts = append(p.Posts, Post{Channel: o.Channels[0], How: "direct",
				Plan: trial.PlanDeaf + fmt.Sprint(between(r, time.Second/2, takes).Milliseconds())})
		}
	})
	for at := between(r, 0, 2*time.Second); at < p.Storm/2; at += between(r, time.Second, p.Storm/4) {
		p.Blows = append(p.Blows, Blow{At: at, For: between(r, 0, time.Second), Kind: "kill server",
			Nth: 1 + r.IntN(5)})
	}
	p.sort()
}

// begins tells of the processes that get a backlog. A lease that the server has forgotten is no lease.
func (p *Plot) begins(do func(*trial.Orders)) {
	for i := range p.Crew {
		if o := &p.Crew[i]; !o.Upkeep && o.Batch == 0 && !p.pulls(o.Channels[0]) {
			do(o)
		}
	}
}

// untold has the server lose what was done while the backlog was quick to handle, and has nobody tell the receivers:
// from then on each worker has one that takes long, so nothing is under way when the server is killed. What it brings
// back nothing mends before the lull is over but the receivers themselves.
func (p *Plot) untold(r *rand.Rand) {
	p.Blows = slices.DeleteFunc(p.Blows, func(b Blow) bool { return b.At < p.cycle() })
	p.begins(func(o *trial.Orders) {
		for i := range o.Workers * 12 {
			post := Post{Channel: o.Channels[0], How: "direct", Plan: trial.PlanOK}
			if i > o.Workers*4 && i%3 == 0 {
				post.Plan = trial.PlanDeaf + fmt.Sprint(between(r, takes*2/3, takes).Milliseconds())
			}
			p.Posts = append(p.Posts, post)
		}
	})
	p.Blows = append(p.Blows, Blow{At: p.Late + between(r, 0, 60*time.Millisecond), Kind: "kill server",
		For: between(r, 0, takes/3), Nth: 1 + r.IntN(3)})
	p.sort()
}
