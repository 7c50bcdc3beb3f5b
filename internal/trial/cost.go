package trial

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// cost is a time in which a take that nobody saw may have been executed, so that its lease counts an attempt.
type cost struct {
	from, to time.Time
	lease    time.Duration // what passes at least until the next take
}

// fatal are faults that end a process.
var fatal = []string{"kill", "shot", "corpse", "term"}

// costs are those times: a process ended, or it heard nothing for about as long as a lease lasts.
func (h *History) costs() (all []cost) {
	m, lease := h.margins(), h.shortest()*3/4
	deaf := make(map[string]*cost) // by process
	add := func(x *cost) {
		if x != nil && x.to.Sub(x.from) >= lease {
			all = append(all, cost{x.from.Add(-m.Read), x.to.Add(m.Read), lease})
		}
	}
	for _, e := range h.Entries {
		switch known := e.Due.After(e.At) && !e.Due.Equal(ForEver); {
		case e.Op != Fault || e.ID == "slow" || strings.HasPrefix(e.ID, "cut"): // what it asked for, it hears in time
		case slices.Contains(fatal, e.ID) || e.N > 0 && !known:
			if e.Note != Brief {
				all = append(all, cost{from: e.At, to: e.At.Add(m.Aftermath)})
			}
		case known && e.By != "":
			x := deaf[e.By]
			if x == nil || e.At.After(x.to.Add(m.Read)) {
				add(x)
				x = &cost{from: e.At}
				deaf[e.By] = x
			}
			if e.Due.After(x.to) {
				x.to = e.Due
			}
		}
	}
	for _, x := range deaf {
		add(x)
	}
	return all
}

// shortest is what the shortest lease of pullers lasts; 0, if the server's clock may have ended some sooner.
func (h *History) shortest() time.Duration {
	lasts := make(map[string]time.Duration)
	for _, e := range h.Entries {
		if e.Op == Pulled && !e.Due.IsZero() { // who stood still says it late
			lasts[e.By] = max(lasts[e.By], e.Due.Sub(e.At))
		}
	}
	if len(lasts) == 0 || h.Stepped {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(lasts)))
}

// unseen says whether a take that nobody saw may have been executed since then, and its lease be over before e.
func (t *tenures) unseen(since time.Time, e Entry) bool {
	return slices.ContainsFunc(t.costs, func(c cost) bool {
		return c.from.Before(e.At.Add(-c.lease)) && c.to.After(since)
	})
}
