package worker

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
)

// hand is what a worker holds.
type hand struct {
	mu         sync.Mutex
	items      []*Item      // the one taken first first
	refused    link.Holdoff // of its own verdicts, whatever Redis answers other workers
	sendSingly uint64       // the lanes of which what is over goes one by one next time, as bits by their index
	// by site, after its Redis has refused to mark the worker's messages as begun, whatever it answers others
	unmarked map[*lane.Site]link.Holdoff
	kept     struct { // for its memory
		over []*Item       // collect's
		evs  []event.Event // settle's
	}
}

// busy says whether something is held.
func (h *hand) busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.items) > 0
}

// holds says whether something of some lanes is held.
func (h *hand) holds(of uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.items, func(it *Item) bool { return of&(1<<it.Lane.Index) != 0 })
}

// allLanes is every lane, as bits by their index.
const allLanes = math.MaxUint64

// barred are the lanes, as bits by their index, that may not be taken from because of what is held: that has to be
// decided, and free to be sent. What waits for a site bars the lanes of that site. stuck: there is a verdict that only
// a person can free. It bars its lane alone, where there are several.
func (h *hand) barred(now time.Time, several bool) (bars uint64, stuck bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range h.items {
		switch l := it.Lane; {
		case it.state == judging || it.isDecided():
		case it.isRefused() && several && it.rare != nil && !it.rare.refused.IsZero():
			bars, stuck = bars|1<<l.Index, true
		case it.isRefused(), it.state == unknown, it.state == queued && (!h.mayStart(it, now) || l.Site.Breaker.On()):
			bars |= l.Site.Mask
		default:
			return allLanes, false
		}
	}
	return bars, stuck
}

// next is the item to start next, of those that may be started and are of some lanes: the first, or in strict order the
// first of the highest lane. mu is held.
func (h *hand) next(now time.Time, of uint64, strict bool) (next *Item) {
	for _, it := range h.items {
		if l := it.Lane; it.state == queued && (next == nil || l.Index < next.Lane.Index) && of&(1<<l.Index) != 0 &&
			h.mayStart(it, now) {
			if next = it; !strict {
				break
			}
		}
	}
	return next
}

// mayStart says whether one may be started now. One that has yet to be marked waits after a mark that was refused. mu
// is held.
func (h *hand) mayStart(it *Item, now time.Time) bool {
	return it.Lane.MayStart(now) && (it.Extra == nil || it.begun || h.mayMark(it.Lane.Site))
}

// mayMark says whether no mark was refused lately at a site. mu is held.
func (h *hand) mayMark(site *lane.Site) bool {
	wait := h.unmarked[site]
	return wait.Left() <= 0
}

// markRefused takes in that a site has refused a mark. The wait is this worker's own, for what other workers send may
// succeed, and end the breaker's wait. mu is held.
func (h *hand) markRefused(site *lane.Site, err error) {
	if h.unmarked == nil {
		h.unmarked = make(map[*lane.Site]link.Holdoff)
	}
	wait := h.unmarked[site]
	wait.Refuse(err)
	h.unmarked[site] = wait
}

// ready says whether something of some lanes is held that may be started.
func (h *hand) ready(now time.Time, of uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next(now, of, false) != nil
}

// mustSendSingly says whether something is decided that was to leave together and has to go one by one.
func (h *hand) mustSendSingly() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.items, func(it *Item) bool { return it.isDecided() && h.sendsSingly(it.Lane) })
}

// sendsSingly says whether what is over of a lane goes one by one. mu is held.
func (h *hand) sendsSingly(l *lane.Lane) bool { return h.sendSingly&(1<<l.Index) != 0 }

// clearHoldoff ends the wait for refused verdicts where none is left. mu is held.
func (h *hand) clearHoldoff() {
	if !slices.ContainsFunc(h.items, (*Item).isRefused) {
		h.refused = link.Holdoff{}
	}
}
