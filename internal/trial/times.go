package trial

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// delay is for what a message is put off.
type delay struct {
	at  time.Time // when that was said
	due time.Time
}

// delays are those of all messages, by serial, or by ID where none was known yet, and by the attempt that waits.
type delays struct {
	of       map[string]map[int]delay
	met      map[string]time.Time // serials, since when
	enqueued map[string]int       // how often, by ID
	wrong    bool                 // serials do not say when they were made
}

// forget is for an older state, which may lack what was put off a moment ago. Of twins none is known to be lacking.
func (ds *delays) forget() {
	maps.DeleteFunc(ds.of, func(of string, _ map[int]delay) bool { return ds.enqueued[of] < 2 })
}

// begun gives the delay that an attempt has waited for, if there was one.
func (ds *delays) begun(e Entry) (d delay, given bool) {
	since, known := ds.met[e.Serial]
	if !known && e.Serial != "" {
		ds.met[e.Serial] = e.At
	}
	if d, given = ds.of[e.Serial][e.Attempt]; given {
		return d, true
	}
	// A twin that had its serial by then is not the one that was put off; nobody may have had it in hand yet.
	d, given = ds.of[e.ID][e.Attempt]
	if made := birth(e.Serial); !made.IsZero() && (ds.wrong || made.Before(d.at.Truncate(time.Millisecond))) {
		return d, false
	}
	return d, given && (!known || since.After(d.at))
}

// failed notes that the next attempt waits.
func (ds *delays) failed(e Entry) {
	of := e.ID
	if e.Serial != "" { // a twin that is given back unhandled has another serial, and waits for nothing
		of = e.Serial
	}
	if ds.of[of] == nil {
		ds.of[of] = make(map[int]delay)
	}
	if was, twin := ds.of[of][e.Attempt+1]; !twin || e.Due.Before(was.due) { // of twins the first to be due
		ds.of[of][e.Attempt+1] = delay{e.At, e.Due}
	}
}

// times judges recovery (I8) and delay (I9).
func (h *History) times(v *Verdict, broke func(string, string, string, ...any)) {
	type hand struct{ by, id string }
	open, pulled := make(map[hand]Entry), make(map[hand]bool)
	waiting := make(map[string]time.Time) // what a struck process held, since when
	due := delays{of: make(map[string]map[int]delay), met: make(map[string]time.Time),
		enqueued: make(map[string]int), wrong: h.Wrong}
	type verdict struct {
		by, serial string
		attempt    int
	}
	late := make(map[verdict]bool) // or it is not known to be done: so what it was for may not have been put off
	done := make(map[verdict]bool) // by who had pulled it
	for _, e := range h.Entries {
		of := verdict{e.By, e.Serial, e.Attempt}
		fails := e.Op == Answered && strings.HasPrefix(e.Note, "fail")
		late[of] = late[of] || e.Op == "late-verdict" || fails && e.Phase != OK
		done[of] = done[of] || fails && e.Phase == OK
	}
	for _, e := range h.Entries {
		switch {
		case e.Op == Enqueue && e.Phase == Invoke:
			due.enqueued[e.ID]++
			if !e.Due.IsZero() {
				due.of[e.ID] = map[int]delay{1: {due: e.Due}}
			}
		case e.Op == Fault:
			if h.Lossy && e.ID == KillServer {
				due.forget()
			}
			for k := range open {
				if k.by == e.By {
					waiting[k.id] = e.At
					delete(open, k)
				}
			}
		case e.Op == Healing:
			for id := range waiting {
				if e.ID == "" || e.ID == channelOf(id) {
					waiting[id] = e.At
				}
			}
		case e.Op == Pulled:
			pulled[hand{e.By, e.ID}] = true
		case e.Op == Handle && e.Phase == Invoke:
			if since, struck := waiting[e.ID]; struck {
				v.Recovery = append(v.Recovery, e.At.Sub(since))
				delete(waiting, e.ID)
			}
			open[hand{e.By, e.ID}] = e
			d, given := due.begun(e)
			if given && e.At.Before(d.due) && !h.Stepped {
				broke("I9 early", e.ID, "attempt %d was handled %v before it was due", e.Attempt, d.due.Sub(e.At))
			} else if given && pulled[hand{e.By, e.ID}] {
				v.PulledLate = append(v.PulledLate, e.At.Sub(d.due))
			} else if given {
				v.Lateness = append(v.Lateness, e.At.Sub(d.due))
			}
		case e.Op == "late-verdict":
			delete(due.of[e.Serial], e.Attempt+1)
		case e.Op == Handle:
			of, puller := verdict{e.By, e.Serial, e.Attempt}, pulled[hand{e.By, e.ID}]
			delete(open, hand{e.By, e.ID})
			delete(pulled, hand{e.By, e.ID})
			if e.Phase == OK {
				delete(waiting, e.ID) // a zombie was there first
			}
			if e.Phase == Fail && !e.Due.IsZero() && (e.Serial == "" || !late[of]) && (!puller || done[of]) {
				due.failed(e)
			}
		}
	}
	h.prompt(v, broke)
}

// prompt judges the times against what this run allows.
func (h *History) prompt(v *Verdict, broke func(string, string, string, ...any)) {
	if p := Percentile(v.Recovery, 99); h.Recover > 0 && p > h.Recover {
		broke("I8 recovery", "", "p99 %v of %d, %v allowed", p, len(v.Recovery), h.Recover)
	}
	if d := Percentile(v.Recovery, 100); h.Slowest > 0 && d > h.Slowest {
		broke("I8 recovery", "", "the slowest took %v, %v allowed", d, h.Slowest)
	}
	all := slices.Concat(v.Lateness, v.PulledLate)
	if p := Percentile(all, 99); h.Late > 0 && p > h.Late {
		broke("I9 late", "", "p99 %v of %d, %v allowed", p, len(all), h.Late)
	}
}
