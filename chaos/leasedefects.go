package main

import (
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// leaseDefects are those of leases.
var leaseDefects = []defect{
	{
		name:     "an unlease that forgets a lease which still holds something",
		schedule: killLeased,
		drain:    12 * time.Second,
		row:      "P-kill",
	},
	{
		name:     "an end of a lease that counts no attempt",
		schedule: killLeased,
		drain:    12 * time.Second,
		row:      "P-kill",
	},
	{
		name: "an end of a lease without a grace",
		schedule: func(w *world) {
			w.pulls = true
			pullPauses(w, newRand(1), false)
		},
		row: "P-pause",
	},
	{
		name:     "an end of a lease that removes first, with a .prepare of the wrong type",
		schedule: spoilPrepare,
		drain:    12 * time.Second,
		rare:     true,
	},
	{
		name:     "a take that does not give again what it had taken",
		schedule: loseTakes,
		row:      "P-lines",
	},
	{
		name:     "an ack that takes what another one holds",
		schedule: ackLate,
		drain:    12 * time.Second,
		rare:     true,
	},
	{
		name:     "an extension that puts no end off",
		schedule: extendAll,
		drain:    12 * time.Second,
		row:      "P-kill",
	},
}

// killLeased kills a puller that has settled the first of four messages of one Pull, and holds the others.
func killLeased(w *world) {
	w.h.Ends = brought
	x := w.leaseFour(trial.PlanReject)
	w.until(5*time.Second, "it has settled one", func() bool { return w.told(x.Name, trial.Answered) > 0 })
	w.kill(x)
	w.pulling(w.start(trial.Orders{Pull: 1}))
}

// leaseFour starts a puller that has four messages by one Pull. It handles the first, and then holds the next.
func (w *world) leaseFour(first string) *worker {
	w.Helper()
	const name = "holder"
	w.enqueue(1, first)
	w.enqueue(3, trial.PlanHold+name)
	x := w.start(trial.Orders{Name: name, Pull: 4, Workers: 1, Hold: time.Second})
	w.has(x, 4)
	return x
}

// spoilPrepare puts something that is no list into the place of prepare when leases end.
func spoilPrepare(w *world) {
	x := w.leaseFour(trial.PlanOK)
	k := store.KeysOf(w.channels[0])
	w.server.Do("SET", k.Prepare, "not shunt's")
	w.struck("wrong type")
	w.pulling(w.start(trial.Orders{Pull: 1}))
	w.kill(x)
	w.within(brought, func() bool { // somebody tries to end its lease
		n, _ := w.server.TryDo("EXISTS", k.Leased)
		return n == int64(0)
	})
	w.server.Do("DEL", k.Prepare)
}

// taking matches the script that takes under a lease, whatever its text is.
func taking(args [][]byte) bool {
	return redistest.Command("", "}.suspect", "}.leased.")(args) && !touches(args, "}.receivers.dead")
}

// loseTakes loses the reply to a take, thrice.
func loseTakes(w *world) {
	x := w.start(trial.Orders{Pull: 4, Workers: 4, Hold: 30 * time.Second})
	w.pulling(x)
	for n := range 3 {
		w.lost(x.proxy.On(taking, 1+n, redistest.CutAfter))
	}
}

// lost has something enqueued until a rule strikes, and notes that nothing is to be doubled for it.
func (w *world) lost(rule *redistest.Rule) {
	w.until(5*time.Second, "the fault strikes", func() bool {
		w.enqueue(2, trial.PlanOK)
		return rule.Struck() > 0
	})
	w.struck("lost reply")
}

// ackLate has a frozen puller wake when another one handles what it held.
func ackLate(w *world) {
	other := w.start(trial.Orders{Name: "other", Pull: 1, Workers: 8, Hold: 20 * time.Second,
		Channels: []string{w.channels[0] + ".elsewhere", w.channels[0]}})
	w.pulling(other)
	_ = other.Stop()
	x := w.start(trial.Orders{Pull: 1, Workers: 4, Hold: time.Second})
	w.pulling(x)
	w.enqueue(4, trial.PlanDeaf+"4000")
	w.has(x, 4)
	_ = x.Stop()
	_ = other.Cont()
	w.struck("stop", x, other)
	w.has(other, 4)
	time.Sleep(time.Second)
	_ = x.Cont()
	w.drained(8 * time.Second)
}

// extendAll has handlers that take longer than their lease, and put it off.
func extendAll(w *world) {
	for range 2 {
		w.start(trial.Orders{Pull: 2, Workers: 4, Hold: time.Second})
	}
	w.pulling(w.all()...)
	w.enqueue(8, trial.PlanExtend+"2500")
	w.struck("longer than the lease")
	w.drained(12 * time.Second)
}
