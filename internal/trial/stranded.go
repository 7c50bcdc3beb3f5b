package trial

import (
	"strings"
	"time"
)

// stranded finds what nobody had begun at the end of a calm in which there was all the time for it (I2). What waits
// then because all who could take it have others in hand is begun as soon as one of them is free. What lies with one
// who was cut off is begun as soon as that one has handed over.
func (h *History) stranded(spare map[string]bool, broke func(string, string, string, ...any)) {
	waiting := make(map[string]time.Time) // since when it could have been
	later := make(map[string]time.Time)
	off := make(map[string]bool)            // those that are delayed, it is not known until when
	waits := make(map[string]time.Duration) // for which each is delayed
	behind := make(map[string]Entry)        // what nobody had begun at a Quiet
	var killed time.Time                    // when somebody was last: others wait for what it held
	crew := newCrew(h)
	if h.Lossy {
		return
	}
	judge := func(now time.Time) {
		for _, id := range crew.overlooked(behind, now) {
			broke("I2 not drained", id, "nobody had begun it at %s, and no fault had struck since %s", clockOf(now),
				clockOf(behind[id].Due))
			delete(behind, id)
		}
	}
	for _, e := range h.Entries {
		if e.Op == Fault {
			clear(behind)
			if e.Due.Equal(ForEver) {
				killed = e.At
			}
		}
		judge(e.At)
		crew.hear(e)
		switch {
		case e.Op == delayed:
			off[e.ID] = true
		case e.Op == Alone || e.Op == mortal:
			waiting[e.ID] = far
		case e.Op == putOff:
			for id, since := range waiting {
				if NameOf(id) == e.ID && since.Before(e.Due) {
					waiting[id] = e.Due
				}
			}
		case e.Op == Enqueue && e.Phase == Invoke && !e.Due.IsZero():
			later[e.ID], waits[e.ID] = e.Due, e.Due.Sub(e.At)
		case e.Op == Enqueue && e.Phase == OK:
			if wait := waits[e.ID]; wait > 0 { // which begins when Redis gets it, however late that is
				later[e.ID] = e.At.Add(wait)
			}
			if t := waiting[e.ID]; t.Before(e.At) {
				waiting[e.ID] = e.At
			}
			if due := later[e.ID]; due.After(waiting[e.ID]) {
				waiting[e.ID] = due
			}
		case e.Op == Enqueue && e.Phase != Invoke:
			delete(waiting, e.ID)
		case e.Op == Handle || e.Op == Gathered:
			waiting[e.ID] = far
			delete(behind, e.ID)
		case e.Op == Quiet:
			clear(behind)
			if killed.After(e.Due) {
				continue
			}
			for id, since := range waiting {
				put := off[id] || !later[id].IsZero() || strings.HasSuffix(id, ">")
				excused := e.ID != "" && strings.HasPrefix(id, e.ID+"/") && (e.Note != LaterOnly || put)
				if since.Before(e.Due) && !spare[id] && !excused {
					behind[id] = e
				}
			}
			judge(e.At)
		}
	}
}
