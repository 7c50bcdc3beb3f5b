package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// apart takes the operators' messages, and what was said of them, out of a history, and judges them.
func (w *world) apart(h *trial.History) {
	of := func(id string) bool { return strings.HasPrefix(id, desk+"/") }
	serials := make(map[string]string)
	for _, e := range h.Entries {
		if e.Serial != "" && of(e.ID) {
			serials[e.Serial] = e.ID
		}
	}
	all := make(map[string]*fate)
	at := func(id string) *fate {
		if all[id] == nil {
			all[id] = new(fate)
		}
		return all[id]
	}
	acks := make(map[string]int)
	h.Entries = slices.DeleteFunc(h.Entries, func(e trial.Entry) bool {
		id := serials[e.Serial]
		if of(e.ID) {
			id = e.ID
		}
		if id == "" || e.Op == trial.Fault {
			return false
		}
		at(id).add(e)
		if e.Op == "acked" {
			acks[e.Serial]++
		}
		return true
	})
	h.Left = slices.DeleteFunc(h.Left, func(p trial.Place) bool {
		if !of(p.ID) {
			return false
		}
		at(p.ID).left++
		if p.State != "dead" {
			w.problem("I24 desk: %s is left in %s", p.ID, p.Key)
		}
		return true
	})
	for serial, n := range acks {
		if id := serials[serial]; n > 1+w.resent(all[id]) {
			w.problem("I24 desk: %s of %s was acked %d times", serial, id, n)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		w.fate(id, all[id])
	}
}

// fate is what became of an operators' message.
type fate struct {
	plan                     string
	begun                    time.Time
	told                     time.Time // what came of its enqueue
	later                    bool      // it was enqueued for later
	known, info, acked, done int
	left                     int
	story                    []trial.Entry
}

func (f *fate) add(e trial.Entry) {
	f.story = append(f.story, e)
	if e.Op == trial.Enqueue && e.Phase != trial.Invoke && f.told.IsZero() {
		f.told = e.At
	}
	switch {
	case e.Op == trial.Enqueue && e.Phase == trial.Invoke:
		if f.plan = e.Note; f.begun.IsZero() {
			f.begun, f.later = e.At, !e.Due.IsZero()
		}
	case e.Op == trial.Enqueue && e.Phase == trial.OK:
		f.known++
	case e.Op == trial.Enqueue && e.Phase == trial.Info:
		f.info++
	case e.Op == trial.Handle && e.Phase == trial.OK:
		f.done++
	case e.Op == "acked":
		f.acked++
	}
}

// resent is how many more there may be of a message. An enqueue for later whose reply was lost is sent again, and adds
// nothing where the message still is. Operators may have promoted it between the two.
func (w *world) resent(f *fate) int {
	if f.later && slices.ContainsFunc(w.operator.promoted, func(at time.Time) bool {
		return at.After(f.begun) && at.Before(f.told)
	}) {
		return 1
	}
	return 0
}

// fate judges one. A message is dead, handled to its end, or ended by hand: never two of them, and never none.
func (w *world) fate(id string, f *fate) {
	dies := strings.HasPrefix(f.plan, trial.PlanReject)
	_, gone := w.operator.mayBeGone[id]
	gone = gone || dies && f.begun.Before(w.operator.purged)
	var what string
	switch {
	case f.left+f.acked > f.known+f.info+w.resent(f):
		what = "is there more often than it was enqueued"
	case !gone && f.known > f.left+f.done:
		what = "is lost"
	case f.left > 0 && !dies:
		what = "is dead, and innocent"
	case dies && f.acked+f.done > 0:
		what = "was acked, and was to die"
	case f.known+f.info == 0 && f.left+f.done > 0:
		what = "was never enqueued"
	default:
		return
	}
	var story strings.Builder
	for _, e := range f.story {
		fmt.Fprintf(&story, "\n  %s", e)
	}
	w.problem("I24 desk: %s %s: enqueued %d times (%d more perhaps), acked %d times, handled %d times, and %d times "+
		"dead%s", id, what, f.known, f.info, f.acked, f.done, f.left, story.String())
}
