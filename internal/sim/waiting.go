package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	redigo "github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// waitings is the stream of a seed from which it is drawn who waits for what they have enqueued.
const waitings = 800

// Waiting is a message with an ID, and somebody who waits for its end. Another one enqueues to that ID, too.
type Waiting struct {
	At     time.Duration
	ID     string
	Plan   string
	Rival  time.Duration // after which another one enqueues
	Within time.Duration // after which the Wait begins
}

// waits draws them.
func (p *Plot) waits(r *rand.Rand) {
	if p.Names == nil || r.IntN(2) == 0 {
		return
	}
	for at := between(r, 0, p.Storm); at < p.length()-lull; at += between(r, 100*time.Millisecond, p.Storm/4) {
		p.Waits = append(p.Waits, Waiting{At: at, ID: "plain/w" + pick(r, []string{"0", "1"}),
			Plan:  pick(r, []string{trial.PlanOK, trial.PlanOK, trial.PlanSlow + "20", trial.PlanReject}),
			Rival: between(r, 0, 40*time.Millisecond), Within: between(r, 0, 10*time.Millisecond)})
	}
}

// waiting has one process enqueue and wait, and another one enqueue to the same IDs. It gives the two.
func (w *world) waiting() []*process {
	if len(w.plot.Waits) == 0 {
		return nil
	}
	one, other := w.start(trial.Orders{Name: "one", Lease: lease}), w.start(trial.Orders{Name: "other", Lease: lease})
	w.hands.Go(func() {
		mine := &trial.Namer{Queue: one.queue, Log: one.log, Channel: "plain"}
		theirs := &trial.Namer{Queue: other.queue, Log: other.log, Channel: "plain"}
		for i := range w.plot.Waits {
			w.sleepUntil(w.plot.Waits[i].At)
			w.waitFor(mine, theirs, &w.plot.Waits[i])
		}
	})
	return []*process{one, other}
}

// waitFor waits for one message. Who waits is never told that nothing is kept of it while its outcome is there.
func (w *world) waitFor(mine, theirs *trial.Namer, x *Waiting) {
	var ref shunt.Ref
	kept := trial.Asked{Retain: 2 * time.Second}
	if mine.Enqueue(x.ID, x.Plan, kept, shunt.RefTo(&ref)) != nil {
		return
	}
	time.Sleep(x.Rival)
	_ = theirs.Enqueue(x.ID, trial.PlanOK, kept)
	time.Sleep(x.Within)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := mine.Queue.Wait(ctx, ref)
	if !errors.Is(err, shunt.ErrLost) && !errors.Is(err, shunt.ErrNotKept) && !errors.Is(err, shunt.ErrNotFound) {
		return
	}
	raw, _ := redigo.Bytes(w.do("HGET", store.KeysOf("plain").Done, x.ID))
	if o := store.ParseOutcome(raw); o.Serial.String() == ref.Serial {
		w.problem("I24 not kept: who waited for %s, %s, was told %v, and its outcome is there", x.ID, ref.Serial, err)
	}
}
