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

	"github.com/shuntmq/shunt"
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

	// Where the server's clock was set, one for later may be there twice: its time has come between its two sendings.
	asked time.Time // the last enqueue
	again int       // of those that are known or perhaps, these may have been sent twice
}

// soonestAgain is after how long an enqueue is sent again whose reply was lost.
const soonestAgain = 18 * time.Millisecond

// most is how many there may be of it.
func (s *subject) most() int { return s.known + s.info + s.again }

// check is what is known of a history while it is judged.
type check struct {
	h       *History
	v       *Verdict
	all     map[string]*subject
	spare   map[string]bool      // of which it is not said that they are lost
	acks    map[string]int       // by serial
	serials map[string]string    // to ids
	ends    map[string]bool      // processes that handled, and whether they have said all
	bounded map[string]time.Time // Deadlines, by id
	mute    map[string]bool      // whose events did not all fit
	whole   bool                 // everybody has said all
}

// Check judges a history by the invariants.
func Check(h *History) *Verdict {
	names := h.names()
	c := &check{h: h, v: &Verdict{Faults: make(map[string]int)}, all: make(map[string]*subject), spare: names.spare(),
		acks: make(map[string]int), serials: make(map[string]string), ends: make(map[string]bool),
		mute: make(map[string]bool)}
	h.expiring(c.spare)
	h.trimmed(c.spare)
	h.follow(c.spare)
	for _, e := range h.Entries {
		c.tells(e)
		c.counts(e)
	}
	c.whole = true
	for by := range c.ends {
		c.ends[by] = c.ends[by] && !c.mute[by]
		c.whole = c.whole && c.ends[by]
	}
	c.bounded = h.deadlines(c.broke)
	c.places()
	for _, id := range c.ids() {
		c.conserved(id, c.all[id])
	}
	c.poisoned()
	h.leased(c.v, c.all, c.broke)
	h.counted(c.v, c.all, c.whole, c.broke)
	c.doubled()
	h.unexplained(c.all, c.broke)
	h.kept(c.broke)
	h.silent(c.ends, c.broke)
	h.named(names, c.spare, c.broke)
	h.judgements(c.broke)
	h.stranded(c.spare, c.broke)
	h.times(c.v, c.broke)
	h.order(c.broke)
	h.weights(c.broke)
	h.liveness(c.broke)
	return c.v
}

// of is the subject of an id.
func (c *check) of(id string) *subject {
	s := c.all[id]
	if s == nil {
		s = &subject{done: make(map[int]int)}
		c.all[id] = s
	}
	return s
}

// ids are those of all subjects, in order.
func (c *check) ids() []string { return slices.Sorted(maps.Keys(c.all)) }

// broke notes that an invariant does not hold, with the story of the id.
func (c *check) broke(invariant, id, what string, args ...any) {
	b := breach{invariant: invariant, id: id, what: fmt.Sprintf(what, args...)}
	if s := c.all[id]; s != nil {
		b.story = s.story
	}
	c.v.breaches = append(c.v.breaches, b)
}

// tells adds an entry to the story of its message, which it names or of which it has the serial.
func (c *check) tells(e Entry) {
	if e.ID != "" && (e.Op == Enqueue || e.Op == Handle || e.Op == Pulled) {
		s := c.of(e.ID)
		s.story = append(s.story, e)
		if e.Serial != "" {
			c.serials[e.Serial] = e.ID
		}
		return
	}
	id, known := c.serials[e.Serial]
	if !known || e.Serial == "" {
		return
	}
	s := c.all[id]
	s.story = append(s.story, e)
	switch e.Op {
	case "acked":
		s.acked++
	case "unconfirmed-verdict":
		s.doubt++
	case "late-verdict":
		// A failure that its handler returned too late leaves the message as it is, and no doubt of that.
		if strings.HasSuffix(e.Note, shunt.ErrLeaseLost.Error()) {
			s.doubt++
		}
	case Answered:
		if e.Phase != OK {
			s.doubt++
		}
	}
}

// counts counts an entry.
func (c *check) counts(e Entry) {
	switch e.Op {
	case Enqueue:
		s := c.of(e.ID)
		if e.Phase == Invoke {
			s.asked = e.At
		} else if c.h.Stepped && !e.Due.IsZero() && e.At.Sub(s.asked) >= soonestAgain {
			s.again++
		}
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
		s := c.of(e.ID)
		if _, heard := c.ends[e.By]; !heard {
			c.ends[e.By] = false
		}
		s.bare = s.bare || e.Serial == ""
		if e.Phase == OK || e.Phase == Fail {
			s.done[e.Attempt]++
		}
		if e.Phase == OK {
			s.ok++
		}
	case "acked":
		c.v.Acked++
		id := c.serials[e.Serial]
		if c.acks[e.Serial]++; c.acks[e.Serial] == 2 && e.Serial != "" && !c.h.Lossy && c.of(id).again == 0 {
			c.broke("I4 double ack", id, "serial %s", e.Serial)
		}
	case "late-verdict", "unconfirmed-verdict":
		c.v.LateAcks++
	case Fault:
		c.v.Faults[e.ID]++
		c.v.Allowed += e.N
	case Closed:
		c.ends[e.By] = true
	case "events-dropped":
		c.mute[e.By] = true
	}
}

// places takes in what is left in Redis. I7: nothing is left in a doing list. I2: nor anywhere else but in dead.
func (c *check) places() {
	for _, p := range c.h.Left {
		s := c.of(p.ID)
		s.left++
		s.story = append(s.story,
			Entry{At: time.Now(), Op: "left in " + p.Key, Phase: Info, ID: p.ID, N: p.Recoveries, Note: p.Failure})
		if p.State == "dead" {
			s.dead++
			c.v.Dead++
		}
	}
	for _, p := range c.h.Left {
		switch {
		case p.State == "doing":
			c.v.Orphaned++
			c.broke("I7 orphaned", p.ID, "in %s", p.Key)
		case p.State != "dead":
			c.broke("I2 not drained", p.ID, "in %s", p.Key)
		}
	}
}

// conserved judges what became of one id: I1, I3, I5, I6 and I12.
func (c *check) conserved(id string, s *subject) {
	h, v := c.h, c.v
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
		c.broke("I3 unexpected", id, "nobody enqueued it")
		return
	}
	if s.known == 0 && s.info > 0 && seen > 0 {
		v.Recovered++
	}
	if missing := s.known - s.ok - s.left; missing > 0 && !c.spare[id] {
		v.Lost += missing
		if !h.Lossy {
			c.broke("I1 lost", id, "enqueued %d times, handled to the end %d times, and %d times in Redis", s.known,
				s.ok, s.left)
		}
	}
	// Each enqueue is in one place: in Redis, or taken out of it by one ack.
	if over := s.left + s.acked - s.most(); !h.Lossy &&
		(over > 0 || c.whole && !s.bare && !c.spare[id] && s.known > s.left+s.acked+s.doubt) {
		c.broke("I6 conservation", id,
			"enqueued %d times (%d more perhaps), acked %d times (%d more perhaps), and %d times in Redis",
			s.known, s.info, s.acked, s.doubt, s.left)
	}
	for attempt, n := range s.done {
		if extra := n - s.most(); extra > 0 && s.known+s.info > 0 {
			v.Duplicated += extra
			if v.Allowed == 0 {
				c.broke("I5 duplicated", id, "attempt %d came to an end %d times", attempt, n)
			}
		}
	}
	poisonous := s.plan == PlanKill
	if _, bounded := c.bounded[id]; s.dead > 0 && !bounded && !poisonous && !strings.HasPrefix(s.plan, PlanReject) {
		c.broke("I12 poison", id, "an innocent is dead")
	}
	if poisonous && s.known > 0 && s.dead == 0 {
		c.broke("I12 poison", id, "what kills is not dead")
	}
}

// poisoned judges how often what kills has killed before it was dead (I12).
func (c *check) poisoned() {
	for _, p := range c.h.Left {
		counted := strings.Contains(p.Failure, "dying process") || strings.Contains(p.Failure, "whose process died")
		if s := c.all[p.ID]; p.State == "dead" && s.plan == PlanKill && (p.Recoveries != poisonTimes || !counted) {
			c.broke("I12 poison", p.ID, "dead after %d recoveries because %q", p.Recoveries, p.Failure)
		}
	}
}

// doubled tells of each duplicate where there are more than the faults allow (I5).
func (c *check) doubled() {
	if v := c.v; v.Allowed == 0 || v.Duplicated <= v.Allowed {
		return
	}
	for _, id := range c.ids() {
		s := c.all[id]
		for attempt, n := range s.done {
			if n > s.known+s.info && s.known+s.info > 0 {
				c.broke("I5 duplicated", id,
					"attempt %d came to an end %d times, and in all %d more than the %d allowed", attempt, n,
					c.v.Duplicated, c.v.Allowed)
			}
		}
	}
}
