package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// place is where a message lies in Redis when all is over.
type place struct {
	ID         string
	State      string // prepare, doing, leased, delay, suspect, dead; doing is also a lease's that has no end
	Key        string
	Recoveries int
	Failure    string
}

// history is all that is known of a run at a quiet point: what every process said, and what is in Redis.
type history struct {
	entries []entry
	left    []place
	ranks   []string       // prefixes of ids, the highest channel first, where strict order is promised
	shares  map[string]int // weights by prefixes of ids, where shares are promised
	lossy   bool           // the server's durability promises nothing
	recover time.Duration
	late    time.Duration  // p99 of the lateness of what was due; 0: not judged
	ends    time.Duration  // p99 from a lease's end to the next take; 0: not judged
	waits   time.Duration  // p99 of what waits to be handed out; 0: not judged
	counts  []shunt.Counts // of each channel, after all workers have ended; nil: not judged
}

// Orders of magnitude of the invariants' own bounds.
const (
	orderMargin  = 100 * time.Millisecond // between a worker's question and its handler's first word
	longestLease = 5 * time.Second        // of the runs in which leases are judged, with the time that judging takes
	shareError   = 5                      // percent of all starts
	aftermath    = 2 * time.Second        // of a fault that is over: reconnecting, and finding out
	poisonTimes  = 4                      // in dying hands, as dead's reason says
)

// verdict is what the checker found, in Jepsen's words.
type verdict struct {
	Attempted  int // messages whose enqueue was begun
	Enqueued   int // K: whose enqueue returned nil
	Unknown    int // whose enqueue has an unknown outcome
	Recovered  int // of these, those that were there after all
	Handled    int // D: handled to an end
	Dead       int
	Acked      int // acks that returned 1
	LateAcks   int // acks that returned 0, and said so
	Allowed    int // duplicates that the faults allow
	Duplicated int
	Lost       int
	Unexpected int
	Orphaned   int
	Recovery   []time.Duration // fault to the next handling
	Lateness   []time.Duration // due to handled
	TooLate    int             // verdicts that were told their lease was lost
	Skipped    int             // attempts that were counted of a take nobody saw
	Ends       []time.Duration // end of a lease to the next take
	Waits      []time.Duration // enqueued to pulled
	Faults     map[string]int

	breaches  []breach
	chronicle string // of the run, for the first breach's sake
}

// breach is one invariant that does not hold, for one message where it is a message's.
type breach struct {
	invariant, id, what string
	story               []entry
}

func (b breach) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s: %s\n", b.invariant, b.id, b.what)
	for _, e := range b.story {
		s.WriteString(
			"    " + e.At.Format(
				"15:04:05.000000",
			) + " " + strings.Join(strings.Split(strings.TrimSpace(e.String()), "\t")[1:], " ") + "\n",
		)
	}
	return s.String()
}

// broke says which invariants do not hold.
func (v *verdict) broke() []string {
	set := make(map[string]bool)
	for _, b := range v.breaches {
		set[b.invariant] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// caught says whether a seeded defect brought about what it must. Messages were lost, stranded, or doubled beyond what
// faults allow, or a living receiver was taken for dead, or counts are not what happened.
func (v *verdict) caught() bool {
	for _, name := range v.broke() {
		switch name {
		case "I1 lost",
			"I2 not drained",
			"I5 duplicated",
			"I5 unexplained",
			"I7 orphaned",
			"I7 judged",
			"I13 ids left",
			"I14 doubled",
			"I15 two of one id",
			"I16 cancelled",
			"I17 refused",
			"I18 attempts",
			"I19 handed out again",
			"I20 lost too soon",
			"I21 miscounted":
			return true
		}
	}
	return false
}

// Err tells of the breaches, at most ten of each invariant, with the history of each offending message.
func (v *verdict) Err() error {
	if len(v.breaches) == 0 {
		return nil
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s\n", v)
	told := make(map[string]int)
	for _, b := range v.breaches {
		if told[b.invariant]++; told[b.invariant] <= 10 {
			s.WriteString(b.String())
		}
	}
	for _, name := range v.broke() {
		fmt.Fprintf(&s, "%s: %d breaches\n", name, told[name])
	}
	s.WriteString(v.chronicle)
	return fmt.Errorf("%s", s.String())
}

func (v *verdict) String() string {
	return fmt.Sprintf(
		"enqueued %d (unknown %d, recovered %d), handled %d, dead %d: lost %d, duplicated %d (allowed %d), "+
			"unexpected %d, orphaned %d; acked %d, late acks %d; of leases too late %d, attempts skipped %d, "+
			"ends p99 %v of %d, waits p99 %v",
		v.Enqueued,
		v.Unknown,
		v.Recovered,
		v.Handled,
		v.Dead,
		v.Lost,
		v.Duplicated,
		v.Allowed,
		v.Unexpected,
		v.Orphaned,
		v.Acked,
		v.LateAcks,
		v.TooLate,
		v.Skipped,
		percentile(v.Ends, 99),
		len(v.Ends),
		percentile(v.Waits, 99),
	)
}

// subject is what the ledgers say of one id; there may be several enqueues of one, which then have the same payload.
type subject struct {
	plan                 string
	invoked, known, info int
	left, dead           int
	done                 map[int]int // handlings that came to an end, by attempt
	ok                   int
	acked, doubt         int  // verdicts that took it out of Redis, surely and perhaps
	bare                 bool // handled without a serial, so verdicts cannot be told from its twins'
	story                []entry
}

// check judges a history by the invariants.
func check(h *history) *verdict {
	v := &verdict{Faults: make(map[string]int)}
	names := h.names()
	spare := names.spare()
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
	for _, e := range h.entries {
		if e.ID != "" && (e.Op == enqueue || e.Op == handle || e.Op == pulled) {
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
			case answered:
				if e.Phase != ok {
					s.doubt++
				}
			}
		}
		switch e.Op {
		case enqueue:
			s := of(e.ID)
			switch e.Phase {
			case invoke:
				s.invoked++
				s.plan = e.Note
			case ok:
				s.known++
			case info:
				s.info++
			case fail:
				s.invoked--
			}
		case handle:
			s := of(e.ID)
			if _, heard := ends[e.By]; !heard {
				ends[e.By] = false
			}
			s.bare = s.bare || e.Serial == ""
			if e.Phase == ok || e.Phase == fail {
				s.done[e.Attempt]++
			}
			if e.Phase == ok {
				s.ok++
			}
		case "acked":
			v.Acked++
			if acks[e.Serial]++; acks[e.Serial] == 2 && e.Serial != "" && !h.lossy {
				broke("I4 double ack", serials[e.Serial], "serial %s", e.Serial)
			}
		case "late-verdict", "unconfirmed-verdict":
			v.LateAcks++
		case fault:
			v.Faults[e.ID]++
			v.Allowed += e.N
		case closed:
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
	for _, p := range h.left {
		s := of(p.ID)
		s.left++
		s.story = append(s.story,
			entry{At: time.Now(), Op: "left in " + p.Key, Phase: info, ID: p.ID, N: p.Recoveries, Note: p.Failure})
		if p.State == "dead" {
			s.dead++
			v.Dead++
		}
	}
	for _, p := range h.left {
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
			if !h.lossy {
				broke("I1 lost", id, "enqueued %d times, handled to the end %d times, and %d times in Redis", s.known,
					s.ok, s.left)
			}
		}
		// Each enqueue is in one place: in Redis, or taken out of it by one ack.
		if over := s.left + s.acked - s.known - s.info; !h.lossy &&
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
		poisonous := s.plan == planKill
		if s.dead > 0 && !poisonous && !strings.HasPrefix(s.plan, planReject) {
			broke("I12 poison", id, "an innocent is dead")
		}
		if poisonous && s.known > 0 && s.dead == 0 {
			broke("I12 poison", id, "what kills is not dead")
		}
	}
	for _, p := range h.left {
		counted := strings.Contains(p.Failure, "dying process") || strings.Contains(p.Failure, "whose process died")
		if s := all[p.ID]; p.State == "dead" && s.plan == planKill && (p.Recoveries != poisonTimes || !counted) {
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
	h.silent(ends, broke)
	h.named(names, spare, broke)
	h.judgements(broke)
	h.stranded(broke)
	h.times(v, broke)
	h.order(broke)
	h.weights(broke)
	h.liveness(broke)
	return v
}

// counted judges what processes have added to the channels' counts (I21): never more than was enqueued, begun and
// handled, and where each worker has ended in order, and said of no channel that it could not count, just what was
// acked.
func (h *history) counted(v *verdict, all map[string]*subject, whole bool, broke func(string, string, string, ...any)) {
	if h.counts == nil {
		return
	}
	acked, handled, enqueued, handlings := 0, 0, 0, 0
	for i := range h.counts {
		c := &h.counts[i]
		acked += int(c.Acked)
		enqueued += int(c.Enqueued)
		handlings += int(c.Handling.Count())
	}
	for _, s := range all {
		handled += s.ok
	}
	begun := 0
	for _, e := range h.entries {
		if e.Op == handle && e.Phase == invoke {
			begun++
		}
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

// hand is one handling of a message.
type hand struct {
	by       string
	from, to time.Time // to when its verdict was known to be executed
	end      time.Time
}

// unexplained finds duplicates that no fault can have caused (I5): none struck those who handled the message while they
// had it.
func (h *history) unexplained(all map[string]*subject, broke func(string, string, string, ...any)) {
	faults := make(map[string][]entry)
	for _, e := range h.entries {
		if e.Op == fault && e.N > 0 {
			faults[e.By] = append(faults[e.By], e)
		}
	}
	far := time.Unix(1<<40, 0)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s := all[id]
		for attempt, n := range s.done {
			if n <= s.known+s.info || s.known+s.info == 0 {
				continue
			}
			var hands []hand
			for _, e := range s.story {
				switch {
				case e.Op == handle && e.Attempt == attempt && e.Phase == invoke:
					hands = append(hands, hand{by: e.By, from: e.At, to: far})
				case e.Op == handle && e.Attempt == attempt:
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
			struck := false
			for _, x := range hands {
				for _, f := range faults[x.by] {
					ends := f.At
					if f.Due.After(ends) {
						ends = f.Due
					}
					struck = struck || f.At.Before(x.to.Add(aftermath/10)) && ends.Add(aftermath).After(x.from)
				}
			}
			if !struck {
				broke("I5 unexplained", id, "attempt %d came to an end %d times, and no fault had struck who had it",
					attempt, n)
			}
		}
	}
}

// judgements finds the living whom others took for dead, although no fault had kept them from beating. Who has ended
// while Redis was away is dead, and found to be so when it is back.
func (h *history) judgements(broke func(string, string, string, ...any)) {
	owner := make(map[string]string) // of an incarnation
	faults := make(map[string][]entry)
	ended := make(map[string]time.Time)
	for _, e := range h.entries {
		switch {
		case e.Op == "started" || e.Op == "handed-over" || e.Op == handle && e.Phase == invoke:
			name, _, _ := strings.Cut(e.Note, " ")
			owner[name] = e.By
		case e.Op == fault && e.Note != spared:
			faults[e.By] = append(faults[e.By], e)
		case e.Op == unclean:
			ended[e.By] = e.At
		}
	}
	for _, e := range h.entries {
		by, known := owner[e.Note]
		if e.Op != judged || !known {
			continue
		}
		struck := !ended[by].IsZero() && ended[by].Before(e.At)
		for _, f := range faults[by] {
			ends := f.At.Add(longestLease)
			if f.Due.After(f.At) {
				ends = f.Due.Add(longestLease)
			}
			struck = struck || f.At.Before(e.At) && ends.After(e.At)
		}
		if !struck {
			broke("I7 judged", "", "%s of %s was judged dead at %s, and no fault had struck it", e.Note, by,
				e.At.Format("15:04:05.000"))
		}
	}
}

// stranded finds what nobody had begun at the end of a calm in which there was all the time for it (I2).
func (h *history) stranded(broke func(string, string, string, ...any)) {
	waiting := make(map[string]time.Time) // since when it could have been
	for _, e := range h.entries {
		switch {
		case e.Op == enqueue && e.Phase == invoke && !e.Due.IsZero():
			waiting[e.ID] = e.Due
		case e.Op == enqueue && e.Phase == ok:
			if t, known := waiting[e.ID]; !known || t.Before(e.At) {
				waiting[e.ID] = e.At
			}
		case e.Op == enqueue && e.Phase != invoke:
			delete(waiting, e.ID)
		case e.Op == handle:
			waiting[e.ID] = time.Unix(1<<40, 0)
		case e.Op == quiet:
			for id, since := range waiting {
				if since.Before(e.Due) {
					broke("I2 not drained", id, "nobody had begun it at %s, and no fault had struck since %s",
						e.At.Format("15:04:05.000"), e.Due.Format("15:04:05.000"))
				}
			}
		}
	}
}

// silent finds verdicts of which a process that ended in order never said what came of them (I4).
func (h *history) silent(ends map[string]bool, broke func(string, string, string, ...any)) {
	said := make(map[[2]string]int)
	for _, e := range h.entries {
		switch e.Op {
		case "acked",
			"retried",
			"rejected",
			"undecodable",
			"cancelled",
			"late-verdict",
			"unconfirmed-verdict",
			answered,
			"orphaned":
			said[[2]string{e.By, e.Serial}]++
		}
	}
	for _, e := range h.entries {
		if e.Op != handle || e.Serial == "" || e.Phase != ok && e.Phase != fail || !ends[e.By] {
			continue
		}
		if k := [2]string{e.By, e.Serial}; said[k] == 0 {
			broke("I4 silent ack", e.ID, "%s handled %s and never said what became of the verdict", e.By, e.Serial)
		}
	}
}

// times judges recovery (I8) and delay (I9).
func (h *history) times(v *verdict, broke func(string, string, string, ...any)) {
	type hand struct{ by, id string }
	open := make(map[hand]entry)
	waiting := make(map[string]time.Time) // what a struck process held, since when
	due := make(map[string]map[int]time.Time)
	ids := make(map[string]string) // by serial
	for _, e := range h.entries {
		if e.ID != "" && e.Serial != "" {
			ids[e.Serial] = e.ID
		}
		switch {
		case e.Op == enqueue && e.Phase == invoke && !e.Due.IsZero():
			due[e.ID] = map[int]time.Time{1: e.Due}
		case e.Op == fault:
			for k := range open {
				if k.by == e.By {
					waiting[k.id] = e.At
					delete(open, k)
				}
			}
		case e.Op == healing:
			for id := range waiting {
				waiting[id] = e.At
			}
		case e.Op == handle && e.Phase == invoke:
			if since, struck := waiting[e.ID]; struck {
				v.Recovery = append(v.Recovery, e.At.Sub(since))
				delete(waiting, e.ID)
			}
			open[hand{e.By, e.ID}] = e
			if t, given := due[e.ID][e.Attempt]; given {
				if e.At.Before(t) {
					broke("I9 early", e.ID, "attempt %d was handled %v before it was due", e.Attempt, t.Sub(e.At))
				} else {
					v.Lateness = append(v.Lateness, e.At.Sub(t))
				}
			}
		case e.Op == "late-verdict": // so it was not put off
			delete(due[ids[e.Serial]], e.Attempt+1)
		case e.Op == handle:
			delete(open, hand{e.By, e.ID})
			if e.Phase == ok {
				delete(waiting, e.ID) // a zombie was there first
			}
			if e.Phase == fail && !e.Due.IsZero() {
				if due[e.ID] == nil {
					due[e.ID] = make(map[int]time.Time)
				}
				if was := due[e.ID][e.Attempt+1]; was.IsZero() || e.Due.Before(was) { // of twins the first to be due
					due[e.ID][e.Attempt+1] = e.Due
				}
			}
		}
	}
	if p := percentile(v.Recovery, 99); h.recover > 0 && p > h.recover {
		broke("I8 recovery", "", "p99 %v of %d, %v allowed", p, len(v.Recovery), h.recover)
	}
	if p := percentile(v.Lateness, 99); h.late > 0 && p > h.late {
		broke("I9 late", "", "p99 %v of %d, %v allowed", p, len(v.Lateness), h.late)
	}
}

// order finds what was started although something higher was surely ready (I10): enqueued a margin before, and started
// by nobody until a margin after.
func (h *history) order(broke func(string, string, string, ...any)) {
	type span struct{ from, to time.Time }
	ready := make([]map[string]span, len(h.ranks))
	rank := func(id string) int {
		return slices.IndexFunc(h.ranks, func(r string) bool { return strings.HasPrefix(id, r) })
	}
	for i := range ready {
		ready[i] = make(map[string]span)
	}
	for _, e := range h.entries {
		r := rank(e.ID)
		if r < 0 {
			continue
		}
		s := ready[r][e.ID] // a handler's first word may come before the enqueue's last
		if e.Op == enqueue && e.Phase == ok && s.from.IsZero() {
			s.from = e.At
		} else if e.Op == handle && e.Phase == invoke && s.to.IsZero() {
			s.to = e.At
		}
		ready[r][e.ID] = s
	}
	for _, e := range h.entries {
		r := rank(e.ID)
		if e.Op != handle || e.Phase != invoke || e.Attempt != 1 {
			continue
		}
		for higher := 0; higher < r; higher++ {
			for id, s := range ready[higher] {
				if !s.from.IsZero() && s.from.Add(orderMargin).Before(e.At) &&
					(s.to.IsZero() || s.to.After(e.At.Add(orderMargin))) {
					broke("I10 order", e.ID, "started at %s although %s was ready from %s to %s", e.At, id, s.from,
						s.to)
				}
			}
		}
	}
}

// weights compares what was started of each channel with its share, for as long as all had something (I10). What is
// enqueued before the first start counts.
func (h *history) weights(broke func(string, string, string, ...any)) {
	if h.shares == nil {
		return
	}
	left, sum := make(map[string]int), 0
	of := func(id string) string {
		for prefix := range h.shares {
			if strings.HasPrefix(id, prefix) {
				return prefix
			}
		}
		return ""
	}
	for _, weight := range h.shares {
		sum += weight
	}
	started, n := make(map[string]int), 0
	for _, e := range h.entries {
		switch prefix := of(e.ID); {
		case prefix == "":
		case e.Op == enqueue && e.Phase == ok && n == 0:
			left[prefix]++
		case e.Op == handle && e.Phase == invoke:
			n++
			started[prefix]++
			if left[prefix]--; left[prefix] > 0 {
				continue
			}
			for prefix, weight := range h.shares { // the first one to run out ends it
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

// liveness compares what was counted before and after, and finds what somebody who shut down in order has left behind
// (I11).
func (h *history) liveness(broke func(string, string, string, ...any)) {
	before, owner, clean := make(map[[3]string]int), make(map[string]string), make(map[string]bool)
	for _, e := range h.entries {
		k := [3]string{e.Op, e.ID, e.By}
		if e.Op == "started" || e.Op == "handed-over" {
			name, _, _ := strings.Cut(e.Note, " ")
			owner[name] = e.By
		}
		switch {
		case e.Op == closed:
			clean[e.By] = e.Phase == ok
		case e.Op == remains && clean[owner[e.Note]]:
			broke("I11 liveness", "", "%s of %s, who shut down in order, is still in %s", e.Note, owner[e.Note], e.ID)
		case e.Op != count && e.Op != pace:
		case e.Phase == invoke:
			before[k] = e.N
		case e.Op == count && e.N > before[k]:
			broke("I11 liveness", "", "%s of %s: %d, and %d before %s", e.ID, e.By, e.N, before[k], e.Note)
		case e.Op == pace && e.N*10 < before[k]*9:
			broke("I11 liveness", "", "%s: %d a second, and %d before", e.ID, e.N, before[k])
		}
	}
}

// percentile of some durations; 0 of none.
func percentile(ds []time.Duration, p int) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[min(len(s)-1, (len(s)*p+99)/100-1)]
}
