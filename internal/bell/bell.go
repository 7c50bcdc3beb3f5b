// Package bell wakes those who wait for messages of a channel without a receiver. A bell is a blocking move of the
// element to be taken next onto its own place. It returns when there is one, and has moved nothing: so nobody owes
// anything when a connection breaks, and no element is late because the one who waited for it has gone.
package bell

import (
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	// block is how long a bell waits at most. Then it sends one caller to look for what rings no bell, a suspect.
	block = 5 * time.Second
	// shortBlock is that of a bell whose socket is not known: for so long Close may have to wait.
	shortBlock = time.Second
	// linger is how long a bell keeps its connection while nobody waits.
	linger = 5 * time.Second
	// refusedFor is how long a channel is polled after the server has refused the blocking move.
	refusedFor = 10 * time.Second
	// maxBroken is after how many connections that were lost in a row a channel is polled, too.
	maxBroken = 3
	// maxPause bounds the wait after rings that have brought nobody anything.
	maxPause = 100 * time.Millisecond
)

// bell is one channel for which somebody waits. Its tower's mu guards it.
type bell struct {
	keys    *store.Keys
	callers []*Caller    // first come, first served
	awake   int          // callers that were woken and have not answered
	empty   int          // rings in a row that have brought nobody anything
	rest    time.Time    // after such rings: when to ask again
	looked  time.Time    // when a caller was last woken
	refused time.Time    // the server has refused the blocking move: until then it is polled
	line    *link.Waiter // its connection, of its goroutine; nil: it is polled
	broken  int          // connections in a row that ended at the blocking move
	changed chan struct{}
}

// Caller is one who waits, for one or more channels.
type Caller struct {
	C     chan struct{} // of capacity 1: take now, and answer with Took
	tower *Tower
	bells []*bell
	woken *bell // by which it was woken; nil: it has answered
}

// change sends the bell's goroutine to look again. mu is held.
func (b *bell) change() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// wake wakes up to n callers that are not awake. mu is held.
func (b *bell) wake(n int) {
	for _, c := range b.callers {
		if n == 0 {
			return
		}
		if c.woken == nil {
			c.woken = b
			b.awake++
			b.looked = time.Now()
			n--
			c.C <- struct{}{}
		}
	}
}

// answered takes in that a caller which was woken has looked. mu is held.
func (b *bell) answered(some bool) {
	b.awake--
	if some { // there may be more: twice as many look next
		b.empty, b.rest = 0, time.Time{}
		b.wake(2)
	}
	if b.awake > 0 {
		return
	}
	if !some {
		pause := min(time.Millisecond<<min(b.empty, 10), maxPause)
		if b.empty == 0 {
			pause = 0 // another was faster
		}
		b.empty++
		b.rest = time.Now().Add(pause)
	}
	b.change()
}

// Took answers a wake: some says that the caller has taken something. Without a wake it does nothing.
func (c *Caller) Took(some bool) {
	t := c.tower
	t.mu.Lock()
	defer t.mu.Unlock()
	b := c.woken
	if b == nil {
		return
	}
	select {
	case <-c.C: // it has looked by chance, before it heard
	default:
	}
	c.woken = nil
	b.answered(some)
	for _, o := range c.bells {
		o.change() // it may be woken by others again
	}
}

// Leave ends the wait. A wake that was not answered goes to the next caller.
func (c *Caller) Leave() {
	t := c.tower
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range c.bells {
		b.callers = slices.DeleteFunc(b.callers, func(o *Caller) bool { return o == c })
	}
	if woken := c.woken; woken != nil {
		c.woken = nil
		woken.wake(1)
		woken.awake--
	}
	for _, b := range c.bells {
		b.change() // others may be woken now, or nobody waits any more
		t.forget(b)
	}
}

// due says whether a bell is to be asked now; if not, when. Where nobody waits, or somebody is awake who was woken by
// it, or all are who could be woken, a change comes first. mu is held.
func (b *bell) due(now time.Time) (bool, time.Duration) {
	switch {
	case len(b.callers) == 0:
		return false, linger
	case b.awake > 0, !slices.ContainsFunc(b.callers, func(c *Caller) bool { return c.woken == nil }):
		return false, time.Hour
	}
	wait := b.rest.Sub(now)
	return wait <= 0, wait
}

// ring is the goroutine of a bell with a connection.
func (t *Tower) ring(b *bell, line *link.Waiter) {
	defer line.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	idle := false
	for {
		t.mu.Lock()
		now := time.Now()
		ready, wait := b.due(now)
		if len(b.callers) == 0 && idle || b.refused.After(now) || t.ctx.Err() != nil {
			t.unhang(b)
			t.mu.Unlock()
			return
		}
		idle = len(b.callers) == 0
		t.mu.Unlock()
		if ready {
			t.await(b, line)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-b.changed:
			idle = false
		case <-t.ctx.Done():
		}
	}
}

// await blocks until the channel has something, or for some time.
func (t *Tower) await(b *bell, line *link.Waiter) {
	if line.Connect(t.ctx) != nil {
		return // Dial has waited
	}
	d := block
	if !t.isOpen() { // after Close nobody would end the wait
		return
	}
	if !line.CanAbort() {
		d = shortBlock
	}
	some, err := store.AwaitNext(line, b.keys, d)
	class := link.Classify(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case class == link.Unknown: // it has moved nothing: the next one finds what this one would have found
		if b.broken++; b.broken >= maxBroken { // by a server, or what lies before it, that ends the connection for it
			b.broken, b.refused = 0, time.Now().Add(refusedFor)
		}
	case class == link.Done:
		b.broken = 0
		if some || time.Since(b.looked) >= block { // a caller looks for suspects now and then
			b.wake(1)
		}
	case link.Code(err) != "UNBLOCKED":
		b.refused = time.Now().Add(refusedFor)
	}
}

// isOpen says that Close has not begun.
func (t *Tower) isOpen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ctx.Err() == nil
}
