package trial

import (
	"slices"
	"strings"
	"time"
)

// pursuit follows every message from hand to hand.
type pursuit struct {
	*History
	v       *Verdict
	all     map[string]*subject
	broke   func(string, string, string, ...any)
	t       *tenures
	away    []Entry
	readies []time.Duration

	// by channel
	healed map[string]time.Time // since when no fault holds up its messages; "": all

	// by message
	held    map[string]*tenure   // the last
	waiting map[string]time.Time // since when, as far as a bound on that wait is known
	bare    map[string]bool      // somebody handled it before it had a serial

	// by serial
	ids   map[string]string
	acked map[string]time.Time
	seen  map[string]time.Time // when its last attempt that is known was surely under way
	next  map[string]int       // the attempt that comes next, as far as it is known
	// a Pull did not hand it out, and Redis refused to take it back, as was told: its lease ends, and counts an attempt
	unsettled map[string]bool
}

func (h *History) tenures(v *Verdict, all map[string]*subject, broke func(string, string, string, ...any)) *tenures {
	f := &pursuit{History: h, v: v, all: all, broke: broke, away: h.away(),
		t:       &tenures{of: make(map[string][]*tenure), pulled: make(map[string]bool), costs: h.costs()},
		held:    make(map[string]*tenure),
		waiting: make(map[string]time.Time), bare: make(map[string]bool), ids: make(map[string]string),
		acked: make(map[string]time.Time), seen: make(map[string]time.Time), next: make(map[string]int),
		unsettled: make(map[string]bool), healed: make(map[string]time.Time)}
	for _, e := range h.Entries {
		f.hear(e)
		f.see(e)
	}
	if len(f.readies) > 0 { // nobody pulled until all was ready
		v.Ends = f.readies
	}
	return f.t
}

// last is the tenure of the one who says e.
func (f *pursuit) last(e Entry) *tenure {
	for _, x := range slices.Backward(f.t.of[e.Serial]) {
		if x.by == e.By {
			return x
		}
	}
	return nil
}

// hear takes in that somebody has a message. Who stood still may say so when others have had it since.
func (f *pursuit) hear(e Entry) {
	switch {
	case e.Serial == "" || e.Attempt == 0 || e.Op == Pulled,
		e.Op == "unconfirmed-verdict" || e.Op == "late-verdict" || e.Op == Handle && e.Phase != Invoke:
		return
	}
	at := e.At
	for _, x := range f.t.of[e.Serial] {
		if x.by == e.By && x.attempt == e.Attempt && x.ends.Before(at) {
			at = x.ends
		}
	}
	if at.After(f.seen[e.Serial]) {
		f.seen[e.Serial] = at
	}
}

func (f *pursuit) see(e Entry) {
	if x := f.held[e.ID]; x != nil && e.Op == Handle && e.Phase == Invoke && e.By != x.by && x.other.IsZero() {
		x.other = e.At
	}
	switch {
	case e.Op == Enqueue && e.Phase == OK:
		if _, known := f.waiting[e.ID]; !known {
			f.waiting[e.ID] = e.At
		}
	case e.Op == Enqueue && e.Phase == Invoke && !e.Due.IsZero():
		f.waiting[e.ID] = time.Time{} // that has bounds of its own
	case e.Op == Healing:
		f.healed[e.ID] = e.At
	case e.Op == Ready:
		f.readies = append(f.readies, max(0, e.At.Sub(e.Due)))
	case e.Serial == "":
		if e.Op == Handle { // by a receiver: nobody knows how long it waits from then on
			f.bare[e.ID], f.waiting[e.ID] = true, time.Time{}
		}
	case e.Op == Pulled:
		f.pulled(e)
	case e.Op == Extended:
		if x := f.last(e); x != nil && e.Due.After(x.ends) {
			x.ends = e.Due
		}
	case e.Op == Handle && e.Phase == Invoke: // by a receiver, too
		f.next[e.Serial] = max(f.next[e.Serial], e.Attempt+1)
	case e.Op == Handle && (e.Phase == Fail || e.Phase == Info):
		if x := f.last(e); x != nil {
			x.put = true
		}
	case e.Op == "acked" || e.Op == "retried" || e.Op == "rejected":
		if e.Op == "acked" {
			f.acked[e.Serial] = e.At
		}
		if x := f.last(e); x != nil && x.to == far {
			x.to = e.At
		}
	case e.Op == Answered && e.Phase == Fail && strings.HasSuffix(e.Note, tooLate):
		f.tooLate(e)
	case e.Op == "receiver-error" && strings.Contains(e.Note, "settle a message of"):
		x := f.last(e)
		f.unsettled[e.Serial] = x == nil || x.to != far
	}
}

// pulled begins a tenure.
func (f *pursuit) pulled(e Entry) {
	f.t.pulled[e.ID], f.ids[e.Serial] = true, e.ID
	// A puller that was frozen may say what it had pulled when others had it, and acked it, after its lease.
	at, was := f.acked[e.Serial]
	late := e.At.After(e.Due) && !at.Before(e.Due)
	if s := f.all[e.ID]; was && !late && !f.Lossy && (s == nil || s.again == 0) {
		f.broke("I19 handed out again", e.ID, "pulled by %s at %s, and acked at %s", e.By, clockOf(e.At), clockOf(at))
	}
	if late := e.At.Sub(e.Due); !e.Due.IsZero() && late > f.margins().Read && !f.Stepped && !f.stood(e) {
		f.broke("I19 handed out late", e.ID, "pulled by %s at %s, %v after its lease", e.By, clockOf(e.At), late)
	}
	if since := f.waiting[e.ID]; !since.IsZero() && f.next[e.Serial] == 0 {
		f.v.Waits = append(f.v.Waits, max(0, e.At.Sub(since)))
	}
	f.waiting[e.ID] = time.Time{}
	f.again(f.t.of[e.Serial], e)
	n := max(f.next[e.Serial], 1)
	if f.unsettled[e.Serial] {
		n++
	}
	if e.Attempt > n && !f.Lossy && !f.bare[e.ID] {
		f.v.Skipped += e.Attempt - n
		since := f.seen[e.Serial]
		if s := f.all[e.ID]; since.IsZero() && s != nil && s.story[0].Op == Enqueue {
			since = s.story[0].At
		}
		if !f.t.unseen(since, e) {
			f.broke("I18 attempts", e.ID, "pulled by %s at %s for the %d. time, and nothing struck that costs an "+
				"attempt since %s", e.By, clockOf(e.At), e.Attempt, clockOf(since))
		}
	}
	f.next[e.Serial], f.unsettled[e.Serial], f.seen[e.Serial] = e.Attempt+1, false, e.At
	if e.Due.Before(e.At) && !e.Due.IsZero() {
		f.seen[e.Serial] = e.Due
	}
	x := &tenure{by: e.By, from: e.At, ends: e.Due, term: e.Due.Sub(e.At), attempt: e.Attempt, to: far}
	f.t.of[e.Serial], f.held[e.ID] = append(f.t.of[e.Serial], x), x
}

// stood says whether the one who says e may have stood still until then.
func (f *pursuit) stood(e Entry) bool {
	return slices.ContainsFunc(f.Entries, func(x Entry) bool {
		return x.Op == Fault && (x.ID == "freeze" || x.ID == "stop") && x.By == e.By && x.At.Before(e.At) &&
			(x.Due.IsZero() || x.Due.Add(f.margins().Read).After(e.At))
	})
}

// tooLate judges that somebody was told that its lease is lost.
func (f *pursuit) tooLate(e Entry) {
	f.v.TooLate++
	x := f.last(e)
	if x == nil || x.attempt != e.Attempt || f.Lossy || f.Stepped {
		return
	}
	if ends := x.lasts(f.away); e.At.Before(ends.Add(-f.margins().Held)) {
		f.broke("I20 lost too soon", f.ids[e.Serial], "%s was told so at %s, and it lasts until %s", e.By,
			clockOf(e.At), clockOf(ends))
	}
}

// again judges a take of what was pulled before.
func (f *pursuit) again(before []*tenure, e Entry) {
	if len(before) == 0 {
		return
	}
	x := before[len(before)-1]
	if x.put || x.to != far || e.Attempt < x.attempt {
		return
	}
	if e.Attempt == x.attempt {
		if f.Ends > 0 && !f.Lossy { // an older state does not know that it was pulled
			f.broke("I18 attempts", e.ID, "pulled by %s at %s and by %s at %s, and no attempt was counted", x.by,
				clockOf(x.from), e.By, clockOf(e.At))
		}
		return
	}
	if early := x.ends.Sub(e.At); early > f.margins().Read && f.Ends > 0 && !f.Stepped && !f.Lossy {
		f.broke("I9 early", e.ID, "pulled by %s at %s, %v before the lease of %s ended", e.By, clockOf(e.At), early,
			x.by)
	}
	taken := e.At
	if !x.other.Before(x.ends) { // its next holder may have been killed, too
		taken = x.other
	}
	since := x.ends
	for _, channel := range []string{"", channelOf(e.ID)} {
		if at := f.healed[channel]; at.After(since) && !at.After(taken) {
			since = at
		}
	}
	f.v.Ends = append(f.v.Ends, max(0, taken.Sub(since)))
}
