package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// backlogs is the stream of a seed from which the backlog is drawn on which its processes begin.
const backlogs = 400

// takes is how long a handling of a backlog takes at most.
const takes = lease * 3 / 4

// longest is how long handlings take for which a shutdown waits beside those of any run.
func (p *Plot) longest() time.Duration {
	if p.Late > 0 {
		return takes
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
	for _, o := range p.Crew {
		if o.Upkeep || o.Batch > 0 || p.pulls(o.Channels[0]) {
			continue // a lease that the server has forgotten is no lease
		}
		for range o.Workers * (4 + r.IntN(7)) {
			p.Posts = append(p.Posts, Post{Channel: o.Channels[0], How: "direct",
				Plan: trial.PlanDeaf + fmt.Sprint(between(r, time.Second/2, takes).Milliseconds())})
		}
	}
	for at := between(r, 0, 2*time.Second); at < storm/2; at += between(r, time.Second, storm/4) {
		p.Blows = append(p.Blows, Blow{At: at, For: between(r, 0, time.Second), Kind: "kill server",
			Nth: 1 + r.IntN(5)})
	}
	p.sort()
}
