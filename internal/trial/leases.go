package trial

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// tenure is one message in one puller's hands.
type tenure struct {
	by      string
	from    time.Time
	ends    time.Time
	attempt int
	term    time.Duration
	put     bool      // a verdict is on its way that puts it back
	to      time.Time // when its verdict was known to be executed
	other   time.Time // when a receiver began to handle it since; zero where none has
}

// tenures are what the ledgers say of what was pulled, by serial, in the order of time.
type tenures struct {
	of     map[string][]*tenure
	pulled map[string]bool // messages
	costs  []cost
}

// leased judges what is promised of leases. I18: a lease that ends counts one attempt of its message, and nothing else
// counts an attempt that no process has seen. I19: a message that was acked is not pulled again, and none is handed out
// whose lease is over. I20: no process is told that its lease is lost while that lease lasts. I5: a message is handled
// to its end more often than it was enqueued only where a fault struck one of its holders.
func (h *History) leased(v *Verdict, all map[string]*subject, broke func(string, string, string, ...any)) {
	t := h.tenures(v, all, broke)
	faults := h.harmful()
	for _, id := range slices.Sorted(maps.Keys(t.pulled)) {
		s := all[id]
		if s == nil || s.known+s.info == 0 {
			continue
		}
		extra := s.ok - s.most()
		for _, n := range s.done {
			extra -= max(0, n-s.most())
		}
		if extra <= 0 {
			continue
		}
		v.Duplicated += extra
		for _, e := range s.story {
			if e.Op == Answered && e.Phase == Info && strings.HasPrefix(e.Note, "ack: ") {
				extra-- // Redis has refused it, as its holder was told
			}
		}
		if extra > 0 && !t.struck(s, faults, h.margins()) {
			broke("I5 unexplained", id, "it was handled to the end %d times, and no fault had struck who had it", s.ok)
		}
	}
	allowed := 0
	if len(t.costs) > 0 {
		allowed = v.Allowed
	}
	if v.Skipped > allowed {
		broke("I18 attempts", "", "%d attempts were counted of takes that nobody saw, %d allowed", v.Skipped, allowed)
	}
	if p := Percentile(v.Ends, 99); h.Ends > 0 && p > h.Ends && !h.Stepped {
		broke("I8 recovery", "", "leases that had ended: p99 %v of %d until the next take, %v allowed", p, len(v.Ends),
			h.Ends)
	}
	if p := Percentile(v.Waits, 99); h.Waits > 0 && p > h.Waits {
		broke("I8 recovery", "", "what waits is handed out within p99 %v of %d, %v allowed", p, len(v.Waits), h.Waits)
	}
}

// harmful are the faults that may double something, by whom they struck.
func (h *History) harmful() map[string][]Entry {
	faults := make(map[string][]Entry)
	for _, e := range h.Entries {
		if e.Op == Fault && e.N > 0 {
			faults[e.By] = append(faults[e.By], e)
		}
	}
	return faults
}

// struck says whether a fault struck somebody who had the message.
func (t *tenures) struck(s *subject, faults map[string][]Entry, m Margins) bool {
	for _, e := range s.story {
		if e.Op != Handle || e.Phase != Invoke {
			continue
		}
		from, to := e.At, far
		for _, x := range t.of[e.Serial] {
			if x.by == e.By && x.attempt == e.Attempt {
				from, to = x.from, x.to
				if x.ends.Before(from) { // it stood still, and says late what it had
					from = x.ends
				}
			}
		}
		for _, f := range faults[e.By] {
			if m.excuse(f, from, to) {
				return true
			}
		}
	}
	return false
}

// away are the times for which the server was away.
func (h *History) away() (all []Entry) {
	for _, e := range h.Entries {
		if e.Op == Fault && e.Note == Spared && e.Due.After(e.At) {
			all = append(all, e)
		}
	}
	return all
}

// lasts is until when others may not have the message. A lease that ended while the server was away has a grace.
func (x *tenure) lasts(away []Entry) time.Time {
	ends := x.ends
	for _, f := range away {
		if until := f.Due.Add(min(x.term/4, 5*time.Second)); f.At.Before(x.ends) && f.Due.After(x.ends) &&
			until.After(ends) {
			ends = until
		}
	}
	return ends
}
