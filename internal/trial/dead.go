package trial

import (
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/store"
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

// kept finds dead letters that were dropped although others are older (I12): where one is gone, at least half of what
// its channel keeps is there that may have died after it. What nobody told of may have died at any time.
func (h *History) kept(broke func(string, string, string, ...any)) {
	if h.MaxDead == 0 || h.Lossy {
		return
	}
	there, ids := make(map[string]bool), make(map[string]string)
	failed := make(map[string]time.Time) // by serial: since when it may be dead
	told := make(map[string]time.Time)   // by serial: until when it may have died
	for _, e := range h.Entries {
		if (e.Op == Handle || e.Op == Pulled) && e.Serial != "" {
			ids[e.Serial] = e.ID
		}
		if e.Op == Handle && e.Phase == Fail {
			failed[e.Serial] = e.At
		}
		if e.Op == "rejected" && e.Serial != "" {
			told[e.Serial] = e.At
		}
	}
	dead := make(map[string][]Place) // by key
	for _, p := range h.Left {
		if p.State == "dead" {
			there[p.ID] = true
			dead[p.Key] = append(dead[p.Key], p)
		}
	}
	for _, e := range h.Entries {
		id := ids[e.Serial]
		if e.Op != "rejected" || id == "" || there[id] {
			continue
		}
		since := e.At.Add(-together)
		if f := failed[e.Serial]; !f.IsZero() && f.Before(since) {
			since = f
		}
		later := 0
		channel, _, _ := strings.Cut(id, "/")
		all := dead[store.KeysOf(channel).Dead]
		for _, p := range all {
			if at, known := told[p.Serial]; !known || !at.Before(since) {
				later++
			}
		}
		if later < h.MaxDead/2 {
			broke("I12 dropped", id, "it died at %s, and of %d dead letters that are there %d may have died after it",
				clockOf(e.At), len(all), later)
		}
	}
}
