package shunt

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/shuntmq/shunt/internal/store"
)

const (
	crowdsAtOnce = 2  // scripts of one channel that are under way
	crowdMost    = 32 // calls that go together
)

// crowd has concurrent calls of one kind to one channel go together: while some are under way the rest waits, and goes
// in one script. A script costs Redis about as much as three messages in it. A call that comes alone goes at once.
type crowd[T any] struct {
	q *Queue
	// send does what all of them ask for, and notes in each what came of it.
	send func(k *store.Keys, all []T)

	mu sync.Mutex
	of map[string]*gathering[T] // by channel, while something is under way
}

type gathering[T any] struct {
	underWay int
	waiting  []*goer[T]
}

// goer is one call that goes with others.
type goer[T any] struct {
	call T
	done chan struct{}
}

// went says how a call went.
type went int

const (
	alone   went = iota // nobody was there: the caller does it by itself, and calls over then
	along               // it was sent with others, and has its outcome
	stayed              // ctx ended before it was sent
	without             // ctx ended while it was under way: the caller does not look at it any more
)

// join has a call go with others, if some come at once. The caller is counted by Queue.begin. over is not nil where it
// goes alone.
func (c *crowd[T]) join(ctx context.Context, k *store.Keys, call T) (how went, over func()) {
	c.mu.Lock()
	g := c.of[k.Name]
	if g == nil {
		if c.of == nil {
			c.of = make(map[string]*gathering[T])
		}
		g = new(gathering[T])
		c.of[k.Name] = g
	}
	leads := g.underWay < crowdsAtOnce
	if leads {
		g.underWay++
		c.mu.Unlock()
		runtime.Gosched() // callers that were woken with it come along
		c.mu.Lock()
		if len(g.waiting) == 0 {
			c.mu.Unlock()
			return alone, func() { c.next(k, g) }
		}
	}
	m := &goer[T]{call: call, done: make(chan struct{})}
	g.waiting = append(g.waiting, m)
	c.mu.Unlock()
	if leads {
		c.next(k, g)
	}
	select {
	case <-m.done:
		return along, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(g.waiting, m); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return stayed, nil
	}
	return without, nil
}

// next sends those who wait, or gives the place back.
func (c *crowd[T]) next(k *store.Keys, g *gathering[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	some := slices.Clone(g.waiting[:min(len(g.waiting), crowdMost)])
	if len(some) == 0 {
		if g.underWay--; g.underWay == 0 {
			delete(c.of, k.Name)
		}
		return
	}
	g.waiting = slices.Delete(g.waiting, 0, len(some))
	c.q.waits.Add(1) // the caller is counted there
	go func() {
		defer c.q.waits.Done()
		defer c.next(k, g)
		calls := make([]T, len(some))
		for i, m := range some {
			calls[i] = m.call
		}
		c.send(k, calls)
		for _, m := range some {
			close(m.done)
		}
	}()
}
