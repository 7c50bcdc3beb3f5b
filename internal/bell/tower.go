package bell

import (
	"context"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// pollEvery is how often channels are asked that have no bell of their own.
const pollEvery = 100 * time.Millisecond

// Tower has the bells of the channels on one server. Safe for concurrent use.
type Tower struct {
	server  *link.Server
	timeout time.Duration // for a reply
	most    func() int    // bells with a connection

	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup // begun under mu, and not after the end

	mu      sync.Mutex
	bells   map[string]*bell
	hung    int // bells with a connection
	polling bool
}

// New starts nothing until the first Join. timeout is for a reply. At most so many bells have a connection of their
// own; most is asked with each new one.
func New(server *link.Server, timeout time.Duration, most func() int) *Tower {
	t := &Tower{server: server, timeout: timeout, most: most, bells: make(map[string]*bell)}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// Close ends all bells; a caller that still waits is woken no more. Of a pool that is not NewPool's, whose sockets are
// not known, Close waits for shortBlock and a reply.
func (t *Tower) Close() {
	t.mu.Lock()
	t.end()
	for _, b := range t.bells {
		if b.line != nil {
			b.line.Abort()
		}
	}
	t.mu.Unlock()
	t.running.Wait()
}

// Join has the caller woken when one of the channels has something. It looks itself before it waits.
func (t *Tower) Join(ks []*store.Keys) *Caller {
	room := t.most()
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &Caller{C: make(chan struct{}, 1), tower: t}
	for _, k := range ks {
		b := t.bells[k.Name]
		if b == nil {
			b = &bell{keys: k, looked: time.Now(), changed: make(chan struct{}, 1)}
			t.bells[k.Name] = b
		}
		b.callers = append(b.callers, c)
		c.bells = append(c.bells, b)
		b.change()
		t.serve(b, room)
	}
	return c
}

// serve gives a bell a connection, where there is room for one, or has it polled. mu is held.
func (t *Tower) serve(b *bell, room int) {
	switch {
	case b.line != nil || t.ctx.Err() != nil:
	case t.hung < room && !b.refused.After(time.Now()):
		t.hung++
		line := link.NewWaiter(t.server.Node, t.timeout)
		line.Own = true
		b.line = line
		t.running.Go(func() { t.ring(b, line) })
	case !t.polling:
		t.polling = true
		t.running.Go(t.poll)
	}
}

// unhang takes a bell's connection away. Where callers wait still, it is polled. mu is held.
func (t *Tower) unhang(b *bell) {
	b.line = nil
	t.hung--
	t.forget(b)
	if len(b.callers) > 0 {
		t.serve(b, 0)
	}
}

// forget drops a bell for which nobody waits, unless it has a connection, with which it lingers. mu is held.
func (t *Tower) forget(b *bell) {
	if len(b.callers) == 0 && b.line == nil && t.bells[b.keys.Name] == b {
		delete(t.bells, b.keys.Name)
	}
}

// poll is the goroutine that asks all channels without a bell of their own, in one pipeline. It gives them one when
// there is room again.
func (t *Tower) poll() {
	for link.Sleep(t.ctx, link.Jitter(pollEvery)) == nil {
		var some []*bell
		waiting, room := false, t.most()
		t.mu.Lock()
		for _, b := range t.bells {
			if t.serve(b, room); b.line != nil {
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
}

// ask wakes a caller of each of some channels that has something.
func (t *Tower) ask(some []*bell) {
	if len(some) == 0 {
		return
	}
	c := link.NewCall()
	for _, b := range some {
		store.AddWaiting(c, b.keys)
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	if t.server.Data.Run(ctx, c); !c.Answered {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, b := range some {
		if n, _ := store.CountReply(c.Replies[i]); n > 0 {
			b.wake(1)
		}
	}
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
