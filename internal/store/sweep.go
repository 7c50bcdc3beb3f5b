package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
)

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
