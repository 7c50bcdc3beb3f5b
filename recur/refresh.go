package recur

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// A runner that did not fire a message last waits for so many ms behind the tick. Within that time the hint of the
// runner that did should arrive: a round trip, and jitter.
const (
	standbyWait   = 3
	standbyJitter = 7
)

// refresh reads what may have changed: what hints name, the whole table where all is set, and the mark if a poll is
// due.
func (r *runner) refresh(hints []string, poll, all bool) error {
	changed := make(map[string]bool)
	for _, h := range hints {
		line, name, _ := strings.Cut(h, "\n")
		head, _, err := parseHead(line + "\n")
		e := r.known[name]
		switch {
		case err != nil || e == nil || e.revision != head.revision:
			changed[name] = true // removed, added or replaced; a hint may be late, so the present record is read
		case head.version > e.version:
			r.adopt(e, head)
		}
	}
	if all || len(changed) > maxFirings {
		return r.readTable(r.requests)
	}
	if err := r.readSome(changed); err != nil {
		return err
	}
	if !poll && time.Until(r.nextPoll) > 0 {
		return nil
	}
	return r.poll()
}

// poll compares the mark, and reads the whole table if it has changed.
func (r *runner) poll() error {
	sent := time.Now()
	now, mark, err := store.ReadRecurMark(r.requests, r.engine, r.keys)
	if err != nil {
		return err
	}
	r.clock.observe(now.UnixMilli(), sent, time.Now())
	r.nextPoll = time.Now().Add(link.Jitter(pollEvery))
	if mark != r.mark {
		return r.readTable(r.requests)
	}
	return nil
}

// readTable reads every record of the channel.
func (r *runner) readTable(ctx context.Context) error {
	sent := time.Now()
	table, err := store.ReadRecurTable(ctx, r.engine, r.keys)
	if err != nil {
		return err
	}
	r.clock.observe(table.Now.UnixMilli(), sent, time.Now())
	r.nextPoll, r.mark = time.Now().Add(link.Jitter(pollEvery)), table.Mark
	for name := range r.known {
		if _, ok := table.Records[name]; !ok {
			r.load(name, "")
		}
	}
	for name, raw := range table.Records {
		r.load(name, raw)
	}
	return nil
}

// readSome reads some records.
func (r *runner) readSome(names map[string]bool) error {
	if len(names) == 0 {
		return nil
	}
	all := slices.Collect(maps.Keys(names))
	raws, err := store.ReadRecurs(r.requests, r.engine, r.keys, all)
	if err != nil {
		return err
	}
	for i, name := range all {
		r.load(name, raws[i])
	}
	return nil
}

// load takes in a record as it was read, empty for none.
func (r *runner) load(name, raw string) {
	e := r.known[name]
	if e != nil {
		head, _, err := parseHead(raw)
		if err == nil && head.revision == e.revision {
			if head.writer != e.writer || e.index < 0 {
				r.adopt(e, head)
			}
			return
		}
		r.unschedule(e)
		delete(r.known, name)
	}
	if raw == "" {
		return
	}
	rec, err := parseRecord(raw)
	if err == nil {
		err = rec.spec.Err()
	}
	if err != nil {
		r.reportError(fmt.Errorf("%q cannot run here: %w", name, err))
		return
	}
	e = &recurrence{name: name, index: -1}
	r.known[name] = e
	r.update(e, rec, false)
}

// adopt takes in a head that another process wrote, or this runner in a try that ended with an error.
func (r *runner) adopt(e *recurrence, head record) {
	here := head.writer == e.nextWriter
	n := int(head.count - e.count)
	if e.element.ID() != "" { // nobody knows how many of these were refused
		n = 0
	}
	if here && n > 0 {
		r.engine.Emit(event.Event{Kind: event.Enqueued, Channel: r.channel, N: n})
	}
	if here && e.missed {
		r.emitMissed(e, n)
	}
	r.update(e, e.with(head), here)
}

// update replaces what is known of a message, and schedules its next tick.
func (r *runner) update(e *recurrence, rec record, firedHere bool) {
	e.record, e.firedHere, e.nextWriter, e.tried = rec, firedHere, element.NewSerial().String(), false
	r.schedule(e)
}

// schedule sets when the next tick of a message is fired, if it has one.
func (r *runner) schedule(e *recurrence) {
	r.unschedule(e)
	if e.paused || e.next == 0 {
		return
	}
	e.due = e.next + 1 // a script that comes too early does nothing
	if !e.firedHere {
		e.due = e.next + standbyWait + rand.Int64N(standbyJitter+1)
	}
	heap.Push(&r.scheduled, e)
}

func (r *runner) unschedule(e *recurrence) {
	if e.index >= 0 {
		heap.Remove(&r.scheduled, e.index)
	}
}
