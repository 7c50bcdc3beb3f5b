package trial

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// named judges what is promised of IDs. I13: all are free when all is over. I14: what follows, or is enqueued with an
// ID, is there once. I15: one message at a time lives under an ID. I16: what was cancelled while it waited is not
// handled. I17: an enqueue is refused for an ID that is taken. And of I9: what was put off is not early.
func (h *History) named(n *names, spare map[string]bool, broke func(string, string, string, ...any)) {
	invoked, serials := make(map[string]int), make(map[string]map[string]int) // by message; of each serial its acks
	whose := make(map[string]string)
	cancelled := make(map[string]time.Time) // by serial
	told := h.margins().Told
	for _, cs := range n.calls {
		for _, c := range cs {
			if c.Op == callOff && c.Phase == OK && c.waited() {
				cancelled[c.Serial] = c.At
			}
		}
	}
	for _, e := range h.Entries {
		switch {
		case e.Op == unkept && !h.Lossy && n.ended(e, told) < 2: // the last one of an ID is kept for a minute
			broke("I24 not kept", "", "%s, told at %s: %s", e.ID, clockOf(e.At), e.Note)
		case e.Op == taken:
			broke("I13 ids left", "", "%s in %s", e.Note, e.ID)
		case e.Op == Enqueue && e.Phase == Invoke && strings.ContainsAny(e.ID, "#>"):
			invoked[e.ID]++
		case e.Op == Handle && e.Phase == Invoke && invoked[e.ID] > 0:
			if serials[e.ID] == nil {
				serials[e.ID] = make(map[string]int)
			}
			whose[e.Serial] = e.ID
			if _, met := serials[e.ID][e.Serial]; !met && len(serials[e.ID]) == invoked[e.ID] && !h.Lossy {
				broke("I14 doubled", e.ID, "enqueued %d times and handled under %d serials", invoked[e.ID],
					len(serials[e.ID])+1)
			}
			serials[e.ID][e.Serial] += 0
			if at, was := cancelled[e.Serial]; was && e.At.After(at) && !n.gone(e, at) {
				broke("I16 cancelled", e.ID, "handled at %s although its Cancel had returned at %s", clockOf(e.At),
					clockOf(at))
			}
		case e.Op == "acked" && whose[e.Serial] != "":
			id := whose[e.Serial]
			if serials[id][e.Serial]++; serials[id][e.Serial] == 2 && !h.Lossy {
				broke("I14 doubled", id, "serial %s was acked twice", e.Serial)
			}
		}
	}
	for name, ls := range n.lives {
		for _, l := range ls {
			if l.phase == Fail && l.note == duplicate {
				o := n.whose(name, l.by)
				if o == nil &&
					!slices.ContainsFunc(n.living(name, l.begun, l.answered), func(o *life) bool { return o != l }) {
					broke("I17 refused", l.id, "for its ID, which nobody had")
				} else if o != nil && !o.within(l.begun, l.answered) {
					broke("I17 refused", l.id, "for %s, which was over at %s", o.id, clockOf(o.over))
				}
			}
			if l.phase != OK || spare[l.id] {
				continue
			}
			for _, o := range ls {
				if o != l && o.phase == OK && o.begun.After(l.answered) && o.answered.Before(l.seen) {
					broke("I15 two of one id", l.id, "begun to be handled at %s, and %s was enqueued at %s",
						clockOf(l.seen), o.id, clockOf(o.answered))
				}
			}
		}
		for _, c := range n.calls[name] {
			ls := n.living(name, c.begun, c.At)
			if c.Op != putOff || c.Phase != OK || len(ls) != 1 {
				continue
			}
			if l := ls[0]; n.hasty(h, l, c) {
				broke("I9 early", l.id, "put off at %s to %s", clockOf(c.At), clockOf(c.Due))
			}
		}
	}
	n.together(h, broke)
}

// ended is how many messages of an ID may have come to an end shortly before e. A message that waited for its retry was
// handled before, and only its Cancel tells of its end. A process tells of an end a little later. If the reply of Redis
// is lost, nobody tells of it.
func (n *names) ended(e Entry, told time.Duration) int {
	over := make(map[string]bool)
	end := func(whose string, at time.Time) {
		if at.After(e.At.Add(-time.Second)) && at.Before(e.At.Add(told)) {
			over[whose] = true
		}
	}
	for _, l := range n.lives[e.ID] {
		if l.seen.After(e.At) {
			continue
		}
		end(cmp.Or(l.serial, l.id), l.over.Add(-l.unique))
		if l.over.Equal(far) && !l.seen.IsZero() {
			over[cmp.Or(l.serial, l.id)] = true
		}
	}
	for _, c := range n.calls[e.ID] {
		if c.Op == callOff && c.Phase == OK && c.waited() {
			end(c.Serial, c.At)
		}
	}
	return len(over)
}

func clockOf(t time.Time) string { return t.Format("15:04:05.000") }

// hasty says whether a message was begun after it was put off and before it was due, and was not put off anew
// meanwhile.
func (n *names) hasty(h *History, l *life, c span) bool {
	from, _ := slices.BinarySearchFunc(h.Entries, c.At, func(e Entry, t time.Time) int { return e.At.Compare(t) })
	for _, e := range h.Entries[from:] {
		if !e.At.Before(c.Due) {
			break
		}
		if e.Op == Handle && e.Phase == Invoke && e.ID == l.id && e.At.After(c.At) && !n.gone(e, c.At) {
			return !slices.ContainsFunc(n.calls[NameOf(l.id)], func(o span) bool {
				return o.Op == putOff && (o.By != c.By || o.begun != c.begun) && o.begun.Before(e.At) &&
					o.At.After(c.begun)
			})
		}
	}
	return false
}

// together finds handlers of two messages with one ID that ran at the same time, unless one had lost its lease (I15). A
// handler may come to its end and not know that, because its process stood still. Then its receiver tells of a late
// verdict, or the answer to a puller says so. A puller may have been told before, and begin all the same. One that is
// killed after its lease hears nothing.
func (n *names) together(h *History, broke func(string, string, string, ...any)) {
	type run struct {
		Entry // its begin
		to    time.Time
		lost  bool
	}
	type hands struct { // a puller may have a message a second time, after its lease
		by, serial      string
		worker, attempt int
	}
	runs, open := make(map[string][]*run), make(map[hands]*run) // runs by name
	told := make(map[hands]bool)                                // that the lease was lost, whichever worker had it
	answered := make(map[hands]bool)                            // of these: by the answer to a puller
	for _, e := range h.Entries {
		k := hands{e.By, e.Serial, e.N, e.Attempt}
		switch {
		case e.Op == "late-verdict", e.Op == "orphaned" && strings.HasSuffix(e.Note, shunt.ErrLeaseLost.Error()),
			e.Op == Answered && e.Phase == Fail && strings.HasSuffix(e.Note, tooLate):
			who := hands{e.By, e.Serial, 0, e.Attempt}
			told[who], answered[who] = true, answered[who] || e.Op == Answered
		case e.Op == Handle && e.Phase == Invoke && NameOf(e.ID) != "":
			x := &run{e, far, answered[hands{e.By, e.Serial, 0, e.Attempt}]}
			open[k], runs[NameOf(e.ID)] = x, append(runs[NameOf(e.ID)], x)
		case e.Op == Handle && open[k] != nil:
			open[k].to, open[k].lost = e.At, open[k].lost || e.Phase == Info
			delete(open, k)
		case e.Op == Fault && e.Due.Equal(ForEver): // it was killed
			for k, x := range open {
				if k.by == e.By {
					x.to = e.At
					delete(open, k)
				}
			}
		}
	}
	for _, xs := range runs { // in the order in which they began
		for _, x := range xs {
			x.lost = x.lost || told[hands{x.By, x.Serial, 0, x.Attempt}] &&
				slices.ContainsFunc(n.faults[x.By], func(f Entry) bool { return n.margins.excuse(f, x.At, x.to) })
		}
		for i, x := range xs {
			for _, y := range xs[i+1:] {
				if !y.At.Before(x.to) {
					break
				}
				lost := x.lost || y.lost || n.over(x.Entry, y.At) || n.over(y.Entry, y.At)
				if y.Serial != x.Serial && !lost {
					broke("I15 two of one id", y.ID, "handled by %s from %s on, and %s by %s from %s to %s", y.By,
						clockOf(y.At), x.ID, x.By, clockOf(x.At), clockOf(x.to))
				}
			}
		}
	}
}
