package recur

import (
	"container/heap"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// shot is one script.
type shot struct {
	*entry
	old         string
	then        record
	from, until int64 // when it holds
	missed      bool  // the ticks are
	elements    []element.Element
	raws        [][]byte
}

// firing is the shot as the store takes it.
func (s *shot) firing() store.Firing {
	first := &s.element
	if len(s.elements) > 0 {
		first = &s.elements[0]
	}
	f := firingOf(s.name, s.old, s.then.head(), first)
	f.From, f.Until, f.Elements = s.from, s.until, s.raws
	return f
}

// aim makes the script that fires what is due of a message at now.
func aim(e *entry, now int64) (s shot, bytes int) {
	ticks, after := e.spec.due(e.next, now, e.policy)
	s = shot{entry: e, old: e.head(), then: e.record, from: e.next}
	if s.missed = !onTime(e.next, now); !s.missed {
		s.until = e.next + Grace.Milliseconds() // later it is missed, and that is for the policy
	}
	for i, tick := range ticks {
		if i == mostElements || bytes > mostBytes {
			after = tick
			break
		}
		el := e.message(tick, now)
		raw := el.Encode()
		s.elements, s.raws, bytes = append(s.elements, el), append(s.raws, raw), bytes+len(raw)
		s.from, s.then.last = tick, tick
	}
	s.then.version++
	s.then.writer = e.pen
	s.then.next = after
	s.then.count += int64(len(s.elements))
	return s, bytes
}

// fire sends the scripts of what is due, as many as go in one pipeline.
func (r *runner) fire() error {
	now, bytes := r.clock.now(), 0
	var shots []shot
	var firings []store.Firing
	for len(r.heap) > 0 && r.heap[0].due <= now && len(shots) < r.most && bytes < mostBytes {
		s, n := aim(heap.Pop(&r.heap).(*entry), now)
		shots, firings, bytes = append(shots, s), append(firings, s.firing()), bytes+n
	}
	if len(shots) == 0 {
		return nil
	}
	sent := time.Now()
	results, _, err := store.RunRecurFire(r.hard, r.door, r.keys, firings...)
	came := time.Now()
	if err != nil {
		return r.refused(shots, err)
	}
	r.most = min(2*r.most, mostScripts)
	stale := make(map[string]bool)
	for i, s := range shots {
		f := results[i]
		if f.Err != nil {
			r.ask(len(stale) > 0)
			return r.refused(shots[i:], f.Err)
		}
		r.clock.hear(f.Now, sent, came)
		if !r.judge(s, f.N, f.Head) {
			stale[s.name] = true
		}
	}
	if err := r.read(stale); err != nil {
		r.ask(true)
		return err
	}
	return nil
}

// judge takes in a script's reply; false if the record must be read anew.
func (r *runner) judge(s shot, n int, found string) bool {
	e := s.entry
	e.off = link.Holdoff{}
	switch {
	case n >= 0:
		r.done(s, n)
	case n == store.NotTheTime: // the clock has been set by the reply
		r.arm(e)
		e.due = max(e.due, r.clock.now()+1)
		heap.Fix(&r.heap, e.place)
		return true
	default:
		head, _, err := parseHead(found)
		if err != nil || head.revision != e.revision {
			return false
		}
		r.adopt(e, head)
	}
	return true
}

// done takes in that a script was executed, and enqueued n.
func (r *runner) done(s shot, n int) {
	emitEnqueued(r.door, r.channel, n, s.elements...)
	if s.missed {
		r.door.Emit(
			string(MissedTicks),
			r.channel,
			"",
			"",
			n,
			time.UnixMilli(s.next),
			fmt.Errorf("recur: %q missed its ticks: policy %q", s.name, s.policy),
		)
	}
	r.know(s.entry, s.then, true)
}

// refused puts back what an error kept from being fired. What concerns a single message must not hold up the others.
func (r *runner) refused(shots []shot, err error) error {
	for _, s := range shots {
		heap.Push(&r.heap, s.entry)
	}
	if class := link.Classify(err); class != link.Failed && class != link.Fatal || errors.Is(err, shunt.ErrClosed) {
		return err
	}
	if r.most > 1 || len(shots) > 1 {
		r.most = 1
		return nil
	}
	e := shots[0].entry
	e.due = r.clock.now() + e.off.Refuse(err).Milliseconds()
	heap.Fix(&r.heap, e.place)
	r.trouble(fmt.Errorf("%q: %w", e.name, err))
	return nil
}
