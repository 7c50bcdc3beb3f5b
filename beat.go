package shunt

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const minRefuse = 225 * time.Millisecond // between beats that fail, less the jitter: 5 a second, and several within the shortest lease

// pulse is what the beat's goroutine knows.
type heart struct {
	next    time.Time     // of the next beat
	last    time.Time     // sending of the last one
	refuse  time.Duration // the wait after beats that failed
	good    time.Time     // sending of the last beat, if it was answered in time
	server  int64         // the server's time in ms then: the fence of what is judged after it
	since   int64         // likewise of the first in an unbroken row of good ones
	swept   time.Time     // when the sweep under way has to give way to the next beat
	stepped bool          // that sweep has taken a step
	turn    int           // number of the channel that is swept first, since the others had their turn
	lists   int           // that the next pipeline reaps, by the bytes that the last one moved
}

// beat is the goroutine that keeps the receiver alive and looks after the dead.
//
// An entry outlives its last beat by four thirds of a lease and is extended every third, so that three beats may fail. A beat tells of
// those that have run out or are about to, so that what a killed receiver held is found as soon as its term is over; a sweep every 5 s
// or so looks after all else.
func (r *receiver) beat() {
	third := r.conf.Lease / 3
	p := &heart{next: time.Now().Add(link.Jitter(third))}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := p.next
		for _, in := range r.channels {
			if in.due.Before(next) {
				next = in.due
			}
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-r.BeatRequests:
			if p.refuse == 0 {
				p.next = time.Now()
			}
		case in := <-r.SweepRequests:
			r.channels[in.Index].due = time.Now()
		case <-r.PoolCtx.Done():
			return
		}
		now := time.Now()
		due := func(in *channel) bool { return !now.Before(in.due) }
		if p.refuse == 0 && now.Sub(p.last) > r.conf.Lease/6 && !r.Stopped() && slices.ContainsFunc(r.channels, due) {
			p.next = now // so that a sweep may judge, and has time to: one that began just before a beat would give way to it, again and again
		}
		if !time.Now().Before(p.next) {
			began := time.Now()
			p.last = began
			wait, err := r.beatOnce(p, began)
			if err != nil {
				p.refuse = max(min(max(2*p.refuse, third/16), third/2), minRefuse)
				wait = time.Since(began) + link.Jitter(p.refuse)
				p.good = time.Time{}
			} else {
				p.refuse = 0
			}
			p.next = began.Add(wait)
		}
		for k, first := 0, p.turn; k < len(r.channels); k++ {
			i := (first + k) % len(r.channels)
			in := r.channels[i]
			if !time.Now().Before(p.next) {
				p.turn = i
				break // with many channels and a slow line the rest has to wait for the beat
			}
			if now := time.Now(); !now.Before(in.due) && !r.Stopped() {
				in.due = now.Add(link.Jitter(sweepEvery))
				if in.again.After(now) { // this one came before its time, by a hint
					in.due = in.again
				}
				p.swept, p.stepped = now.Add(min(r.conf.Lease/6, sweepEvery)), false
				switch err := r.sweep(p, in); {
				case err == errLate: // it goes on behind the next beat, which comes at once if that is sure to help
					if p.good.Equal(p.last) {
						p.next = time.Now()
					}
					in.due = p.next
					if again := in.asked.Add(r.claim()); again.Before(in.due) {
						in.due = again
					}
				case err != nil:
					in.claimed, in.burying = nil, ""
					if !r.ReportFatal(in.Channel, err) { // what it has claimed comes up again
						in.again = time.Now().Add(r.claim() + link.Jitter(100*time.Millisecond))
						in.due = in.again
					}
				}
			} else if r.Stopped() {
				in.due = now.Add(sweepEvery)
			}
		}
	}
}

// beatOnce beats on every channel and says how long after its sending to beat again.
func (r *receiver) beatOnce(p *heart, sent time.Time) (time.Duration, error) {
	inc := r.Live()
	c := link.NewCall()
	for _, in := range r.channels {
		c.AddScript(store.Beat, 1, in.Receivers, inc.Name, inc.Term().Milliseconds())
	}
	if err := r.s.Pulse.Run(r.PoolCtx, c); err != nil {
		r.ReportFatal(r.channels[0].Channel, err)
		return 0, err
	}
	took := time.Since(sent)
	wait := link.Jitter(r.conf.Lease / 3)
	gone, over := false, false
	var server int64
	for i, rep := range c.Replies {
		ns, err := redis.Int64s(rep.Value, nil)
		if err != nil || len(ns) < 2 {
			return 0, fmt.Errorf("shunt: beat answered %v", rep.Value)
		}
		gone = gone || ns[0] == 0
		server = ns[1]
		if len(ns) == 3 {
			switch ends := time.Duration(ns[2]) * time.Millisecond; {
			case ends < 0:
				r.channels[i].due, over = sent, true
			case ends < wait: // somebody has not beaten for long
				wait = ends + 5*time.Millisecond
			}
		}
	}
	pausing := r.Pausing() // asked first: a handover ends with another incarnation, and then with its pause
	if r.Live().Name != inc.Name || gone && pausing {
		return wait, nil // the one that beat has ended or is ending, and why is known
	}
	if gone {
		r.LoseLease(fmt.Errorf("shunt: the receiver's entry is gone: %w", ErrLeaseLost))
		return wait, nil
	}
	r.Renew(sent)
	// Only who has had Redis, and its clock, in sight all the time may call another dead: not who was frozen between two beats.
	steady := took <= r.conf.Lease/6 && sent.Sub(p.good) <= r.conf.Lease/2 && abs(sent.Sub(p.good).Milliseconds()-(server-p.server)) < (r.conf.Lease/4).Milliseconds()
	if !steady {
		p.since = server
	}
	p.good, p.server = sent, server
	if took > r.conf.Lease/6 {
		p.good = time.Time{}
	}
	if early := r.conf.Lease/4 - time.Duration(server-p.since)*time.Millisecond; over && !p.good.IsZero() && early >= 0 { // when the row allows a judgement
		wait = min(wait, early+5*time.Millisecond)
	}
	return wait, nil
}

func abs(n int64) int64 { return max(n, -n) }

// fence is the server's time that a sweep's judgement counts from, or 0 where the last beat allows none.
func (p *heart) fence() int64 {
	if p.good.IsZero() {
		return 0
	}
	return p.server
}
