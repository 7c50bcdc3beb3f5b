package shunt

import (
	"context"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/store"
)

// State is where in a channel a message is; its text is the key's suffix.
type State string

const (
	StatePrepare State = "prepare" // ready to be taken
	StateDoing   State = "doing"   // in a worker's hands, or a dead one's
	StateLeased  State = "leased"  // pulled, and not settled yet
	StateDelay   State = "delay"   // due later: enqueued so, or to be tried again
	StateSuspect State = "suspect" // held by dying processes twice or more; taken one at a time a receiver
	StateDead    State = "dead"    // failed for the last time, or rejected
	StateDone    State = "done"    // over, and kept as Retain asked
)

// States are all of them, in the order in which a message may meet them.
var States = []State{StatePrepare, StateDoing, StateLeased, StateDelay, StateSuspect, StateDead, StateDone}

// StateStats counts a channel's messages in one state.
type StateStats struct {
	Count int `json:"count"`
	// OldestAge is, in StatePrepare and StateSuspect, the time since the enqueue of the message to be taken next.
	// In StateDoing it is that of the oldest message held. In StateDead and StateDone it is the time since the oldest
	// died or ended. It is zero in StateLeased, in StateDelay, where there is no message, and for a bare payload.
	OldestAge time.Duration `json:"oldest_age_ns,omitzero"`
	// NextDueIn is, in StateDelay, the time until the first message is due, and in StateLeased the time until the first
	// lease ends. It is negative if that is past, and zero in all other states, and where there is no message.
	NextDueIn time.Duration `json:"next_due_in_ns,omitzero"`
	// Cancelled is, in StatePrepare, how many messages lie there beside these that Cancel has ended, at most. The
	// offsets of List count them.
	Cancelled int `json:"cancelled,omitzero"`
}

// Stats are a channel's, by state.
type Stats map[State]StateStats

// Receiver is an incarnation that is known to a channel. A receiver that goes on after a broken connection has a new
// one, and its old one is listed as dead for an hour.
type Receiver struct {
	Name    string        `json:"name"`
	Workers int           `json:"workers"`
	Lease   time.Duration `json:"lease_ns"`
	Alive   bool          `json:"alive"`
	Holding int           `json:"holding"` // messages in its lists

	// LeaseEndsAt is, of a living one, 4/3 of Lease after its last beat, by the server's clock.
	LeaseEndsAt time.Time `json:"lease_ends_at,omitzero"`
	// NextSweepAt is, of a dead one, when the living look for its messages again.
	NextSweepAt time.Time `json:"next_sweep_at,omitzero"`

	// What its process tells of itself, from its first beat until it ends well, and of one that died until an hour
	// after. Each is empty where it is not known: of an older shunt, of one that ended itself, and where the Redis user
	// has not the rights.
	Host    string `json:"host,omitempty"`    // as the operating system calls it
	PID     int    `json:"pid,omitempty"`     // on that host, or in its container
	Program string `json:"program,omitempty"` // the file name of its executable
	Version string `json:"version,omitempty"` // of the program's main module, as "v1.2.0" or "(devel)"
	Shunt   string `json:"shunt,omitempty"`   // the same of shunt in it
	// StartedAt is when Receive was called, by the server's clock. After a handover it is the same.
	StartedAt time.Time `json:"started_at,omitzero"`
	// Busy has the messages of this channel whose handlers had been at work for a third of Lease or longer at the
	// receiver's last beat, which a living one makes every third of Lease. The longest come first. There are at most
	// 64, and fewer where their ids are long.
	Busy []BusyWorker `json:"busy,omitempty"`
}

// BusyWorker is a worker whose handler has been at work for a while, and its message.
type BusyWorker struct {
	Worker int       `json:"worker"`           // its number, from 0
	Serial string    `json:"serial,omitempty"` // empty for a bare payload
	ID     string    `json:"id,omitempty"`
	Since  time.Time `json:"since"` // when the handler began, by the server's clock
}

// Channels lists all channels that were ever enqueued to or received from, sorted; an operator may remove one with
// SREM shunt.channels.
func (q *Queue) Channels(ctx context.Context) ([]string, error) {
	names, err := store.Channels(ctx, asker{q: q})
	slices.Sort(names)
	return names, err
}

// Receivers lists a channel's receivers, the living first, and what each holds.
func (q *Queue) Receivers(ctx context.Context, channel string) ([]Receiver, error) {
	known, err := store.Receivers(ctx, asker{q: q}, store.KeysOf(channel))
	if err != nil || len(known) == 0 {
		return nil, err
	}
	told, err := store.Abouts(ctx, asker{q: q, each: true}, store.KeysOf(channel), known)
	if err != nil {
		return nil, err
	}
	rs := make([]Receiver, len(known))
	for i, r := range known {
		rs[i] = Receiver{
			Name:    r.Name,
			Workers: r.Workers,
			Lease:   r.Lease,
			Alive:   r.Alive,
			Holding: r.Holding,

			Host: told[i].Host, PID: told[i].PID, Program: told[i].Program, Version: told[i].Version,
			Shunt: told[i].Shunt, StartedAt: told[i].Started,
		}
		for _, b := range told[i].Busy {
			rs[i].Busy = append(rs[i].Busy, BusyWorker(b))
		}
		if r.Alive {
			rs[i].LeaseEndsAt = r.Until
		} else {
			rs[i].NextSweepAt = r.Until
		}
	}
	return rs, nil
}

// Stats counts a channel's messages in every state, and their ages by the server's clock. The counts are not of one
// moment.
func (q *Queue) Stats(ctx context.Context, channel string) (Stats, error) {
	n, err := store.Count(ctx, asker{q: q}, store.KeysOf(channel))
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
		StatePrepare: {Count: max(0, n.Prepare-n.Cancelled), OldestAge: oldest(now, n.NextPrepare),
			Cancelled: min(n.Cancelled, n.Prepare)},
		StateSuspect: {Count: n.Suspect, OldestAge: oldest(now, n.NextSuspect)},
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
	leased, err := store.CountLeased(ctx, asker{q: q}, store.KeysOf(channel))
	if err != nil {
		return nil, err
	}
	s[StateLeased] = StateStats{Count: leased.N}
	if leased.N > 0 {
		s[StateLeased] = StateStats{Count: leased.N, NextDueIn: leased.First.Sub(now)}
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
func oldest(now time.Time, raw []byte) time.Duration {
	if e := entryOf("", StatePrepare, raw); raw != nil && !e.EnqueuedAt.IsZero() {
		return max(0, now.Sub(e.EnqueuedAt))
	}
	return 0
}
