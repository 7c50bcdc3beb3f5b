package trial

import "time"

// times judges recovery (I8) and delay (I9).
func (h *History) times(v *Verdict, broke func(string, string, string, ...any)) {
	type hand struct{ by, id string }
	open := make(map[hand]Entry)
	waiting := make(map[string]time.Time)     // what a struck process held, since when
	due := make(map[string]map[int]time.Time) // by serial, or by ID where none was known yet
	type verdict struct {
		by, serial string
		attempt    int
	}
	late := make(map[verdict]bool) // so what it was for was not put off
	for _, e := range h.Entries {
		if e.Op == "late-verdict" {
			late[verdict{e.By, e.Serial, e.Attempt}] = true
		}
	}
	for _, e := range h.Entries {
		switch {
		case e.Op == Enqueue && e.Phase == Invoke && !e.Due.IsZero():
			due[e.ID] = map[int]time.Time{1: e.Due}
		case e.Op == Fault:
			if h.Lossy && e.ID == KillServer { // it comes back without what was put off a moment ago
				clear(due)
			}
			for k := range open {
				if k.by == e.By {
					waiting[k.id] = e.At
					delete(open, k)
				}
			}
		case e.Op == Healing:
			for id := range waiting {
				waiting[id] = e.At
			}
		case e.Op == Handle && e.Phase == Invoke:
			if since, struck := waiting[e.ID]; struck {
				v.Recovery = append(v.Recovery, e.At.Sub(since))
				delete(waiting, e.ID)
			}
			open[hand{e.By, e.ID}] = e
			t, given := due[e.Serial][e.Attempt]
			if !given {
				t, given = due[e.ID][e.Attempt]
			}
			if given {
				if e.At.Before(t) && !h.Stepped {
					broke("I9 early", e.ID, "attempt %d was handled %v before it was due", e.Attempt, t.Sub(e.At))
				} else {
					v.Lateness = append(v.Lateness, e.At.Sub(t))
				}
			}
		case e.Op == "late-verdict":
			delete(due[e.Serial], e.Attempt+1)
		case e.Op == Handle:
			delete(open, hand{e.By, e.ID})
			if e.Phase == OK {
				delete(waiting, e.ID) // a zombie was there first
			}
			if e.Phase == Fail && !e.Due.IsZero() && (e.Serial == "" || !late[verdict{e.By, e.Serial, e.Attempt}]) {
				of := e.ID
				if e.Serial != "" { // a twin that is given back unhandled has another serial, and waits for nothing
					of = e.Serial
				}
				if due[of] == nil {
					due[of] = make(map[int]time.Time)
				}
				if was := due[of][e.Attempt+1]; was.IsZero() || e.Due.Before(was) { // of twins the first to be due
					due[of][e.Attempt+1] = e.Due
				}
			}
		}
	}
	if p := Percentile(v.Recovery, 99); h.Recover > 0 && p > h.Recover {
		broke("I8 recovery", "", "p99 %v of %d, %v allowed", p, len(v.Recovery), h.Recover)
	}
	if p := Percentile(v.Lateness, 99); h.Late > 0 && p > h.Late {
		broke("I9 late", "", "p99 %v of %d, %v allowed", p, len(v.Lateness), h.Late)
	}
}
