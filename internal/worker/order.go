package worker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

// Order says in which order a receiver of several channels asks them.
type Order struct {
	weights []int       // nil: strict
	blind   atomic.Bool // whether the channels above have something may not be asked without a script

	mu     sync.Mutex
	credit []int // smooth weighted round robin, as nginx does it: over any sum-of-weights starts each has exactly its share
}

// NewOrder is strict without weights; with them each channel gets its share.
func NewOrder(weights []int) *Order {
	return &Order{weights: weights, credit: make([]int, len(weights))}
}

func (o *Order) strict() bool { return o != nil && o.weights == nil }

// turn is the channels in the order to ask them now.
func (o *Order) turn(all []*Channel) []*Channel {
	if o.weights == nil {
		return sound(all)
	}
	o.mu.Lock()
	first, sum := 0, 0
	for i, w := range o.weights {
		o.credit[i] += w
		sum += w
		if o.credit[i] > o.credit[first] {
			first = i
		}
	}
	o.credit[first] -= sum
	o.mu.Unlock()
	turn := make([]*Channel, 0, len(all))
	turn = append(turn, all[first])
	for i, in := range all {
		if i != first {
			turn = append(turn, in)
		}
	}
	return sound(turn)
}

// guess is the number, in their turn, of the channel to try without a script: in strict order the first that had something lately, else only
// the one whose turn it is. -1: none.
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

// sound leaves out the channels that lately could not be read, for a key of a wrong type or a missing right, so that they do not
// stop the others; if none is left, all.
func sound(all []*Channel) []*Channel {
	if left := readable(all); len(left) > 0 {
		return left
	}
	return all
}

// readable is sound, and nothing where none is left.
func readable(all []*Channel) []*Channel {
	now := time.Now().UnixNano()
	bad := func(in *Channel) bool { return now < in.unreadableUntil.Load() }
	if !slices.ContainsFunc(all, bad) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), bad)
}

// askHigher asks, before an item starts that a waiter brought or that was taken while they had something, the channels above its own
// once more. What they have is started in its place, and the item goes back to where it came from.
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
	t := takes{slot: s, n: 1, script: true, from: readable(r.channels[:it.Channel.Index]), origin: new(takeBatch)}
	asked := true
	if len(t.from) > 0 {
		s.addTake(call, t.from, nil, 1)
		r.exchange(call)
		s.now = time.Now()
		_, err := t.receive(call.Replies, call.Order)
		r.breaker.Judge(err)
		asked = err == nil && link.Classify(call.Replies[0].Err) == link.Done
	}
	s.mu.Lock()
	revoked := it.state != waiting
	it.asked = asked
	if t.got > 0 && !revoked {
		it.state, it.verdict = decided, release
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
	mine := it.state == decided
	if mine {
		it.state = sending
		s.command(call, it, it.Channel.doing[s.n])
	}
	s.mu.Unlock()
	if mine {
		r.exchange(call)
		r.breaker.Judge(s.settle(call.Replies, []*Item{it}))
	}
}
