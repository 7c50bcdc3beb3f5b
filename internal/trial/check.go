// Package trial is what a run of shunt under faults is made of. It has the ledgers in which each process says what it
// does, the messages and the loads, and the invariants that judge what was said. A run is of real processes on a real
// server, as those of the fault harness are, or of simulated ones on virtual time. So nothing here asks the system for
// anything but the time.
package trial

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// subject is what the ledgers say of one id; there may be several enqueues of one, which then have the same payload.
type subject struct {
	plan                 string
	invoked, known, info int
	left, dead           int
	done                 map[int]int // handlings that came to an end, by attempt
	ok                   int
	acked, doubt         int  // verdicts that took it out of Redis, surely and perhaps
	bare                 bool // handled without a serial, so verdicts cannot be told from its twins'
	story                []Entry
}

// Check judges a history by the invariants.
func Check(h *History) *Verdict {
	v := &Verdict{Faults: make(map[string]int)}
	names := h.names()
	spare := names.spare()
	h.expiring(spare)
	h.trimmed(spare)
	h.follow(spare)
	all := make(map[string]*subject)
	of := func(id string) *subject {
		s := all[id]
		if s == nil {
			s = &subject{done: make(map[int]int)}
			all[id] = s
		}
		return s
	}
	broke := func(invariant, id, what string, args ...any) {
		b := breach{invariant: invariant, id: id, what: fmt.Sprintf(what, args...)}
		if s := all[id]; s != nil {
			b.story = s.story
		}
		v.breaches = append(v.breaches, b)
	}
	acks := make(map[string]int)       // by serial
	serials := make(map[string]string) // to ids
	ends := make(map[string]bool)      // processes that handled, and whether they have said all
	mute := make(map[string]bool)      // whose events did not all fit
	for _, e := range h.Entries {
		if e.ID != "" && (e.Op == Enqueue || e.Op == Handle || e.Op == Pulled) {
			s := of(e.ID)
			s.story = append(s.story, e)
			if e.Serial != "" {
				serials[e.Serial] = e.ID
			}
		} else if id, known := serials[e.Serial]; known && e.Serial != "" {
			s := all[id]
			s.story = append(s.story, e)
			switch e.Op {
			case "acked":
				s.acked++
			case "unconfirmed-verdict", "late-verdict":
				s.doubt++
			case Answered:
				if e.Phase != OK {
					s.doubt++
				}
			}
		}
		switch e.Op {
		case Enqueue:
			s := of(e.ID)
			switch e.Phase {
			case Invoke:
				s.invoked++
				s.plan = e.Note
			case OK:
				s.known++
			case Info:
				s.info++
			case Fail:
				s.invoked--
			}
		case Handle:
			s := of(e.ID)
			if _, heard := ends[e.By]; !heard {
				ends[e.By] = false
			}
			s.bare = s.bare || e.Serial == ""
			if e.Phase == OK || e.Phase == Fail {
				s.done[e.Attempt]++
			}
			if e.Phase == OK {
				s.ok++
			}
		case "acked":
			v.Acked++
			if acks[e.Serial]++; acks[e.Serial] == 2 && e.Serial != "" && !h.Lossy {
				broke("I4 double ack", serials[e.Serial], "serial %s", e.Serial)
			}
		case "late-verdict", "unconfirmed-verdict":
			v.LateAcks++
		case Fault:
			v.Faults[e.ID]++
			v.Allowed += e.N
		case Closed:
			ends[e.By] = true
		case "events-dropped":
			mute[e.By] = true
		}
	}
	whole := true // everybody has said all
	for by := range ends {
		ends[by] = ends[by] && !mute[by]
		whole = whole && ends[by]
	}
	for _, p := range h.Left {
		s := of(p.ID)
		s.left++
		s.story = append(s.story,
			Entry{At: time.Now(), Op: "left in " + p.Key, Phase: Info, ID: p.ID, N: p.Recoveries, Note: p.Failure})
		if p.State == "dead" {
			s.dead++
			v.Dead++
		}
	}
	for _, p := range h.Left {
		switch {
		case p.State == "doing":
			v.Orphaned++
			broke("I7 orphaned", p.ID, "in %s", p.Key)
		case p.State != "dead":
			broke("I2 not drained", p.ID, "in %s", p.Key)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s := all[id]
		v.Attempted += s.invoked
		v.Enqueued += s.known
		v.Unknown += s.info
		if s.ok > 0 || len(s.done) > 0 {
			v.Handled++
		}
		seen := s.left
		for _, n := range s.done {
			seen += n
		}
		if s.invoked == 0 && seen > 0 {
			v.Unexpected++
			broke("I3 unexpected", id, "nobody enqueued it")
			continue
		}
		if s.known == 0 && s.info > 0 && seen > 0 {
			v.Recovered++
		}
		if missing := s.known - s.ok - s.left; missing > 0 && !spare[id] {
			v.Lost += missing
			if !h.Lossy {
				broke("I1 lost", id, "enqueued %d times, handled to the end %d times, and %d times in Redis", s.known,
					s.ok, s.left)
			}
		}
		// Each enqueue is in one place: in Redis, or taken out of it by one ack.
		if over := s.left + s.acked - s.known - s.info; !h.Lossy &&
			(over > 0 || whole && !s.bare && !spare[id] && s.known > s.left+s.acked+s.doubt) {
			broke("I6 conservation", id,
				"enqueued %d times (%d more perhaps), acked %d times (%d more perhaps), and %d times in Redis",
				s.known, s.info, s.acked, s.doubt, s.left)
		}
		for attempt, n := range s.done {
			if extra := n - s.known - s.info; extra > 0 && s.known+s.info > 0 {
				v.Duplicated += extra
				if v.Allowed == 0 {
					broke("I5 duplicated", id, "attempt %d came to an end %d times", attempt, n)
				}
			}
		}
		poisonous := s.plan == PlanKill
		if s.dead > 0 && !poisonous && !strings.HasPrefix(s.plan, PlanReject) {
			broke("I12 poison", id, "an innocent is dead")
		}
		if poisonous && s.known > 0 && s.dead == 0 {
			broke("I12 poison", id, "what kills is not dead")
		}
	}
	for _, p := range h.Left {
		counted := strings.Contains(p.Failure, "dying process") || strings.Contains(p.Failure, "whose process died")
		if s := all[p.ID]; p.State == "dead" && s.plan == PlanKill && (p.Recoveries != poisonTimes || !counted) {
			broke("I12 poison", p.ID, "dead after %d recoveries because %q", p.Recoveries, p.Failure)
		}
	}
	h.leased(v, all, broke)
	h.counted(v, all, whole, broke)
	if v.Duplicated > v.Allowed {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			for attempt, n := range all[id].done {
				if s := all[id]; v.Allowed > 0 && n > s.known+s.info && s.known+s.info > 0 {
					broke("I5 duplicated", id,
						"attempt %d came to an end %d times, and in all %d more than the %d allowed", attempt, n,
						v.Duplicated, v.Allowed)
				}
			}
		}
	}
	h.unexplained(all, broke)
	h.kept(broke)
	h.silent(ends, broke)
	h.named(names, spare, broke)
	h.judgements(broke)
	h.stranded(spare, broke)
	h.times(v, broke)
	h.order(broke)
	h.weights(broke)
	h.liveness(broke)
	return v
}
