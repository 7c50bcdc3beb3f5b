package worker

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shuntmq/shunt/internal/lane"
)

// Order says in which order a receiver of several lanes asks them.
type Order struct {
	weights []int       // nil: strict
	blind   atomic.Bool // whether the lanes above have something may not be asked without a script

	mu sync.Mutex
	// smooth weighted round robin, as nginx does it: over any sum-of-weights starts each has exactly its share
	credit []int
}

// NewOrder is strict without weights; with them each lane gets its share.
func NewOrder(weights []int) *Order {
	return &Order{weights: weights, credit: make([]int, len(weights))}
}

func (o *Order) strict() bool { return o != nil && o.weights == nil }

// turn is the lanes that are open, of all, in the order to ask them now.
func (o *Order) turn(all, open []*lane.Lane) []*lane.Lane {
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
	turn := make([]*lane.Lane, 0, len(open))
	turn = append(turn, open[i])
	return append(append(turn, open[:i]...), open[i+1:]...)
}

// guess is the number, in their turn, of the lane to try without a script. In strict order it is the first that had
// something lately, else only the one whose turn it is. -1: none.
func (o *Order) guess(turn []*lane.Lane) int {
	for i, l := range turn {
		if l.NonEmptyLately.Load() {
			return i
		}
		if !o.strict() || o.blind.Load() {
			break
		}
	}
	return -1
}
