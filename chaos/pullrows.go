package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// Bounds of what was leased.
const (
	// brought is how late the end of a lease comes where its channel's keeper was killed: others look every 5 s.
	brought = 7 * time.Second
	// handedOut is within what time what waits is handed out to a puller that waits, by p99.
	handedOut = 500 * time.Millisecond
)

// pullRows are those of pullers.
var pullRows = []row{
	{
		id:     "P-kill",
		what:   "SIGKILL of pullers, again and again, one survives",
		run:    pullKills,
		rounds: 6,
		short:  true,
		drain:  20 * time.Second,
		ends:   brought,
		waits:  handedOut,
		pulls:  true,
		alone:  true,
	},
	{
		id:     "P-freeze",
		what:   "SIGSTOP of a puller for three leases, then SIGCONT",
		run:    pullFreezes,
		rounds: 6,
		short:  true,
		drain:  20 * time.Second,
		ends:   brought,
		pulls:  true,
	},
	{
		id:     "P-pause",
		what:   "redis-server stopped for longer than a lease, with leases out that are settled within the grace",
		run:    pullPauses,
		rounds: 3,
		short:  true,
		drain:  20 * time.Second,
		pulls:  true,
	},
	{
		id:     "P-gone",
		what:   "requests whose context ends while a take is under way, some while redis-server is stopped",
		run:    pullGone,
		rounds: 3,
		short:  true,
		drain:  15 * time.Second,
		pulls:  true,
	},
	{
		id:     "P-full",
		what:   "maxmemory reached, noeviction, drained by pullers",
		conf:   []string{"maxmemory-policy noeviction"},
		run:    full,
		rounds: 2,
		drain:  60 * time.Second,
		pulls:  true,
	},
	{
		id:     "P-restart",
		what:   "redis-server: SIGKILL and restart under pullers, AOF always",
		conf:   always,
		run:    crashes,
		rounds: 4,
		short:  true,
		drain:  30 * time.Second,
		pulls:  true,
	},
	{
		id:     "P-beside",
		what:   "SIGKILL of pullers and of receivers on one channel, again and again",
		run:    pullBeside,
		rounds: 4,
		short:  true,
		drain:  30 * time.Second,
		ends:   brought,
		alone:  true,
	},
	{
		id:       "P-upkeep",
		what:     "SIGKILL of the process that keeps channels which nobody pulls from; another takes over",
		channels: []string{"b", "d", "e"},
		run:      pullUpkeep,
		rounds:   3,
		short:    true,
		drain:    20 * time.Second,
		pulls:    true,
	},
	{
		id:     "P-lines",
		what:   "a black hole, lost replies, and cut lines under pullers, again and again",
		run:    pullLines,
		rounds: 2,
		drain:  30 * time.Second,
		pulls:  true,
	},
}

func init() { rows = append(rows, pullRows...) }

// pulling waits until a puller pulls.
func (w *world) pulling(xs ...*worker) {
	w.Helper()
	for _, x := range xs {
		w.until(10*time.Second, x.Name+" pulls", func() bool { return w.told(x.Name, trial.Pulling) > 0 || x.Gone() })
	}
}

// has waits until a puller has been given so many messages.
func (w *world) has(x *worker, n int) {
	w.Helper()
	w.until(10*time.Second, "it has pulled", func() bool { return w.told(x.Name, trial.Pulled) >= n || x.Gone() })
}

func pullKills(w *world, r *rand.Rand, long bool) {
	n, rate := sized(long, 5, 20), sized(long, 200, 250)
	often := trial.Orders{Pull: 8}
	w.pulling(w.start(trial.Orders{Name: "survivor", Workers: 32}), w.start(often), w.start(often))
	w.flow(rate, slowly...)
	for range n {
		time.Sleep(between(r, 300*time.Millisecond, time.Second))
		xs := w.all() // the survivor comes first
		w.kill(xs[1+r.IntN(len(xs)-1)])
		w.start(often)
	}
}

// slowly is usual for pullers whose holders are to be struck in the midst of it.
var slowly = slices.Concat(usual, []string{trial.PlanSlow + "100", trial.PlanDeaf + "150", trial.PlanSlow + "100",
	trial.PlanExtend + "2500",
	trial.PlanDeaf + "100"})

// pullFreezes stops a puller in the midst of handlers that do not look at the time. What it says when it wakes is too
// late.
func pullFreezes(w *world, r *rand.Rand, long bool) {
	const hold = time.Second
	w.pulling(w.start(trial.Orders{Name: "other", Hold: 20 * time.Second, Workers: 16}))
	for range sized(long, 1, 3) {
		x := w.start(trial.Orders{Hold: hold, Pull: 1})
		w.flow(100, trial.PlanOK, trial.PlanDeaf+"700", trial.PlanSlow+"100", trial.PlanDeaf+"500", trial.PlanRetry)
		busy := func() bool { return w.told(x.Name, trial.Pulled) >= w.told(x.Name, trial.Answered)+4 }
		w.until(20*time.Second, "it is busy when it stops", func() bool {
			if !busy() {
				return false
			}
			if _ = x.Stop(); !busy() { // it has got on meanwhile
				_ = x.Cont()
				return false
			}
			return true
		})
		w.struck("stop", x)
		w.still()
		time.Sleep(brought) // it may be the keeper, and then others end its leases later
		_ = x.Cont()
		w.until(
			5*time.Second,
			"the thawed puller hears that its lease is lost",
			func() bool { return w.told(x.Name, trial.Answered+"\t"+trial.Fail) > 0 },
			// by a receipt no Event tells of it
		)
	}
}

// pullPauses stops redis-server until every lease is over. Handlers end when it is back, within the grace, and after
// others have had time to end the leases.
func pullPauses(w *world, r *rand.Rand, long bool) {
	const (
		hold  = 8 * time.Second // of which a quarter is the grace
		pause = hold + time.Second
		taken = 3 * time.Second // in which all is taken
		again = 1400 * time.Millisecond
	)
	for range 4 {
		w.start(trial.Orders{Hold: hold, Workers: 16, Pull: 1})
	}
	w.pulling(w.all()...)
	for range sized(long, 1, 3) {
		stop := time.Now().Add(taken)
		w.enqueue(60, fmt.Sprint(trial.PlanUntil, stop.Add(pause+again).UnixMilli()))
		w.until(taken, "all is leased", func() bool {
			n, _ := redis.Int(w.server.TryDo("ZCARD", store.KeysOf(w.channels[0]).Leased))
			return n == 60
		})
		time.Sleep(time.Until(stop))
		w.server.Stop()
		w.struck("stop the server")
		time.Sleep(time.Until(stop.Add(pause)))
		w.server.Cont()
		time.Sleep(time.Until(stop.Add(pause + again)))
		w.drained(10 * time.Second)
	}
}

// pullGone has requests end while their take is under way, at random, on a slow line and while redis-server is stopped.
// They ask for leases that outlast the row: what stays taken is not drained.
func pullGone(w *world, r *rand.Rand, long bool) {
	for range 2 {
		w.start(trial.Orders{Hold: 10 * time.Minute, Hurry: 60 * time.Millisecond, Seed: r.Uint64(),
			Reply: 250 * time.Millisecond})
	}
	w.pulling(w.all()...)
	w.proxy.Slow(10*time.Millisecond, 0, 0)
	for range sized(long, 3, 10) {
		w.flow(150, trial.PlanOK)
		time.Sleep(between(r, 500*time.Millisecond, time.Second))
		w.struck("gone")
		w.still()
		w.enqueue(60, trial.PlanOK)
		w.server.Stop()
		time.Sleep(between(r, 50*time.Millisecond, 800*time.Millisecond))
		w.server.Cont()
		w.struck("gone while it is stopped")
	}
	w.proxy.Slow(0, 0, 0)
	time.Sleep(3 * time.Second) // Close waits for what is given back no longer than for a reply
	for _, x := range w.all() {
		w.until(
			5*time.Second,
			"it gives back what nobody waits for",
			func() bool { return w.told(x.Name, "released") > 0 },
		)
		_ = x.Term()
		<-x.Ended()
		if x.Code() != 0 {
			w.Errorf("%s ended with %d: %s", x.Name, x.Code(), x.Said())
		}
		w.forget(x)
	}
	w.start(trial.Orders{})
	w.enqueue(50, trial.PlanOK)
}

// pullBeside has receivers and pullers beside each other, and kills both.
func pullBeside(w *world, r *rand.Rand, long bool) {
	kinds := []trial.Orders{{}, {Pull: usualPull}}
	for i := range 4 {
		w.start(kinds[i%2])
	}
	w.flow(sized(long, 200, 600), slowly...)
	for range sized(long, 5, 20) {
		time.Sleep(between(r, 400*time.Millisecond, 1200*time.Millisecond))
		xs := w.all()
		x := xs[r.IntN(len(xs))]
		w.kill(x)
		w.start(kinds[min(x.Pull, 1)])
	}
}

// pullUpkeep has nobody but two keepers look after channels with delayed messages and with leases of a dead process.
// One keeper is killed, and the other one brings what is due.
func pullUpkeep(w *world, r *rand.Rand, long bool) {
	keepers := []*worker{w.start(trial.Orders{Upkeep: true}), w.start(trial.Orders{Upkeep: true})}
	for _, x := range keepers {
		w.until(10*time.Second, "it keeps", func() bool { return w.told(x.Name, trial.Keeping) > 0 })
	}
	waiting := func() (n int) {
		for _, c := range w.channels {
			m, _ := redis.Int(w.server.TryDo("LLEN", store.KeysOf(c).Prepare))
			n += m
		}
		return n
	}
	for round := range sized(long, 1, 3) {
		x := w.start(trial.Orders{Workers: 4, Hold: 3 * time.Second, Pull: 2})
		w.pulling(x)
		w.enqueue(8*len(w.channels), trial.PlanHold+x.Name)
		w.has(x, 4)
		w.kill(x)
		due := time.Now().Add(4 * time.Second) // as the leases are by then
		w.enqueue(10*len(w.channels), trial.PlanOK+"+2500", trial.PlanOK+"+4000")
		w.kill(keepers[round%2])
		keepers[round%2] = w.start(trial.Orders{Upkeep: true})
		w.until(time.Until(due)+brought, "all is ready", func() bool { return waiting() == w.busy() })
		w.log.Say(trial.Entry{Op: trial.Ready, Phase: trial.OK, Due: due})
	}
	w.start(trial.Orders{Workers: 16})
}

// pullLines cuts, mutes and swallows what pullers say and hear.
func pullLines(w *world, r *rand.Rand, long bool) {
	for range 3 { // a lost reply is asked for again long before its lease is over, and costs no attempt
		w.start(trial.Orders{Hold: 2 * replyTimeout})
	}
	w.pulling(w.all()...)
	w.flow(150, usual...)
	for range sized(long, 6, 40) {
		time.Sleep(between(r, 100*time.Millisecond, 600*time.Millisecond))
		x := w.all()[r.IntN(3)]
		lasts := between(r, 100*time.Millisecond, 1500*time.Millisecond)
		switch r.IntN(4) {
		case 0:
			w.lasting("hole", lasts, x)
			x.proxy.Hole(true)
			time.Sleep(lasts)
			x.proxy.Hole(false)
		case 1:
			w.lasting("mute", lasts+replyTimeout, x)
			x.proxy.DropReplies(true)
			time.Sleep(lasts)
			x.proxy.DropReplies(false)
		case 2:
			w.lasting("cut all", 0, x)
			x.proxy.CutAll()
		default:
			w.lasting("cut after", lasts, x)
			rule := x.proxy.On(redistest.Command("", "{"+w.channels[0]+"}"), 1+r.IntN(8), redistest.CutAfter)
			time.Sleep(lasts)
			rule.Remove()
		}
	}
}
