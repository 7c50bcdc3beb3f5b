package shunt

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// State is where in a channel a message is; its text is the key's suffix.
type State string

const (
	StatePrepare State = "prepare" // ready to be taken
	StateDoing   State = "doing"   // in a worker's hands, or a dead one's
	StateDelay   State = "delay"   // due later: enqueued so, or to be tried again
	StateSuspect State = "suspect" // held by dying processes twice or more; taken one at a time a receiver
	StateDead    State = "dead"    // given up on
	StateDone    State = "done"    // over, and kept as Retain asked
)

// States are all of them, in the order in which a message may meet them.
var States = []State{StatePrepare, StateDoing, StateDelay, StateSuspect, StateDead, StateDone}

// StateStats counts a channel's messages in one state.
type StateStats struct {
	Count int
	// OldestAge is, in StatePrepare and StateSuspect, the time since the enqueue of the message to be taken next.
	// In StateDoing it is that of the oldest message held. In StateDead and StateDone it is the time since the oldest
	// died or ended. It is zero in StateDelay, where there is no message, and for a bare payload.
	OldestAge time.Duration
	// NextDueIn is, in StateDelay, the time until the first message is due, negative if it is overdue.
	// It is zero in all other states, and where there is no message.
	NextDueIn time.Duration
}

// Stats are a channel's, by state.
type Stats map[State]StateStats

// Receiver is an incarnation that is known to a channel.
type Receiver struct {
	Name    string
	Workers int
	Lease   time.Duration
	Alive   bool
	Until   time.Time // end of its term; for a dead one, when it is looked at next
	Holding int       // messages in its lists
}

// Channels lists all channels that were ever enqueued to or received from, sorted; an operator may remove one with
// SREM shunt.channels.
func (q *Queue) Channels(ctx context.Context) ([]string, error) {
	names, err := redis.Strings(q.query(ctx, "", func(c *link.Call) { c.Add("SMEMBERS", store.ChannelsKey) }))
	slices.Sort(names)
	return names, err
}

// query sends one command for an operator.
func (q *Queue) query(ctx context.Context, channel string, fill func(*link.Call)) (any, error) {
	vs, err := q.queryAll(ctx, channel, fill)
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

// queryAll sends commands for an operator in one pipeline; the first error is that of all.
func (q *Queue) queryAll(ctx context.Context, channel string, fill func(*link.Call)) ([]any, error) {
	vs, _, err := q.queryTwice(ctx, channel, fill)
	return vs, err
}

// queryTwice is queryAll; again says that it was sent twice, because the first replies were lost.
func (q *Queue) queryTwice(ctx context.Context, channel string, fill func(*link.Call)) (vs []any, again bool, err error) {
	replies, again, err := asker{q}.Ask(ctx, channel, fill)
	if err != nil {
		return nil, again, err
	}
	vs = make([]any, len(replies))
	for i, r := range replies {
		vs[i] = r.Any()
	}
	return vs, again, nil
}

// Receivers lists a channel's receivers, the living first, and what each holds.
func (q *Queue) Receivers(ctx context.Context, channel string) ([]Receiver, error) {
	k := store.KeysOf(channel)
	vs, err := q.queryAll(ctx, channel, func(c *link.Call) {
		c.Add("ZRANGE", k.Receivers, 0, -1, "WITHSCORES")
		c.Add("ZRANGE", k.DeadReceivers, 0, -1, "WITHSCORES")
	})
	if err != nil {
		return nil, err
	}
	var rs []Receiver
	var held []any
	for i, v := range vs {
		ms, _ := redis.Strings(v, nil)
		for j := 0; j+1 < len(ms); j += 2 {
			dead, err := store.ParseDeadReceiver(ms[j])
			if i == 0 {
				dead.Incarnation, err = store.ParseIncarnation(ms[j])
			}
			if err != nil {
				return nil, err
			}
			until, _ := redis.Int64([]byte(ms[j+1]), nil)
			rs = append(rs, Receiver{Name: dead.Name, Workers: dead.Workers, Lease: dead.Lease, Alive: i == 0, Until: time.UnixMilli(until)})
			held = append(held, store.Args(k.AllDoing(dead.Incarnation))...)
		}
	}
	if len(held) == 0 {
		return nil, nil
	}
	vs, err = q.queryAll(ctx, channel, func(c *link.Call) {
		for _, l := range held {
			c.Add("LLEN", l)
		}
	})
	if err != nil {
		return nil, err
	}
	for i := range rs {
		for range rs[i].Workers {
			n, _ := redis.Int(vs[0], nil)
			rs[i].Holding += n
			vs = vs[1:]
		}
	}
	return rs, nil
}

// Stats counts a channel's messages in every state, and their ages by the server's clock. The counts are not of one moment.
func (q *Queue) Stats(ctx context.Context, channel string) (Stats, error) {
	n, err := store.Count(ctx, func(ctx context.Context, fill func(*link.Call)) ([]any, error) {
		return q.queryAll(ctx, channel, fill)
	}, store.KeysOf(channel))
	if err != nil {
		return nil, err
	}
	now := n.Now
	since := func(first *store.Scored) time.Duration {
		if first == nil {
			return 0
		}
		return now.Sub(first.At)
	}
	s := Stats{
		StatePrepare: {Count: max(0, n.Prepare-n.Cancelled), OldestAge: oldest(channel, now, n.NextPrepare)},
		StateSuspect: {Count: n.Suspect, OldestAge: oldest(channel, now, n.NextSuspect)},
		StateDelay:   {Count: n.Delay, NextDueIn: -since(n.FirstDelay)},
		StateDead:    {Count: n.Dead, OldestAge: since(n.FirstDead)},
		StateDone:    {Count: n.Done},
	}
	if !n.FirstDone.IsZero() {
		s[StateDone] = StateStats{Count: n.Done, OldestAge: now.Sub(n.FirstDone)}
	}
	held, err := q.List(ctx, channel, StateDoing, 0, 0)
	if err != nil {
		return nil, err
	}
	var doing StateStats
	for _, e := range held {
		doing.Count++
		if !e.EnqueuedAt.IsZero() {
			doing.OldestAge = max(doing.OldestAge, now.Sub(e.EnqueuedAt))
		}
	}
	s[StateDoing] = doing
	return s, nil
}

// oldest is the age of an element, zero where there is none or it is a bare payload.
func oldest(channel string, now time.Time, raw []byte) time.Duration {
	for _, e := range entries(channel, []any{raw}, nil) {
		if raw != nil && !e.EnqueuedAt.IsZero() {
			return max(0, now.Sub(e.EnqueuedAt))
		}
	}
	return 0
}
