package main

import (
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/store"
)

// Operations on IDs, as they stand in a ledger. A message that was enqueued with an ID is called "ID#number" there.
const (
	callOff = "cancel"   // of ID; Note is the state that it was in, Serial whose
	putOff  = "postpone" // of ID, to Due
	expires = "expires"  // a message that is dropped at Due unless it was taken before
	taken   = "taken"    // Note is what is still in the key ID when all is over
	refused = "refused"  // an enqueue of the message ID, for that with Serial
)

// duplicate notes that an enqueue failed because its ID was taken.
const duplicate = "duplicate"

// nameOf is the ID that a message was enqueued with, as others are too; "": none.
func nameOf(id string) string {
	name, _, named := strings.Cut(id, "#")
	if !named || strings.HasSuffix(id, ">") {
		return ""
	}
	return name
}

// life is what is known of one message among those that had the same ID one after another.
type life struct {
	id, serial string
	begun      time.Time // its enqueue
	answered   time.Time
	phase      string
	note       string
	by         string        // the serial of the message for which it was refused
	expires    time.Time     // zero: never
	unique     time.Duration // its ID stays taken for so long after its end
	over       time.Time     // when that was surely so; far, if it is not known
	seen       time.Time     // begun to be handled for the last time
}

var far = time.Unix(1<<40, 0)

// within says whether it may have lived at some time from one to another.
func (l *life) within(from, to time.Time) bool {
	return l.phase != fail && l.begun.Before(to) && l.over.After(from)
}

// span is a call about an ID.
type span struct {
	entry           // its answer
	begun time.Time // the call
}

// names is what the ledgers say of each ID.
type names struct {
	lives    map[string][]*life
	of       map[string]*life // by the messages' names
	bySerial map[string]*life
	calls    map[string][]span
}

func (h *history) names() *names {
	n := &names{
		lives:    make(map[string][]*life),
		of:       make(map[string]*life),
		bySerial: make(map[string]*life),
		calls:    make(map[string][]span),
	}
	open := make(map[[3]string]time.Time)
	for _, e := range h.entries {
		switch e.Op {
		case enqueue:
			name := nameOf(e.ID)
			if name == "" {
				continue
			}
			l := n.of[e.ID]
			if l == nil {
				l = &life{
					id:       e.ID,
					begun:    e.At,
					unique:   time.Duration(e.N) * time.Millisecond,
					answered: far,
					over:     far,
				}
				n.of[e.ID], n.lives[name] = l, append(n.lives[name], l)
			}
			if e.Phase != invoke {
				l.answered, l.phase, l.note = e.At, e.Phase, e.Note
			}
		case refused:
			if l := n.of[e.ID]; l != nil {
				l.by = e.Serial
			}
		case expires:
			if l := n.of[e.ID]; l != nil {
				l.expires = e.Due
			}
		case handle:
			if l := n.of[e.ID]; l != nil && e.Phase == invoke {
				l.serial, l.seen = e.Serial, e.At
				n.bySerial[e.Serial] = l
			}
		case callOff, putOff:
			k := [3]string{e.By, e.Op, e.ID} // of one caller one after another
			if e.Phase == invoke {
				open[k] = e.At
			} else {
				n.calls[e.ID] = append(n.calls[e.ID], span{e, open[k]})
			}
		}
	}
	n.ends(h)
	return n
}

// ends finds out when each was over.
func (n *names) ends(h *history) {
	held := make(map[*life]bool) // when it was to be cancelled
	for name, ls := range n.lives {
		for _, l := range ls {
			n.whose(name, l.by)
		}
		for _, c := range n.calls[name] {
			if l := n.whose(name, c.Serial); l != nil && c.Op == callOff && c.Phase == ok {
				held[l] = held[l] || !c.waited()
			}
		}
	}
	said := make(map[*life]time.Time)
	for _, e := range h.entries {
		switch e.Op {
		case "acked", "rejected", "cancelled", "expired":
			if l := n.bySerial[e.Serial]; l != nil && said[l].IsZero() {
				if said[l] = e.At; e.Op == "acked" {
					said[l] = e.At.Add(l.unique)
				}
				l.over = said[l]
			}
		}
	}
	for name, ls := range n.lives {
		for _, l := range ls {
			// What was in hand when it expired, and was to be cancelled, goes when it is next taken.
			if l.phase == ok && l.seen.IsZero() && !l.expires.IsZero() && !held[l] && said[l].Before(l.expires) {
				l.over = l.expires
			}
		}
		for _, c := range n.calls[name] {
			if c.Op != callOff || c.Phase != ok || !c.waited() {
				continue
			}
			l := n.whose(name, c.Serial)
			if ls := n.living(name, c.begun, c.At); l == nil && len(ls) == 1 {
				l = ls[0]
			}
			if l != nil && l.seen.IsZero() {
				l.over = c.At
			}
		}
	}
}

// whose is the message with a serial, or nil: that which says so, or that which was enqueued when the serial was made.
func (n *names) whose(name, serial string) *life {
	if l := n.bySerial[serial]; l != nil {
		return l
	}
	u, err := ulid.ParseStrict(serial)
	if err != nil {
		return nil
	}
	var is *life
	made := ulid.Time(u.Time())
	for _, l := range n.lives[name] {
		if l.phase == fail || l.serial != "" || made.Before(l.begun.Truncate(time.Millisecond)) ||
			made.After(l.answered) {
			continue
		}
		if is != nil {
			return nil // there are two
		}
		is = l
	}
	if is != nil {
		is.serial, n.bySerial[serial] = serial, is
	}
	return is
}

// waited says of a Cancel that nobody had its message in hand.
func (c span) waited() bool { return c.Note == "prepare" || c.Note == "delay" }

// living are those of a name that may have lived at some time from one to another.
func (n *names) living(name string, from, to time.Time) (ls []*life) {
	for _, l := range n.lives[name] {
		if l.within(from, to) {
			ls = append(ls, l)
		}
	}
	return ls
}

// spare are the messages that may be gone without having been handled to an end: cancelled, or expired.
func (n *names) spare() map[string]bool {
	spare := make(map[string]bool)
	for name, ls := range n.lives {
		for _, l := range ls {
			if !l.expires.IsZero() {
				spare[l.id] = true
			}
		}
		for _, c := range n.calls[name] {
			if c.Op == callOff {
				for _, l := range n.living(name, c.begun, c.At) {
					spare[l.id] = true
				}
			}
		}
	}
	return spare
}

// named judges what is promised of IDs. I13: all are free when all is over. I14: what follows, or is enqueued with an
// ID, is there once. I15: one message at a time lives under an ID. I16: what was cancelled while it waited is not
// handled. I17: an enqueue is refused for an ID that is taken. And of I9: what was put off is not early.
func (h *history) named(n *names, spare map[string]bool, broke func(string, string, string, ...any)) {
	invoked, serials := make(map[string]int), make(map[string]map[string]int) // by message; of each serial its acks
	whose := make(map[string]string)
	cancelled := make(map[string]time.Time) // by serial
	for _, cs := range n.calls {
		for _, c := range cs {
			if c.Op == callOff && c.Phase == ok && c.waited() {
				cancelled[c.Serial] = c.At
			}
		}
	}
	for _, e := range h.entries {
		switch {
		case e.Op == taken:
			broke("I13 ids left", "", "%s in %s", e.Note, e.ID)
		case e.Op == enqueue && e.Phase == invoke && strings.ContainsAny(e.ID, "#>"):
			invoked[e.ID]++
		case e.Op == handle && e.Phase == invoke && invoked[e.ID] > 0:
			if serials[e.ID] == nil {
				serials[e.ID] = make(map[string]int)
			}
			whose[e.Serial] = e.ID
			if _, met := serials[e.ID][e.Serial]; !met && len(serials[e.ID]) == invoked[e.ID] {
				broke("I14 doubled", e.ID, "enqueued %d times and handled under %d serials", invoked[e.ID],
					len(serials[e.ID])+1)
			}
			serials[e.ID][e.Serial] += 0
			if at, was := cancelled[e.Serial]; was && e.At.After(at) {
				broke("I16 cancelled", e.ID, "handled at %s although its Cancel had returned at %s", clockOf(e.At),
					clockOf(at))
			}
		case e.Op == "acked" && whose[e.Serial] != "":
			id := whose[e.Serial]
			if serials[id][e.Serial]++; serials[id][e.Serial] == 2 {
				broke("I14 doubled", id, "serial %s was acked twice", e.Serial)
			}
		}
	}
	for name, ls := range n.lives {
		for _, l := range ls {
			if l.phase == fail && l.note == duplicate {
				o := n.whose(name, l.by)
				if o == nil &&
					!slices.ContainsFunc(n.living(name, l.begun, l.answered), func(o *life) bool { return o != l }) {
					broke("I17 refused", l.id, "for its ID, which nobody had")
				} else if o != nil && !o.within(l.begun, l.answered) {
					broke("I17 refused", l.id, "for %s, which was over at %s", o.id, clockOf(o.over))
				}
			}
			if l.phase != ok || spare[l.id] {
				continue
			}
			for _, o := range ls {
				if o != l && o.phase == ok && o.begun.After(l.answered) && o.answered.Before(l.seen) {
					broke("I15 two of one id", l.id, "begun to be handled at %s, and %s was enqueued at %s",
						clockOf(l.seen), o.id, clockOf(o.answered))
				}
			}
		}
		for _, c := range n.calls[name] {
			ls := n.living(name, c.begun, c.At)
			if c.Op != putOff || c.Phase != ok || len(ls) != 1 {
				continue
			}
			if l := ls[0]; l.hasty(h, c, n.calls[name]) {
				broke("I9 early", l.id, "put off at %s to %s", clockOf(c.At), clockOf(c.Due))
			}
		}
	}
	h.together(broke)
}

func clockOf(t time.Time) string { return t.Format("15:04:05.000") }

// hasty says whether a message was begun after it was put off and before it was due, and was not put off anew
// meanwhile.
func (l *life) hasty(h *history, c span, calls []span) bool {
	from, _ := slices.BinarySearchFunc(h.entries, c.At, func(e entry, t time.Time) int { return e.At.Compare(t) })
	for _, e := range h.entries[from:] {
		if !e.At.Before(c.Due) {
			break
		}
		if e.Op == handle && e.Phase == invoke && e.ID == l.id && e.At.After(c.At) {
			return !slices.ContainsFunc(calls, func(o span) bool {
				return o.Op == putOff && o.begun != c.begun && o.begun.Before(e.At) && o.At.After(c.begun)
			})
		}
	}
	return false
}

// together finds handlers of two messages with one ID that ran at the same time, unless one had lost its lease (I15).
func (h *history) together(broke func(string, string, string, ...any)) {
	type run struct {
		by, id, serial string
		from, to       time.Time
		lost           bool
	}
	runs, open := make(map[string][]*run), make(map[[2]string]*run) // by name; by process and serial
	for _, e := range h.entries {
		k := [2]string{e.By, e.Serial}
		switch {
		case e.Op == handle && e.Phase == invoke && nameOf(e.ID) != "":
			x := &run{by: e.By, id: e.ID, serial: e.Serial, from: e.At, to: far}
			open[k], runs[nameOf(e.ID)] = x, append(runs[nameOf(e.ID)], x)
		case e.Op == handle && open[k] != nil:
			open[k].to, open[k].lost = e.At, e.Phase == info
			delete(open, k)
		case e.Op == fault && e.Due.Equal(forEver): // it was killed
			for k, x := range open {
				if k[0] == e.By {
					x.to = e.At
					delete(open, k)
				}
			}
		}
	}
	for _, xs := range runs { // in the order in which they began
		for i, x := range xs {
			for _, y := range xs[i+1:] {
				if !y.from.Before(x.to) {
					break
				}
				if y.serial != x.serial && !x.lost && !y.lost {
					broke("I15 two of one id", y.id, "handled by %s from %s on, and %s by %s from %s to %s", y.by,
						clockOf(y.from), x.id, x.by, clockOf(x.from), clockOf(x.to))
				}
			}
		}
	}
}

// hasElements says whether a key of a channel holds elements; the others hold what is known of receivers and of IDs.
func hasElements(k *store.Keys, key string) bool {
	return slices.Contains([]any{k.Prepare, k.Suspect, k.Delay, k.Dead}, any(key)) ||
		strings.Contains(key, "}.doing.") ||
		strings.HasPrefix(key, k.Leased+".")
}
