package worker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/link"
)

// Order says in which order a receiver of several channels asks them.
type Order struct {
	weights []int       // nil: strict
	blind   atomic.Bool // whether the channels above have something may not be asked without a script

	mu sync.Mutex
	// smooth weighted round robin, as nginx does it: over any sum-of-weights starts each has exactly its share
	credit []int
}

// NewOrder is strict without weights; with them each channel gets its share.
func NewOrder(weights []int) *Order {
	return &Order{weights: weights, credit: make([]int, len(weights))}
}

func (o *Order) strict() bool { return o != nil && o.weights == nil }

// turn is the channels that are open, of all, in the order to ask them now.
func (o *Order) turn(all, open []*Channel) []*Channel {
	if o.weights == nil {
		return open
	}
	o.mu.Lock()
	next, sum := 0, 0
	for i, w := range o.weights {
		o.credit[i] += w
		sum += w
		if o.credit[i] > o.credit[next] {
			next = i
		}
	}
	o.credit[next] -= sum
	o.mu.Unlock()
	i := slices.Index(open, all[next])
	if i <= 0 {
		return open
	}
	turn := make([]*Channel, 0, len(open))
	turn = append(turn, open[i])
	return append(append(turn, open[:i]...), open[i+1:]...)
}

// guess is the number, in their turn, of the channel to try without a script. In strict order it is the first that had
// something lately, else only the one whose turn it is. -1: none.
func (o *Order) guess(turn []*Channel) int {
	for i, in := range turn {
		if in.nonEmptyLately.Load() {
			return i
		}
		if !o.strict() || o.blind.Load() {
			break
		}
	}
	return -1
}

// claim gives the next item to handle, begun, unless the receiver may start nothing now.
func (s *worker) claim(turn int32) *Item {
	if !s.r.mayStart(s.now) {
		return nil
	}
	s.mu.Lock()
	next := s.next()
	if s.r.Stopped() { // asked under mu, because End hands back what has not begun then
		next = nil
	}
	begin := next != nil && next.Extra != nil && !next.begun
	strict := s.r.order.strict()
	ask := next != nil && !begin && !next.asked && next.Channel.Index > 0 && strict
	more := false
	if next != nil && !begin && !ask {
		s.begin(next, turn)
		more = len(s.items) > 1
		for i := 0; strict && i < len(s.items); i++ {
			s.items[i].asked = false // what comes after it asks anew
		}
	}
	s.mu.Unlock()
	switch {
	case begin:
		if !s.start(next.Channel) {
			return nil
		}
		return s.claim(turn)
	case ask:
		return s.askHigher(next, turn)
	}
	if more {
		s.r.watcher.note(next.Started.Add(Stall))
	}
	return next
}

// next is the item to start next: the first, or in strict order the first of the highest channel. s.mu is held.
func (s *worker) next() (next *Item) {
	for _, it := range s.items {
		if it.state == queued && (next == nil || it.Channel.Index < next.Channel.Index) {
			if next = it; !s.r.order.strict() {
				break
			}
		}
	}
	return next
}

// askHigher asks, before an item starts that a waiter brought or that was taken while they had something, the
// channels above its own once more. What they have is started in its place, and the item goes back to where it
// came from.
func (s *worker) askHigher(it *Item, turn int32) *Item {
	r := s.r
	call := link.NewCall()
	if !r.enter() {
		return nil
	}
	if r.Stopped() {
		r.leave()
		return nil
	}
	t := takes{slot: s, n: 1, script: true, origin: new(takeBatch)}
	for _, in := range r.channels[:it.Channel.Index] {
		if !in.unreadable.lasts(time.Now()) {
			t.from = append(t.from, in)
		}
	}
	asked := true
	if len(t.from) > 0 {
		t.ask(call)
		r.exchange(call)
		s.now = time.Now()
		_, err := t.receive(call.Replies, call.Order)
		r.breaker.Judge(err)
		asked = err == nil && link.Classify(call.Replies[0].Err) == link.Done
	}
	s.mu.Lock()
	revoked := it.state != queued
	it.asked = asked
	if t.got > 0 && !revoked {
		it.decide(custody.Release)
	}
	s.mu.Unlock()
	r.leave()
	if t.got > 0 && !revoked {
		s.release(it)
	} else if !it.asked {
		return nil // the next step comes when the breaker lets it
	}
	return s.claim(turn)
}

// release hands an item back at once; if that fails its verdict is sent with the next step's.
func (s *worker) release(it *Item) {
	r := s.r
	call := link.NewCall()
	if !r.enter() {
		return // the handover, or the next step, sees to it
	}
	defer r.leave()
	s.mu.Lock()
	var sent dispatches
	if it.isDecided() {
		s.send(&sent, call, it)
	}
	s.mu.Unlock()
	if len(sent.all) > 0 {
		r.exchange(call)
		r.breaker.Judge(s.settle(call.Replies, &sent))
	}
}
