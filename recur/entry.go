package recur

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/store"
)

// Entry is a recurring message as it is in Redis.
type Entry struct {
	Name    string `json:"name"` // 1 to 200 bytes of printable characters
	Channel string `json:"channel"`
	Spec    Spec   `json:"spec"` // its Err says why this process cannot run it: the zone may be unknown here
	Missed  Policy `json:"missed"`
	Paused  bool   `json:"paused"`
	// the next tick, or the first one that was not enqueued; zero while paused, and without a next tick
	Next time.Time `json:"next,omitzero"`
	Last time.Time `json:"last,omitzero"` // the latest tick that was enqueued; zero if none was
	// messages of ticks and of Enqueue, with those refused because their ID was taken
	Count   int               `json:"count"`
	Payload []byte            `json:"payload"`
	Headers map[string]string `json:"headers,omitempty"`
}

// List returns the recurring messages of a channel, sorted by name. A record that this version cannot read is an error,
// which List returns beside the other entries.
func (t *Timetable) List(ctx context.Context, channel string) ([]Entry, error) {
	fail := func(err error) error { return fmt.Errorf("recur: list channel %q: %w", channel, err) }
	engine, err := queues.Open(t.Queue)
	if err != nil {
		return nil, err
	}
	table, err := store.ReadRecurTable(ctx, engine, store.KeysOf(channel))
	if err != nil {
		return nil, fail(err)
	}
	var entries []Entry
	var unreadable []error
	for name, raw := range table.Records {
		rec, err := parseRecord(raw)
		if err != nil {
			unreadable = append(unreadable, fail(fmt.Errorf("%q: %w", name, err)))
			continue
		}
		entries = append(entries, rec.entry(channel, name))
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, errors.Join(unreadable...)
}

func (rec *record) entry(channel, name string) Entry {
	e := Entry{
		Name: name, Channel: channel, Spec: rec.spec, Missed: rec.policy, Paused: rec.paused, Count: int(rec.count),
		Payload: rec.element.Payload, Headers: rec.element.Headers(),
	}
	if rec.next != 0 && !rec.paused {
		e.Next = time.UnixMilli(rec.next).In(rec.spec.location())
	}
	if rec.last != 0 {
		e.Last = time.UnixMilli(rec.last).In(rec.spec.location())
	}
	return e
}
