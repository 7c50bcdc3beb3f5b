package sim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// drains is how long what is left when all faults are over may take.
const drains = 40 * time.Second

// end waits until all is handled, shuts all down in order, and judges.
func (w *world) end() {
	channels := w.plot.channels()
	h := &trial.History{Lossy: w.plot.Lossy, Stepped: w.plot.Stepped, Wrong: w.plot.watched(""),
		MaxDead: w.plot.MaxDead, Recover: 30 * time.Second, Ends: 30 * time.Second}
	h.Margins = &margins
	well, over := false, time.Now()
	for end := time.Now().Add(drains); !well && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		n, err := trial.Busy(w.do, channels...)
		well = err == nil && n == 0
	}
	w.took("drain", time.Since(over))
	if well {
		w.timetable.remove()
		w.idle()
	}
	left, err := trial.Places(w.do, channels...)
	if err != nil {
		w.problem("what is left cannot be read: %v", err)
	}
	h.Left = left
	if well {
		w.log.Say(trial.IDsLeft(w.do, true, channels...)...)
		var all sync.WaitGroup
		for _, p := range w.all() {
			all.Go(p.term)
		}
		all.Wait()
		if !w.plot.Lossy && !w.plot.Stepped {
			counted := slices.DeleteFunc(slices.Clone(channels), func(c string) bool { return c == desk })
			h.Counts, err = trial.Counts(context.Background(), w.direct.queue, counted...)
			if err != nil {
				w.problem("counts: %v", err)
			}
		}
	} else {
		for _, p := range w.all() {
			p.kill(false)
		}
	}
	h.Entries = w.ticked(w.said.Entries())
	w.recovered(h.Entries)
	w.expired(h.Entries)
	h.Entries = append(h.Entries, w.onTime(trial.Entered(w.do, channels...))...)
	w.apart(h)
	if w.plot.Calm {
		h.Ranks = w.plot.strict()
	}
	w.result.Verdict = trial.Check(h)
	w.result.Story = func() string { return w.plot.setting() + trial.Chronicle(h.Entries) }
	if w.plot.Calm && well {
		w.untroubled(h, w.result.Verdict)
	}
	if well && !w.plot.Lossy {
		if len(w.plot.Calls) > 0 {
			w.looking()
		}
		w.keys()
	}
}

// What ends the run is rest, and then a window. After both all is forgotten that is to be.
const rest, window = 45 * time.Second, 20 * time.Second

// idle counts what processes ask, in the window, of an idle Redis.
func (w *world) idle() {
	time.Sleep(rest)
	sent := func() (all []int) {
		w.net.mu.Lock()
		defer w.net.mu.Unlock()
		for _, p := range w.crew {
			all = append(all, p.port.sent)
		}
		return all
	}
	w.net.change(func() {
		for _, p := range w.crew {
			p.port.idle = true
		}
	})
	dead := w.dead()
	before, was := w.server.Commands(), sent()
	time.Sleep(window)
	for i, n := range sent() {
		p := w.crew[i]
		dead -= p.port.looks
		n = (n - was[i] - perLook*p.port.looks) * int(time.Minute/window)
		w.took("idle commands a minute of a "+p.kind(), time.Duration(n), p.Name)
		if most := w.mostOf(p); n > most {
			w.problem("I11 spin: %s, a %s, sent %d commands a minute to an idle Redis: more than %d", p.Name, p.kind(),
				n, most)
		}
	}
	if dead < 0 { // all have been dead for longer than that, and the time between two looks doubles
		w.problem("I11 spin: the dead were looked at %d times more often than once each in %v", -dead, window)
	}
	n := w.server.Commands() - before
	w.took("idle commands a second a process", time.Duration(n/len(w.crew)/int(window/time.Second)))
	if most := len(w.crew) * int(window/time.Second) * busiest; n > most {
		w.problem("I11 spin: %d commands in %v of an idle Redis, of %d processes: more than %d", n, window,
			len(w.crew), most)
	}
}

// spins complains of processes that send without a pause, most of all what Redis refuses.
func (w *world) spins() {
	words := make(map[string]map[int64]int)
	for _, e := range w.said.Entries() {
		if words[e.By] == nil {
			words[e.By] = make(map[int64]int)
		}
		words[e.By][e.At.Unix()]++
	}
	for _, p := range w.born {
		if len(p.Channels) == 0 || p.Pull > 0 { // its callers ask at their own pace
			continue
		}
		n, kind := p.port.refused.most, p.kind()
		w.took("refused tries a second of a "+kind, time.Duration(n), p.Name)
		if most := mostRefused[kind]; n > most {
			w.problem("I11 spin: of %s, a %s, Redis refused something at %d moments of one second: more than %d",
				p.Name, kind, n, most)
		}
		for second, n := range p.port.each {
			n -= perWord * (words[p.Name][second] + words[p.Name][second-1])
			w.took("commands a second beside what is said, of a "+kind, time.Duration(n), p.Name)
			if most := mostBusy[kind]; n > most {
				w.problem("I11 spin: %s, a %s, sent %d commands in the second %d beside its words: more than %d",
					p.Name, kind, n, second-epoch.Unix(), most)
			}
		}
	}
}

// dead counts the receivers that are known to be dead.
func (w *world) dead() (all int) {
	for _, c := range w.plot.channels() {
		n, err := redigo.Int(w.do("ZCARD", store.KeysOf(c).DeadReceivers))
		if err != nil {
			w.problem("the dead of %s: %v", c, err)
		}
		all += n
	}
	return all
}

// busiest is how many commands a second an idle process may send, those inside its scripts included.
const busiest = 45

// keys tells of keys that nobody needs any more.
func (w *world) keys() {
	left := func() []string {
		all, err := redigo.Strings(w.do("KEYS", "*"))
		if err != nil {
			w.problem("keys: %v", err)
		}
		return all
	}
	all := left()
	if slices.ContainsFunc(all, func(key string) bool { return strings.HasSuffix(key, "}.leased") }) {
		// A lease that its puller gave up at the end stays known for a while. Who keeps the channel next forgets it.
		p := w.start(trial.Orders{Name: "sexton", Channels: w.plot.channels(), Upkeep: true, Lease: lease})
		time.Sleep(70 * time.Second)
		p.term()
		all = left()
	}
	for _, key := range all {
		if !slices.ContainsFunc(stays, func(end string) bool { return strings.Contains(key, end) }) {
			w.problem("I11 keys: %s is left", key)
		}
	}
}

// stays are the keys that outlive who made them.
var stays = []string{"shunt.channels", "}.dead", "}.counts", "}.about.", "}.receivers.dead", "}.receipts",
	"shunt.audit"}
