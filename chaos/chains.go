package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Plans of chains: as many steps follow, one after another.
const (
	planThen   = "then:"
	planFalter = "falter:" // fails once, after it has said what is to follow
)

// following is how many follow a message of that plan.
func following(plan string) int {
	text, is := strings.CutPrefix(plan, planThen)
	if !is {
		text, is = strings.CutPrefix(plan, planFalter)
	}
	n, err := strconv.Atoi(text)
	if !is || err != nil {
		return 0
	}
	return n
}

// nextStep names what follows a message: so the ledgers need not.
func nextStep(id string) string { return id + ">" }

// follow has the next step follow: plain, with an ID, or with one and later, as the message's name falls.
func (m *message) follow(ctx context.Context, attempt, steps int) error {
	return m.followBy(steps, attempt, func(next shunt.IMessage) error { return shunt.Then(ctx, next) })
}

// followBy is follow for whoever has a way of their own to say it.
func (m *message) followBy(steps, attempt int, then func(shunt.IMessage) error) error {
	next := &message{channel: m.channel, id: nextStep(m.id), plan: planOK}
	if steps > 1 {
		next.plan = fmt.Sprint(planThen, steps-1)
	}
	var opts []shunt.Option
	kind := crc32.ChecksumIEEE([]byte(m.id)) % 3
	if kind > 0 {
		opts = append(opts, shunt.ID(next.id))
	}
	if kind > 1 {
		opts = append(opts, shunt.In(30*time.Millisecond))
	}
	if err := then(shunt.With(next, opts...)); err != nil {
		return err
	}
	if attempt == 1 && strings.HasPrefix(m.plan, planFalter) {
		return errors.New("as planned")
	}
	return nil
}

// follow adds the enqueues that an ack makes, and no producer reports. What was handled to its end, and is not in Redis
// any more, was acked once. So its next step was enqueued once.
func (h *history) follow(spare map[string]bool) {
	plans, handled, held := make(map[string]string), make(map[string]time.Time), make(map[string]bool)
	for _, e := range h.entries {
		if e.Op == enqueue && e.Phase == invoke && following(e.Note) > 0 {
			plans[e.ID] = e.Note
		} else if _, there := handled[e.ID]; e.Op == handle && e.Phase == ok && !there {
			handled[e.ID] = e.At
		}
	}
	if len(plans) == 0 {
		return
	}
	for _, p := range h.left {
		held[p.ID] = true
	}
	for id, plan := range plans {
		for range following(plan) {
			at, there := handled[id]
			if !there {
				break
			}
			phase := ok
			if spare[id] || held[id] {
				phase = info
			}
			if id = nextStep(id); phase == info {
				spare[id] = true
			}
			h.entries = append(h.entries, entry{At: at, By: "ack", Op: enqueue, Phase: invoke, ID: id, Note: planOK},
				entry{At: at, By: "ack", Op: enqueue, Phase: phase, ID: id})
		}
	}
	sortEntries(h.entries)
}

// chains has workers killed, or cut off, or both, while messages follow each other. It strikes when an ack with what
// follows was executed, or is about to be, and the worker does not know that yet.
func chains(w *world, r *rand.Rand, long bool) {
	n, perSecond := sized(long, 2000, 100_000), sized(long, 400, 2000)
	for range 3 {
		w.start(orders{})
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
		w.start(orders{})
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
	ms, es := make([]shunt.IMessage, n), make([]entry, n)
	for i := range ms {
		k := w.next.Add(1)
		m := &message{
			channel: w.channels[0],
			id:      fmt.Sprintf("%s/%d", w.channels[0], k),
			plan:    fmt.Sprint(planThen, after),
		}
		if k%8 == 0 {
			m.plan = fmt.Sprint(planFalter, after)
		}
		ms[i], es[i] = m, entry{Op: enqueue, Phase: invoke, ID: m.id, Note: m.plan}
	}
	w.log.say(es...)
	err := w.direct.EnqueueAll(context.Background(), ms)
	if err != nil {
		w.Error(err)
	}
	for i := range es {
		es[i].At, es[i].Phase = time.Time{}, outcome(err)
	}
	w.log.say(es...)
}

// loseFollows loses replies to acks that enqueue what follows.
func loseFollows(w *world) {
	x := w.start(orders{Workers: 4, Lease: time.Second})
	w.until(5*time.Second, "it has begun", func() bool { return w.told(x.Name, "started") > 0 })
	for range 12 {
		rule := x.proxy.On(withAck(w.channels[0]), 1, redistest.CutAfter)
		w.until(5*time.Second, "the fault strikes", func() bool {
			w.enqueue(3, planThen+"3")
			return rule.Struck() > 0
		})
		w.struck("lost reply", x)
		if !w.drained(3 * time.Second) {
			return
		}
	}
}
