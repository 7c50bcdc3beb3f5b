package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// manners is the stream of a seed from which come handlers that hang, and those that would end their own receivers.
const manners = 1500

// hangs is how long a handler hangs at most: some leases, and less than a shutdown waits for.
const hangs = 8 * time.Second

// stubborn has some handlers hang, whatever their contexts say, until a time in their storm. Others call the Shutdown
// and the Close that would wait for them. A puller does neither: its lease would end.
func (p *Plot) stubborn(r *rand.Rand) {
	if p.Late > 0 || r.IntN(2) == 0 {
		return
	}
	for i := range p.Posts {
		post := &p.Posts[i]
		if post.Plan != trial.PlanOK || post.Channel == desk || p.pulls(post.Channel) {
			continue
		}
		ends := min(post.At+between(r, lease/2, hangs), p.cycleAt(p.cycleOf(post.At))+p.Storm)
		switch {
		case r.IntN(12) == 0:
			post.Plan = trial.PlanInside
		case r.IntN(20) == 0 && post.At < ends:
			post.Plan, p.Hangs = trial.PlanUntil+fmt.Sprint(epoch.Add(ends).UnixMilli()), true
		}
	}
}
