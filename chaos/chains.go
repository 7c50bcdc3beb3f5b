package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/trial"
)

// chains has workers killed, or cut off, or both, while messages follow each other. It strikes when an ack with what
// follows was executed, or is about to be, and the worker does not know that yet.
func chains(w *world, r *rand.Rand, long bool) {
	n, perSecond := sized(long, 2000, 100_000), sized(long, 400, 2000)
	for range 3 {
		w.start(trial.Orders{})
	}
	over := make(chan struct{})
	w.load.Go(func() {
		defer close(over)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n > 0 {
			w.chain(min(n, perSecond/10), 2)
			n -= perSecond / 10
			<-tick.C
		}
	})
	for flowing := true; flowing; {
		select {
		case <-over:
			flowing = false
			continue
		case <-time.After(between(r, 400*time.Millisecond, 1200*time.Millisecond)):
		}
		xs := w.all()
		x := xs[r.IntN(len(xs))]
		if r.IntN(2) == 0 {
			cut := []redistest.Action{redistest.CutAfter, redistest.CutAfter, redistest.CutUnread,
				redistest.CutBefore}[r.IntN(4)]
			w.meets(x, x.proxy.On(withAck(w.channels[0]), 1+r.IntN(4), cut))
			if r.IntN(2) == 0 {
				continue // it lives on, and sends its acks again
			}
		}
		w.kill(x)
		w.start(trial.Orders{})
	}
	w.load.Wait()
	w.drained(90 * time.Second)
	w.freed(10*time.Second, true)
}

// withAck matches the script that enqueues with an ack, whatever its text is, and the reap, which has its keys, too.
func withAck(channel string) redistest.Match {
	return redistest.Command("", "{"+channel+"}.doing.", "}.prepare", "}.kept")
}

// meets waits until a rule has struck a worker, for a second at most.
func (w *world) meets(x *worker, rule *redistest.Rule) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if rule.Wait(ctx, 1) == nil {
		w.struck("cut at a follow", x)
	}
	rule.Remove()
}

// chain enqueues the first step of n chains.
func (w *world) chain(n, after int) {
	ms, es := make([]shunt.IMessage, n), make([]trial.Entry, n)
	for i := range ms {
		k := w.next.Add(1)
		m := &trial.Message{
			On:   w.channels[0],
			ID:   fmt.Sprintf("%s/%d", w.channels[0], k),
			Plan: fmt.Sprint(trial.PlanThen, after),
		}
		if k%8 == 0 {
			m.Plan = fmt.Sprint(trial.PlanFalter, after)
		}
		ms[i], es[i] = m, trial.Entry{Op: trial.Enqueue, Phase: trial.Invoke, ID: m.ID, Note: m.Plan}
	}
	w.log.Say(es...)
	err := w.direct.EnqueueAll(context.Background(), ms)
	if err != nil {
		w.Error(err)
	}
	for i := range es {
		es[i].At, es[i].Phase = time.Time{}, trial.Outcome(err)
	}
	w.log.Say(es...)
}

// loseFollows loses replies to acks that enqueue what follows.
func loseFollows(w *world) {
	x := w.start(trial.Orders{Workers: 4, Lease: time.Second})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(x.Name, "started") > 0 })
	for range 12 {
		rule := x.proxy.On(withAck(w.channels[0]), 1, redistest.CutAfter)
		w.until(5*time.Second, "the fault strikes", func() bool {
			w.enqueue(3, trial.PlanThen+"3")
			return rule.Struck() > 0
		})
		w.struck("lost reply", x)
		if !w.drained(3 * time.Second) {
			return
		}
	}
}
