package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// Plot is a run: all that a seed draws, before anything begins.
type Plot struct {
	Seed     uint64
	Cycles   int
	Storm    time.Duration  // how long that of each cycle is
	Crew     []trial.Orders // the processes that handle, and come back after their ends
	Names    *trial.Orders  // one that enqueues to a few IDs; nil: none does
	Posts    []Post
	Recurs   []Recurring
	Calls    []Call // of operators
	Calm     bool   // no fault strikes, and handlers take no time
	Blows    []Blow
	Lossy    bool          // the server comes back with an older state
	Defect   string        // that is planted; empty: none
	Idle     time.Duration // after which the server closes a connection; 0: never
	Bulk     int           // bytes that the server takes in one argument at most; 0: any
	Reply    int           // bytes that the server sends in one reply at most; 0: any
	MaxDead  int           // dead letters that a channel keeps; 0: the default
	Waits    []Waiting     // for what was enqueued
	Looks    []Look        // at what is in hand
	Crons    []string      // expressions of users
	Bookings []Booking     // of a clerk, one a lull
	Stepped  bool          // the server's clock is set
	Late     time.Duration // so much later than the load the processes that handle begin
	Hangs    bool          // some handlers do, in storms
	Trace    string        // a file for all commands; empty: none
	Yield    float64       // so many of the points where goroutines meet yield, in a build of package disturb
}

// Post is a message that is enqueued.
type Post struct {
	At      time.Duration
	Channel string
	Plan    string
	Bytes   int
	How     string        // by which door
	Within  time.Duration // the end of its context; 0: it has none
	trial.Terms
}

// Blow is one fault.
type Blow struct {
	At, For time.Duration
	Kind    string
	Who     int    // of the crew; of a network's fault -1 is all of them
	What    string // a command, an error's text, a key
	Nth     int
}

func (b Blow) String() string {
	return fmt.Sprintf("%8.3fs %s for %v, who %d, nth %d %s", b.At.Seconds(), b.Kind, b.For.Round(time.Millisecond),
		b.Who, b.Nth, b.What)
}

// A run is some cycles: a storm of faults, a parting shot at each process, and a lull in which no fault strikes. What
// was there before the lull has been begun when it is half over, whoever holds it.
const (
	shots = 3 * time.Second
	lull  = 12 * time.Second
	half  = trial.LongestLease + 100*time.Millisecond
	lease = 2 * time.Second
)

// cycle is how long each of them is, length is how long all are, cycleAt is when one begins, and lullAt when its lull
// does.
func (p *Plot) cycle() time.Duration        { return p.Storm + shots + lull }
func (p *Plot) length() time.Duration       { return p.cycleAt(p.Cycles) }
func (p *Plot) cycleAt(c int) time.Duration { return time.Duration(c) * p.cycle() }
func (p *Plot) lullAt(c int) time.Duration  { return p.cycleAt(c) + p.Storm + shots }

// cycleOf is the cycle of a moment.
func (p *Plot) cycleOf(at time.Duration) int { return int(at / p.cycle()) }

// doors are the ways by which a message comes.
var doors = []string{"enqueue", "enqueue", "enqueue", "direct", "bare", "twins", "all"}

// plans of messages that anybody handles.
var plans = []string{
	trial.PlanOK, trial.PlanOK, trial.PlanOK, trial.PlanOK, trial.PlanRetry, trial.PlanAfter + "50",
	trial.PlanAfter + "1500", trial.PlanReject, trial.PlanTwice, trial.PlanPanic, trial.PlanGoexit,
	trial.PlanSlow + "30", trial.PlanDeaf + "800", trial.PlanThen + "1", trial.PlanThen + "3", trial.PlanFalter + "1",
	trial.PlanOK + "+40", trial.PlanOK + "+700", trial.PlanRetry + "+100", trial.PlanTimeout,
	trial.PlanAsk + "20", trial.PlanAsk + "300",
}

// alone are the plans that would end others of the same batch.
var alone = []string{trial.PlanPanic, trial.PlanGoexit, trial.PlanTimeout}

// The kinds of blows, by the hand that strikes them. What one hand does it does one after another; what two do comes at
// once.
var hands = [][]string{
	{"kill", "kill", "freeze", "freeze", "term", "corpse"},
	{"cut before", "cut unread", "cut after", "cut after", "cut after", "cut within", "cut all", "hole", "mute", "slow",
		"slice", "refuse", "error", "error"},
	{"kill server", "stop server", "stop server", "script flush", "client kill", "full", "wrong type", "read-only",
		"loading"},
}

// draw draws a run.
func draw(seed uint64) *Plot {
	r := rand.New(rand.NewPCG(seed, 0))
	p := &Plot{Seed: seed, Cycles: 2, Yield: pick(r, []float64{0, 0.02, 0.1, 0.4})}
	p.Storm = between(r, 13*time.Second, 17*time.Second)
	p.crew(r)
	p.beside(rand.New(rand.NewPCG(seed, loads)))
	p.posts(r)
	p.clerks(rand.New(rand.NewPCG(seed, bookings)))
	if p.Calm = seed%10 == 0; p.Calm {
		p.still()
		return p
	}
	for i := range hands {
		p.blows(rand.New(rand.NewPCG(seed, uint64(i+1))), hands[i])
	}
	p.clearKills(rand.New(rand.NewPCG(seed, loads+1)))
	for c := range p.Cycles {
		for who := range p.Crew {
			if r.IntN(2) == 0 {
				p.Blows = append(p.Blows, Blow{At: p.cycleAt(c) + p.Storm, For: shots, Kind: "shot", Who: who,
					Nth: 1 + r.IntN(2), What: pick(r, parting)})
			}
		}
	}
	p.climate(rand.New(rand.NewPCG(seed, climates)))
	p.crons(rand.New(rand.NewPCG(seed, crons)))
	p.backlog(rand.New(rand.NewPCG(seed, backlogs)))
	p.expires(rand.New(rand.NewPCG(seed, expiries)))
	p.waits(rand.New(rand.NewPCG(seed, waitings)))
	p.patient(rand.New(rand.NewPCG(seed, closings)))
	p.limited(rand.New(rand.NewPCG(seed, limits)))
	p.heap(rand.New(rand.NewPCG(seed, heaps)))
	p.recall(rand.New(rand.NewPCG(seed, recalls)))
	p.reads(rand.New(rand.NewPCG(seed, readings)))
	p.stubborn(rand.New(rand.NewPCG(seed, manners)))
	p.watch(rand.New(rand.NewPCG(seed, watches)))
	p.upgrade(rand.New(rand.NewPCG(seed, upgrades)))
	return p
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// loads is the stream of a seed from which the loads are drawn that stand beside the posts. Hands have those from 1 on.
const loads = 100

// beside draws loads of their own, with processes of their own.
func (p *Plot) beside(r *rand.Rand) {
	if r.IntN(3) == 0 {
		p.recurs(r, p.joins(r))
	}
	if r.IntN(3) == 0 {
		p.operates(r, p.joins(r))
	}
}

// joins is how processes that are drawn join the crew.
func (p *Plot) joins(r *rand.Rand) func(trial.Orders) {
	return func(o trial.Orders) {
		o.Name = fmt.Sprint("p", len(p.Crew))
		o.Lease, o.Seed = lease, r.Uint64()
		o.Grace = pick(r, []time.Duration{200 * time.Millisecond, 2 * time.Second})
		if o.Workers == 0 {
			o.Workers = 1 + r.IntN(8)
		}
		if o.Pull > 0 {
			o.Hold, o.Wait = lease, pick(r, []time.Duration{time.Second, 10 * time.Second})
		}
		o.Prefetch = pick(r, []int{1, 4, 16})
		p.Crew = append(p.Crew, o)
	}
}

// crew draws who handles. Each channel has somebody who takes from it.
func (p *Plot) crew(r *rand.Rand) {
	join := p.joins(r)
	for range 1 + r.IntN(2) {
		join(trial.Orders{Channels: []string{"plain"}})
	}
	pulls := r.IntN(2) == 0
	if pulls {
		join(trial.Orders{Channels: []string{"plain"}, Pull: 1 + r.IntN(8)})
	}
	for range r.IntN(3) {
		o := trial.Orders{Channels: []string{"high", "low"}, Workers: 2 + r.IntN(7)}
		if r.IntN(3) == 0 {
			o.Weights = []int{3, 1}
		}
		join(o)
	}
	if r.IntN(3) == 0 {
		o := trial.Orders{Channels: []string{"batch"}, Batch: 1 + r.IntN(10)}
		if r.IntN(2) == 0 {
			o.Timeout, o.Overlong = 4*time.Minute, true
		}
		join(o)
	}
	if r.IntN(3) == 0 {
		join(trial.Orders{Channels: []string{"pulled"}, Pull: 1 + r.IntN(8)})
		join(trial.Orders{Channels: []string{"pulled"}, Upkeep: true})
	}
	for len(p.Crew) < 3 {
		join(trial.Orders{Channels: []string{"plain"}})
	}
	if r.IntN(2) == 0 {
		p.Names = &trial.Orders{Name: "namer", Channels: []string{"plain"}, Enqueue: 1 + r.IntN(4),
			Names: 1 + r.IntN(20), Seed: r.Uint64(), Lease: lease}
	}
}

// posts draws the load: bursts, in storms for the most part.
func (p *Plot) posts(r *rand.Rand) {
	channels := p.posted()
	for n := 300 + r.IntN(100); len(p.Posts) < n; {
		at := p.cycleAt(r.IntN(p.Cycles)) + between(r, 0, p.Storm+shots)
		if r.IntN(10) == 0 {
			at = between(r, 0, p.length()-lull)
		}
		c, burst, gap := pick(r, channels), 1+r.IntN(12), 20*time.Millisecond
		if r.IntN(8) == 0 { // all at once
			burst, gap = 12+r.IntN(28), time.Microsecond
		}
		for range burst {
			post := Post{At: at, Channel: c, Plan: pick(r, plans), How: pick(r, doors)}
			switch post.How {
			case "twins":
				post.Plan = trial.PlanRetry
			case "bare", "all":
				post.Plan, _, _ = strings.Cut(post.Plan, "+")
			}
			if c == desk {
				post.Plan, post.How = pick(r, desked), "enqueue"
			}
			endless := post.Plan == trial.PlanTimeout && (p.pulls(c) || post.How != "enqueue" && post.How != "direct")
			if endless || c == "batch" && slices.Contains(alone, post.Plan) {
				post.Plan = trial.PlanOK
			}
			if post.Plan == trial.PlanOK && p.pulls(c) && r.IntN(8) == 0 {
				post.Plan = trial.PlanExtend + fmt.Sprint(between(r, lease/2, lease*3/2).Milliseconds())
			}
			if post.Plan == trial.PlanOK && !p.pulls(c) && c != desk && r.IntN(40) == 0 {
				post.Plan = trial.PlanFlood
			}
			if r.IntN(40) == 0 && post.How != "bare" && post.How != "twins" {
				post.Bytes = 100 << 10
			}
			p.Posts = append(p.Posts, post)
			at += between(r, 0, gap)
		}
	}
	slices.SortStableFunc(p.Posts, func(a, b Post) int { return int(a.At - b.At) })
}

// blows draws what one hand strikes.
func (p *Plot) blows(r *rand.Rand, kinds []string) {
	for c := range p.Cycles {
		at := p.cycleAt(c)
		for range r.IntN(5) {
			b := Blow{Kind: pick(r, kinds), Who: r.IntN(len(p.Crew)), Nth: 1 + r.IntN(5)}
			switch b.Kind {
			case "freeze":
				b.For = between(r, 100*time.Millisecond, 3*lease)
			case "stop server":
				b.For = between(r, lease*6/10, lease*9/10)
				if r.IntN(4) == 0 {
					b.For = between(r, lease, 2*lease)
				}
			case "corpse":
				b.For = between(r, time.Second, 5*time.Second)
			case "kill server":
				b.For = between(r, 0, 2*time.Second)
			case "cut before", "cut unread", "cut after", "cut within":
				b.For, b.What = between(r, 100*time.Millisecond, 3*time.Second), pick(r, aimed)
			case "error":
				b.For, b.What = between(r, 200*time.Millisecond, 2*time.Second), pick(r, trial.Refusals)
				b.Nth = r.IntN(len(aimed))
			case "wrong type":
				b.For, b.What = between(r, 200*time.Millisecond, 1500*time.Millisecond), pick(r, mistaken)
			case "hole", "mute", "slow", "slice", "full", "refuse", "read-only", "loading":
				b.For = between(r, 200*time.Millisecond, 3*time.Second)
			}
			if r.IntN(3) == 0 && b.Kind != "corpse" {
				b.Who = -1
			}
			at += between(r, 100*time.Millisecond, 6*time.Second)
			if b.At = at; at+b.For > p.cycleAt(c)+p.Storm {
				break
			}
			p.Blows = append(p.Blows, b)
			at += b.For
		}
	}
}

// sort puts posts, blows and calls in the order of time.
func (p *Plot) sort() {
	slices.SortStableFunc(p.Calls, func(a, b Call) int { return int(a.At - b.At) })
	slices.SortStableFunc(p.Posts, func(a, b Post) int { return int(a.At - b.At) })
	slices.SortStableFunc(p.Blows, func(a, b Blow) int { return int(a.At - b.At) })
}
