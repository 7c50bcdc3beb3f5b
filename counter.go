package shunt

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	// countEvery is how often a process adds what it has counted to what Redis keeps.
	countEvery = 10 * time.Second
	// countsAtOnce is how many channels one pipeline counts for.
	countsAtOnce = 100
)

// counter adds what this process counts to what Redis keeps. Where it counts nothing it asks Redis nothing.
type counter struct {
	q       *Queue
	process string
	book    *meter.Book // what is not counted by workers

	mu     sync.Mutex
	sums   map[string]*meter.Sums // that are to be sent, by channel
	sent   map[string]*flush      // that have no answer, by channel
	number int64
	told   map[string]bool // channels whose counts are refused, of which an Event has told
}

// flush is what is counted at once in a channel. Its number makes it count once.
type flush struct {
	channel string
	number  int64
	sums    *meter.Sums
	inDoubt bool // it was sent, and no reply came
}

func newCounter(q *Queue) *counter {
	return &counter{q: q, process: ulid.Make().String(), book: new(meter.Book), sums: make(map[string]*meter.Sums),
		sent: make(map[string]*flush), told: make(map[string]bool)}
}

// count has do count for a channel.
func (c *counter) count(channel string, do func(meter.Adder)) {
	if c != nil {
		c.book.Count(channel, do)
	}
}

// emit counts events and reports them.
func (q *Queue) emit(es ...event.Event) {
	for i := range es {
		q.counter.happened(&es[i])
	}
	q.events.Emit(es...)
}

// countedEvents are those that happened counts: what workers and settlements count is not among them.
var countedEvents = map[event.Kind]meter.Kind{
	event.Recovered: meter.Recovered, event.Suspected: meter.Recovered, event.Poisoned: meter.Died,
	event.Trimmed: meter.Trimmed, event.TimedOut: meter.TimedOut, event.Enqueued: meter.Enqueued,
}

// happened counts an event.
func (c *counter) happened(e *event.Event) {
	kind, is := countedEvents[e.Kind]
	switch {
	case e.Kind == event.Lapsed && e.Err != nil:
		kind = meter.Died
	case e.Kind == event.Lapsed:
		kind = meter.Recovered
	case !is:
		return
	}
	n, bytes := max(1, e.N), e.Bytes
	c.count(e.Channel, func(to meter.Adder) {
		to.Add(kind, n)
		to.Add(meter.EnqueuedBytes, bytes)
	})
}

// run flushes again and again, until the Queue is closed.
func (c *counter) run() {
	defer c.q.waits.Done()
	timer := time.NewTimer(rand.N(countEvery))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.q.ending.Done():
			return
		}
		c.flush(c.q.ending)
		timer.Reset(link.Jitter(countEvery))
	}
}

// add takes in what was counted in a channel. mu is held.
func (c *counter) add(channel string, sums *meter.Sums) {
	if of := c.sums[channel]; of != nil {
		of.AddAll(sums)
	} else {
		c.sums[channel] = sums
	}
}

// absorb takes in what the workers of a pool have counted.
func (c *counter) absorb(r *receiver) {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		r.pool.Tally(c.add)
	}
}

// flush sends what was counted. What has no answer is sent again as it is, with the next flush.
func (c *counter) flush(ctx context.Context) {
	if c == nil {
		return
	}
	for _, r := range c.q.running() {
		c.absorb(r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.book.Take(c.add)
	for channel, sums := range c.sums {
		if c.sent[channel] == nil {
			c.number++
			c.sent[channel] = &flush{channel: channel, number: c.number, sums: sums}
			delete(c.sums, channel)
		}
	}
	of := make(map[*link.Server][]*flush)
	for channel, f := range c.sent {
		server := c.q.router.For(channel)
		of[server] = append(of[server], f)
	}
	for server, all := range of {
		for len(all) > 0 && ctx.Err() == nil {
			some := all[:min(len(all), countsAtOnce)]
			all = all[len(some):]
			c.send(ctx, server, some)
		}
	}
}

// send sends some flushes in one pipeline. mu is held.
func (c *counter) send(ctx context.Context, server *link.Server, some []*flush) {
	ctx, cancel := context.WithTimeout(ctx, c.q.conf.EnqueueTimeout)
	defer cancel()
	call := link.NewCall()
	for _, f := range some {
		store.AddTally(call, store.KeysOf(f.channel), c.process, f.number, f.sums.Append(nil))
	}
	err := server.Data.Run(ctx, call)
	for i, f := range some {
		why := err
		if call.Answered {
			why = call.Replies[i].Err
		}
		switch link.Classify(why) {
		case link.Done:
			delete(c.sent, f.channel)
		case link.Unknown:
			f.inDoubt = true
		case link.NotExecuted:
			if !f.inDoubt { // a later one has it
				delete(c.sent, f.channel)
				c.add(f.channel, f.sums)
			}
		default:
			delete(c.sent, f.channel)
			if !c.told[f.channel] {
				c.told[f.channel] = true
				c.q.emit(event.Event{Kind: event.ReceiverError, Channel: f.channel, Err: why})
			}
		}
	}
}
