package trial

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// cost is a time in which a take may have been executed that nobody saw, so that its lease counts an attempt.
type cost struct {
	from, to time.Time
	lease    time.Duration // from that take to the next one at least; 0: that is not known
}

// heard are faults that leave pullers what they have asked for in time, or have them ask again at once.
var heard = []string{"slow", "shot", "corpse", "client kill"}

// costs are those times: a puller ended, or it stood still or heard nothing for most of a lease.
func (h *History) costs() (all []cost) {
	m, lease, pulls := h.margins(), h.shortest()*3/4, h.pullers()
	deaf := make(map[string]*cost) // by process
	add := func(x *cost) {
		if x != nil && x.to.Sub(x.from) >= lease {
			all = append(all, cost{x.from.Add(-m.Read), x.to.Add(m.Read), lease})
		}
	}
	for _, e := range h.Entries {
		x := deaf[e.By]
		switch {
		case e.Op != Fault || slices.Contains(heard, e.ID) || strings.HasPrefix(e.ID, "cut"):
		case e.ID == "term" || pulls[seat(e.By)] && (e.ID == "kill" || !e.Due.After(e.At)):
			if e.Note == Brief {
				break
			}
			c := cost{from: e.At, to: e.At.Add(m.Aftermath)}
			if x != nil && x.to.After(e.At) { // what it had sent may be executed when that is over
				c.to = x.to.Add(m.Aftermath)
			}
			all = append(all, c)
		case pulls[seat(e.By)]:
			// What a puller asks for again passes a mute line, and its lease begins again.
			if x == nil || e.ID == "mute" || e.At.After(x.to.Add(m.Read)) {
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

// seat is what a process has in common with those whom it succeeded: p2.2 comes after p2.
func seat(by string) string {
	name, _, _ := strings.Cut(by, ".")
	return name
}

// pullers are the seats of processes that pull.
func (h *History) pullers() map[string]bool {
	all := make(map[string]bool)
	for _, e := range h.Entries {
		if e.Op == Pulling || e.Op == Pulled {
			all[seat(e.By)] = true
		}
	}
	return all
}

// shortest is what the shortest lease of pullers lasts; 0 where that is not known, where a Pull may leave little of it
// because it decodes, and where a step of the server's clock may end it.
func (h *History) shortest() time.Duration {
	lasts := make(map[string]time.Duration)
	for _, e := range h.Entries {
		if e.Op == decodes || h.Stepped {
			return 0
		}
		if e.Op == Pulled { // a puller that stood still tells of it late, so the longest counts
			lasts[seat(e.By)] = max(lasts[seat(e.By)], e.Due.Sub(e.At))
		}
	}
	if len(lasts) == 0 {
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
