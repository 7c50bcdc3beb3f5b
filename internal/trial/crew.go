package trial

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// place is one worker of a process.
type place struct {
	by string
	n  int
}

// had is a message in the hands of a process.
type had struct{ by, id, serial string }

// crew follows who takes from which channel, and what each worker does. A worker is busy while handlers of its messages
// run, those of whole batches among them, and while a puller has what a Pull has brought. All workers of a process are,
// while a Pull of it decodes: nobody says whose that is. A rejection that Redis refuses, because dead has a foreign
// key, keeps its worker from the channel, as docs/design.md says. A Pull asks for suspects and for leases before it
// takes. One that meets a foreign key there takes nothing of that channel.
type crew struct {
	takers map[string]map[string]int // processes of each channel, and how many workers they have
	free   map[place]time.Time       // since when a worker has nothing to do
	busy   map[place]map[had]bool
	pulled map[string]place // ids that are in a puller's hands
	reads  map[string]int   // payloads that processes decode
	plans  map[string]string
	judged []rejection                    // that nobody has told of yet
	paused map[string][]pause             // processes
	unable map[string]map[place]time.Time // when a Pull met a foreign key that is in its way, by channel
}

// rejection is a verdict that a receiver has yet to tell of.
type rejection struct {
	had
	n       int
	refused bool
}

func newCrew(h *History) *crew {
	return &crew{takers: make(map[string]map[string]int), free: make(map[place]time.Time),
		busy: make(map[place]map[had]bool), pulled: make(map[string]place), reads: make(map[string]int),
		plans: make(map[string]string), paused: h.pauses(),
		unable: make(map[string]map[place]time.Time)}
}

func channelOf(id string) string {
	channel, _, _ := strings.Cut(id, "/")
	return channel
}

// hear takes in what was said next.
func (c *crew) hear(e Entry) {
	at, h := place{e.By, e.N}, had{e.By, e.ID, e.Serial}
	switch {
	case e.Op == Takes:
		if c.takers[e.ID] == nil {
			c.takers[e.ID] = make(map[string]int)
		}
		c.takers[e.ID][e.By] = e.N
		for n := range e.N {
			c.free[place{e.By, n}] = e.At
		}
	case e.Op == Closed, e.Op == Unclean, e.Op == Fault && e.Due.Equal(ForEver):
		c.leave(e.By)
	case e.Op == Enqueue && e.Phase == Invoke:
		c.plans[e.ID] = e.Note
	case e.Op == Pulled:
		c.pulled[e.ID] = at
		c.begin(at, had{e.By, "", "pull"})
	case e.Op == decodes:
		c.decodes(e)
	case e.Op == unpulled:
		c.meets(at, e)
	case e.Op == Settled:
		for id, by := range c.pulled {
			if by == at {
				delete(c.pulled, id)
			}
		}
		c.end(at, had{e.By, "", "pull"}, e.At)
	case e.Op == Gathered:
		c.begin(at, had{e.By, "", "batch"})
	case e.Op == Returned:
		c.end(at, had{e.By, "", "batch"}, e.At)
	case e.Op == Handle && e.Phase == Invoke:
		c.begin(at, h)
	case e.Op == Handle:
		c.end(at, h, e.At)
		if _, is := c.pulled[e.ID]; !is && e.Phase == Fail && c.rejects(e) {
			c.judged = append(c.judged, rejection{had: h, n: e.N})
		}
	case e.Op == "receiver-error" && strings.Contains(e.Note, "WRONGTYPE"):
		for i := range c.judged {
			c.judged[i].refused = c.judged[i].refused || c.judged[i].by == e.By
		}
	case e.Op == "rejected", e.Serial != "" &&
		(e.Op == "released" || e.Op == "late-verdict" || e.Op == "unconfirmed-verdict"):
		c.told(e)
	}
}

// decodes takes in that a process decodes a payload, or has done so.
func (c *crew) decodes(e Entry) {
	if e.Phase == Invoke {
		c.reads[e.By]++
		return
	}
	c.reads[e.By]--
	for at, since := range c.free {
		if at.by == e.By && since.Before(e.At) {
			c.free[at] = e.At
		}
	}
}

// rejects says whether a handling that failed has its message rejected.
func (c *crew) rejects(e Entry) bool {
	plan := c.plans[e.ID]
	return plan == PlanReject || plan == PlanTwice && e.Attempt > 1
}

func (c *crew) begin(at place, h had) {
	if c.busy[at] == nil {
		c.busy[at] = make(map[had]bool)
	}
	c.busy[at][h] = true
}

func (c *crew) end(at place, h had, now time.Time) {
	if delete(c.busy[at], h); len(c.busy[at]) == 0 {
		c.free[at] = now
	}
}

// told takes in what came of a rejection. Of a bare payload only "rejected" is surely of one, and nobody says of which:
// the last, for an older one waits for Redis.
func (c *crew) told(e Entry) {
	for i, r := range slices.Backward(c.judged) {
		if r.by == e.By && r.serial == e.Serial {
			c.free[place{r.by, r.n}] = e.At
			c.judged = slices.Delete(c.judged, i, i+1)
			return
		}
	}
}

// inTheWay is a foreign key for which a Pull takes nothing of a channel, as the error of that Pull names it.
var inTheWay = regexp.MustCompile(`the key \{(.+?)\}\.(suspect|leased) holds something that is not shunt's`)

// meets takes in that a Pull has failed.
func (c *crew) meets(at place, e Entry) {
	for _, m := range inTheWay.FindAllStringSubmatch(e.Note, -1) {
		channel := m[1]
		if c.unable[channel] == nil {
			c.unable[channel] = make(map[place]time.Time)
		}
		c.unable[channel][at] = e.At
	}
}

// leave forgets a process that has ended.
func (c *crew) leave(by string) {
	for _, of := range c.takers {
		delete(of, by)
	}
	for id, at := range c.pulled {
		if at.by == by {
			delete(c.pulled, id)
		}
	}
}

// barred says whether a worker may not take from a channel. A puller asks again and again.
func (c *crew) barred(at place, channel string, now time.Time) bool {
	if met, has := c.unable[channel][at]; has && now.Sub(met) < idles {
		return true
	}
	for _, r := range c.judged {
		if r.refused && r.by == at.by && r.n == at.n && channelOf(r.id) == channel {
			return true
		}
	}
	return false
}

// idles is how long a worker may have nothing to do while a message waits that it could take.
const idles = 100 * time.Millisecond

// passesOver says whether some worker could have taken a message. Where nobody takes from its channel, somebody should.
func (c *crew) passesOver(id string, now time.Time) bool {
	channel := channelOf(id)
	if _, has := c.pulled[id]; has {
		return false
	}
	for by, workers := range c.takers[channel] {
		if c.reads[by] > 0 || slices.ContainsFunc(c.paused[by], func(p pause) bool { return p.lasts(now) }) {
			continue
		}
		for n := range workers {
			at := place{by, n}
			if len(c.busy[at]) == 0 && now.Sub(c.free[at]) >= idles && !c.barred(at, channel, now) {
				return true
			}
		}
	}
	return len(c.takers[channel]) == 0
}
