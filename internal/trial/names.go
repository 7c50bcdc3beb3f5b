package trial

import (
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// Operations on IDs, as they stand in a ledger. A message that was enqueued with an ID is called "ID#number" there.
const (
	callOff = "cancel"   // of ID; Note is the state that it was in, Serial whose
	putOff  = "postpone" // of ID, to Due
	delayed = "delayed"  // a message that is put off from its enqueue on
	expires = "expires"  // a message that is dropped at Due unless it was taken before
	recall  = "recall"   // a message that is cancelled once it is there
	mortal  = "mortal"   // a message whose Deadline is Due
	unkept  = "unkept"   // a Wait for ID that was told so, Note is what
	taken   = "taken"    // Note is what is still in the key ID when all is over
	refused = "refused"  // an enqueue of the message ID, for that with Serial
)

// duplicate notes that an enqueue failed because its ID was taken.
const duplicate = "duplicate"

// NameOf is the ID that a message was enqueued with, as others are too; "": none.
func NameOf(id string) string {
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
	seen       time.Time     // begun to be handled for the last time, by who had it
}

// hold is a message in a puller's hands, in which it may come a second time.
type hold struct {
	by, serial string
	attempt    int
}

// holds are the ends of the leases of what pullers have had in hand, as far as each knew.
type holds map[hold]time.Time

func (h *History) holds() holds {
	hs := make(holds)
	for _, e := range h.Entries {
		if e.Op == Pulled || e.Op == Extended {
			hs[hold{e.By, e.Serial, e.Attempt}] = e.Due
		}
	}
	return hs
}

// over says whether what is handled was pulled under a lease that had ended by some time. It is others' from then on.
func (hs holds) over(handled Entry, by time.Time) bool {
	ends, leased := hs[hold{handled.By, handled.Serial, handled.Attempt}]
	return leased && by.After(ends)
}

// gone says whether others may have had what is handled by some time: the lease of its puller was over, or it was in a
// batch whose process a fault had struck since.
func (n *names) gone(handled Entry, by time.Time) bool {
	return n.over(handled, by) || !handled.Due.IsZero() && slices.ContainsFunc(n.faults[handled.By],
		func(f Entry) bool { return f.At.Before(by) && n.margins.excuse(f, handled.Due, by) })
}

var far = time.Unix(1<<40, 0)

// within says whether it may have lived at some time from one to another.
func (l *life) within(from, to time.Time) bool {
	return l.phase != Fail && l.begun.Before(to) && l.over.After(from)
}

// span is a call about an ID.
type span struct {
	Entry           // its answer
	begun time.Time // the call
}

// names is what the ledgers say of each ID.
type names struct {
	lives    map[string][]*life
	of       map[string]*life // by the messages' names
	bySerial map[string]*life
	calls    map[string][]span
	holds
	faults  map[string][]Entry // by process
	margins Margins
}

func (h *History) names() *names {
	n := &names{
		lives:    make(map[string][]*life),
		of:       make(map[string]*life),
		bySerial: make(map[string]*life),
		calls:    make(map[string][]span),
		holds:    h.holds(),
		faults:   h.harmful(),
		margins:  h.margins(),
	}
	open := make(map[[3]string]time.Time)
	for _, e := range h.Entries {
		switch e.Op {
		case Enqueue:
			name := NameOf(e.ID)
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
			if e.Phase != Invoke {
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
		case Handle:
			if l := n.of[e.ID]; l != nil && e.Phase == Invoke {
				if !n.gone(e, e.At) {
					l.seen = e.At
				}
				l.serial = e.Serial
				n.bySerial[e.Serial] = l
			}
		case callOff, putOff:
			k := [3]string{e.By, e.Op, e.ID} // of one caller one after another
			if e.Phase == Invoke {
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
func (n *names) ends(h *History) {
	held := make(map[*life]bool) // when it was to be cancelled
	for name, ls := range n.lives {
		for _, l := range ls {
			n.whose(name, l.by)
		}
		for _, c := range n.calls[name] {
			if l := n.whose(name, c.Serial); l != nil && c.Op == callOff && c.Phase == OK {
				held[l] = held[l] || !c.waited()
			}
		}
	}
	said := make(map[*life]time.Time)
	for _, e := range h.Entries {
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
			if l.phase == OK && l.seen.IsZero() && !l.expires.IsZero() && !held[l] && said[l].Before(l.expires) {
				l.over = l.expires
			}
		}
		for _, c := range n.calls[name] {
			if c.Op != callOff || c.Phase != OK || !c.waited() {
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
	made := birth(serial)
	var is *life
	for _, l := range n.lives[name] {
		if l.phase == Fail || l.serial != "" || made.Before(l.begun.Truncate(time.Millisecond)) ||
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

// birth is the ms in which a serial was made, or zero where it says none.
func birth(serial string) time.Time {
	u, err := ulid.ParseStrict(serial)
	if err != nil {
		return time.Time{}
	}
	return ulid.Time(u.Time())
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

// expiring adds to spare the messages that may expire, or be cancelled, but for those with others' IDs.
func (h *History) expiring(spare map[string]bool) {
	for _, e := range h.Entries {
		if e.Op == expires || e.Op == recall {
			spare[e.ID] = true
		}
	}
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
