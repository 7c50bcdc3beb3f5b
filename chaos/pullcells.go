package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// pullSteps are the commands of what is pulled.
var pullSteps = []struct {
	name  string
	match func(channel string) redistest.Match
}{
	{"take under a lease", redistest.ByScript(store.TakeLease)},
	{"takes under leases of their own", redistest.ByScript(store.LeaseEach)},
	{"bell", redistest.ByName("BLMOVE", ".prepare")},
	{"find by receipt", redistest.ByName("LRANGE", ".leased")},
	{"ack", redistest.ByName("LREM", ".leased")},
	{"ack of several", redistest.ByScript(store.Ack)},
	{"ack with an ID", redistest.ByScript(store.Settle)},
	{"ack with what follows", redistest.ByScript(store.Follow)},
	{"fail", redistest.ByScript(store.Retry)},
	{"reject", redistest.ByScript(store.Reject)},
	{"release", redistest.ByScript(store.Release)},
	{"extend", redistest.ByScript(store.Extend)},
	{"unlease", redistest.ByScript(store.Unlease)},
	{"end of a lease", redistest.ByScript(store.Lapse)},
	{"promote", redistest.ByScript(store.Promote)},
	{"sweep", redistest.ByScript(store.Sweep)},
	{"give back", redistest.ByScript(store.Abandon)},
}

// pullCells are those of pullers: a cut at each command, on each side of its execution, and some error replies.
func pullCells() (all []cell) {
	for _, s := range pullSteps {
		for _, cut := range cuts {
			all = append(all, cell{row: "P-reply", name: s.name + "/" + cut.name,
				run: func(w *world) { strikePull(w, s.name, s.match, cut.act, "") }})
		}
		for _, text := range trial.Refusals {
			code, _, _ := strings.Cut(text, " ")
			if slices.Contains([]string{"LOADING", "OOM", "READONLY", "NOSCRIPT", "TRYAGAIN"}, code) {
				all = append(all, cell{row: "P-reply", name: s.name + "/" + code, long: code != "LOADING",
					run: func(w *world) { strikePull(w, s.name, s.match, redistest.ReplyError(text), text) }})
			}
		}
	}
	return all
}

// strikePull has leased messages meet all that can become of them while one command is struck. No message is doubled,
// none that nobody saw has an attempt counted, and no caller hears that a lease is lost.
func strikePull(w *world, name string, match func(string) redistest.Match, act redistest.Action, refusal string) {
	c, ctx := w.channels[0], context.Background()
	nth := 1
	if refusal != "" {
		nth = 0
	}
	w.h.Ends = 20 * time.Second // so that attempts are counted strictly
	o := trial.Orders{Pull: usualPull, Workers: 2, Lease: time.Second, Hold: time.Minute, Wait: 2 * time.Second,
		Channels: w.channels, Hang: w.hang}
	log := w.log.As("cell")
	var tries attempts
	rule := w.proxy.On(tries.of(match(c)), nth, act)
	q := w.queue(log.By, w.proxy.URL(), o)
	p := &trial.Puller{Orders: &o, Queue: q, Log: log}
	w.perish(c)
	life, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	w.Cleanup(func() { end(); all.Wait() })
	all.Go(func() { p.PullAll(life) })
	n := &trial.Namer{Queue: w.direct, Log: w.log, Channel: c}
	w.load.Go(func() { w.pullTales(n, q) })
	var again atomic.Bool // somebody does what may come too rarely once more
	w.until(15*time.Second, "the fault strikes", func() bool {
		if rule.Struck() == 0 && again.CompareAndSwap(false, true) {
			w.load.Go(func() {
				defer again.Store(false)
				_ = n.Enqueue(c+"/expires", trial.PlanOK, trial.Asked{Expire: time.Hour})
				w.together(q, c)
				w.crowds(q, c)
				w.gives(q, c)
			})
		}
		return rule.Struck() > 0
	})
	w.struck(name)
	if refusal != "" {
		time.Sleep(refusing)
		rule.Remove()
		tries.spin(w, 4)
	}
	w.load.Wait()
	w.drained(15 * time.Second)
	w.freed(3*time.Second, false)
	end()
	all.Wait()
	if err := q.Close(); err != nil {
		w.Error(err)
	}
	log.Say(trial.Entry{Op: trial.Closed, Phase: trial.OK})
	if w.told(w.log.By, trial.Answered+"\t"+trial.Fail) > 0 {
		w.Error("a verdict was told that its lease is lost")
	}
}

// perish has somebody take two messages who is never heard of again.
func (w *world) perish(channel string) {
	w.enqueue(2, trial.PlanOK, trial.PlanRetry)
	gone := w.queue("gone", w.server.URL(), trial.Orders{Quiet: true, Pull: 1})
	ms, err := gone.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}, Max: 2,
		Lease: 500 * time.Millisecond})
	if err != nil {
		w.Fatal(err)
	}
	var es []trial.Entry
	for _, m := range ms {
		es = append(es, trial.Entry{By: "gone", Op: trial.Pulled, Phase: trial.Info,
			ID: trial.ParseMessage(m.Payload).ID, Serial: m.Serial,
			Attempt: m.Attempt, Due: m.EndsAt})
	}
	if len(es) > 0 {
		w.log.Say(es...)
	}
	if err := gone.Close(); err != nil {
		w.Error(err)
	}
}

// gives has takes given back: their request ends while they are under way.
func (w *world) gives(q *shunt.Queue, channel string) {
	rule := w.proxy.On(redistest.ByScript(store.TakeLease)(channel), 0, redistest.Delay(30*time.Millisecond))
	defer rule.Remove()
	w.enqueue(1, trial.PlanOK)
	for range 4 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		ms, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{channel}, Lease: 10 * time.Minute})
		cancel()
		for _, m := range ms {
			err = errors.Join(err, m.Release(context.Background()))
		}
		_ = err // it ends for its context, or what it has brought goes back
	}
	time.Sleep(20 * time.Millisecond)
}

// pullTales is what becomes of leased messages.
func (w *world) pullTales(n *trial.Namer, q *shunt.Queue) {
	c := n.Channel
	w.enqueue(12, trial.PlanOK)
	for _, plan := range []string{trial.PlanRetry, trial.PlanReject, trial.PlanOK, trial.PlanSlow + "50",
		trial.PlanOK + "+50", trial.PlanTwice,
		trial.PlanExtend + "100", trial.PlanAfter + "40"} {
		w.enqueue(2, plan)
	}
	for i, plan := range []string{trial.PlanOK, trial.PlanRetry, trial.PlanReject, trial.PlanOK} {
		_ = n.Enqueue(c+"/named"+string(rune('a'+i)), plan, trial.Asked{})
	}
	_ = n.Enqueue(c+"/expires", trial.PlanOK, trial.Asked{Expire: time.Hour})
	_ = n.Enqueue(c+"/retained", trial.PlanOK, trial.Asked{Retain: time.Second})
	for _, id := range []string{"follows1", "follows2", "follows3"} {
		_ = trial.Post(context.Background(), w.direct, w.log, &trial.Message{On: c, ID: c + "/" + id,
			Plan: trial.PlanThen + "1"})
	}
	w.releases(q, c)
}

// together pulls and acks several at once.
func (w *world) together(q *shunt.Queue, channel string) {
	p := &trial.Puller{Orders: &trial.Orders{}, Queue: q, Log: w.log.As("cell")}
	w.enqueue(8, trial.PlanOK)
	ms, _ := q.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}, Max: 8, Lease: time.Minute})
	p.Has(0, ms)
	p.AckTogether(slices.DeleteFunc(ms, func(m *shunt.Leased) bool { return !easy(p, m) }))
}

// easy handles a message that only has to be acked, and gives any other back.
func easy(p *trial.Puller, m *shunt.Leased) bool {
	of := trial.ParseMessage(m.Payload)
	e := trial.Entry{Op: trial.Handle, Phase: trial.Invoke, ID: of.ID, Serial: m.Serial, Attempt: m.Attempt}
	p.Log.Say(e)
	if e.Phase = trial.OK; of.Plan != trial.PlanOK {
		e.Phase = trial.Info
	}
	p.Log.Say(e)
	if e.Phase == trial.Info {
		p.Said(m, "release", m.Release(context.Background()))
	}
	return e.Phase == trial.OK
}

// crowds has several pull and ack one message each at the same time.
func (w *world) crowds(q *shunt.Queue, channel string) {
	p := &trial.Puller{Orders: &trial.Orders{}, Queue: q, Log: w.log.As("cell")}
	w.enqueue(16, trial.PlanOK)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 2 {
				o := shunt.PullOptions{Channels: []string{channel}, Lease: time.Minute}
				ms, _ := q.Pull(context.Background(), o)
				p.Has(n, ms)
				for _, m := range ms {
					if easy(p, m) {
						p.Said(m, "ack", m.Ack(context.Background()))
					}
				}
			}
		})
	}
	all.Wait()
}

// releases pulls and gives back, by the message and by its receipt.
func (w *world) releases(q *shunt.Queue, channel string) {
	log := w.log.As("cell")
	for range 4 {
		w.enqueue(3, trial.PlanOK)
		ms, err := q.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}, Max: 3,
			Lease: time.Minute})
		for i, m := range ms {
			id := trial.ParseMessage(m.Payload).ID
			log.Say(trial.Entry{Op: trial.Pulled, Phase: trial.Info, ID: id, Serial: m.Serial, Attempt: m.Attempt,
				Due: m.EndsAt},
				trial.Entry{Op: trial.Handle, Phase: trial.Info, ID: id, Serial: m.Serial, Attempt: m.Attempt,
					Note: "to be released"})
			if i%2 == 0 {
				err = errors.Join(err, m.Release(context.Background()))
			} else {
				err = errors.Join(err, q.Release(context.Background(), m.Receipt))
			}
		}
		if err != nil && !errors.Is(err, shunt.ErrUnconfirmed) {
			w.Log(err)
		}
	}
}
