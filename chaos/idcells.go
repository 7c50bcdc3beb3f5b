package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// nameSteps are the commands of messages with IDs. A caller's have a connection of their own: what a cut there costs is
// no receiver's.
var nameSteps = []struct {
	step
	caller bool
}{
	{step{"enqueue with an ID", enqueueing, early}, true},
	{step{"enqueue with an ID, later", redistest.ByScript(store.Enqueue), early}, true},
	{step{"cancel", redistest.ByScript(store.Cancel), early}, true},
	{step{"postpone", redistest.ByScript(store.Postpone), early}, true},
	{step{"wait", redistest.ByScript(store.Wait), early}, true},
	{step{"start", redistest.ByName("HSET", ".running"), early}, false},
	{step{"start of what may expire", redistest.ByScript(store.Start), early}, false},
	{step{"start, which asks", redistest.ByName("EXISTS", ".cancelled"), early}, false},
	{step{"start, which reads", redistest.ByName("HMGET", ".ids"), early}, false},
	{step{"settle", redistest.ByScript(store.Settle), early}, false},
	{step{"follow", redistest.ByScript(store.Follow), early}, false},
	{step{"retry with an ID", redistest.ByScript(store.Retry), early}, false},
	{step{"reject with an ID", redistest.ByScript(store.Reject), early}, false},
	{step{"settle again, in the handover", redistest.ByScript(store.Settle), broken}, false},
	{step{"follow again, in the handover", redistest.ByScript(store.Follow), broken}, false},
}

// enqueueing matches the scripts that enqueue what may be enqueued again.
func enqueueing(channel string) redistest.Match {
	return redistest.Command("", "{"+channel+"}.prepare", "{"+channel+"}.receipts")
}

// idCells are those of messages with IDs.
func idCells() (all []cell) {
	for _, s := range nameSteps {
		for _, cut := range cuts {
			all = append(
				all,
				cell{
					row:  "ids",
					name: s.name + "/" + cut.name,
					run:  func(w *world) { strikeName(w, s.step, s.caller, cut.act, "") },
				},
			)
		}
		for _, text := range trial.Refusals {
			code, _, _ := strings.Cut(text, " ")
			switch code { // one of each kind
			case "LOADING", "OOM", "READONLY", "NOSCRIPT", "WRONGTYPE":
				all = append(
					all,
					cell{
						row:  "ids",
						name: s.name + "/" + code,
						run:  func(w *world) { strikeName(w, s.step, s.caller, redistest.ReplyError(text), text) },
					},
				)
			}
		}
	}
	for _, other := range []bool{false, true} {
		name := "over before the reconnect" + map[bool]string{true: ", and its ID another's"}[other]
		all = append(all, cell{row: "ids", name: name, run: func(w *world) { overBefore(w, other) }})
	}
	all = append(all, cell{row: "ids", name: "expired in dead hands, and its ID another's", run: expiredInHand})
	for _, what := range []string{"SCRIPT FLUSH", "CLIENT KILL TYPE normal SKIPME yes", "CLIENT KILL TYPE pubsub " +
		"SKIPME yes"} {
		all = append(all, cell{row: "ids", name: what, own: true, run: func(w *world) { flushNames(w, what) }})
	}
	return all
}

// strikeName has messages with IDs meet all that can become of them while one of their commands is struck. A cut
// strikes once, an error reply for a while.
func strikeName(w *world, st step, caller bool, act redistest.Action, refusal string) {
	calls := redistest.NewProxy(w.TB, w.server.Addr())
	px, nth := w.proxy, 1
	if caller {
		px = calls
	}
	if refusal != "" {
		nth = 0
	}
	var tries attempts
	match := tries.of(st.match(w.channels[0]))
	var rule *redistest.Rule
	if st.when == broken {
		broke := px.On(st.match(w.channels[0]), 1, redistest.CutAfter)
		defer broke.Remove()
		nth *= 2
	}
	rule = px.On(match, nth, act)
	_, shutdown := w.receive(trial.Orders{Workers: 2})
	n := &trial.Namer{Queue: w.queue("caller", calls.URL(), trial.Orders{Quiet: true}), Log: w.log,
		Channel: w.channels[0]}
	w.tell(n, refusal == "")
	w.until(10*time.Second, "the fault strikes", func() bool { return rule.Struck() > 0 })
	if refusal != "" {
		time.Sleep(refusing)
		rule.Remove()
		if !caller &&
			!strings.HasPrefix(refusal,
				"WRONGTYPE") { // of callers there are many; and an index that cannot be read holds nothing up
			tries.spin(w, 2)
		}
	}
	w.load.Wait()
	if caller { // receipts are forgotten with the last enqueue and with Close
		if err := n.Enqueue(n.Channel+"/last", trial.PlanOK, trial.Asked{}); err != nil {
			w.Error(err)
		}
		if err := n.Queue.Close(); err != nil {
			w.Error(err)
		}
	}
	w.drained(10 * time.Second)
	w.freed(3*time.Second, false)
	if caller {
		w.struck(st.name)
		w.receipted(tales) // which may all have been on their way
	} else {
		w.strikes(st, refusal)
	}
	shutdown(true)
}

const (
	tales = 8
	// told bounds each: one occupies a worker of two for 4 s, an error reply goes on for 1.2 s, and holdoffs add up.
	told = 16 * time.Second
)

// tell is what becomes of messages with IDs, each in a goroutine of its own. cut says that a fault strikes only once.
// Then each call that it does not strike comes to what it should, and every enqueue is made.
func (w *world) tell(n *trial.Namer, cut bool) {
	id := func(tale string) string { return n.Channel + "/" + tale }
	enqueue := func(tale, plan string, a trial.Asked) bool {
		err := n.Enqueue(id(tale), plan, a)
		if cut && err != nil {
			w.Errorf("%s: %v", tale, err)
		}
		return err == nil
	}
	// again repeats what may be, by id, until it is done.
	again := func(tale string, call func() error) {
		var err error
		if !w.within(told, func() bool {
			if err = call(); err != nil && !errors.Is(err, shunt.ErrNotFound) {
				time.Sleep(200 * time.Millisecond)
				return false
			}
			return true
		}) {
			w.Errorf("%s: %v", tale, err)
		}
	}
	over := func(tale string) {
		if !w.within(told, func() bool {
			s, err := w.direct.Status(context.Background(), shunt.ByID(n.Channel, id(tale)))
			return errors.Is(err, shunt.ErrNotFound) || s.State == shunt.StateDead // whose ID is free
		}) {
			w.Errorf("%s: its ID is never free", tale)
		}
	}
	w.load.Go(func() { // an ID is free when its message is over, however that ends
		for _, plan := range []string{trial.PlanOK, trial.PlanRetry, trial.PlanReject, trial.PlanOK} {
			if enqueue("again", plan, trial.Asked{}) {
				over("again")
			}
		}
	})
	w.load.Go(func() {
		if enqueue("taken", trial.PlanSlow+"300", trial.Asked{}) {
			_ = n.Enqueue(id("taken"), trial.PlanOK, trial.Asked{})
		}
	})
	w.load.Go(func() {
		if enqueue("later", trial.PlanOK, trial.Asked{In: time.Hour}) {
			again("later", func() error { return n.CallOff(id("later")) })
			enqueue("later", trial.PlanOK, trial.Asked{In: 50 * time.Millisecond})
		}
	})
	w.load.Go(func() {
		if enqueue("running", trial.PlanSlow+"4000", trial.Asked{}) {
			w.within(5*time.Second, func() bool { return w.begunOnce(id("running")) })
			again("running", func() error { return n.CallOff(id("running")) })
		}
	})
	w.load.Go(func() {
		if enqueue("postponed", trial.PlanOK, trial.Asked{In: time.Hour}) {
			again("postponed", func() error { return n.PutOff(id("postponed"), 100*time.Millisecond) })
		}
	})
	w.load.Go(func() { enqueue("expires", trial.PlanRetry, trial.Asked{Expire: time.Hour}) })
	w.load.Go(func() {
		enqueue("chain", trial.PlanThen+"2", trial.Asked{})
		enqueue("falters", trial.PlanFalter+"2", trial.Asked{})
	})
	w.load.Go(func() {
		if !enqueue("awaited", trial.PlanSlow+"200", trial.Asked{Retain: 20 * time.Second}) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), told)
		defer cancel()
		if o, err := n.Queue.Wait(ctx, shunt.ByID(n.Channel, id("awaited"))); (err != nil ||
			o.Kind != shunt.EventAcked) &&
			link.Code(err) != "WRONGTYPE" {
			w.Errorf("wait: %+v, %v", o, err)
		}
	})
}

// begunOnce says whether a message of that ID has been begun.
func (w *world) begunOnce(id string) bool {
	es, _ := w.said()
	for _, e := range es {
		if e.Op == trial.Handle && e.Phase == trial.Invoke && trial.NameOf(e.ID) == id {
			return true
		}
	}
	return false
}

// overBefore loses the reply to an enqueue. Before its producer is back the message is over, and its ID is perhaps
// taken by another one. It is enqueued once, and handled once.
func overBefore(w *world, other bool) {
	calls := redistest.NewProxy(w.TB, w.server.Addr())
	_, shutdown := w.receive(trial.Orders{Workers: 2})
	n := &trial.Namer{Queue: w.queue("caller", calls.URL(), trial.Orders{Quiet: true}), Log: w.log,
		Channel: w.channels[0]}
	id := n.Channel + "/quick"
	rule := calls.On(enqueueing(n.Channel), 1, redistest.CutAfter)
	w.load.Go(func() {
		if err := n.Enqueue(id, trial.PlanOK, trial.Asked{}); err != nil {
			w.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := rule.Wait(ctx, 1); err != nil {
		w.Fatal(err)
	}
	calls.Refuse(true)
	calls.CutAll()
	w.struck("lost reply")
	w.until(5*time.Second, "it is over", func() bool { return w.begunOnce(id) && w.busy() == 0 })
	if other {
		if err := (&trial.Namer{Queue: w.direct, Log: w.log.As("other"), Channel: n.Channel}).Enqueue(id,
			trial.PlanSlow+"500", trial.Asked{}); err != nil {
			w.Error(err)
		}
	}
	calls.Refuse(false)
	w.load.Wait()
	w.drained(5 * time.Second)
	w.freed(3*time.Second, true)
	w.receipted(2) // the other's producer has not been asked for another one yet
	shutdown(true)
}

// expiredInHand has a message expire that somebody took who died before he had asked for it, and another one take its
// ID meanwhile.
func expiredInHand(w *world) {
	const ttl = 200 * time.Millisecond
	n := &trial.Namer{Queue: w.direct, Log: w.log, Channel: w.channels[0]}
	id, k := n.Channel+"/expired", store.KeysOf(n.Channel)
	if err := n.Enqueue(id, trial.PlanDeaf+"300", trial.Asked{Expire: ttl}); err != nil {
		w.Fatal(err)
	}
	dead := store.NewIncarnation(1, time.Second)
	w.server.Do("RPOPLPUSH", k.Prepare, k.Doing(dead, 0))
	w.server.Do("ZADD", k.DeadReceivers, 0, dead.Name+" 1 r")
	w.struck("died between take and start")
	time.Sleep(ttl + ttl/4)
	if err := n.Enqueue(id, trial.PlanDeaf+"800", trial.Asked{}); err != nil {
		w.Error(err)
	}
	_, shutdown := w.receive(trial.Orders{Workers: 2})
	w.drained(10 * time.Second)
	w.freed(3*time.Second, true)
	shutdown(true)
}

// flushNames is flush for a load of IDs.
func flushNames(w *world, what string) {
	_, shutdown := w.receive(trial.Orders{Workers: 4})
	o := trial.Orders{Channels: w.channels, Enqueue: 100, Names: 20, Seed: 1}
	ctx, still := context.WithCancel(context.Background())
	q := w.queue("caller", w.server.URL(), trial.Orders{Quiet: true})
	w.load.Go(func() { o.Load(ctx, q, w.log.As("namer")) })
	words := strings.Fields(what)
	var args []any
	for _, a := range words[1:] {
		args = append(args, a)
	}
	for range 5 {
		time.Sleep(150 * time.Millisecond)
		w.server.Do(words[0], args...)
		allowed := 0
		if words[0] == "CLIENT" {
			allowed = 64
		}
		w.log.Say(trial.Entry{By: "cell", Op: trial.Fault, Phase: trial.Info, ID: words[0], N: allowed})
	}
	still()
	w.load.Wait()
	w.drained(15 * time.Second)
	w.freed(15*time.Second, true)
	shutdown(true)
}
