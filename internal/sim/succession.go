package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/shuntmq/shunt/internal/trial"
)

// upgrades is the stream of a seed from which comes who begins anew with other settings.
const upgrades = 1400

// otherwise is a Blow's What where who comes in place of its process has other settings.
const otherwise = "otherwise"

// upgrade has a third of those that come in place of others have other settings.
func (p *Plot) upgrade(r *rand.Rand) {
	for i := range p.Blows {
		if b := &p.Blows[i]; (b.Kind == "kill" || b.Kind == "term") && r.IntN(3) == 0 {
			b.What = otherwise
		}
	}
}

// succeed has a process take the place of one that is gone.
func (w *world) succeed(p *process, b Blow) {
	o := p.Orders
	if b.What == otherwise {
		o = differently(o)
	}
	base, life, _ := strings.Cut(o.Name, ".")
	n := 1
	_, _ = fmt.Sscan(life, &n)
	o.Name = fmt.Sprintf("%s.%d", base, n+1)
	next := w.start(o)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crew[slices.Index(w.crew, p)] = next
	for _, note := range w.armed {
		note(next)
	}
}

// differently gives orders other settings: a shorter lease, or that of before, another number of workers,
// and more or less at once. From several channels it takes in strict order in place of by weights, or the other way.
func differently(o trial.Orders) trial.Orders {
	turned := func(n, most int) int { return most + 1 - min(n, most) }
	o.Lease = lease*7/4 - o.Lease
	o.Workers, o.Prefetch = turned(o.Workers, 8), turned(o.Prefetch, 16)
	if o.Pull > 0 {
		o.Pull = turned(o.Pull, 8)
	}
	if o.Batch > 0 {
		o.Batch = turned(o.Batch, 10)
	}
	switch {
	case len(o.Weights) > 0:
		o.Weights = nil
	case len(o.Channels) == 2:
		o.Weights = []int{3, 1}
	}
	return o
}
