package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// strikes has each hand strike its blows, one after another, and the parting shots beside them.
func (w *world) strikes() {
	turn := make(map[int][]Blow)
	for _, b := range w.plot.Blows {
		turn[handOf(b)] = append(turn[handOf(b)], b)
	}
	for _, blows := range turn {
		w.hands.Go(func() {
			for _, b := range blows {
				w.sleepUntil(b.At)
				b.For = b.endsIn(time.Since(w.began))
				w.strike(b)
			}
		})
	}
}

// endsIn is how long a blow lasts that is struck now. One whose turn comes late ends when the plot says, and not in the
// calm.
func (b Blow) endsIn(now time.Duration) time.Duration { return max(0, b.For-max(0, now-b.At)) }

// handOf says whose a blow is; parting shots are struck by as many hands as there are processes.
func handOf(b Blow) int {
	for i, kinds := range hands {
		for _, k := range kinds {
			if k == b.Kind {
				return i
			}
		}
	}
	switch b.Kind {
	case "foreign", "forbid":
		return -1
	case "step":
		return -2
	case "close":
		return -3
	case "outage":
		return -4
	case "clock":
		return -5 - b.Who
	}
	return len(hands) + b.Who
}

// notes of faults.
var notes = map[string]string{"stop server": trial.Spared, trial.HungUp: trial.Brief, trial.CutIdle: trial.Brief,
	"cut before": trial.Brief, "cut unread": trial.Brief, "cut after": trial.Brief, "cut within": trial.Brief,
	"cut all": trial.Brief, "client kill": trial.Brief, "shot": trial.Brief}

// lasting notes that processes are struck with a fault that goes on for d.
func (w *world) lasting(b Blow, d time.Duration, whom ...*process) {
	for _, p := range whom {
		w.log.Say(trial.Entry{By: p.Name, Op: trial.Fault, Phase: trial.Info, ID: b.Kind, N: p.Flight(),
			Due: time.Now().Add(d), Note: notes[b.Kind]})
	}
}

// arm has a rule be noted for those who begin, until disarm is called.
func (w *world) arm(r *rule, note func(*process)) (disarm func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed == nil {
		w.armed = make(map[*rule]func(*process))
	}
	w.armed[r] = note
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.armed, r)
	}
}

// harmless notes a fault that doubles nothing.
func (w *world) harmless(b Blow) {
	w.log.Say(trial.Entry{Op: trial.Fault, Phase: trial.Info, ID: b.Kind, Due: time.Now().Add(b.For)})
}

// undone notes that what was handled since then is handled again: the server has forgotten the acks of it, too.
func (w *world) undone(b Blow, from time.Time) {
	n := 0
	for _, e := range w.said.Entries() {
		if e.Op == trial.Handle && e.Phase == trial.OK && !e.At.Before(from) {
			n++
		}
	}
	w.log.Say(trial.Entry{Op: trial.Fault, Phase: trial.Info, ID: b.Kind, N: n, Due: time.Now()})
}

// strike strikes one blow, and mends what can be mended of it.
func (w *world) strike(b Blow) {
	all := w.all()
	p := all[max(b.Who, 0)%len(all)]
	at, whom := &p.port.own, []*process{p}
	if b.Who < 0 {
		at, whom = &w.net.trunk, all
	}
	aim := func(to string, nth int, what act, text string) {
		r := &rule{match: aims[to], nth: nth, act: what, text: text}
		w.net.add(at, r)
		w.lasting(b, b.For, whom...)
		if b.Who < 0 {
			ends := time.Now().Add(b.For)
			defer w.arm(r, func(p *process) { w.lasting(b, time.Until(ends), p) })()
		}
		time.Sleep(b.For)
		w.struck(w.net.remove(at, r) > 0)
	}
	turn := func(set func(is bool)) {
		w.net.change(func() { set(true) })
		time.Sleep(b.For)
		w.net.change(func() { set(false) })
		w.struck(true)
	}
	switch b.Kind {
	case "kill":
		w.lasting(b, time.Until(trial.ForEver), p)
		p.kill(b.Nth%2 == 0)
		w.succeed(p, b)
		w.struck(true)
	case "term":
		w.harmless(b)
		p.term()
		w.succeed(p, b)
		w.struck(true)
	case "freeze":
		w.lasting(b, b.For, p)
		p.freeze(true)
		time.Sleep(b.For)
		p.freeze(false)
		w.struck(true)
	case "corpse":
		w.corpse(b)
	case "cut before":
		aim(b.What, b.Nth, cutBefore, "")
	case "cut unread":
		aim(b.What, b.Nth, cutUnread, "")
	case "cut after":
		aim(b.What, b.Nth, cutAfter, "")
	case "cut within":
		aim(b.What, b.Nth, cutWithin, "")
	case "shot":
		aim(b.What, b.Nth, cutAfter, "")
	case "error":
		aim(aimed[b.Nth], 0, replyError, b.What)
	case "cut all":
		w.lasting(b, 0, whom...)
		w.cut(b, p)
	case "refuse":
		w.lasting(b, b.For, whom...)
		w.net.change(func() { at.refuse = true })
		w.cut(b, p)
		turn(func(is bool) { at.refuse = is })
	case "hole", "outage":
		w.lasting(b, b.For, whom...)
		turn(func(is bool) { at.hole = is })
	case "mute":
		w.lasting(b, b.For+3*time.Second, whom...) // a connection that has lost a reply stays mute
		turn(func(is bool) { at.mute = is })
	case "clock":
		w.wrong(b, p)
		w.struck(true)
	case "slow":
		w.lasting(b, b.For, whom...)
		turn(func(is bool) { at.quality.latency = ifSo(is, 50*time.Millisecond) })
	case "slice":
		w.lasting(b, b.For, whom...)
		turn(func(is bool) { at.quality.slice = int(ifSo(is, 100)) })
	case "foreign", "forbid", "step", "close":
		w.strikeClimate(b)
	default:
		w.strikeServer(b, all)
	}
}

func ifSo(is bool, d time.Duration) time.Duration {
	if is {
		return d
	}
	return 0
}

func (w *world) cut(b Blow, p *process) {
	if b.Who < 0 {
		w.net.cut(nil)
	} else {
		w.net.cut(p.port)
	}
	w.struck(true)
}

// strikeServer strikes a blow at the server.
func (w *world) strikeServer(b Blow, all []*process) {
	during := func(set func(is bool)) {
		set(true)
		time.Sleep(b.For)
		set(false)
	}
	key := "{" + w.plot.channels()[b.Nth%len(w.plot.channels())] + "}." + b.What
	switch b.Kind {
	case "kill server":
		w.lasting(b, b.For, all...)
		kept := w.server.Snapshot()
		if w.plot.Lossy { // what is done until then is lost, also by those who begin meanwhile
			disarm := w.arm(new(rule), func(p *process) { w.lasting(b, b.For, p) })
			from := time.Now()
			time.Sleep(time.Duration(b.Nth) * 100 * time.Millisecond)
			w.lasting(b, b.For, w.all()...)
			w.undone(b, from)
			disarm()
		}
		w.net.change(func() { w.net.down = true })
		w.net.cut(nil)
		time.Sleep(b.For)
		w.mu.Lock()
		w.result.Commands += w.server.Commands()
		w.mu.Unlock()
		w.server.Restart(kept)
		w.net.change(func() { w.net.down = false })
	case "stop server":
		if b.For < lease {
			w.harmless(b)
			for _, p := range all { // a puller may have had most of a lease before that, and others' may be shorter
				if p.Pull > 0 || b.For >= p.Lease*9/10 {
					w.log.Say(trial.Entry{By: p.Name, Op: trial.Fault, Phase: trial.Info, ID: b.Kind, N: p.Flight(),
						Due: time.Now().Add(b.For), Note: trial.Brief})
				}
			}
		} else {
			w.lasting(b, b.For, all...)
		}
		during(func(is bool) { w.net.change(func() { w.net.trunk.frozen = is }) })
	case "script flush":
		w.harmless(b)
		w.server.FlushScripts()
	case "client kill":
		w.lasting(b, 0, all...)
		_, _ = w.do("CLIENT", "KILL", "TYPE", []string{"normal", "pubsub"}[b.Nth%2], "SKIPME", "yes")
	case "full":
		w.harmless(b)
		during(w.server.Full)
	case "read-only":
		w.lasting(b, b.For, all...)
		during(w.server.ReadOnly)
	case "loading":
		w.lasting(b, b.For, all...)
		during(w.server.Loading)
	case "wrong type":
		v, err := w.do("SET", key, "not shunt's", "NX")
		if err != nil || v == nil {
			return
		}
		w.harmless(b)
		time.Sleep(b.For)
		for range 100 { // until the server serves
			if _, err := w.do("DEL", key); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	default:
		panic("sim: no blow " + b.Kind)
	}
	w.struck(true)
}

// corpse leaves in Redis what a process leaves there that died with a full list. In the midst of that it cuts off the
// receiver that looks after it.
func (w *world) corpse(b Blow) {
	channels := slices.DeleteFunc(w.plot.posted(), func(c string) bool { return c == desk })
	c := channels[b.Nth%len(channels)]
	k := store.KeysOf(c)
	dead := store.NewIncarnation(1, lease)
	m := &trial.Message{On: c, ID: fmt.Sprintf("%s/corpse%d", c, b.At.Milliseconds()), Plan: trial.PlanRetry}
	r := &rule{match: on("", k.Doing(dead, 0)), nth: b.Nth, act: cutAfter}
	w.net.add(&w.net.trunk, r)
	w.lasting(b, b.For, w.all()...)
	say := func(phase string) {
		for range 1 + b.Nth {
			w.log.Say(trial.Entry{Op: trial.Enqueue, Phase: phase, ID: m.ID, Note: m.Plan})
		}
	}
	// What a foreign key may refuse comes first, for a script is not rolled back.
	args := []any{"redis.call('ZADD', KEYS[2], 0, ARGV[1]) return redis.call('RPUSH', KEYS[1], unpack(ARGV, 2))", 2,
		k.Doing(dead, 0), k.DeadReceivers, fmt.Sprintf("%s %d r", dead.Name, time.Now().UnixMilli())}
	for range 1 + b.Nth {
		args = append(args, m.Payload())
	}
	say(trial.Invoke)
	if _, err := w.do("EVAL", args...); err != nil {
		say(trial.Fail)
	} else {
		say(trial.OK)
		_, _ = w.do("PUBLISH", k.Delay, "vacant") // which makes them sweep
	}
	time.Sleep(b.For)
	w.struck(w.net.remove(&w.net.trunk, r) > 0)
}

func (w *world) struck(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is {
		w.result.Struck++
	}
}
