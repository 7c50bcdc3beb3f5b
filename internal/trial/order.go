package trial

import (
	"slices"
	"strings"
	"time"
)

// order finds what was started although something higher was surely ready (I10): enqueued, or due, a margin before, and
// started by nobody until a margin after.
func (h *History) order(broke func(string, string, string, ...any)) {
	margin := h.margins().Order
	type span struct{ due, from, to time.Time }
	ready := make([]map[string]span, len(h.Ranks))
	rank := func(id string) int {
		return slices.IndexFunc(h.Ranks, func(r string) bool { return strings.HasPrefix(id, r) })
	}
	for i := range ready {
		ready[i] = make(map[string]span)
	}
	for _, e := range h.Entries {
		r := rank(e.ID)
		if r < 0 {
			continue
		}
		s := ready[r][e.ID] // a handler's first word may come before the enqueue's last
		if e.Op == Enqueue && e.Phase == Invoke {
			s.due = e.Due
		} else if e.Op == Enqueue && e.Phase == OK && s.from.IsZero() {
			if s.from = e.At; s.due.After(e.At) {
				s.from = s.due
			}
		} else if e.Op == Handle && e.Phase == Invoke && s.to.IsZero() {
			s.to = e.At
		}
		ready[r][e.ID] = s
	}
	for _, e := range h.Entries {
		r := rank(e.ID)
		if e.Op != Handle || e.Phase != Invoke || e.Attempt != 1 {
			continue
		}
		for higher := 0; higher < r; higher++ {
			for id, s := range ready[higher] {
				if !s.from.IsZero() && s.from.Add(margin).Before(e.At) &&
					(s.to.IsZero() || s.to.After(e.At.Add(margin))) {
					broke("I10 order", e.ID, "started at %s although %s was ready from %s to %s", e.At, id, s.from,
						s.to)
				}
			}
		}
	}
}

// weights compares what was started of each channel with its share, for as long as all had something (I10). What is
// enqueued before the first start counts.
func (h *History) weights(broke func(string, string, string, ...any)) {
	if h.Shares == nil {
		return
	}
	left, sum := make(map[string]int), 0
	of := func(id string) string {
		for prefix := range h.Shares {
			if strings.HasPrefix(id, prefix) {
				return prefix
			}
		}
		return ""
	}
	for _, weight := range h.Shares {
		sum += weight
	}
	started, n := make(map[string]int), 0
	for _, e := range h.Entries {
		switch prefix := of(e.ID); {
		case prefix == "":
		case e.Op == Enqueue && e.Phase == OK && n == 0:
			left[prefix]++
		case e.Op == Handle && e.Phase == Invoke:
			n++
			started[prefix]++
			if left[prefix]--; left[prefix] > 0 {
				continue
			}
			for prefix, weight := range h.Shares { // the first one to run out ends it
				if got, want := started[prefix]*sum*100, n*weight*100; max(got-want, want-got) > n*sum*shareError {
					broke("I10 share", "", "%s had %d of %d starts, at a weight of %d in %d", prefix, started[prefix],
						n, weight, sum)
				}
			}
			return
		}
	}
	broke("I10 share", "", "no channel ran out after %d starts", n)
}
