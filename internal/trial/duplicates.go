package trial

import (
	"maps"
	"slices"
	"time"
)

// hand is one handling of a message.
type hand struct {
	by       string
	from, to time.Time // to when its verdict was known to be executed
	end      time.Time
	bare     bool
}

// unasked says whether Redis has refused a verdict to who had the message, until its process ended. Then the message
// goes back without it. bare is what was said of bare payloads, which no entry names.
func (h *History) unasked(story, bare []Entry, hands []hand) bool {
	for _, e := range slices.Concat(story, bare) {
		if e.Op != "unconfirmed-verdict" {
			continue
		}
		for _, x := range hands {
			refused := func(o Entry) bool {
				return o.Op == "receiver-error" && o.By == x.by && !o.At.Before(x.end) && !o.At.After(e.At)
			}
			if x.by == e.By && x.bare == (e.Serial == "") && !x.end.IsZero() &&
				slices.ContainsFunc(h.Entries, refused) {
				return true
			}
		}
	}
	return false
}

// unexplained finds duplicates that no fault can have caused (I5): none struck those who handled the message while they
// had it.
func (h *History) unexplained(all map[string]*subject, broke func(string, string, string, ...any)) {
	faults, m := h.harmful(), h.margins()
	var bare []Entry
	for _, e := range h.Entries {
		if e.Op == "unconfirmed-verdict" && e.Serial == "" {
			bare = append(bare, e)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s := all[id]
		for attempt, n := range s.done {
			if n <= s.most() || s.known+s.info == 0 {
				continue
			}
			var hands []hand
			for _, e := range s.story {
				switch {
				case e.Op == Handle && e.Attempt == attempt && e.Phase == Invoke:
					hands = append(hands, hand{by: e.By, from: e.begun(), to: far, bare: e.Serial == ""})
				case e.Op == Handle && e.Attempt == attempt:
					for i := range hands {
						if hands[i].by == e.By && hands[i].end.IsZero() {
							hands[i].end = e.At
							break
						}
					}
				case e.Op == "acked" || e.Op == "retried" || e.Op == "rejected":
					for i := range hands {
						if hands[i].by == e.By && e.Attempt == attempt && hands[i].to == far {
							hands[i].to = e.At
							break
						}
					}
				}
			}
			struck := h.unasked(s.story, bare, hands)
			for _, x := range hands {
				for _, f := range faults[x.by] {
					struck = struck || m.excuse(f, x.from, x.to)
				}
			}
			if !struck {
				broke("I5 unexplained", id, "attempt %d came to an end %d times, and no fault had struck who had it",
					attempt, n)
			}
		}
	}
}
