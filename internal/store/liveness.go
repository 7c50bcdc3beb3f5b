package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// BeatAnswer is the reply to a beat.
type BeatAnswer struct {
	Alive bool      // the entry is among the receivers; a beat never brings back one that is gone
	Now   time.Time // by the server's clock

	// Earliest is how long until the earliest entry of the channel runs out, negative if one has. It counts only where
	// there is one.
	Earliest time.Duration
	Others   bool
}

// AddBeat extends an incarnation's entry by its term. It may be sent again.
func AddBeat(c *link.Call, k *Keys, i Incarnation) {
	c.AddScript(Beat, 1, k.Receivers, i.Name, i.Term().Milliseconds())
}

// BeatReply reads the reply to AddBeat.
func BeatReply(rep link.Reply) (b BeatAnswer, err error) {
	ns, err := redis.Int64s(rep.Value, rep.Err)
	if err == nil && len(ns) < 2 {
		err = fmt.Errorf("shunt: beat answered %v", rep.Value)
	}
	if err != nil {
		return b, err
	}
	b.Alive, b.Now = ns[0] == 1, time.UnixMilli(ns[1])
	if len(ns) > 2 {
		b.Others, b.Earliest = true, boundedMS(ns[2])
	}
	return b, nil
}

// Fence is from when on a caller's view of Redis counts, by the server's clock. The zero Fence judges nobody.
type Fence struct {
	At    time.Time     // of the last beat that was answered in time
	Since time.Time     // of the first beat of the unbroken row that it belongs to
	Age   time.Duration // how old At may be when the script runs
}

// ms is a server's time as scripts take it; 0 for none.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Sweeping is what a sweep asks.
type Sweeping struct {
	Fence     Fence
	MaxClaims int
	ClaimFor  time.Duration // for so long a claimed dead receiver is left to the caller
	Bid       string        // the incarnation that asks to be keeper; empty: none
	KeepFor   time.Duration // for so long a keeper keeps its place
}

// SweepAnswer is the reply to a sweep.
type SweepAnswer struct {
	Now          time.Time // by the server's clock
	Died         int       // receivers that were found dead just now
	Suspects     bool      // there are some to take
	Keeper       bool      // the bid was accepted
	MoreToForget bool      // more outcomes than one sweep forgets are over
	Scheduled    bool      // something lies in delay
	NextDue      time.Duration
	Unjudged     bool          // a dead receiver is left alone until the fence allows more
	Again        time.Duration // when one that died lately is to be looked at again; 0: none
	Claims       []string      // members of receivers.dead that are left to the caller
	Unreadable   error         // suspect or delay holds something that is not shunt's
}

// RunSweep lists receivers whose leases ran out as dead, and claims dead ones whose lists are to be looked at. It looks
// for suspects and at delay on the way. It may be sent again: what the first one claimed comes up again when the claim
// is over.
func RunSweep(ctx context.Context, l *link.Link, k *Keys, q Sweeping) (s SweepAnswer, err error) {
	c := link.NewCall()
	c.AddScript(Sweep, 11, k.Receivers, k.DeadReceivers, k.Suspect, k.Delay, k.Keeper,
		k.IDs, k.Cancelled, k.Done, k.Kept, k.Running, k.Waited,
		ms(q.Fence.At), q.Fence.Age.Milliseconds(), q.MaxClaims, q.Bid, q.KeepFor.Milliseconds(), ms(q.Fence.Since),
		q.ClaimFor.Milliseconds())
	if err := l.Run(ctx, c); err != nil {
		return s, err
	}
	vs, err := redis.Values(c.Replies[0].Value, nil)
	if err == nil && len(vs) < 6 {
		err = fmt.Errorf("shunt: sweep answered %v", c.Replies[0].Value)
	}
	if err != nil {
		return s, err
	}
	number := func(i int) (int64, bool) { n, err := redis.Int64(vs[i], nil); return n, err == nil }
	now, _ := number(0)
	died, _ := number(1)
	suspects, _ := number(2)
	kept, _ := number(3)
	due, scheduled := number(4)
	again, looks := number(5)
	s = SweepAnswer{
		Now: time.UnixMilli(now), Died: int(died), Suspects: suspects > 0, Keeper: kept > 0, MoreToForget: kept == 2,
		Scheduled: scheduled, NextDue: boundedMS(due), Unjudged: looks && again < 0,
	}
	if looks && again >= 0 {
		s.Again = boundedMS(again + 1)
	}
	for _, v := range []any{vs[2], vs[4]} {
		if text, _ := redis.String(v, nil); strings.Contains(text, " ") {
			s.Unreadable = redis.Error(text)
		}
	}
	s.Claims, err = redis.Strings(vs[6:], nil)
	return s, err
}

// ReapAnswer is the reply to the reap of one list.
type ReapAnswer struct {
	Late                   bool // the fence is too old: nothing was moved
	Prepare, Suspect, Dead int  // messages that went there
	Trimmed, Left, Bytes   int  // dropped from dead; still in the list; of what was moved
}

// Why a message that was recovered too often is dead.
var (
	diedReason = element.FailureField("shunt: in the hands of a dying process 4 times")
	cutReason  = element.FailureField("shunt: in the hands of a receiver whose connection broke, or whose process " +
		"died, 4 times: look at the size of its take and its verdict")
)

// AddReap moves up to n elements, or some more than so many bytes, of a dead receiver's list to where they are taken
// again. Where dead.Counted is set it raises the recoveries. So a message which keeps killing its process, or breaking
// its connection, becomes a suspect, and then dead. A superseded receiver needs no fence. It may be sent again.
func AddReap(c *link.Call, k *Keys, list string, fence Fence, dead DeadReceiver, n, bytes int, b *Bounds) {
	raised, reason := 0, diedReason
	if dead.Counted {
		raised = 1
	}
	if dead.Superseded {
		reason = cutReason
	}
	c.AddScript(Reap, 11, k.Receivers, list, k.Prepare, k.Suspect, k.Dead, k.IDs, k.Cancelled, k.Done, k.Kept,
		k.Running, k.Waited, ms(fence.At), fence.Age.Milliseconds(), raised, bytes, max(0, b.MaxDead),
		max(0, b.DeadFor.Milliseconds()), reason, max(0, b.MaxDone), max(0, b.MaxDoneBytes))
	for range n {
		s := element.NewSerial()
		c.AddElements(s[:])
	}
}

// ReapReply reads the reply to AddReap.
func ReapReply(rep link.Reply) (r ReapAnswer, err error) {
	ns, err := redis.Ints(rep.Value, rep.Err)
	if err != nil {
		return r, err
	}
	if len(ns) < 6 {
		return ReapAnswer{Late: true}, nil
	}
	return ReapAnswer{Prepare: ns[0], Suspect: ns[1], Dead: ns[2], Trimmed: ns[3], Left: ns[4], Bytes: ns[5]}, nil
}

// FinishDead ends the sweep of a dead receiver whose lists were found empty: it is looked at again later, and forgotten
// after an hour. It may be sent again.
func FinishDead(ctx context.Context, l *link.Link, k *Keys, member string, d DeadReceiver) error {
	doing := k.AllDoing(d.Incarnation)
	c := link.NewCall()
	keys := append([]any{k.Receivers, k.DeadReceivers}, args(doing)...)
	c.AddScript(Finish, len(keys), append(keys, member, d.Death)...)
	return l.Run(ctx, c)
}

// NonEmpty are those of some lists that are there, asked one by one in a pipeline.
func NonEmpty(ctx context.Context, l *link.Link, lists []string) (some []string, err error) {
	c := link.NewCall()
	for _, list := range lists {
		c.Add("EXISTS", list)
	}
	if err := l.Run(ctx, c); err != nil {
		return nil, err
	}
	for i, rep := range c.Replies {
		if n, _ := redis.Int(rep.Value, nil); n > 0 {
			some = append(some, lists[i])
		}
	}
	return some, nil
}

// CountNonEmpty is how many of some lists are there, by one command.
func CountNonEmpty(ctx context.Context, l *link.Link, lists []string) (int, error) {
	c := link.NewCall()
	c.Add("EXISTS", args(lists)...)
	if err := l.Run(ctx, c); err != nil {
		return 0, err
	}
	return redis.Int(c.Replies[0].Value, nil)
}
