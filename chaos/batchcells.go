package main

import (
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// batchCells are those of messages that are handled together.
func batchCells() (all []cell) {
	for _, cut := range cuts {
		all = append(all,
			cell{row: "F6", name: "a verdict of a batch/" + cut.name, run: func(w *world) { strikeBatch(w, cut.act) }})
	}
	return append(all, cell{row: "F6", name: "what a dead process held, in batches", run: batchOfDead})
}

// batchOfDead has what a dead process held, and what waits, handled in batches.
func batchOfDead(w *world) {
	k, dead := store.KeysOf(w.channels[0]), store.NewIncarnation(2, time.Second)
	w.enqueue(40, trial.PlanOK, trial.PlanRetry, trial.PlanReject)
	for i := range 20 {
		w.server.Do("RPOPLPUSH", k.Prepare, k.Doing(dead, i%2))
	}
	w.server.Do("ZADD", k.DeadReceivers, 0, dead.Name+" 1 r")
	w.struck("died after the take")
	_, shutdown := w.receive(trial.Orders{Workers: 2, Batch: 8})
	w.drained(15 * time.Second)
	shutdown(true)
}

// strikeBatch has a member's verdict struck by a cut.
func strikeBatch(w *world, act redistest.Action) {
	rule := w.proxy.On(redistest.ByName("LREM", ".doing")(w.channels[0]), 2, act)
	_, shutdown := w.receive(trial.Orders{Workers: 2, Batch: 8})
	w.enqueue(40, trial.PlanOK, trial.PlanRetry, trial.PlanReject)
	w.until(10*time.Second, "the fault strikes", func() bool { return rule.Struck() > 0 })
	w.strikes(step{name: "a verdict of a batch"}, "")
	w.drained(10 * time.Second)
	shutdown(true)
}
