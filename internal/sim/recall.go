package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/trial"
)

// recalls is the stream of a seed from which comes what is cancelled while it waits for a Pull, and readings that for
// what takes long to decode.
const recalls, readings = 1100, 1200

// recall has pulls begin on messages of which many were cancelled, and the server stand still for longer than a lease
// while a Pull settles these.
func (p *Plot) recall(r *rand.Rand) {
	i := slices.IndexFunc(p.Crew, func(o trial.Orders) bool { return o.Pull > 1 })
	if i < 0 || p.Lossy || p.Stepped || r.IntN(4) > 0 {
		return
	}
	p.Late = 50 * time.Millisecond
	for n := range 60 + r.IntN(100) {
		p.Posts = append(p.Posts, Post{Channel: p.Crew[i].Channels[0], How: "direct", Plan: trial.PlanOK,
			Terms: trial.Terms{Named: true, Recalled: n%2 == 0}})
	}
	p.Blows = append(p.Blows, Blow{At: p.Late + between(r, 0, 20*time.Millisecond), Kind: "stop server",
		For: between(r, lease, 2*lease)})
	p.sort()
}

// reads has pullers decode what they pull, which takes some of that a while, and half of them now and then more than a
// lease is enough for. What is left of the lease then is not enough for a handler that takes long and extends nothing.
func (p *Plot) reads(r *rand.Rand) {
	foreign := slices.ContainsFunc(p.Blows, func(b Blow) bool { return b.Kind == "foreign" }) // which a pull waits for
	if p.Lossy || p.Stepped || foreign || r.IntN(3) > 0 {
		return
	}
	read := func(least time.Duration) string {
		return trial.PlanRead + fmt.Sprint(between(r, least, lease/4).Milliseconds())
	}
	for i := range p.Posts {
		switch post := &p.Posts[i]; {
		case !p.pulls(post.Channel):
		case post.Plan == trial.PlanOK:
			if r.IntN(2) == 0 {
				post.Plan = read(10 * time.Millisecond)
			}
		case strings.HasPrefix(post.Plan, trial.PlanSlow), strings.HasPrefix(post.Plan, trial.PlanDeaf):
			post.Plan = trial.PlanOK
		}
	}
	for i := range p.Crew {
		o := &p.Crew[i]
		if o.Reads = o.Pull > 0; !o.Reads || r.IntN(2) == 0 {
			continue
		}
		o.Pull = 64
		at := p.cycleAt(r.IntN(p.Cycles)) + between(r, 0, p.Storm)
		for range 60 + r.IntN(60) {
			p.Posts = append(p.Posts, Post{At: at, Channel: o.Channels[0], How: "direct", Plan: read(lease / 10)})
		}
	}
	p.sort()
}

// recalled cancels what is to be cancelled, before anybody handles it.
func (w *world) recalled() {
	w.hands.Go(func() {
		w.sleepUntil(w.plot.Late / 2)
		for i, post := range w.plot.Posts {
			if post.Recalled {
				_, _ = w.direct.queue.Cancel(context.Background(), shunt.ByID(post.Channel, post.id(i)))
			}
		}
	})
}
