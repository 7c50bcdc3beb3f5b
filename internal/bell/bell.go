// Package bell wakes those who wait for messages of a channel without a receiver. A bell is a blocking move of the
// element to be taken next onto its own place. It returns when there is one, and has moved nothing: so nobody owes
// anything when a connection breaks, and no element is late because the one who waited for it has gone.
package bell

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	// block is how long a bell waits at most. Then it sends one caller to look for what rings no bell, a suspect.
	block = 5 * time.Second
	// shortBlock is that of a bell that nobody can unblock: so long the end of a Tower may take.
	shortBlock = time.Second
	// embeddedBlock is the same of a server in this process, which notices the end of a block at once.
	embeddedBlock = 50 * time.Millisecond
	// linger is how long a bell keeps its connection while nobody waits.
	linger = 5 * time.Second
	// pollEvery is how often channels are asked that have no bell of their own.
	pollEvery = 100 * time.Millisecond
	// refusedFor is how long a channel is polled after the server has refused the blocking move.
	refusedFor = 10 * time.Second
	// maxPause bounds the wait after rings that have brought nobody anything.
	maxPause = time.Second
)

// Tower has the bells of the channels on one server. Safe for concurrent use.
type Tower struct {
	server  *link.Server
	timeout time.Duration // for a reply
	most    int

	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	bells   map[string]*bell
	hung    int // bells with a connection
	polling bool
}

// bell is one channel for which somebody waits. Its tower's mu guards it.
type bell struct {
	keys    *store.Keys
	callers []*Caller // first come, first served
	awake   int       // callers that were woken and have not answered
	empty   int       // rings in a row that have brought nobody anything
	rest    time.Time // after such rings: when to ask again
	looked  time.Time // when a caller was last woken
	hung    bool      // it has a connection, and a goroutine
	changed chan struct{}
	id      func() int64 // of the connection, for CLIENT UNBLOCK
}

// Caller is one who waits, for one or more channels.
type Caller struct {
	C     chan struct{} // of capacity 1: take now, and answer with Took
	tower *Tower
	bells []*bell
	woken *bell // by which it was woken; nil: it has answered
}

// New starts nothing until the first Join. timeout is for a reply. At most so many bells have a connection of their
// own.
func New(server *link.Server, timeout time.Duration, most int) *Tower {
	t := &Tower{server: server, timeout: timeout, most: most, bells: make(map[string]*bell)}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// Close ends all bells; a caller that still waits is woken no more.
func (t *Tower) Close() {
	t.end()
	ended := make(chan struct{})
	go func() { t.running.Wait(); close(ended) }()
	for {
		t.mu.Lock()
		var ids []int64
		for _, b := range t.bells {
			if b.hung && b.id() != 0 {
				ids = append(ids, b.id())
			}
		}
		t.mu.Unlock()
		for _, id := range ids {
			if store.Unblock(context.Background(), t.server.Pulse, id) {
				ids = nil // the server does not allow it
				break
			}
		}
		again := time.After(10 * time.Millisecond)
		if len(ids) == 0 {
			again = nil
		}
		select {
		case <-ended:
			return
		case <-again:
		}
	}
}

// Join has the caller woken when one of the channels has something. It looks itself before it waits.
func (t *Tower) Join(ks []*store.Keys) *Caller {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &Caller{C: make(chan struct{}, 1), tower: t}
	for _, k := range ks {
		b := t.bells[k.Name]
		if b == nil {
			b = &bell{keys: k, changed: make(chan struct{}, 1)}
			t.bells[k.Name] = b
		}
		b.callers = append(b.callers, c)
		c.bells = append(c.bells, b)
		b.change()
		t.serve(b)
	}
	return c
}

// serve gives a bell a connection, or has it polled. mu is held.
func (t *Tower) serve(b *bell) {
	switch {
	case b.hung || t.ctx.Err() != nil:
	case t.hung < t.most:
		t.hung++
		b.hung = true
		w := link.NewWaiter(t.server.Node, t.timeout)
		b.id = w.ID
		t.running.Go(func() { t.ring(b, w) })
	case !t.polling:
		t.polling = true
		t.running.Go(t.poll)
	}
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
	c.answer(some)
}

// answer is Took; mu is held.
func (c *Caller) answer(some bool) {
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
	woken := c.woken
	for _, b := range c.bells {
		b.callers = slices.DeleteFunc(b.callers, func(o *Caller) bool { return o == c })
	}
	if woken != nil {
		c.woken = nil
		woken.wake(1)
		woken.awake--
		woken.change()
	}
	for _, b := range c.bells {
		if len(b.callers) == 0 && !b.hung {
			delete(t.bells, b.keys.Name)
		}
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
func (t *Tower) ring(b *bell, w *link.Waiter) {
	defer w.Close()
	refused := time.Time{} // until then it is polled
	timer := time.NewTimer(0)
	defer timer.Stop()
	idle := false
	for {
		t.mu.Lock()
		ready, wait := b.due(time.Now())
		if len(b.callers) == 0 && idle || t.ctx.Err() != nil {
			t.unhang(b)
			t.mu.Unlock()
			return
		}
		idle = len(b.callers) == 0
		t.mu.Unlock()
		if !ready {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-b.changed:
				idle = false
			case <-t.ctx.Done():
			}
			continue
		}
		switch {
		case time.Now().Before(refused):
			if link.Sleep(t.ctx, link.Jitter(pollEvery)) == nil && t.ask([]*bell{b}) {
				continue
			}
		case w.Connect(t.ctx) != nil: // Dial has waited
		case t.await(b, w):
			refused = time.Now().Add(refusedFor)
		}
	}
}

// await blocks until the channel has something, or for some time. refused: the server does not allow that.
func (t *Tower) await(b *bell, w *link.Waiter) (refused bool) {
	d := block
	if w.ID() == 0 {
		if d = shortBlock; w.Embedded() {
			d = embeddedBlock
		}
	}
	some, err := store.AwaitNext(w, b.keys, d)
	switch class := link.Classify(err); {
	case class == link.Unknown:
		return false // it has moved nothing: the next one finds what this one would have found
	case class != link.Done:
		return link.Code(err) != "UNBLOCKED"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if some || time.Since(b.looked) >= block { // a caller looks for suspects now and then
		b.wake(1)
	}
	return false
}

// unhang takes a bell's connection away, and gives it to one that is polled. mu is held.
func (t *Tower) unhang(b *bell) {
	b.hung = false
	t.hung--
	if len(b.callers) == 0 {
		delete(t.bells, b.keys.Name)
	}
	for _, o := range t.bells {
		if !o.hung && len(o.callers) > 0 {
			t.serve(o)
			return
		}
	}
}

// poll is the goroutine that asks all channels without a bell of their own, in one pipeline.
func (t *Tower) poll() {
	for link.Sleep(t.ctx, link.Jitter(pollEvery)) == nil {
		var some []*bell
		waiting := false
		t.mu.Lock()
		for _, b := range t.bells {
			if b.hung {
				continue
			}
			waiting = true
			if is, _ := b.due(time.Now()); is {
				some = append(some, b)
			}
		}
		t.polling = waiting
		t.mu.Unlock()
		if !waiting {
			return
		}
		t.ask(some)
	}
	t.mu.Lock()
	t.polling = false
	t.mu.Unlock()
}

// ask wakes a caller of each of some channels that has something. It says whether Redis has answered.
func (t *Tower) ask(some []*bell) bool {
	if len(some) == 0 {
		return true
	}
	c := link.NewCall()
	for _, b := range some {
		store.AddWaiting(c, b.keys)
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	if t.server.Data.Run(ctx, c); !c.Answered {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, b := range some {
		if n, _ := store.CountReply(c.Replies[i]); n > 0 {
			b.wake(1)
		}
	}
	return true
}

// Waiting counts the callers that wait for some channel.
func (t *Tower) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[*Caller]bool)
	for _, b := range t.bells {
		for _, c := range b.callers {
			all[c] = true
		}
	}
	return len(all)
}
