package shunt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	// countEvery is how often a process adds what it has counted to what Redis keeps.
	countEvery = 10 * time.Second
	// countsAtOnce is how many channels one pipeline counts for: it may hold up what this process takes and acks.
	countsAtOnce = 25
	// doubtFor is how long a flush without an answer is sent again. Redis knows it for two hours.
	doubtFor = time.Hour
	// refusedFor is how long nothing is counted in a channel where Redis was full, and forbiddenFor where it needs a
	// person.
	refusedFor, forbiddenFor = time.Minute, 10 * time.Minute
)

// counter adds what this process counts to what Redis keeps. Where it counts nothing it asks Redis nothing.
type counter struct {
	q       *Queue
	process string
	book    *meter.Book     // what is not counted by workers
	open    context.Context // until Close has shut the receivers down
	stop    context.CancelFunc

	mu   sync.Mutex
	sums map[string]*meter.Sums // that are to be sent, by channel

	sending sync.Mutex // guards what follows
	sent    map[string]*flush
	number  int64
	refused map[string]time.Time // until when, by channel
}

// flush is what is counted at once in a channel. Its number makes it count once.
type flush struct {
	channel string
	number  int64
	sums    *meter.Sums
	doubted time.Time // when it was sent first, and no reply came; zero: never
}

func newCounter(q *Queue) *counter {
	c := &counter{q: q, process: element.NewSerial().String(), book: new(meter.Book),
		sums: make(map[string]*meter.Sums), sent: make(map[string]*flush), refused: make(map[string]time.Time)}
	c.open, c.stop = context.WithCancel(context.Background())
	return c
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

// happened counts an event, unless workers and settlements count such themselves.
func (c *counter) happened(e *event.Event) {
	var kind meter.Kind
	switch e.Kind {
	case event.Enqueued:
		kind = meter.Enqueued
	case event.Recovered, event.Suspected:
		kind = meter.Recovered
	case event.Poisoned:
		kind = meter.Died
	case event.Trimmed:
		kind = meter.Trimmed
	case event.TimedOut:
		kind = meter.TimedOut
	case event.Lapsed:
		if kind = meter.Recovered; e.Err != nil {
			kind = meter.Died
		}
	default:
		return
	}
	c.count(e.Channel, func(to meter.Adder) {
		to.Add(kind, max(1, e.N))
		to.Add(meter.EnqueuedBytes, e.Bytes)
	})
}

// run flushes again and again, until Close has shut the receivers down.
func (c *counter) run() {
	defer c.q.waits.Done()
	timer := time.NewTimer(rand.N(countEvery))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.open.Done():
			return
		}
		c.flush(c.open)
		timer.Reset(link.Jitter(countEvery))
	}
}

// end sends what is left, as long as ctx lasts, and tells what is left even then.
func (c *counter) end(ctx context.Context) {
	if c == nil {
		return
	}
	for again := (link.Resend{}); ; {
		all := c.flush(ctx)
		left := c.left() // also what has ended since
		switch {
		case len(left) == 0:
			return
		case ctx.Err() != nil:
			for _, channel := range left {
				c.q.emit(event.Event{Kind: event.ReceiverError, Channel: channel, Err: errUncounted})
			}
			return
		case !all:
			again.Pause(ctx, 0)
		}
	}
}

// left are the channels of what is still to be sent.
func (c *counter) left() []string {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.gather()
	return slices.Collect(maps.Keys(c.sent))
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

// flush sends once what was counted until now, and again what has no answer: as it was. What was counted since in the
// channels of these waits for the next flush. It says whether none waits.
func (c *counter) flush(ctx context.Context) (all bool) {
	for _, r := range c.q.running() {
		c.absorb(r)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	behind := c.gather()
	of := make(map[*link.Server][]*flush)
	for channel, f := range c.sent {
		server := c.q.router.For(channel)
		of[server] = append(of[server], f)
	}
	for server, some := range of {
		for chunk := range slices.Chunk(some, countsAtOnce) {
			if ctx.Err() != nil || !c.send(ctx, server, chunk) {
				break // the others would wait as long
			}
		}
	}
	return len(c.sent) == 0 && !behind
}

// gather makes flushes of what was counted in channels that have none. behind: others have some. sending is held.
func (c *counter) gather() (behind bool) {
	now := time.Now()
	maps.DeleteFunc(c.refused, func(_ string, until time.Time) bool { return now.After(until) })
	maps.DeleteFunc(c.sent, func(_ string, f *flush) bool { // it would not be known again
		return !f.doubted.IsZero() && now.Sub(f.doubted) > doubtFor
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.book.Take(c.add)
	for channel, sums := range c.sums {
		if _, refused := c.refused[channel]; refused {
			delete(c.sums, channel)
		} else if c.sent[channel] == nil {
			c.number++
			c.sent[channel] = &flush{channel: channel, number: c.number, sums: sums}
			delete(c.sums, channel)
		}
	}
	return len(c.sums) > 0
}

// send sends some flushes in one pipeline, and says whether there was an answer. sending is held.
func (c *counter) send(ctx context.Context, server *link.Server, some []*flush) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, c.q.conf.ReplyTimeout)
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
		class := link.Classify(why)
		if code := link.Code(why); code == "OOM" || code == "MISCONF" {
			class = link.Failed // it lasts
		}
		switch class {
		case link.Done:
			delete(c.sent, f.channel)
			answered = true
		case link.NotExecuted:
		case link.Unknown:
			if f.doubted.IsZero() {
				f.doubted = time.Now()
			}
		default: // figures are not kept without bound
			delete(c.sent, f.channel)
			answered = true
			wait := refusedFor
			if class == link.Fatal {
				wait = forbiddenFor
			}
			c.refused[f.channel] = time.Now().Add(wait)
			c.q.emit(event.Event{Kind: event.ReceiverError, Channel: f.channel,
				Err: fmt.Errorf("%w for %v: %w", errCounts, wait, why)})
		}
	}
	return answered
}

// errUncounted says what Close leaves undone.
var errUncounted = errors.New("shunt: what happened last in the channel was not counted, as far as is known: " +
	"Redis did not answer before the Queue was closed")

// errCounts says what an error of Redis is about.
var errCounts = errors.New("shunt: what happened in the channel was not counted (see Queue.NoCounts), and is not")
