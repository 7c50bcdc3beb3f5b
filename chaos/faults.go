package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// row is one line of the fault matrix that takes worker processes and a server of its own.
type row struct {
	id, what string
	conf     []string // lines of redis.conf
	channels []string // beside the first
	run      func(w *world, r *rand.Rand, long bool)
	rounds   int           // of the long form
	short    bool          // has a place in make test
	drain    time.Duration // for what is left to be drained once all is healed
	recover  time.Duration // p99 of fault to the next handling
	slowest  time.Duration // the longest of these
	late     time.Duration // p99 of due to handled
	ends     time.Duration // p99 of a lease's end to the next take
	waits    time.Duration // p99 of what waits until it is pulled
	pulls    bool          // its workers pull
	lossy    bool          // the durability setting promises nothing
	alone    bool          // measures, or loads the machine: nothing else goes on beside it in the long form
}

// play is one round of a row, on a server of its own.
func (r *row) play(t testing.TB, s *redistest.Server, defect string, seed uint64, long bool) *trial.Verdict {
	t.Helper()
	w := newWorld(t, s, defect, r.channels...)
	w.pulls = r.pulls
	w.h = trial.History{Lossy: r.lossy, Recover: r.recover, Slowest: r.slowest, Late: r.late, Ends: r.ends,
		Waits: r.waits}
	if !long && r.alone { // others load the machine, and a process may take seconds to start
		w.h.Waits = 0
	}
	r.run(w, newRand(seed), long)
	return w.end(r.drain)
}

const (
	lease = 2 * time.Second
	soon  = 3 * time.Second // a killed process's messages are handled again, at that lease

	replyTimeout = 3 * time.Second // of a Queue by default: until then a lost reply is not detected
)

// usual is a load in which every verdict has its part.
var usual = []string{
	trial.PlanOK,
	trial.PlanOK,
	trial.PlanRetry,
	trial.PlanOK,
	"after:50",
	trial.PlanOK,
	trial.PlanSlow + "20",
	trial.PlanOK,
	trial.PlanOK,
	trial.PlanReject,
	trial.PlanOK,
	trial.PlanPanic,
	trial.PlanOK,
	trial.PlanTwice,
	trial.PlanOK + "+100",
	trial.PlanGoexit,
	trial.PlanOK,
	trial.PlanRetry + "+50",
	trial.PlanOK,
	trial.PlanOK,
}

var always = []string{"appendonly yes", "appendfsync always"}

// rows are all of them, but for those of pullers; those of single cells are in cells.go.
var rows = []row{
	{
		id:     "F0",
		what:   "no fault",
		run:    calm,
		rounds: 1,
		drain:  10 * time.Second,
		late:   5 * time.Millisecond,
		alone:  true,
	},
	{
		id:       "F0 order",
		what:     "no fault, strict order",
		channels: []string{"low"},
		run:      ordered,
		rounds:   1,
		drain:    20 * time.Second,
	},
	{
		id:       "F0 shares",
		what:     "no fault, weighted channels",
		channels: []string{"low"},
		run:      shared,
		rounds:   1,
		drain:    20 * time.Second,
	},
	{
		id:      "F1",
		what:    "SIGKILL of a worker, again and again",
		run:     kills,
		rounds:  1,
		short:   true,
		drain:   20 * time.Second,
		recover: soon,
		slowest: soon + lease/2, // who had claimed them was killed, too
		alone:   true,
	},
	{
		id:      "F1 survivor",
		what:    "SIGKILL of 64 one-second handlers, one survivor, at the default lease",
		run:     survivor,
		rounds:  3,
		drain:   20 * time.Second,
		recover: 15 * time.Second,
	},
	{
		id:      "F2",
		what:    "SIGSTOP for three leases, then SIGCONT",
		run:     zombies,
		rounds:  10,
		short:   true,
		drain:   20 * time.Second,
		recover: soon,
	},
	{
		id:      "F2 swept",
		what:    "the same, with its entry swept away",
		run:     forgotten,
		rounds:  2,
		drain:   20 * time.Second,
		recover: soon,
	},
	{
		id:     "F3",
		what:   "SIGSTOP for half a lease; redis-server stopped for 0.9 of a lease under 8 receivers",
		run:    pauses,
		rounds: 3,
		drain:  20 * time.Second,
	},
	{
		id:     "F4 poison",
		what:   "a message that kills its process, among 1,000",
		run:    poison,
		rounds: 2,
		drain:  60 * time.Second,
	},
	{id: "F5", what: "SIGTERM under load", run: terms, rounds: 10, short: true, drain: 20 * time.Second},
	{id: "F7", what: "a black hole", run: holes, rounds: 1, drain: 30 * time.Second, recover: lostReply},
	{
		id:      "F8",
		what:    "replies dropped for 10 s",
		run:     mute,
		rounds:  2,
		drain:   30 * time.Second,
		recover: replyTimeout + lostReply,
	},
	{id: "F9", what: "a slow line: +200 ms, 1 KB/s, slices of 1 byte", run: slow, rounds: 1, drain: 60 * time.Second},
	{
		id:     "F10",
		what:   "redis-server: SIGKILL and restart, AOF always",
		conf:   always,
		run:    crashes,
		rounds: 6,
		short:  true,
		drain:  30 * time.Second,
	},
	{
		id:     "F10 everysec",
		what:   "redis-server: SIGKILL and restart, AOF everysec",
		conf:   []string{"appendonly yes", "appendfsync everysec"},
		run:    crashes,
		rounds: 2,
		drain:  30 * time.Second,
		lossy:  true,
	},
	{
		id:       "F10 older",
		what:     "redis-server: SIGKILL and restart with an older append-only file, under busy receivers",
		conf:     always,
		channels: []string{"long"},
		run:      rewinds,
		rounds:   4,
		short:    true,
		drain:    30 * time.Second,
		lossy:    true,
	},
	{id: "F11", what: "redis-server: SIGSTOP, then SIGCONT", run: freezes, rounds: 1, drain: 30 * time.Second},
	{
		id:     "F13",
		what:   "SCRIPT FLUSH and CLIENT KILL, at random",
		run:    flushes,
		rounds: 2,
		drain:  20 * time.Second,
		short:  true,
	},
	{
		id:     "F14",
		what:   "maxmemory reached, noeviction",
		conf:   []string{"maxmemory-policy noeviction"},
		run:    full,
		rounds: 2,
		short:  true,
		drain:  60 * time.Second,
	},
	{
		id: "F14 limits",
		what: "small proto-max-bulk-len and client-output-buffer-limit: commands and replies for which Redis closes " +
			"the connection",
		conf: []string{
			"client-output-buffer-limit normal 1mb 0 0",
			"proto-max-bulk-len 2mb",
		},
		run:    limits,
		rounds: 2,
		short:  true,
		drain:  60 * time.Second,
	},
	{
		id:      "F17",
		what:    "clocks wrong by 5 min and a day, and jumping",
		run:     clocks,
		rounds:  2,
		drain:   20 * time.Second,
		recover: soon,
	},
	{
		id:     "F20",
		what:   "five reapers at once, cut off at each step of a reap",
		run:    reapers,
		rounds: 5,
		drain:  20 * time.Second,
	},
	{
		id:     "F21",
		what:   "five promoters, killed amid promotion",
		run:    promoters,
		rounds: 1,
		drain:  120 * time.Second,
		alone:  true,
	},
	{
		id:     "F23",
		what:   "password changed; idle link cut by timeout; waiters killed; pool exhausted",
		run:    evictions,
		rounds: 1,
		drain:  30 * time.Second,
	},
	{
		id:     "chains",
		what:   "SIGKILL of workers whose messages follow each other, some at the ack that enqueues",
		run:    chains,
		rounds: 1,
		short:  true,
		drain:  90 * time.Second,
		alone:  true,
	},
	{
		id:     "ids",
		what:   "messages with IDs, cancelled and postponed: kills, of redis-server too (AOF always), cuts, poison",
		conf:   always,
		run:    ids,
		rounds: 4,
		short:  true,
		drain:  60 * time.Second,
	},
	{
		id:     "versions",
		what:   "a rolling upgrade to a version that writes what this one does not know, and back",
		run:    upgrade,
		rounds: 2,
		drain:  20 * time.Second,
	},
}

// sized is how much of something a row's form wants.
func sized[T any](long bool, brief, lengthy T) T {
	if long {
		return lengthy
	}
	return brief
}

func calm(w *world, r *rand.Rand, long bool) {
	n := sized(long, 2000, 20000)
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.enqueue(n, trial.PlanOK, trial.PlanOK, trial.PlanReject, trial.PlanOK, trial.PlanPanic, trial.PlanOK,
		trial.PlanGoexit, trial.PlanOK)
	w.drained(30 * time.Second)
	var bare []time.Duration
	for range n / 20 { // lateness is measured where workers are free
		w.enqueue(1, trial.PlanOK+"+150")
		bare = append(bare, w.bareDelay(3*time.Millisecond))
	}
	w.Logf("a timer and %d PINGs beside it are late by p50 %v, p99 %v", barePings, trial.Percentile(bare, 50),
		trial.Percentile(bare, 99))
	w.struck("none")
}

// barePings is how many round trips a delayed message needs at least: to be enqueued, promoted and taken.
const barePings = 3

// bareDelay is how late a timer with as many round trips is, as machine and Redis are now. No message can be less late.
func (w *world) bareDelay(wait time.Duration) time.Duration {
	due := time.Now().Add(wait)
	time.Sleep(wait)
	for range barePings {
		w.server.Do("PING")
	}
	return time.Since(due)
}

func ordered(w *world, r *rand.Rand, long bool) {
	w.h.Ranks = []string{w.channels[0] + "/", w.channels[1] + "/"}
	w.start(trial.Orders{Workers: 4})
	for range 300 {
		w.enqueue(10, trial.PlanSlow+"5") // in turn: as many high as low
		time.Sleep(10 * time.Millisecond)
	}
	w.struck("none")
}

// shared has two channels with more than enough in each.
func shared(w *world, r *rand.Rand, long bool) {
	n := sized(long, 400, 4000)
	w.h.Shares = map[string]int{w.channels[0] + "/": 3, w.channels[1] + "/": 1}
	w.enqueue(2*n, trial.PlanOK)
	w.start(trial.Orders{Workers: 4, Weights: []int{3, 1}})
	w.struck("none")
}

func kills(w *world, r *rand.Rand, long bool) {
	n, rate := sized(long, 4, 180), sized(long, 300, 2000) // in the long form a p99 of over a hundred
	orders := trial.Orders{MaxDead: 100_000}               // all that are rejected
	for range 3 {
		w.start(orders)
	}
	w.flow(rate, usual...)
	for range n {
		time.Sleep(between(r, 500*time.Millisecond, 1300*time.Millisecond))
		xs := w.all()
		x := xs[r.IntN(len(xs))]
		w.kill(x)
		w.start(orders)
	}
}

func survivor(w *world, r *rand.Rand, long bool) {
	const byDefault = 10 * time.Second
	dying := w.start(trial.Orders{Workers: 64, Lease: byDefault})
	w.enqueue(64, trial.PlanDeaf+"1000")
	w.holds(dying, 64)
	survivor := w.start(trial.Orders{Workers: 64, Lease: byDefault})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(survivor.Name, "started") > 0 })
	w.kill(dying)
}

// zombies are stopped with handlers that do not look at their context, so that their verdicts come too late.
func zombies(w *world, r *rand.Rand, long bool) {
	n := sized(long, 1, 2)
	w.start(trial.Orders{})
	for range n {
		x := w.start(trial.Orders{Lease: time.Second})
		w.flow(100, trial.PlanOK, trial.PlanDeaf+"300", trial.PlanSlow+"100")
		w.holds(x, 10)
		_ = x.Stop()
		w.struck("stop", x)
		time.Sleep(3 * time.Second)
		_ = x.Cont()
		w.still()
	}
}

// forgotten is a zombie of which nothing is left in Redis when it wakes: what an hour does.
func forgotten(w *world, r *rand.Rand, long bool) {
	w.start(trial.Orders{})
	x := w.start(trial.Orders{Lease: time.Second})
	w.enqueue(40, trial.PlanDeaf+"500")
	w.holds(x, 4)
	_ = x.Stop()
	w.struck("stop", x)
	k := store.KeysOf(w.channels[0])
	w.until(20*time.Second, "it is dead and its lists are empty", func() bool {
		n, _ := redis.Int(w.server.TryDo("ZCARD", k.DeadReceivers))
		return n > 0 && w.busy() == 0
	})
	w.server.Do("DEL", k.DeadReceivers)
	_ = x.Cont()
	w.until(10*time.Second, "it finds out", func() bool { return w.told(x.Name, "lease-lost") > 0 })
	w.enqueue(100)
}

func pauses(w *world, r *rand.Rand, long bool) {
	for range 8 {
		w.start(trial.Orders{Workers: 2})
	}
	w.flow(200, trial.PlanOK, trial.PlanSlow+"50", trial.PlanDeaf+"200")
	for range 2 {
		time.Sleep(lease)
		x := w.all()[r.IntN(8)]
		_ = x.Stop()
		w.struck("stop")
		time.Sleep(lease / 2)
		_ = x.Cont()
		time.Sleep(lease)
		w.struck("stop the server")
		w.server.Stop()
		time.Sleep(lease * 9 / 10)
		w.server.Cont()
	}
	time.Sleep(lease)
	for _, x := range w.all() {
		if n := w.told(x.Name, "lease-lost"); n > 0 {
			w.Errorf("%s lost its lease %d times", x.Name, n)
		}
	}
}

func poison(w *world, r *rand.Rand, long bool) {
	w.enqueue(500)
	w.enqueue(1, trial.PlanKill)
	w.enqueue(500)
	x := w.start(trial.Orders{Workers: 64, Lease: time.Second})
	w.until(60*time.Second, "the killer is dead", func() bool {
		if x.Gone() {
			w.kill(x)
			x = w.start(trial.Orders{Workers: 64, Lease: time.Second})
		}
		ps, _ := w.places()
		return len(ps) == 1 && ps[0].State == "dead"
	})
}

func terms(w *world, r *rand.Rand, long bool) {
	n := sized(long, 3, 5)
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.flow(400, trial.PlanOK, trial.PlanSlow+"30", trial.PlanRetry, trial.PlanDeaf+"20", trial.PlanOK+"+50")
	for range n {
		time.Sleep(between(r, 300*time.Millisecond, 800*time.Millisecond))
		x := w.all()[0]
		_ = x.Term()
		w.struck("term")
		<-x.Ended()
		if x.Code() != 0 {
			w.Errorf("%s ended with %d: %s", x.Name, x.Code(), x.Said())
		}
		w.forget(x)
		w.start(trial.Orders{})
	}
	w.drained(20 * time.Second)
	w.stop()
	keys, _ := redis.Strings(w.server.TryDo("KEYS", "{"+w.channels[0]+"}.*"))
	keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasSuffix(k, "}.counts") }) // figures stay
	w.log.Say(trial.Entry{Op: trial.Count, ID: "keys", Phase: trial.Invoke},
		trial.Entry{Op: trial.Count, ID: "keys", Phase: trial.OK, N: len(keys), Note: strings.Join(keys, " ")})
}

// rate is how many messages are handled a second, over a while.
func (w *world) rate(d time.Duration) int {
	handled := func() (n int) {
		for _, x := range w.all() {
			n += w.told(x.Name, "acked")
		}
		return n
	}
	was, began := handled(), time.Now()
	time.Sleep(d)
	return int(float64(handled()-was) / time.Since(began).Seconds())
}

// paceFor is how long a rate is taken for: so long that chance alone does not make a tenth of difference.
const paceFor = 10 * time.Second

// lively has the rate of handling compared before and after a fault that do makes and mends, and what it has stranded
// back in time.
func (w *world) lively(do func()) {
	w.log.Say(trial.Entry{Op: trial.Pace, ID: "handled", Phase: trial.Invoke, N: w.rate(paceFor)})
	do()
	w.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info})
	w.repaired(time.Now(), w.h.Recover)
	time.Sleep(8 * time.Second)
	w.log.Say(trial.Entry{Op: trial.Pace, ID: "handled", Phase: trial.OK, N: w.rate(paceFor)})
}

func holes(w *world, r *rand.Rand, long bool) {
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	caller := w.queue("caller", w.proxy.URL(), trial.Orders{Quiet: true})
	w.flow(100, trial.PlanOK, trial.PlanRetry, trial.PlanOK+"+50", trial.PlanSlow+"20")
	for _, d := range []time.Duration{time.Second, sized(long, 4*time.Second, 30*time.Second)} {
		w.lively(func() {
			w.proxy.Hole(true)
			w.struck("hole", w.all()...)
			end := time.After(d)
			ctx, cancel := context.WithTimeout(context.Background(), d/2)
			began := time.Now()
			m := &trial.Message{On: w.channels[0], ID: fmt.Sprintf("%s/%d", w.channels[0], w.next.Add(1)),
				Plan: trial.PlanOK}
			w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: trial.Invoke, ID: m.ID, Note: m.Plan})
			err := caller.Enqueue(ctx, m)
			w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: trial.Outcome(err), ID: m.ID, Note: fmt.Sprint(err)})
			if took := time.Since(began); err == nil || took > d/2+time.Second {
				w.Errorf("Enqueue into a black hole: %v after %v", err, took)
			}
			cancel()
			<-end
			w.proxy.Hole(false)
		})
	}
}

func mute(w *world, r *rand.Rand, long bool) {
	d := sized(long, 3*time.Second, 10*time.Second)
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.flow(100, trial.PlanOK, trial.PlanRetry, trial.PlanOK+"+50", trial.PlanReject)
	w.lively(func() {
		w.proxy.DropReplies(true)
		w.struck("mute", w.all()...)
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
			for _, x := range w.all() { // each new connection may lose replies again
				w.log.Say(trial.Entry{By: x.Name, Op: trial.Fault, Phase: trial.Info, ID: "mute", N: x.Flight()})
			}
		}
		w.proxy.DropReplies(false)
	})
}

func slow(w *world, r *rand.Rand, long bool) {
	w.start(trial.Orders{Workers: 2})
	w.start(trial.Orders{Workers: 2})
	for _, line := range []struct {
		latency     time.Duration
		rate, slice int
	}{{latency: 200 * time.Millisecond}, {rate: 1024}, {slice: 1}} {
		w.proxy.Slow(line.latency, line.rate, line.slice)
		w.struck("slow", w.all()...)
		for range 5 {
			w.enqueue(8, trial.PlanOK, trial.PlanRetry, trial.PlanReject, trial.PlanOK+"+100")
			time.Sleep(time.Second)
		}
	}
	w.proxy.Slow(0, 0, 0)
}

func crashes(w *world, r *rand.Rand, long bool) {
	n := sized(long, 1, 6)
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.flow(300, usual...)
	for range n {
		time.Sleep(between(r, 700*time.Millisecond, 1500*time.Millisecond))
		w.server.Kill()
		w.struck("kill the server", w.all()...)
		time.Sleep(between(r, 0, 1500*time.Millisecond))
		w.server.Restart()
		w.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info})
	}
	time.Sleep(time.Second)
}

// rewinds brings older states of Redis back. Each is of the moment at which a worker's retry is executed. By the time
// of the restart that worker is busy with something else. What was handled in between is handled again. All that the
// older state has is handled: nothing of it stays in the list of a receiver that goes on.
func rewinds(w *world, r *rand.Rand, long bool) {
	usually, busily := w.channels[0], w.channels[1]
	w.start(trial.Orders{Channels: []string{usually}})
	busy := w.start(trial.Orders{Channels: []string{busily}, Workers: 1, Prefetch: 1})
	for round := range sized(long, 2, 4) {
		w.channels = []string{usually}
		w.flow(100, append([]string{trial.PlanSlow + "1500", trial.PlanDeaf + "700"}, usual...)...)
		acked := make(map[*worker]int)
		verdicts := func(x *worker) int {
			return w.told(x.Name, "acked") + w.told(x.Name, "retried") + w.told(x.Name, "rejected")
		}
		var kept time.Time
		rule := busy.proxy.On(redistest.ByScript(store.Retry)(busily), 1, redistest.Call(func() {
			for _, x := range w.all() {
				acked[x] = verdicts(x)
			}
			kept = time.Now()
			w.server.Keep()
		}))
		for _, plan := range []string{trial.PlanAfter + "200", trial.PlanSlow + "3000"} {
			if err := w.post(busily, plan, nil); err != nil {
				w.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := rule.Wait(ctx, 1)
		cancel()
		if err != nil {
			w.Fatal(err)
		}
		w.holds(busy, 3*round+2)
		time.Sleep(between(r, 0, time.Second))
		w.server.Kill()
		w.server.RestartKept()
		for _, x := range w.all() {
			w.log.Say(
				trial.Entry{
					At:    kept,
					By:    x.Name,
					Op:    trial.Fault,
					Phase: trial.Info,
					ID:    "older state",
					N:     verdicts(x) - acked[x] + x.Flight(),
					Due:   time.Now(),
				},
			)
		}
		w.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info})
		w.still()
		w.channels = []string{usually, busily}
		w.until(15*time.Second, "all that the older state has is handled", func() bool { return w.busy() == 0 })
	}
}

func freezes(w *world, r *rand.Rand, long bool) {
	for range 4 {
		w.start(trial.Orders{})
	}
	w.flow(200, usual...)
	for _, d := range sized(long, []time.Duration{2 * time.Second}, []time.Duration{5 * time.Second,
		30 * time.Second}) {
		time.Sleep(time.Second)
		w.server.Stop()
		w.struck("freeze the server", w.all()...)
		time.Sleep(d)
		w.server.Cont()
		w.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info})
		time.Sleep(2 * time.Second)
	}
}

func flushes(w *world, r *rand.Rand, long bool) {
	n := sized(long, 10, 200)
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.flow(200, usual...)
	for range n {
		time.Sleep(between(r, 100*time.Millisecond, 300*time.Millisecond))
		if r.IntN(2) == 0 {
			w.server.Do("SCRIPT", "FLUSH")
			w.struck("script flush")
		} else {
			w.server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			w.struck("client kill", w.all()...)
		}
	}
}

// full squeezes a server until enqueues are refused and takes, too, and then has it drained.
func full(w *world, r *rand.Rand, long bool) {
	base := w.server.Memory()
	w.server.Do("CONFIG", "SET", "maxmemory", base+6<<20)
	filler := make([]byte, 4096)
	var err error
	n := 0
	for ; err == nil && n < 10000; n++ {
		err = w.post(w.channels[0], usual[n%len(usual)], filler)
	}
	if !errors.Is(err, shunt.ErrFull) {
		w.Errorf("%d enqueued, then %v", n, err)
	}
	w.server.Do("CONFIG", "SET", "maxmemory", base+3<<20) // far beyond it: takes are refused until half is drained
	w.struck("full")
	if err := w.post(w.channels[0], trial.PlanOK+"+100", nil); !errors.Is(err, shunt.ErrFull) {
		w.Errorf("later: %v", err)
	}
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.drained(60 * time.Second)
	w.until(20*time.Second, "it takes messages again", func() bool {
		return w.post(w.channels[0], trial.PlanOK,
			nil) == nil
	})
}

// limits has elements that are larger than what Redis sends in one reply, or takes in one command. Each breaks the
// connection. What can be handled is handled; what breaks each take is dead; none of them kills a process.
func limits(w *world, r *rand.Rand, long bool) {
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.flow(100, usual...)
	for range sized(long, 2, 6) {
		time.Sleep(between(r, 500*time.Millisecond, time.Second))
		if err := w.post(w.channels[0], trial.PlanOK, make([]byte, 3<<20)); err == nil {
			w.Error("Redis takes an element that is above its limit")
		}
		w.struck("an element above proto-max-bulk-len")
		for _, size := range []int{10 << 10, 100 << 10, 300 << 10, 300 << 10, 300 << 10, 700 << 10} {
			err := w.post(w.channels[0], usual[r.IntN(len(usual))], make([]byte, size))
			if err != nil && !errors.Is(err, shunt.ErrUnknown) { // it may come just before Redis closes the connection
				w.Error(err)
			}
		}
		w.struck("replies above the buffer's limit", w.all()...)
	}
	const patience = 60 * time.Second
	w.lasting("an element above the buffer's limit", patience, w.all()...) // each take of it breaks a connection
	if err := w.post(w.channels[0], trial.PlanKill, make([]byte, 1500<<10)); err != nil {
		w.Error(err)
	}
	w.until(patience, "what breaks each take is dead", func() bool {
		return slices.ContainsFunc(w.all(), func(x *worker) bool { return w.told(x.Name, "poisoned") > 0 })
	})
	w.server.Do("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0") // for those who look at what is left
}

// reapers all look after one that was killed, and each is cut off and killed at another step of it.
func reapers(w *world, r *rand.Rand, long bool) {
	victim := w.start(trial.Orders{Workers: 16, Lease: time.Second, Prefetch: 1})
	k := store.KeysOf(w.channels[0])
	w.enqueue(8, trial.PlanHold+victim.Name)
	for i := range 8 {
		if err := w.bare(w.channels[0], fmt.Sprintf("%s/bare%d", w.channels[0], i),
			trial.PlanHold+victim.Name); err != nil {
			w.Fatal(err)
		}
	}
	w.holds(victim, 16)
	names, _ := redis.Strings(w.server.TryDo("ZRANGE", k.Receivers, 0, -1))
	if len(names) != 1 {
		w.Fatalf("living: %v", names)
	}
	w.kill(victim)
	for i := range 5 {
		x := w.start(trial.Orders{Lease: time.Second})
		cut := redistest.CutAfter
		if long && r.IntN(3) == 0 {
			cut = redistest.CutBefore
		}
		w.dies(
			"cut off at a step of a reap",
			x,
			4*time.Second,
			x.proxy.On(func(args [][]byte) bool { // first what finds the lists, then what empties them
				return touches(args, ".doing."+names[0]) && strings.EqualFold(string(args[0]), "EXISTS") == (i == 0)
			}, max(1, i), cut),
		)
	}
	w.load.Wait()
	w.start(trial.Orders{})
}

// promoters are cut off, and killed, at each step of a promotion.
func promoters(w *world, r *rand.Rand, long bool) {
	n := sized(long, 2000, 1_000_000)
	ctx := context.Background()
	const batch = 1000
	due := time.Now().Add(time.Duration(2+n/100_000) * time.Second)
	for from := 0; from < n; from += batch {
		var ms []shunt.IMessage
		var es []trial.Entry
		for range batch {
			m := &trial.Message{On: w.channels[0], ID: fmt.Sprintf("%s/%d", w.channels[0], w.next.Add(1)),
				Plan: trial.PlanOK}
			ms = append(ms, m)
			es = append(es, trial.Entry{Op: trial.Enqueue, Phase: trial.Invoke, ID: m.ID, Note: m.Plan, Due: due})
		}
		w.log.Say(es...)
		err := w.direct.EnqueueAll(ctx, ms, shunt.At(due))
		for i := range es {
			es[i].At, es[i].Phase = time.Time{}, trial.Outcome(err)
		}
		w.log.Say(es...)
	}
	for i := range 5 {
		x := w.start(trial.Orders{Workers: 4, Lease: time.Second})
		w.dies("cut off amid a promotion", x, 30*time.Second,
			x.proxy.On(redistest.Command("", "}.delay", "}.prepare"), 2+3*i, redistest.CutAfter))
	}
	w.load.Wait()
	w.start(trial.Orders{Workers: 16})
}

// dies kills a worker when a rule has struck it.
func (w *world) dies(what string, x *worker, limit time.Duration, rule *redistest.Rule) {
	w.load.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if rule.Wait(ctx, 1) == nil {
			w.struck(what, x)
			x.Kill()
			w.forget(x)
		}
	})
}

func touches(args [][]byte, what string) bool {
	for _, a := range args[1:] {
		if strings.Contains(string(a), what) {
			return true
		}
	}
	return false
}

// evictions are what a server or an operator does to connections, each alone.
func evictions(w *world, r *rand.Rand, long bool) {
	w.start(trial.Orders{})
	w.start(trial.Orders{})
	w.enqueue(50, trial.PlanOK, trial.PlanRetry)
	w.drained(10 * time.Second)
	w.server.Do("CONFIG", "SET", "timeout", "1") // cuts what is idle for a second
	for range 5 {
		time.Sleep(1500 * time.Millisecond)
		w.struck("timeout")
		w.enqueue(10)
	}
	w.server.Do("CONFIG", "SET", "timeout", "0")
	for range 10 { // the waiters, which are what blocks
		time.Sleep(200 * time.Millisecond)
		text, _ := redis.String(w.server.TryDo("CLIENT", "LIST"))
		for line := range strings.Lines(text) {
			var id int
			if strings.Contains(line, "cmd=brpoplpush") {
				fmt.Sscanf(line, "id=%d", &id)
				_, _ = w.server.TryDo("CLIENT", "KILL", "ID", id)
				w.struck("kill of a waiter", w.all()...)
			}
		}
		w.enqueue(5)
	}
	large := make([]byte, 200<<10)
	for i := range 10 { // the connections of large elements
		large[i] = byte(i)
		_ = w.post(w.channels[0], trial.PlanOK, large)
		w.server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		w.struck("client kill", w.all()...)
		time.Sleep(100 * time.Millisecond)
	}
	w.drained(20 * time.Second)
	w.server.Do("CONFIG", "SET", "requirepass", "secret") // the old connections stay, new ones are refused
	w.server.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	w.struck("password", w.all()...)
	time.Sleep(2 * time.Second)
	for _, x := range w.all() {
		if w.told(x.Name, "disconnected")+w.told(x.Name, "receiver-error") == 0 {
			w.Errorf("%s said nothing of the password", x.Name)
		}
	}
	w.server.Do("CONFIG", "SET", "requirepass", "")
	// The harness's own counts may have met the password just now. Then it dials again after a second.
	w.until(3*time.Second, "the harness can enqueue", func() bool {
		return w.post(w.channels[0], trial.PlanOK, nil) == nil
	})
	w.enqueue(50)
	w.exhausted()
}

// exhausted takes all of a Pool's connections while a receiver has lost its own. The receiver says so, and goes on when
// they are given back. A Pool that can never have enough is refused at once.
func (w *world) exhausted() {
	pool, err := shunt.NewPool(w.proxy.URL())
	if err != nil {
		w.Fatal(err)
	}
	defer pool.Close()
	log := w.log.As("exhausted")
	o := trial.Orders{Lease: lease}
	prototype := &trial.Message{On: w.channels[0], Log: log}
	pool.MaxActive = 4
	if _, err = o.Queue(pool, log).Receive(context.Background(), prototype, 2); err == nil ||
		!strings.Contains(err.Error(), "MaxActive") {
		w.Errorf("Receive with too few connections: %v", err)
	}
	pool.MaxActive = 5
	q := o.Queue(pool, log)
	shutdown, err := q.Receive(context.Background(), prototype, 2)
	if err != nil {
		w.Fatal(err)
	}
	// A cut amid their dials would be told first, and then not the pool, for the server is away already.
	w.until(5*time.Second, "it has all its connections", func() bool { return pool.ActiveCount() == pool.MaxActive })
	w.proxy.CutAll()
	w.struck("pool exhausted", append(w.all(), &worker{Orders: trial.Orders{Name: log.By, Workers: 2}})...)
	var taken []redis.Conn
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if c := pool.Get(); c.Err() == nil {
			taken = append(taken, c)
		}
	}
	w.enqueue(20)
	for _, c := range taken {
		c.Close()
	}
	es, err := w.said()
	if told := slices.ContainsFunc(es, func(e trial.Entry) bool {
		return e.By == log.By && strings.Contains(e.Note,
			"exhausted")
	}); !told ||
		err != nil {
		w.Errorf("nothing was said of the pool, of which %d connections were taken: %v", len(taken), err)
	}
	w.enqueue(20)
	w.drained(10 * time.Second)
	if err := shutdown(context.Background()); err != nil {
		w.Error(err)
	}
	if err := q.Close(); err != nil {
		w.Error(err)
	}
	log.Say(trial.Entry{Op: trial.Closed, Phase: trial.OK})
}

// clocks are those of the processes; the server's is right, and so is the harness's.
func clocks(w *world, r *rand.Rand, long bool) {
	edits, err := clockEdits()
	if err == nil {
		w.bin, err = build(w.dir, edits...)
	}
	if err != nil {
		w.Fatal(err)
	}
	for _, wrong := range []string{"5m", "-5m", "24h", "-24h", "jump:5m"} {
		w.startWrong(wrong, trial.Orders{})
		w.struck("clock wrong by " + wrong)
	}
	producer := w.startWrong("24h", trial.Orders{Enqueue: 50, Plans: usual})
	w.flow(100, usual...)
	for range 3 {
		time.Sleep(2 * time.Second)
		x := w.all()[r.IntN(5)]
		w.kill(x)
		w.startWrong(x.clock, trial.Orders{})
	}
	time.Sleep(2 * time.Second)
	w.still()
	_ = producer.Term()
	<-producer.Ended()
}

// upgrade replaces every process by one of the next version, one after another, and goes back.
func upgrade(w *world, r *rand.Rand, long bool) {
	now := w.bin
	next, err := build(w.dir, nextEdits...)
	if err != nil {
		w.Fatal(err)
	}
	w.flow(100, usual...)
	var old, young *worker
	for _, bin := range []string{now, next, now} {
		w.bin = bin
		for range 2 {
			w.start(trial.Orders{})
			time.Sleep(500 * time.Millisecond)
			if xs := w.all(); len(xs) > 2 {
				_ = xs[0].Term()
				<-xs[0].Ended()
				w.forget(xs[0])
			}
		}
		w.struck("upgrade")
		if bin == next {
			young = w.start(trial.Orders{Name: "young", Enqueue: 50, Plans: usual})
		} else if old == nil {
			old = w.start(trial.Orders{Name: "old", Enqueue: 50, Plans: usual})
		}
	}
	for _, x := range []*worker{old, young} {
		_ = x.Term()
		<-x.Ended()
	}
	w.drained(20 * time.Second)
	// What the next version wrote, this one has retried and rejected without dropping what it does not know.
	raws, _ := redis.Strings(w.server.TryDo("ZRANGE", "{"+w.channels[0]+"}.dead", 0, -1))
	n := 0
	for _, raw := range raws {
		if strings.Contains(raw, "/young.") {
			if n++; !strings.Contains(raw, nextField) || raw[1]&4 == 0 {
				w.Errorf("what the next version wrote was lost: %q", raw)
			}
		}
	}
	if n == 0 {
		w.Error("nothing of the next version is in dead")
	}
}
