package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
	"github.com/shuntmq/shunt/recur"
)

// timeCells are those of what is bound to a time.
func timeCells() (all []cell) {
	for _, cut := range cuts {
		all = append(all,
			cell{row: "ids", name: "a tick/" + cut.name, run: func(w *world) { strikeTick(w, cut.act, "") }})
	}
	for _, text := range trial.Refusals {
		code, _, _ := strings.Cut(text, " ")
		switch code {
		case "LOADING", "OOM", "READONLY", "NOSCRIPT":
			all = append(
				all,
				cell{
					row:  "ids",
					name: "a tick/" + code,
					run:  func(w *world) { strikeTick(w, redistest.ReplyError(text), text) },
				},
			)
		}
	}
	return append(all, cell{row: "ids", name: "a deadline that passes in dead hands", run: lateInHand})
}

// strikeTick has a recurring message fall due again and again while the script that enqueues it is struck. A cut
// strikes once, an error reply for a while. Each tick comes, and comes once.
func strikeTick(w *world, act redistest.Action, refusal string) {
	const every, more = 100 * time.Millisecond, 15
	px := redistest.NewProxy(w.TB, w.server.Addr())
	channel, ctx := w.channels[0]+".ticks", context.Background()
	var mu sync.Mutex
	came := make(map[int64]int)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(came)
	}
	tick := shunt.Define(channel, func(ctx context.Context, _ string) error {
		at, _ := recur.Tick(ctx)
		mu.Lock()
		defer mu.Unlock()
		came[at.UnixMilli()]++
		return nil
	})
	heard, err := w.queue("heard", w.server.URL(), trial.Orders{Quiet: true}).Receive(ctx, tick, 2)
	if err != nil {
		w.Fatal(err)
	}
	table := &recur.Timetable{Queue: w.queue("ticks", px.URL(), trial.Orders{Quiet: true})}
	if err := table.Add(ctx, "tick", recur.Every(every), tick.Message(""),
		recur.Missed(recur.All(recur.MaxAll))); err != nil {
		w.Fatal(err)
	}
	nth := 3
	if refusal != "" {
		nth = 0
	}
	rule := px.On(redistest.ByScript(store.RecurFire)(channel), nth, act)
	ends, err := table.Run(ctx, channel)
	if err != nil {
		w.Fatal(err)
	}
	w.until(10*time.Second, "the fault strikes", func() bool { return rule.Struck() > 0 })
	w.struck("tick")
	if refusal != "" {
		time.Sleep(refusing)
	}
	rule.Remove()
	n := count()
	w.until(15*time.Second, "ticks come again", func() bool { return count() >= n+more })
	if err := ends(ctx); err != nil {
		w.Error(err)
	}
	w.until(
		5*time.Second,
		"all that was sent is handled",
		func() bool { // what is not begun stays when its receiver ends
			s, err := w.direct.Stats(ctx, channel)
			return err == nil && s[shunt.StatePrepare].Count == 0 && s[shunt.StateDoing].Count == 0
		},
	)
	if err := heard(ctx); err != nil {
		w.Error(err)
	}
	var first, last int64
	for at, n := range came {
		if n != 1 {
			w.Errorf("tick %v came %d times", time.UnixMilli(at), n)
		}
		if first == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	if want := int(last-first)/int(every.Milliseconds()) + 1; len(came) != want {
		w.Errorf("%d ticks came of %d", len(came), want)
	}
}

// lateInHand has a deadline pass while a message is in the list of a process that died. It goes to dead unhandled, and
// its ID is free.
func lateInHand(w *world) {
	const limit = 200 * time.Millisecond
	n := &trial.Namer{Queue: w.direct, Log: w.log, Channel: w.channels[0]}
	id, k, ctx := n.Channel+"/late", store.KeysOf(n.Channel), context.Background()
	_ = n.Enqueue(id, trial.PlanReject, trial.Asked{},
		shunt.Deadline(time.Now().Add(limit))) // a plan that may be in dead
	dead := store.NewIncarnation(1, time.Second)
	w.server.Do("RPOPLPUSH", k.Prepare, k.Doing(dead, 0))
	w.server.Do("ZADD", k.DeadReceivers, 0, dead.Name+" 1 r")
	w.struck("died between take and start")
	time.Sleep(limit + limit/4)
	_, shutdown := w.receive(trial.Orders{Workers: 2})
	w.drained(10 * time.Second)
	es, err := n.Queue.List(ctx, n.Channel, shunt.StateDead, 0, 0)
	if err != nil || len(es) != 1 || es[0].Failure != shunt.ErrDeadline.Error() || es[0].ID != id {
		w.Errorf("in dead: %+v, %v", es, err)
	}
	w.freed(3*time.Second, true)
	shutdown(true)
}
