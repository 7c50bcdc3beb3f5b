package trial

import (
	"slices"
	"strings"
	"time"
)

// liveness compares what was counted before and after, and finds what somebody who shut down in order has left behind
// (I11).
func (h *History) liveness(broke func(string, string, string, ...any)) {
	before, owner, clean := make(map[[3]string]int), make(map[string]string), make(map[string]bool)
	for _, e := range h.Entries {
		k := [3]string{e.Op, e.ID, e.By}
		if e.Op == "started" || e.Op == "handed-over" {
			name, _, _ := strings.Cut(e.Note, " ")
			owner[name] = e.By
		}
		switch {
		case e.Op == Closed:
			clean[e.By] = e.Phase == OK
		case e.Op == remains && clean[owner[e.Note]]:
			broke("I11 liveness", "", "%s of %s, who shut down in order, is still in %s", e.Note, owner[e.Note], e.ID)
		case e.Op != Count && e.Op != Pace:
		case e.Phase == Invoke:
			before[k] = e.N
		case e.Op == Count && e.N > before[k]:
			broke("I11 liveness", "", "%s of %s: %d, and %d before %s", e.ID, e.By, e.N, before[k], e.Note)
		case e.Op == Pace && e.N*10 < before[k]*9:
			broke("I11 liveness", "", "%s: %d a second, and %d before", e.ID, e.N, before[k])
		}
	}
}

// judgements finds the living whom others took for dead, although no fault had kept them from beating. Who has ended
// while Redis was away is dead, and found to be so when it is back. So is an incarnation in whose place its process has
// put another one, and in an older state one that had ended in order.
func (h *History) judgements(broke func(string, string, string, ...any)) {
	owner := make(map[string]string) // of an incarnation
	faults := make(map[string][]Entry)
	ended, closed := make(map[string]time.Time), make(map[string]time.Time)
	var older []time.Time                 // when Redis came back with an older state
	stopped := make(map[string]time.Time) // incarnations, and when they ended in order
	left := make(map[string]time.Time)    // when they ended otherwise, or another one took their place
	live := make(map[string]string)       // of each process
	lease := h.margins().Lease
	for _, e := range h.Entries {
		switch {
		case e.Op == "started" || e.Op == "handed-over" || e.Op == Handle && e.Phase == Invoke:
			name, _, _ := strings.Cut(e.Note, " ")
			owner[name] = e.By
			if e.Op == Handle { // a new one may have a message before it is said to have taken over
				break
			}
			// In an older state one that is over may be among the living again.
			if was := live[e.By]; (e.Op == "handed-over" || h.Lossy) && was != "" && was != name {
				left[was] = e.At
			}
			live[e.By] = name
		case e.Op == "stopped":
			name, why, _ := strings.Cut(e.Note, " ")
			if stopped[name] = e.At; why != "" { // Redis does not know it yet
				left[name] = e.At
			}
		case e.Op == Fault && e.Note != Spared && e.Note != Brief:
			faults[e.By] = append(faults[e.By], e)
			if h.Lossy && e.ID == KillServer {
				older = append(older, e.Due)
			}
		case e.Op == Unclean:
			ended[e.By] = e.At
		case e.Op == Closed && e.Phase == OK:
			closed[e.By] = e.At
		}
	}
	for _, e := range h.Entries {
		by, known := owner[e.Note]
		if e.Op != judged || !known {
			continue
		}
		struck := !ended[by].IsZero() && ended[by].Before(e.At) ||
			!left[e.Note].IsZero() && left[e.Note].Before(e.At) ||
			slices.ContainsFunc(older, func(back time.Time) bool {
				return back.Before(e.At) && (after(back, closed[by]) || after(back, stopped[e.Note]))
			})
		for _, f := range faults[by] {
			ends := f.At.Add(lease)
			if f.Due.After(f.At) {
				ends = f.Due.Add(lease)
			}
			struck = struck || f.At.Before(e.At) && ends.After(e.At)
		}
		if !struck {
			broke("I7 judged", "", "%s of %s was judged dead at %s, and no fault had struck it", e.Note, by,
				e.At.Format("15:04:05.000"))
		}
	}
}

// after says whether what is known to have happened was before now.
func after(now, was time.Time) bool { return !was.IsZero() && now.After(was) }

// silent finds verdicts of which a process that ended in order never said what came of them (I4).
func (h *History) silent(ends map[string]bool, broke func(string, string, string, ...any)) {
	said := make(map[[2]string]int)
	handled := make(map[string]int) // bare ones, by process
	for _, e := range h.Entries {
		if e.Op == Handle && e.Serial == "" && (e.Phase == OK || e.Phase == Fail) && ends[e.By] {
			handled[e.By]++
		}
		switch e.Op {
		case "acked",
			"retried",
			"rejected",
			"undecodable",
			"cancelled",
			"late-verdict",
			"unconfirmed-verdict",
			Answered,
			"orphaned":
			said[[2]string{e.By, e.Serial}]++
		case "released":
			if _, why, is := strings.Cut(e.Note, " "); is && why != "" { // it failed, and its receiver has lost it
				said[[2]string{e.By, e.Serial}]++
			}
		}
	}
	for _, e := range h.Entries {
		if e.Op != Handle || e.Serial == "" || e.Phase != OK && e.Phase != Fail || !ends[e.By] {
			continue
		}
		if k := [2]string{e.By, e.Serial}; said[k] == 0 {
			broke("I4 silent ack", e.ID, "%s handled %s and never said what became of the verdict", e.By, e.Serial)
		}
	}
	for by, n := range handled {
		if told := said[[2]string{by, ""}]; told < n {
			broke("I4 silent ack", "", "%s handled %d bare payloads, and said of %d what became of the verdict", by, n,
				told)
		}
	}
}

// counted judges what processes have added to the channels' counts (I21): never more than was enqueued, begun and
// handled, and where each worker has ended in order, and said of no channel that it could not count, just what was
// acked.
func (h *History) counted(v *Verdict, all map[string]*subject, whole bool, broke func(string, string, string, ...any)) {
	if h.Counts == nil {
		return
	}
	acked, handled, enqueued, handlings := 0, 0, 0, 0
	for i := range h.Counts {
		c := &h.Counts[i]
		acked += int(c.Acked)
		enqueued += int(c.Enqueued)
		handlings += int(c.Handling.Count())
	}
	for _, s := range all {
		handled += s.ok
	}
	begun := h.begun()
	for _, e := range h.Entries {
		whole = whole && (e.Op != "receiver-error" || !strings.Contains(e.Note, "was not counted"))
	}
	if enqueued > v.Attempted || handlings > begun {
		broke("I21 miscounted", "", "%d enqueues were counted of %d, and %d handlings of %d", enqueued, v.Attempted,
			handlings, begun)
	}
	if acked > handled || whole && acked != v.Acked {
		broke("I21 miscounted", "", "%d acks were counted, of %d that were told and %d that can be", acked, v.Acked,
			handled)
	}
}

// leaves are the events with which a message leaves a worker's hands.
var leaves = map[string]bool{"acked": true, "retried": true, "rejected": true, "released": true, "cancelled": true,
	"late-verdict": true, "unconfirmed-verdict": true}

// begun is how many handlings processes may have counted. In a batch the wait for a place is part of it, also where the
// message leaves before there is one.
func (h *History) begun() (n int) {
	gathers := make(map[string]bool)
	running := make(map[[2]string]int) // by process and serial: handlers that have begun, and whose ends are not told
	for _, e := range h.Entries {
		k := [2]string{e.By, e.Serial}
		switch {
		case e.Op == Handle && e.Phase == Invoke:
			n++
			running[k]++
		case e.Op == Gathered:
			gathers[e.By] = true
		case leaves[e.Op] && running[k] > 0:
			running[k]--
		case leaves[e.Op] && gathers[e.By]:
			n++
		}
	}
	return n
}
