package sim

import (
	"slices"
	"strings"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/trial"
)

// still leaves out of a plot what would have messages wait for workers, or operators move them: what is late then is
// shunt's.
func (p *Plot) still() {
	p.Yield, p.Names = 0, nil // who has names puts messages off, and then they are not late
	for i := range p.Posts {
		post := &p.Posts[i]
		for _, plan := range []string{trial.PlanSlow, trial.PlanDeaf, trial.PlanTimeout, trial.PlanAsk,
			trial.PlanExtend} {
			if strings.HasPrefix(post.Plan, plan) {
				post.Plan = trial.PlanOK
			}
		}
	}
	for i := range p.Crew {
		p.Crew[i].Workers = max(p.Crew[i].Workers, 4)
	}
	p.Calls = slices.DeleteFunc(p.Calls, func(c Call) bool { return c.What == "copy" })
}

// strict are the prefixes of channels that are in strict order whoever takes from them, the highest first.
func (p *Plot) strict() []string {
	for _, o := range p.Crew {
		if len(o.Channels) > 1 && len(o.Weights) > 0 {
			return nil
		}
	}
	return []string{"high/", "low/"}
}

// untroubled judges a run without faults.
func (w *world) untroubled(h *trial.History, v *trial.Verdict) {
	for _, d := range v.Lateness {
		w.took("lateness in a calm run", d)
	}
	for _, d := range v.PulledLate {
		w.took("lateness of pulls in a calm run", d)
	}
	for _, d := range v.Waits {
		w.took("wait for a pull in a calm run", d)
	}
	told, begun := make(map[string]int64), int64(0)
	for _, e := range h.Entries {
		if told[e.Op]++; e.Op == trial.Handle && e.Phase == trial.Invoke {
			begun++
		}
	}
	var sum shunt.Counts
	handled := int64(0)
	for i := range h.Counts {
		c := &h.Counts[i]
		sum.Retried, sum.Dead = sum.Retried+c.Retried, sum.Dead+c.Dead
		sum.Recovered, sum.Late = sum.Recovered+c.Recovered, sum.Late+c.Late
		handled += int64(c.Handling.Count())
	}
	pulled := told[trial.Pulled] // which is not counted as handling
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"retries", sum.Retried, told["retried"]},
		{"dead", sum.Dead, told["rejected"]},
		{"recoveries", sum.Recovered, 0},
		{"late verdicts", sum.Late, 0},
		{"handlings", handled, begun - pulled},
		{"duplicates", int64(v.Duplicated), 0},
	} {
		if c.got != c.want {
			w.problem("I26 calm: %d %s were counted, of %d", c.got, c.what, c.want)
		}
	}
}
