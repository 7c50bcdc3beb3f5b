package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// freed waits until no ID is taken any more, and nothing else is known of one, as it has to be at the end. What is left
// after that is the checker's. Unless forgotten is set, what became of messages may yet be kept.
func (w *world) freed(limit time.Duration, forgotten bool) {
	var left []trial.Entry
	w.within(limit, func() bool {
		if forgotten {
			w.hurryForgetting()
		}
		left = trial.IDsLeft(w.server.TryDo, forgotten, w.channels...)
		return len(left) == 0
	})
	w.log.Say(left...)
}

// hurryForgetting has outcomes that are to be forgotten within a minute forgotten at the next sweep. That of a message
// that somebody waited for is kept that long, and nobody waits here any more. What keeps an ID taken is not hurried:
// the ID's record has that time, too, and would stay for good.
func (w *world) hurryForgetting() {
	const soon = time.Minute
	for _, c := range w.channels {
		kept := store.KeysOf(c).Kept
		now, until := time.Now(), time.Now().Add(soon+time.Second)
		due, _ := redis.Strings(w.server.TryDo("ZRANGEBYSCORE", kept, now.UnixMilli(), until.UnixMilli()))
		for _, member := range due {
			if member[0] != 'r' {
				continue
			}
			_, _ = w.server.TryDo("ZADD", kept, "XX", now.UnixMilli(), member)
		}
	}
}

// receipted complains of more receipts than there can be: one for each enqueue that was in doubt once.
func (w *world) receipted(most int) {
	w.Helper()
	for _, c := range w.channels {
		if ms := trial.Members(w.server.TryDo, store.KeysOf(c).Receipts); len(ms) > most {
			w.Errorf("%d receipts are left of %d enqueues that may have been in doubt", len(ms), most)
		}
	}
}

// aimsOfNames are the commands at which a cut can strike what has an ID.
var aimsOfNames = []func(channel string) redistest.Match{
	redistest.ByName(
		"HSET",
		".running",
	), redistest.ByScript(store.Start), redistest.ByName("EXISTS", ".cancelled"), redistest.ByName("HMGET", ".ids"),
	redistest.ByScript(store.Settle), redistest.ByScript(store.Follow), redistest.ByScript(store.Retry),
	redistest.ByScript(store.Reject),
	enqueueing, redistest.ByScript(store.Cancel), redistest.ByScript(store.Postpone),
}

const ofCallers = 8 // the first of those that are no receiver's

// ids has everything happen to messages with IDs. Their workers are killed, by us and by some of the messages.
// redis-server is killed, and connections are cut at each of their scripts.
func ids(w *world, r *rand.Rand, long bool) {
	const cutting = 300 * time.Millisecond
	over, tended := make(chan struct{}), make(chan struct{})
	go func() { // whoever is gone has a successor
		defer close(tended)
		for {
			xs := w.all()
			for _, x := range xs {
				if x.Gone() {
					w.kill(x)
				}
			}
			if len(xs) < 3 {
				w.start(trial.Orders{Workers: 4, Lease: time.Second})
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-over:
				return
			}
		}
	}()
	w.until(5*time.Second, "they are there", func() bool { return len(w.all()) == 3 })
	producer := w.start(trial.Orders{Name: "namer", Enqueue: sized(long, 200, 300), Names: 60, Seed: r.Uint64()})
	killers := &trial.Namer{Queue: w.direct, Log: w.log, Channel: w.channels[0]}
	for i := range 2 {
		if err := killers.Enqueue(fmt.Sprintf("%s/killer%d", w.channels[0], i), trial.PlanKill,
			trial.Asked{}); err != nil {
			w.Fatal(err)
		}
	}
	doubts := 0
	for n := range sized(long, 14, 60) {
		time.Sleep(between(r, 100*time.Millisecond, 500*time.Millisecond))
		var xs []*worker // its killers may have left none for a moment
		w.until(5*time.Second, "somebody is there", func() bool { xs = w.all(); return len(xs) > 0 })
		switch x := xs[r.IntN(len(xs))]; n % 7 {
		case 3:
			w.kill(x)
		case 6:
			w.server.Kill()
			w.struck("kill the server", xs...)
			time.Sleep(between(r, 0, 500*time.Millisecond))
			w.server.Restart()
			doubts++
		default:
			at := r.IntN(len(aimsOfNames))
			what := "cut at a verdict or a start"
			if at >= ofCallers {
				x, what = producer, "cut at a call"
				doubts++
			}
			cut := []redistest.Action{redistest.CutAfter, redistest.CutAfter, redistest.CutUnread,
				redistest.CutBefore}[r.IntN(4)]
			began, rule := time.Now(), x.proxy.On(aimsOfNames[at](w.channels[0]), 1, cut)
			time.Sleep(cutting)
			if rule.Remove(); rule.Struck() > 0 {
				allowed := x.Flight()
				if x == producer {
					allowed = 0
				}
				w.log.Say(
					trial.Entry{At: began, By: x.Name, Op: trial.Fault, Phase: trial.Info, ID: what, N: allowed,
						Due: began.Add(cutting)},
				)
			}
		}
	}
	_ = producer.Term()
	if <-producer.Ended(); producer.Code() != 0 {
		w.Errorf("%s ended with %d: %s", producer.Name, producer.Code(), producer.Said())
	}
	w.forget(producer)
	w.drained(60 * time.Second)
	close(over)
	<-tended
	// A keeper that was killed has its place for 15 s. Another one takes it with its next look, every 5 s, and forgets
	// 100 at each.
	w.freed(30*time.Second, true)
	w.receipted(2 + (1+doubts)*trial.Namers*4)
}

// endNames brings messages with IDs to all their ends.
func endNames(w *world) {
	w.start(trial.Orders{Workers: 4})
	n := &trial.Namer{Queue: w.direct, Log: w.log, Channel: w.channels[0]}
	for i, k := range trial.Named {
		if err := n.Enqueue(fmt.Sprintf("%s/x%d", n.Channel, i), k.Plan, k.Asked); err != nil {
			w.Fatal(err)
		}
	}
	w.struck("none")
	w.drained(5 * time.Second)
	w.freed(15*time.Second, true)
}

// loseEnqueues loses replies to enqueues whose messages may be over before their producer is back.
func loseEnqueues(w *world) {
	w.start(trial.Orders{Workers: 8})
	x := w.start(trial.Orders{Name: "namer", Enqueue: 100, Names: 40, Seed: 1})
	for range 6 {
		rule := x.proxy.On(redistest.Command("", "}.receipts"), 1, redistest.CutAfter)
		w.until(5*time.Second, "the fault strikes", func() bool { return rule.Struck() > 0 })
		w.struck("lost reply")
		x.proxy.Refuse(true)
		time.Sleep(300 * time.Millisecond)
		x.proxy.Refuse(false)
		time.Sleep(100 * time.Millisecond)
	}
	_ = x.Term()
	<-x.Ended()
	w.forget(x)
}

// callOffWaiting cancels what waits behind others.
func callOffWaiting(w *world) {
	x := w.start(trial.Orders{Workers: 1})
	n := &trial.Namer{Queue: w.direct, Log: w.log, Channel: w.channels[0]}
	w.enqueue(1, trial.PlanDeaf+"500")
	w.holds(x, 1)
	for i := range 4 {
		id := fmt.Sprintf("%s/x%d", n.Channel, i)
		if err := n.Enqueue(id, trial.PlanOK, trial.Asked{}); err != nil {
			w.Fatal(err)
		}
		if err := n.CallOff(id); err != nil {
			w.Fatal(err)
		}
	}
	w.struck("cancel")
}

// atRandom is a run in which nothing is aimed at the defect: of its row, or of the random mix.
func (d *defect) atRandom(t testing.TB, seed uint64) *trial.Verdict {
	t.Helper()
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id == d.row }); i >= 0 {
		return rows[i].play(t, redistest.Start(t, rows[i].conf...), d.name, seed, false)
	}
	return mix(t, redistest.Start(t, always...), d.name, seed, mixOfHunt)
}
