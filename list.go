package shunt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Entry is one message as it lies in Redis.
type Entry struct {
	Serial     string // empty for a bare payload
	ID         string
	Payload    []byte
	Headers    map[string]string
	Attempts   int
	Recoveries int
	Failure    string    // of the last attempt
	EnqueuedAt time.Time // by the producer's clock; zero for a bare payload
	DueAt      time.Time // Delay: by the server's clock, as DiedAt and EndedAt are; zero in all other states
	DiedAt     time.Time // Dead
	EndedAt    time.Time // Done
	Receiver   string    // Doing: the incarnation that holds it
	Worker     int       // Doing
	Outcome    Outcome   // Done, which has no payload

	channel string
	raw     []byte
}

func dueAt(e *Entry) *time.Time  { return &e.DueAt }
func diedAt(e *Entry) *time.Time { return &e.DiedAt }

// entries decodes a reply of elements. Each is followed by its score where at names the field for it; nil: there is none.
func entries(channel string, reply any, at func(e *Entry) *time.Time) []Entry {
	vs, _ := redis.Values(reply, nil)
	step := 1
	if at != nil {
		step = 2
	}
	var es []Entry
	for i := 0; i+step <= len(vs); i += step {
		raw, ok := vs[i].([]byte)
		if !ok {
			continue
		}
		el, _ := element.Decode(raw)
		e := Entry{Serial: el.SerialString(), ID: el.ID(), Payload: el.Payload, Headers: el.Headers(), Attempts: int(el.Attempts), Recoveries: int(el.Recoveries),
			Failure: el.Failure(), channel: channel, raw: raw}
		if !el.Bare {
			e.EnqueuedAt = element.EnqueuedAt(el.Serial)
		}
		if at != nil {
			ms, _ := redis.Float64(vs[i+1], nil)
			*at(&e) = time.UnixMilli(int64(ms))
		}
		es = append(es, e)
	}
	return es
}

// List shows messages of one state: limit of them (0: all) from offset, the one to be taken next first, the one due first, the latest
// dead and the latest done first; those in hand by receiver and worker, always all of them. What is cancelled is left out, so there may be
// less than limit. It reads, and locks nothing: a message that moves meanwhile may be missed or seen twice.
func (q *Queue) List(ctx context.Context, channel string, state State, offset, limit int) ([]Entry, error) {
	if offset < 0 || limit < 0 {
		return nil, fmt.Errorf("shunt: list %q: offset %d and limit %d: want 0 or more", channel, offset, limit)
	}
	k := store.KeysOf(channel)
	last := -1
	if limit > 0 {
		last = offset + limit - 1
	}
	list := func(key any) ([]Entry, error) { // from its taking end
		from, to := -1-last, -1-offset
		if limit == 0 {
			from = 0
		}
		v, err := q.query(ctx, channel, func(c *link.Call) { c.Add("LRANGE", key, from, to) })
		es := entries(channel, v, nil)
		slices.Reverse(es)
		if err == nil {
			es, err = q.uncancelled(ctx, k, es)
		}
		return es, err
	}
	set := func(command string, key any, at func(*Entry) *time.Time) ([]Entry, error) {
		v, err := q.query(ctx, channel, func(c *link.Call) { c.Add(command, key, offset, last, "WITHSCORES") })
		es := entries(channel, v, at)
		if err == nil {
			es, err = q.uncancelled(ctx, k, es)
		}
		return es, err
	}
	switch state {
	case StatePrepare:
		return list(k.Prepare)
	case StateSuspect:
		return list(k.Suspect)
	case StateDelay:
		return set("ZRANGE", k.Delay, dueAt)
	case StateDead:
		return set("ZREVRANGE", k.Dead, diedAt)
	case StateDoing:
		return q.held(ctx, k)
	case StateDone:
		return q.listDone(ctx, k, offset, last)
	}
	return nil, fmt.Errorf("shunt: list %q: there is no state %q", channel, state)
}

// held lists what all receivers of a channel hold.
func (q *Queue) held(ctx context.Context, k *store.Keys) ([]Entry, error) {
	rs, err := q.Receivers(ctx, k.Name)
	if err != nil {
		return nil, err
	}
	var es []Entry
	for _, r := range rs {
		if r.Holding == 0 {
			continue
		}
		vs, err := q.queryAll(ctx, k.Name, func(c *link.Call) {
			for _, l := range k.AllDoing(store.Incarnation{Name: r.Name, Workers: r.Workers, Lease: r.Lease}) {
				c.Add("LRANGE", l, 0, -1)
			}
		})
		if err != nil {
			return nil, err
		}
		for worker, v := range vs {
			of := entries(k.Name, v, nil)
			slices.Reverse(of)
			for i := range of {
				of[i].Receiver, of[i].Worker = r.Name, worker
			}
			es = append(es, of...)
		}
	}
	return es, nil
}

// uncancelled leaves out what is cancelled, and only waits to be dropped.
func (q *Queue) uncancelled(ctx context.Context, k *store.Keys, es []Entry) ([]Entry, error) {
	if !slices.ContainsFunc(es, func(e Entry) bool { return e.ID != "" }) {
		return es, nil
	}
	vs, err := q.queryAll(ctx, k.Name, func(c *link.Call) {
		for _, e := range es {
			c.Add("SISMEMBER", k.Cancelled, e.serial())
		}
	})
	if err != nil {
		return nil, err
	}
	var left []Entry
	for i, e := range es {
		if n, _ := redis.Int(vs[i], nil); n == 0 {
			left = append(left, e)
		}
	}
	return left, nil
}

// serial is as scripts know it.
func (e *Entry) serial() []byte {
	el, _ := element.Decode(e.raw)
	return el.Serial[:]
}

// listDone lists what is kept of messages that are over.
func (q *Queue) listDone(ctx context.Context, k *store.Keys, offset, last int) ([]Entry, error) {
	n := -1
	if last >= 0 {
		n = last - offset + 1
	}
	v, err := q.query(ctx, k.Name, func(c *link.Call) { store.AddDonePage(c, k, offset, n) })
	if err != nil {
		return nil, err
	}
	ids, err := store.DonePageReply(v)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	vs, err := q.queryAll(ctx, k.Name, func(c *link.Call) {
		for _, id := range ids {
			c.Add("HGET", k.Done, id)
		}
	})
	var es []Entry
	for i, v := range vs {
		if raw, ok := v.([]byte); ok {
			s := ended(ids[i], raw)
			es = append(es, Entry{ID: s.ID, Serial: s.Serial, Attempts: s.Attempt, Failure: s.Failure, EnqueuedAt: s.EnqueuedAt, EndedAt: s.Outcome.EndedAt,
				Outcome: s.Outcome, channel: k.Name})
		}
	}
	return es, err
}
