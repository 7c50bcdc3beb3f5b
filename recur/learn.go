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

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// step takes in what was heard, looks if it is time, and fires what is due, one pipeline of it.
func (r *runner) step() error {
	r.mu.Lock()
	heard, asked, anew := r.heard, r.asked, r.anew
	r.heard, r.asked, r.anew = nil, false, false
	r.mu.Unlock()

	if err := r.learn(heard, asked, anew); err != nil {
		r.ask(true) // whatever was heard
		return err
	}
	return r.fire()
}

func (r *runner) learn(heard []string, asked, anew bool) error {
	names := make(map[string]bool)
	for _, h := range heard {
		line, name, _ := strings.Cut(h, "\n")
		head, _, err := parseHead(line + "\n")
		e := r.entries[name]
		switch {
		case err != nil || e == nil || e.revision != head.revision:
			names[name] = true // removed, added or replaced: read what is there now, because hints may be late
		case head.version > e.version:
			r.adopt(e, head)
		}
	}
	if anew || len(names) > mostScripts {
		return r.readAll(r.hard)
	}
	if err := r.read(names); err != nil {
		return err
	}
	if !asked && time.Until(r.look) > 0 {
		return nil
	}
	sent := time.Now()
	now, mark, err := store.RecurMark(r.hard, r.door, r.keys)
	if err != nil {
		return err
	}
	r.clock.hear(now, sent, time.Now())
	r.look = time.Now().Add(link.Jitter(lookEvery))
	if mark != r.mark {
		return r.readAll(r.hard)
	}
	return nil
}

// readAll reads the whole timetable of the channel.
func (r *runner) readAll(ctx context.Context) error {
	sent := time.Now()
	now, mark, raws, err := store.RecurAll(ctx, r.door, r.keys)
	if err != nil {
		return err
	}
	r.clock.hear(now, sent, time.Now())
	r.look, r.mark = time.Now().Add(link.Jitter(lookEvery)), mark
	for name := range r.entries {
		if _, ok := raws[name]; !ok {
			r.set(name, "")
		}
	}
	for name, raw := range raws {
		r.set(name, raw)
	}
	return nil
}

// read reads some records.
func (r *runner) read(names map[string]bool) error {
	if len(names) == 0 {
		return nil
	}
	all := slices.Collect(maps.Keys(names))
	records, err := store.RecurRecords(r.hard, r.door, r.keys, all)
	if err != nil {
		return err
	}
	for i, name := range all {
		r.set(name, records[i])
	}
	return nil
}

// set takes in what a record was read as, empty for none.
func (r *runner) set(name, raw string) {
	e := r.entries[name]
	if e != nil {
		head, _, err := parseHead(raw)
		if err == nil && head.revision == e.revision {
			if head.writer != e.writer || e.place < 0 {
				r.adopt(e, head)
			}
			return
		}
		r.drop(e)
		delete(r.entries, name)
	}
	if raw == "" {
		return
	}
	rec, err := parseRecord(raw)
	if err == nil {
		err = rec.spec.Err()
	}
	if err != nil {
		r.trouble(fmt.Errorf("%q cannot run here: %w", name, err))
		return
	}
	e = &entry{name: name, place: -1}
	r.entries[name] = e
	r.know(e, rec, false)
}

// adopt takes in a head that was written by another, or by this runner although an error came.
func (r *runner) adopt(e *entry, head record) {
	mine := head.writer == e.pen
	if n := int(head.count - e.count); mine && n > 0 {
		r.door.Emit(string(shunt.EventEnqueued), r.channel, "", "", n, time.Time{}, nil)
	}
	r.know(e, e.with(head), mine)
}

// know sets what is known of a message.
func (r *runner) know(e *entry, rec record, mine bool) {
	e.record, e.mine, e.pen = rec, mine, element.NewSerial().String()
	r.arm(e)
}

// arm sets when a message is to be tried next.
func (r *runner) arm(e *entry) {
	r.drop(e)
	if e.paused || e.next == 0 {
		return
	}
	e.due = e.next + 1 // a script that comes too early is for nothing
	if !e.mine {
		e.due = e.next + giveWay + rand.Int64N(giveWayJitter+1)
	}
	heap.Push(&r.heap, e)
}

func (r *runner) drop(e *entry) {
	if e.place >= 0 {
		heap.Remove(&r.heap, e.place)
	}
}
