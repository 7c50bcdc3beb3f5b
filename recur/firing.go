package recur

import (
	"container/heap"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	maxFirings  = 64      // in one pipeline
	maxElements = 100     // in one firing; a Policy that asks for more takes several
	maxBytes    = 1 << 20 // of elements in one firing, unless a single element is larger
)

// firing is the script that enqueues ticks of one message.
type firing struct {
	*recurrence
	script   store.RecurFiring
	then     record // as the script writes it
	missed   bool   // the ticks were missed
	first    bool   // no try before it may have been executed
	elements []element.Element
	bytes    int
}

// newFiring makes the firing of the ticks of a message that are due at now, ms by the server's clock.
func newFiring(e *recurrence, now int64) firing {
	ticks, after := e.spec.due(e.next, now, e.policy)
	f := firing{recurrence: e, then: e.record, missed: !onTime(e.next, now), first: !e.tried}
	if f.first {
		e.tried, e.missed = true, f.missed
	}
	from := e.next
	for i, tick := range ticks {
		if i == maxElements || f.bytes > maxBytes {
			after = tick
			break
		}
		el := e.message(tick, now)
		raw := el.Encode()
		f.elements, f.script.Elements, f.bytes = append(f.elements, el), append(f.script.Elements, raw),
			f.bytes+len(raw)
		from, f.then.last = tick, tick
	}
	f.then.version++
	f.then.writer = e.nextWriter
	f.then.next = after
	f.then.count += int64(len(f.elements))

	f.script.Name, f.script.Head, f.script.Next, f.script.From = e.name, e.head(), f.then.head(), time.UnixMilli(from)
	if !f.missed {
		f.script.Until = time.UnixMilli(e.next).Add(Grace) // later the ticks are missed, and the policy decides
	}
	if len(f.elements) > 0 {
		f.script.ID, f.script.Expires = identity(&f.elements[0])
	}
	return f
}

// farOff is the tolerance in ms above which the clock does not tell well which ticks were missed.
const farOff = 50

// askTime polls once more where ticks seem to be missed, and a slow reply has set the clock.
func (r *runner) askTime() error {
	if now := r.clock.now(); r.clock.tolerance <= farOff || len(r.scheduled) == 0 || r.scheduled[0].due > now ||
		onTime(r.scheduled[0].next, now) {
		return nil
	}
	return r.poll()
}

// fire sends the firings that are due, as many as go into one pipeline.
func (r *runner) fire() error {
	if err := r.askTime(); err != nil {
		return err
	}
	now, bytes := r.clock.now(), 0
	var firings []firing
	var scripts []store.RecurFiring
	for len(r.scheduled) > 0 && r.scheduled[0].due <= now && len(firings) < r.maxFirings && bytes < maxBytes {
		f := newFiring(heap.Pop(&r.scheduled).(*recurrence), now)
		firings, scripts, bytes = append(firings, f), append(scripts, f.script), bytes+f.bytes
	}
	if len(firings) == 0 {
		return nil
	}
	sent := time.Now()
	replies, _, err := store.FireRecur(r.requests, r.engine, r.keys, scripts...)
	received := time.Now()
	if err != nil {
		return r.putBack(firings, err)
	}
	r.maxFirings = min(2*r.maxFirings, maxFirings)
	stale := make(map[string]bool)
	for i, f := range firings {
		r.clock.observe(replies[i].Now.UnixMilli(), sent, received)
		if !r.applyReply(f, replies[i]) {
			stale[f.name] = true
		}
	}
	if err := r.readSome(stale); err != nil {
		r.requestPoll(true)
		return err
	}
	return nil
}

// applyReply takes in the reply to a firing. It is false if the record must be read again.
func (r *runner) applyReply(f firing, reply store.RecurFiringReply) bool {
	e := f.recurrence
	e.holdoff = link.Holdoff{}
	switch {
	case reply.NotTheTime: // the reply has corrected the clock
		e.tried = false
		r.schedule(e)
		e.due = max(e.due, r.clock.now()+1)
		heap.Fix(&r.scheduled, e.index)
	case reply.HeadChanged:
		head, _, err := parseHead(reply.Head)
		if err != nil || head.revision != e.revision {
			return false
		}
		r.adopt(e, head)
	default:
		r.fired(f, reply.Enqueued)
	}
	return true
}

// fired takes in that a firing was executed, and enqueued n elements.
func (r *runner) fired(f firing, n int) {
	emitEnqueued(r.engine, r.channel, n, f.elements)
	if f.missed {
		r.emitMissed(f.recurrence, n)
	}
	r.update(f.recurrence, f.then, true)
}

// emitMissed reports that the ticks of a message were missed from its next one on, and n enqueued all the same.
func (r *runner) emitMissed(e *recurrence, n int) {
	r.engine.Emit(event.Event{Kind: event.MissedTicks, Channel: r.channel, N: n,
		Due: event.TimeOf(time.UnixMilli(e.next)),
		Err: fmt.Errorf("recur: %q missed its ticks: policy %q", e.name, e.policy)})
}

// putBack schedules firings again that ended with an error. One that concerns a single message must not hold up the
// others.
func (r *runner) putBack(firings []firing, err error) error {
	var unsent *link.Error
	for _, f := range firings {
		if f.first && errors.As(err, &unsent) && unsent.Class == link.NotExecuted {
			f.tried = false
		}
		heap.Push(&r.scheduled, f.recurrence)
	}
	if class := link.Classify(err); class != link.Failed && class != link.Fatal || errors.Is(err, shunt.ErrClosed) {
		return err
	}
	if r.maxFirings > 1 || len(firings) > 1 {
		r.maxFirings = 1
		return nil
	}
	e := firings[0].recurrence
	e.due = r.clock.now() + e.holdoff.Refuse(err).Milliseconds()
	heap.Fix(&r.scheduled, e.index)
	r.reportError(fmt.Errorf("%q: %w", e.name, err))
	return nil
}
