package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// limits is the stream of a seed from which comes what has a Deadline, or a Timeout beside a batch that fills slowly.
const limits = 900

// limited draws messages whose handlers have little time. Half of those with a Deadline come as the server is about to
// stand still, so that workers ask about them then. A worker that takes one too late keeps it, and tells of no handler,
// until it is in dead: nobody can judge that while dead has a foreign key.
func (p *Plot) limited(r *rand.Rand) {
	blocked := slices.ContainsFunc(p.Blows, func(b Blow) bool { return b.Kind == "foreign" && b.What == "dead" })
	if p.Lossy || p.Stepped || blocked || r.IntN(3) > 0 {
		return
	}
	p.brief(r)
	channels := slices.DeleteFunc(p.posted(), func(c string) bool { return c == desk })
	stops := slices.DeleteFunc(slices.Clone(p.Blows), func(b Blow) bool { return b.Kind != "stop server" })
	for range 2 + r.IntN(6) {
		at, gap := p.cycleAt(r.IntN(p.Cycles))+between(r, 0, p.Storm), 20*time.Millisecond
		if len(stops) > 0 && r.IntN(2) == 0 {
			at, gap = max(0, pick(r, stops).At-between(r, 0, 10*time.Millisecond)), time.Millisecond
		}
		c := pick(r, channels)
		plans := []string{trial.PlanOK, trial.PlanOK, trial.PlanRetry, trial.PlanSlow + "30", trial.PlanDeaf + "300"}
		if !p.pulls(c) { // a puller's handler has no context that ends with it
			plans = append(plans, trial.PlanSlow+"1500")
		}
		for range 1 + r.IntN(20) {
			post := Post{At: at, Channel: c, How: "enqueue", Plan: pick(r, plans)}
			post.Deadline = between(r, 100*time.Millisecond, 2*lease)
			p.Posts = append(p.Posts, post)
			at += between(r, 0, gap)
		}
	}
	p.sort()
}

// brief has batches wait for longer than some of their messages may take.
func (p *Plot) brief(r *rand.Rand) {
	i := slices.IndexFunc(p.Crew, func(o trial.Orders) bool { return o.Batch > 1 })
	if i < 0 {
		return
	}
	p.Crew[i].MaxWait = between(r, 20*time.Millisecond, time.Second)
	for range 20 {
		at := p.cycleAt(r.IntN(p.Cycles)) + between(r, 0, p.Storm)
		post := Post{At: at, Channel: "batch", How: "enqueue", Plan: trial.PlanOK}
		post.Timeout = between(r, 100*time.Millisecond, time.Second)
		p.Posts = append(p.Posts, post)
	}
}

// gathers is how long a batch waits for more at most. What it has had since then is not begun.
func (p *Plot) gathers() (most time.Duration) {
	for _, o := range p.Crew {
		most = max(most, o.MaxWait)
	}
	return most
}
