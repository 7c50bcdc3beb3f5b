package store

import (
	"context"
	"fmt"
	"strconv"
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
	Known        bool      // receivers are listed, living or dead
	MoreToForget bool      // more outcomes than one sweep forgets are over
	Timetable
	Unjudged   bool          // one that may be dead is left alone until another beat
	Again      time.Duration // until one that died lately, or whose lease ran out, is to be looked at; 0: none
	Claims     []string      // members of receivers.dead that are left to the caller
	Unreadable error         // suspect, delay or leased holds something that is not shunt's
	Repeated   bool          // it was sent twice, and nobody has heard what the first one claimed
}

// RunSweep lists receivers whose leases ran out as dead, and claims dead ones whose lists are to be looked at. It looks
// for suspects and at delay on the way. It may be sent twice: what the first one claimed comes up again when the claim
// is over.
func RunSweep(ctx context.Context, l *link.Link, k *Keys, q Sweeping) (s SweepAnswer, err error) {
	c := link.NewCall()
	AddSweep(c, k, q)
	if err := l.Run(ctx, c); err != nil {
		return s, err
	}
	s, err = SweepReply(c.Replies[0])
	s.Repeated = c.Repeated
	return s, err
}

// AddSweep is RunSweep for a caller that fills a pipeline.
func AddSweep(c *link.Call, k *Keys, q Sweeping) {
	c.AddScript(Sweep, 12, k.Receivers, k.DeadReceivers, k.Suspect, k.Delay, k.Keeper,
		k.IDs, k.Cancelled, k.Done, k.Kept, k.Running, k.Waited, k.Leased,
		ms(q.Fence.At), q.Fence.Age.Milliseconds(), q.MaxClaims, q.Bid, q.KeepFor.Milliseconds(), ms(q.Fence.Since),
		q.ClaimFor.Milliseconds())
}

// SweepReply reads the reply to AddSweep.
func SweepReply(rep link.Reply) (s SweepAnswer, err error) {
	parts, err := redis.Strings(rep.Any(), rep.Err)
	if err != nil {
		return s, err
	}
	for i := 0; i+1 < len(parts); i += 2 {
		if !s.take(parts[i], parts[i+1]) {
			return s, fmt.Errorf("shunt: sweep answered %q for %q", parts[i+1], parts[i])
		}
	}
	if s.Now.IsZero() {
		return s, fmt.Errorf("shunt: sweep answered %q", parts)
	}
	return s, nil
}

// take takes in one part of the reply; lua/sweep.lua tells what each name means. false: it is none, or no number.
func (s *SweepAnswer) take(name, value string) bool {
	switch name {
	case "unreadable":
		s.Unreadable = redis.Error(value)
		return true
	case "claim":
		s.Claims = append(s.Claims, value)
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch name {
	case "now":
		s.Now = time.UnixMilli(n)
	case "died":
		s.Died = int(n)
	case "suspects":
		s.Suspects = n > 0
	case "due":
		s.Scheduled, s.NextDue = true, bounded(n, time.Microsecond)
	case "lapse":
		s.Leased, s.NextLapse = true, bounded(n, time.Microsecond)
	case "keeper":
		s.Keeper = n == 1
	case "known":
		s.Known = n > 0
	case "unforgotten":
		s.MoreToForget = n == 1
	case "unjudged":
		s.Unjudged = n == 1
	case "again":
		s.Again = bounded(n+1, time.Millisecond)
	default:
		return false
	}
	return err == nil
}
