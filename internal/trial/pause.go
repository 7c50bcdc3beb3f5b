package trial

import (
	"strings"
	"time"
)

// pause is a time in which a receiver takes nothing: Redis has cut its connection off, and it waits for its handover.
// What it has taken there and not begun lies in its lists until then, and nobody else can take it.
type pause struct {
	from, to time.Time
	back     int // messages that went back at the handover, of all its channels
}

func (p pause) lasts(now time.Time) bool { return !now.Before(p.from) && !now.After(p.to) }

// pauses are those of each process, until it has had the time to take something after the handover, or was killed
// before.
func (h *History) pauses() map[string][]pause {
	const longest = time.Second + idles
	cuts, all := make(map[string][]time.Time), make(map[string][]pause)
	live := make(map[string]string) // incarnation of each process
	back := make(map[string]int)    // by the incarnation to which the handover leads
	counted := make(map[string]int) // that were recovered from an incarnation
	for _, e := range h.Entries {
		if name, _, _ := strings.Cut(e.Note, " "); e.Op == "recovered" {
			counted[name] += e.N
		}
	}
	add := func(e Entry, to time.Time, back int) {
		for _, cut := range cuts[e.By] {
			if e.At.Sub(cut) <= longest {
				all[e.By] = append(all[e.By], pause{cut, to, back + counted[live[e.By]]})
				break
			}
		}
	}
	for _, e := range h.Entries {
		name, _, _ := strings.Cut(e.Note, " ")
		switch {
		case e.Op == Fault && e.Due.Equal(ForEver):
			add(e, e.At, 0)
		case e.Op == Fault && (e.ID == HungUp || e.ID == CutIdle):
			cuts[e.By] = append(cuts[e.By], e.At)
		case e.Op == "released":
			back[name] += e.N
		case e.Op == "started":
			live[e.By] = name
		case e.Op == "handed-over":
			add(e, e.At.Add(idles), back[name])
			live[e.By] = name
		}
	}
	return all
}

// overlooked are those of some ids that a worker could have taken. Where these are no more than what goes back when the
// pauses of now are over, they lie there.
func (c *crew) overlooked(ids map[string]Entry, now time.Time) (all []string) {
	of := make(map[string][]string)
	for id := range ids {
		if c.passesOver(id, now) {
			of[channelOf(id)] = append(of[channelOf(id)], id)
		}
	}
	for channel, some := range of {
		if len(some) > c.withheld(channel, now) {
			all = append(all, some...)
		}
	}
	return all
}

// withheld is how many messages lie, at most, with those who take from a channel and have been cut off.
func (c *crew) withheld(channel string, now time.Time) (n int) {
	for by := range c.takers[channel] {
		for _, p := range c.paused[by] {
			if p.lasts(now) {
				n += p.back
			}
		}
	}
	return n
}
