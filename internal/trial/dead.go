package trial

import (
	"slices"
	"strings"
	"time"
)

// trimmed adds to spare what may be dropped from dead because a channel keeps no more.
func (h *History) trimmed(spare map[string]bool) {
	if h.MaxDead == 0 {
		return
	}
	for _, e := range h.Entries {
		if e.Op == mortal || e.Op == Enqueue && strings.HasPrefix(e.Note, PlanReject) {
			spare[e.ID] = true
		}
	}
}

// together is the time in which letters may have died within one millisecond of the server's clock. Such lie in dead in
// the order of their serials.
const together = 2 * time.Millisecond

// kept finds dead letters that were dropped although others are older (I12): the last half of what a channel keeps is
// there.
func (h *History) kept(broke func(string, string, string, ...any)) {
	if h.MaxDead == 0 || h.Lossy {
		return
	}
	there, ids, told := make(map[string]bool), make(map[string]string), make(map[string]int)
	failed := make(map[string]time.Time) // by serial: since when it may be dead
	for _, p := range h.Left {
		there[p.ID] = there[p.ID] || p.State == "dead"
	}
	for _, e := range h.Entries {
		if (e.Op == Handle || e.Op == Pulled) && e.Serial != "" {
			ids[e.Serial] = e.ID
		}
		if e.Op == Handle && e.Phase == Fail {
			failed[e.Serial] = e.At
		}
	}
	bare := 0 // and what a reaper has put into dead, of any channel
	for i, e := range slices.Backward(h.Entries) {
		id := ids[e.Serial]
		if e.Op == "poisoned" {
			bare += e.N
		}
		if e.Op != "rejected" {
			continue
		}
		if id == "" {
			bare++
			continue
		}
		channel, _, _ := strings.Cut(id, "/")
		told[channel]++
		later := told[channel]
		since := e.At.Add(-together)
		if f := failed[e.Serial]; !f.IsZero() && f.Before(since) {
			since = f
		}
		for _, o := range h.Entries[:i] { // others were told sooner, and may have died after it
			if o.Op == "rejected" && !o.At.Before(since) &&
				(ids[o.Serial] == "" || strings.HasPrefix(ids[o.Serial], channel+"/")) {
				later++
			}
		}
		if later+bare <= h.MaxDead/2 && !there[id] {
			broke("I12 dropped", id, "it died at %s, as one of the last %d, and is not in dead", clockOf(e.At),
				h.MaxDead/2)
		}
	}
}
