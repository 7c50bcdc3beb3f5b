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
	{"give back", redistest.ByScript(store.Handover)},
}

// pullCells are those of pullers: a cut at each command, on each side of its execution, and some error replies.
func pullCells() (all []cell) {
	for _, s := range pullSteps {
		for _, cut := range cuts {
			all = append(all, cell{row: "P-reply", name: s.name + "/" + cut.name,
				run: func(w *world) { strikePull(w, s.name, s.match, cut.act, "") }})
		}
		for _, text := range refusals {
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
	w.h.ends = 20 * time.Second // so that attempts are counted strictly
	o := orders{Pull: usualPull, Workers: 2, Lease: time.Second, Hold: time.Minute, Wait: 2 * time.Second,
		Channels: w.channels}
	log := &ledger{by: "cell", file: w.log.file}
	var tries attempts
	rule := w.proxy.On(tries.of(match(c)), nth, act)
	q := w.queue(log.by, w.proxy.URL(), o)
	p := &puller{orders: &o, q: q, log: log, hang: w.hang}
	w.perish(c)
	life, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	w.Cleanup(func() { end(); all.Wait() })
	all.Go(func() { p.pullAll(life) })
	n := &namer{q: w.direct, log: w.log, channel: c}
	w.load.Go(func() { w.pullTales(n, q) })
	var again atomic.Bool // somebody does what may come too rarely once more
	w.until(15*time.Second, "the fault strikes", func() bool {
		if rule.Struck() == 0 && again.CompareAndSwap(false, true) {
			w.load.Go(func() {
				defer again.Store(false)
				_ = n.enqueue(c+"/expires", planOK, asked{expire: time.Hour})
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
	log.say(entry{Op: closed, Phase: ok})
	if w.told(w.log.by, answered+"\t"+fail) > 0 {
		w.Error("a verdict was told that its lease is lost")
	}
}

// perish has somebody take two messages who is never heard of again.
func (w *world) perish(channel string) {
	w.enqueue(2, planOK, planRetry)
	gone := w.queue("gone", w.server.URL(), orders{Quiet: true, Pull: 1})
	ms, err := gone.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}, Max: 2,
		Lease: 500 * time.Millisecond})
	if err != nil {
		w.Fatal(err)
	}
	var es []entry
	for _, m := range ms {
		es = append(es, entry{By: "gone", Op: pulled, Phase: info, ID: parseMessage(m.Payload).id, Serial: m.Serial,
			Attempt: m.Attempt, Due: m.EndsAt})
	}
	if len(es) > 0 {
		w.log.say(es...)
	}
	if err := gone.Close(); err != nil {
		w.Error(err)
	}
}

// gives has takes given back: their request ends while they are under way.
func (w *world) gives(q *shunt.Queue, channel string) {
	rule := w.proxy.On(redistest.ByScript(store.TakeLease)(channel), 0, redistest.Delay(30*time.Millisecond))
	defer rule.Remove()
	w.enqueue(1, planOK)
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
func (w *world) pullTales(n *namer, q *shunt.Queue) {
	c := n.channel
	w.enqueue(12, planOK)
	for _, plan := range []string{planRetry, planReject, planOK, planSlow + "50", planOK + "+50", planTwice,
		planExtend + "100", planAfter + "40"} {
		w.enqueue(2, plan)
	}
	for i, plan := range []string{planOK, planRetry, planReject, planOK} {
		_ = n.enqueue(c+"/named"+string(rune('a'+i)), plan, asked{})
	}
	_ = n.enqueue(c+"/expires", planOK, asked{expire: time.Hour})
	_ = n.enqueue(c+"/retained", planOK, asked{retain: time.Second})
	for _, id := range []string{"follows1", "follows2", "follows3"} {
		_ = post(context.Background(), w.direct, w.log, &message{channel: c, id: c + "/" + id, plan: planThen + "1"})
	}
	w.releases(q, c)
}

// together pulls and acks several at once.
func (w *world) together(q *shunt.Queue, channel string) {
	p := &puller{orders: &orders{}, q: q, log: &ledger{by: "cell", file: w.log.file}}
	w.enqueue(8, planOK)
	ms, _ := q.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}, Max: 8, Lease: time.Minute})
	p.has(0, ms)
	p.ackTogether(slices.DeleteFunc(ms, func(m *shunt.Leased) bool { return !p.easy(m) }))
}

// easy handles a message that only has to be acked, and gives any other back.
func (p *puller) easy(m *shunt.Leased) bool {
	of := parseMessage(m.Payload)
	e := entry{Op: handle, Phase: invoke, ID: of.id, Serial: m.Serial, Attempt: m.Attempt}
	p.log.say(e)
	if e.Phase = ok; of.plan != planOK {
		e.Phase = info
	}
	p.log.say(e)
	if e.Phase == info {
		p.said(m, "release", m.Release(context.Background()))
	}
	return e.Phase == ok
}

// crowds has several pull and ack one message each at the same time.
func (w *world) crowds(q *shunt.Queue, channel string) {
	p := &puller{orders: &orders{}, q: q, log: &ledger{by: "cell", file: w.log.file}}
	w.enqueue(16, planOK)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 2 {
				o := shunt.PullOptions{Channels: []string{channel}, Lease: time.Minute}
				ms, _ := q.Pull(context.Background(), o)
				p.has(n, ms)
				for _, m := range ms {
					if p.easy(m) {
						p.said(m, "ack", m.Ack(context.Background()))
					}
				}
			}
		})
	}
	all.Wait()
}

// releases pulls and gives back, by the message and by its receipt.
func (w *world) releases(q *shunt.Queue, channel string) {
	log := &ledger{by: "cell", file: w.log.file}
	for range 4 {
		w.enqueue(3, planOK)
		ms, err := q.Pull(context.Background(), shunt.PullOptions{Channels: []string{channel}, Max: 3,
			Lease: time.Minute})
		for i, m := range ms {
			id := parseMessage(m.Payload).id
			log.say(entry{Op: pulled, Phase: info, ID: id, Serial: m.Serial, Attempt: m.Attempt, Due: m.EndsAt},
				entry{Op: handle, Phase: info, ID: id, Serial: m.Serial, Attempt: m.Attempt, Note: "to be released"})
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
