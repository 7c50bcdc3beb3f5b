package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// blow is one fault of the random mix. All of it is derived from the seed before anything starts, so that it can be
// struck again.
type blow struct {
	At, For time.Duration // since the beginning; how long it goes on
	Kind    string
	Who     int    // of the workers that there are then; of the network -1 is all of them
	What    string // a command, an error's text, a key
	Nth     int
}

func (b blow) String() string {
	return fmt.Sprintf("%8.3fs %-14s for %v who %d nth %d %q", b.At.Seconds(), b.Kind, b.For.Round(time.Millisecond),
		b.Who, b.Nth, b.What)
}

// The kinds of blows, by the hand that strikes them: what one hand does it does one after another, what two do comes at
// once.
var hands = [][]string{
	{"kill", "kill", "stop", "stop", "term", "corpse", "corpse"},
	{
		"cut before",
		"cut unread",
		"cut after",
		"cut after",
		"cut after",
		"cut after",
		"cut all",
		"hole",
		"mute",
		"slow",
		"slice",
		"refuse",
		"error",
	},
	{
		"kill server",
		"stop server",
		"stop server",
		"stop server",
		"script flush",
		"client kill",
		"client kill",
		"squeeze",
		"wrong type",
		"wrong type",
	},
}

// aims are what a blow can be aimed at: commands by their names and keys, so that a script is met whatever its text is.
var aims = map[string]redistest.Match{
	"any":        redistest.Command(""),
	"script":     redistest.Command("EVALSHA"),
	"enqueue":    redistest.Command("LPUSH"),
	"take":       redistest.Command("RPOPLPUSH"),
	"waiter":     redistest.Command("BRPOPLPUSH"),
	"ack":        acks,
	"retry":      redistest.Command("", ".doing.", "}.delay"),
	"long retry": longRetry,
	"reject":     redistest.Command("", ".doing.", "}.dead"),
	"put back":   redistest.Command("", ".doing.", "}.prepare"),
	"promote":    redistest.Command("", "}.delay", "}.prepare"),
	"receivers":  redistest.Command("", "}.receivers"),
	"pull":       redistest.Command("", "}.suspect", "}.leased."),
	"lease":      redistest.Command("", "}.leased."),
	"lapse":      redistest.Command("", "}.leased.", "}.dead"),
	"sweep":      redistest.Command("", "}.receivers.dead", "}.suspect"),
}

var (
	aimed   = slices.Sorted(maps.Keys(aims))
	parting = []string{
		"waiter",
		"waiter",
		"waiter",
		"waiter",
		"long retry",
		"long retry",
		"take",
		"ack",
		"retry",
		"reject",
		"promote",
		"put back",
		"pull",
		"lease",
		"lapse",
	}
	mistaken = []string{"prepare", "prepare", "suspect", "delay", "dead", "keeper", "leased"}
)

// acks matches what acks one, and what acks several.
func acks(args [][]byte) bool {
	return redistest.Command("LREM")(args) ||
		len(args) == 7 && string(args[2]) == "1" && bytes.Contains(args[3], []byte(".doing."))
}

// longRetry matches a retry that is still in delay when a handover sends it again.
func longRetry(args [][]byte) bool {
	if len(args) != 9 || !bytes.Contains(args[4], []byte(".doing.")) || !bytes.HasSuffix(args[5], []byte("}.delay")) {
		return false
	}
	ms, err := strconv.Atoi(string(args[6]))
	return err == nil && ms >= 1000
}

// After every storm the hands rest, but for a parting shot at each process. That is a lost reply at one command, and
// nothing after it would mend what it strands. Then comes a lull. No fault can have caused what is doubled in it. What
// was there before has to be handled in its first five seconds, whoever holds it. By then nothing excuses any more that
// a living one is judged dead. Redis-server stops with a sweep on its way, until every entry is too old. A process that
// was away only because Redis was is not dead. All then go on as new incarnations, which would mend what was stranded.
const (
	storm  = 8 * time.Second
	shots  = 3 * time.Second
	lull   = 9 * time.Second
	paused = trial.LongestLease + 100*time.Millisecond // into the lull
	cycle  = storm + shots + lull
	crew   = 6 // workers: four that receive, two that pull
)

// between draws from least to below most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// plot draws all blows of a mix.
func plot(seed uint64, length time.Duration) []blow {
	var all []blow
	add := func(b blow) bool {
		fits := b.At+b.For <= length
		if fits {
			all = append(all, b)
		}
		return fits
	}
	for i, kinds := range hands {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		between := func(least, most time.Duration) time.Duration { return between(r, least, most) }
		for at := time.Second; ; {
			b := blow{Kind: kinds[r.IntN(len(kinds))], Who: r.IntN(crew), Nth: 1 + r.IntN(5)}
			switch b.Kind {
			case "stop":
				b.For = between(100*time.Millisecond, 3*lease)
			case "stop server":
				b.For = between(lease*6/10, lease*9/10)
				if r.IntN(4) == 0 {
					b.For = between(lease, 2*lease)
				}
			case "corpse":
				b.For = between(time.Second, 5*time.Second)
			case "kill server":
				b.For = between(0, 2*time.Second)
			case "cut before", "cut unread", "cut after":
				b.For, b.What = between(100*time.Millisecond, 800*time.Millisecond), aimed[r.IntN(len(aimed))]
			case "error":
				b.For = between(200*time.Millisecond, 2*time.Second)
				b.What = trial.Refusals[r.IntN(len(trial.Refusals))]
				b.Nth = r.IntN(len(aimed))
			case "wrong type":
				b.For, b.What = between(200*time.Millisecond, 1500*time.Millisecond), mistaken[r.IntN(len(mistaken))]
			case "hole", "mute", "slow", "slice", "squeeze", "refuse":
				b.For = between(200*time.Millisecond, 3*time.Second)
			}
			if r.IntN(3) == 0 && b.Kind != "corpse" {
				b.Who = -1
			}
			at += between(100*time.Millisecond, 2*time.Second)
			if into := at % cycle; into+b.For > storm {
				at += cycle - into + between(0, time.Second)
			}
			if b.At = at; !add(b) {
				break
			}
			at += b.For
		}
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(hands))))
	for at := storm; ; at += cycle {
		for who := range crew {
			add(
				blow{
					At:   at,
					For:  shots,
					Kind: "shot",
					Who:  who,
					Nth:  1 + r.IntN(2),
					What: parting[r.IntN(len(parting))],
				},
			)
		}
		if !add(
			blow{
				At:   at + shots + paused,
				For:  entryLives(lease) + between(r, 0, 200*time.Millisecond),
				Kind: "pause",
				Who:  -1,
				Nth:  r.IntN(3),
			},
		) {
			break
		}
	}
	return all
}

// mix is one run of the random mix.
func mix(t testing.TB, s *redistest.Server, defect string, seed uint64, length time.Duration) *trial.Verdict {
	t.Helper()
	w := newWorld(t, s, defect, "high", "low")
	w.h = trial.History{Recover: 30 * time.Second}
	m := &mixer{world: w, began: time.Now(), over: make(chan struct{})}
	for _, channels := range [][]string{w.channels[:1], w.channels[1:]} {
		m.join(trial.Orders{Channels: channels})
		m.join(trial.Orders{Channels: channels})
		m.join(trial.Orders{Channels: channels, Pull: usualPull})
	}
	producer := w.start(trial.Orders{Name: "producer", Enqueue: 60, Channels: w.channels, Plans: usual})
	w.flow(150, trial.PlanOK, trial.PlanRetry, trial.PlanSlow+"30", "after:50", trial.PlanOK+"+100", trial.PlanReject,
		trial.PlanAfter+"1500",
		trial.PlanDeaf+"800", trial.PlanOK, trial.PlanTwice, trial.PlanAfter+"1800", trial.PlanOK+"+40",
		trial.PlanPanic, trial.PlanOK, trial.PlanGoexit)
	w.load.Go(m.oddities)
	// What one hand does it does one after another; shots and pauses are nobody's, and wait for nobody.
	turn := make(map[int][]blow)
	for _, b := range plot(seed, length) {
		if hand := handOf(b.Kind); hand >= 0 {
			turn[hand] = append(turn[hand], b)
		} else {
			w.load.Go(func() { m.strikeAt(b) })
		}
	}
	for _, blows := range turn {
		w.load.Go(func() {
			for _, b := range blows {
				m.strikeAt(b)
			}
		})
	}
	for calm := storm + shots; calm+paused <= length; calm += cycle {
		time.Sleep(time.Until(m.began.Add(calm + paused)))
		w.log.Say(trial.Entry{Op: trial.Quiet, Phase: trial.Info, Due: m.began.Add(calm)})
	}
	time.Sleep(time.Until(m.began.Add(length)))
	close(m.over)
	w.still()
	m.heal()
	_ = producer.Term()
	<-producer.Ended()
	return w.end(40 * time.Second)
}

// handOf says which hand a blow is; -1: none.
func handOf(kind string) int {
	return slices.IndexFunc(hands, func(kinds []string) bool { return slices.Contains(kinds, kind) })
}

// mixer strikes the blows of one mix.
type mixer struct {
	*world
	began time.Time
	over  chan struct{}
}

// join starts a worker process that receives from some channels, or pulls from them. It has so many workers that a
// backlog of high is gone before a calm is over, for low has no turn before.
func (m *mixer) join(like trial.Orders) *worker {
	return m.start(trial.Orders{Channels: like.Channels, Pull: like.Pull, Workers: 16, Grace: 2 * time.Second})
}

// oddities enqueue, beside the flow, what is large and what has a twin.
func (m *mixer) oddities() {
	large := make([]byte, 100<<10)
	for i := 0; ; i++ {
		select {
		case <-m.over:
			return
		case <-time.After(250 * time.Millisecond):
		}
		if c := m.channels[i%3]; i%4 == 0 {
			_ = m.post(c, trial.PlanOK, large)
		} else {
			id := fmt.Sprintf("%s/twin%d", c, i)
			e := &trial.Message{ID: id, Plan: trial.PlanRetry}
			_ = m.push(id, trial.PlanRetry, 2, func() error {
				_, err := m.server.TryDo("LPUSH", "{"+c+"}.prepare", e.Payload(), e.Payload())
				return err
			})
		}
	}
}

// corpse leaves in Redis what a process leaves there that died with full lists. In the midst of that it cuts off the
// receiver that looks after it.
func (m *mixer) corpse(b blow) {
	c := m.channels[b.Nth%3]
	k := store.KeysOf(c)
	dead := store.NewIncarnation(1, lease)
	args := []any{
		"redis.call('RPUSH', KEYS[1], unpack(ARGV, 2)) return redis.call('ZADD', KEYS[2], 0, ARGV[1])",
		2,
		k.Doing(dead, 0),
		k.DeadReceivers,
		fmt.Sprintf("%s %d r", dead.Name, time.Now().UnixMilli()),
	}
	id := fmt.Sprintf("%s/corpse%d", c, b.At.Milliseconds())
	e := &trial.Message{ID: id, Plan: trial.PlanRetry}
	for range 1 + b.Nth {
		args = append(args, e.Payload())
	}
	rule := m.proxy.On(redistest.Command("", k.Doing(dead, 0)), b.Nth, redistest.CutAfter)
	defer rule.Remove()
	m.lasting(b.Kind, b.For, m.all()...)
	_ = m.push(id, trial.PlanRetry, 1+b.Nth, func() error { _, err := m.server.TryDo("EVAL", args...); return err })
	_, _ = m.server.TryDo("PUBLISH", k.Delay, "vacant") // which makes them sweep
	time.Sleep(b.For)
}

// strikeAt strikes a blow when its time has come.
func (m *mixer) strikeAt(b blow) {
	time.Sleep(time.Until(m.began.Add(b.At)))
	began := time.Now()
	m.strike(b)
	if took := time.Since(began); took > b.For+10*time.Second {
		m.log.Say(trial.Entry{Op: trial.Delayed, Phase: trial.Info, Note: fmt.Sprintf("%s, for %v, took %v", b.Kind,
			b.For, took)})
	}
}

// strike strikes one blow, and mends what can be mended of it.
func (m *mixer) strike(b blow) {
	xs := m.all()
	x := xs[max(b.Who, 0)%len(xs)]
	px, whom := x.proxy, []*worker{x}
	if b.Who < 0 {
		px, whom = m.proxy, xs
	}
	do := func(cmd string, args ...any) { _, _ = m.server.TryDo(cmd, args...) }
	rule := func(match redistest.Match, nth int, act redistest.Action) {
		r := px.On(match, nth, act)
		m.lasting(b.Kind, b.For, whom...)
		time.Sleep(b.For)
		r.Remove()
	}
	switch b.Kind {
	case "kill":
		m.kill(x)
		m.join(x.Orders)
	case "term":
		_ = x.Term()
		m.struck(b.Kind)
		<-x.Ended()
		m.forget(x)
		m.join(x.Orders)
	case "stop":
		_ = x.Stop()
		m.lasting(b.Kind, b.For, x)
		time.Sleep(b.For)
		_ = x.Cont()
	case "corpse":
		m.corpse(b)
	case "cut before":
		rule(aims[b.What], b.Nth, redistest.CutBefore)
	case "cut unread":
		rule(aims[b.What], b.Nth, redistest.CutUnread)
	case "cut after":
		rule(aims[b.What], b.Nth, redistest.CutAfter)
	case "error":
		rule(aims[aimed[b.Nth]], 0, redistest.ReplyError(b.What))
	case "shot":
		ctx, cancel := context.WithTimeout(context.Background(), b.For)
		defer cancel()
		r := px.On(aims[b.What], b.Nth, redistest.CutAfter)
		if r.Wait(ctx, 1) == nil {
			m.lasting(b.Kind, 0, whom...)
		}
		r.Remove()
	case "pause":
		var once sync.Once // it is stopped, or it is too late for that
		stopped, late, asked := make(chan struct{}), make(chan struct{}), make(chan struct{})
		r := px.On(aims["sweep"], 1, redistest.Call(func() { once.Do(func() { m.server.Stop(); close(stopped) }) }))
		go func() { // the server may be stopped before it replies
			defer close(asked)
			do("PUBLISH", store.KeysOf(m.channels[b.Nth%3]).Delay, "vacant") // which makes them sweep
		}()
		select {
		case <-stopped:
		case <-time.After(time.Second):
			once.Do(func() { close(late) })
		}
		r.Remove()
		select {
		case <-stopped:
			for _, x := range xs {
				m.log.Say(
					trial.Entry{
						By:    x.Name,
						Op:    trial.Fault,
						Phase: trial.Info,
						ID:    "stop server at a sweep",
						N:     x.Flight(),
						Due:   time.Now().Add(b.For),
						Note:  trial.Spared,
					},
				)
			}
			time.Sleep(b.For)
			m.server.Cont()
		case <-late:
		}
		<-asked
	case "cut all":
		m.lasting(b.Kind, 0, whom...)
		px.CutAll()
	case "refuse":
		m.lasting(b.Kind, b.For, whom...)
		px.Refuse(true)
		px.CutAll()
		time.Sleep(b.For)
		px.Refuse(false)
	case "hole":
		m.lasting(b.Kind, b.For, whom...)
		px.Hole(true)
		time.Sleep(b.For)
		px.Hole(false)
	case "mute":
		m.lasting(b.Kind, b.For+3*time.Second, whom...) // a connection that has lost a reply stays mute
		px.DropReplies(true)
		time.Sleep(b.For)
		px.DropReplies(false)
	case "slow", "slice":
		m.lasting(b.Kind, b.For, whom...)
		if b.Kind == "slow" {
			px.Slow(50*time.Millisecond, 0, 0)
		} else {
			px.Slow(0, 20<<10, 100)
		}
		time.Sleep(b.For)
		px.Slow(0, 0, 0)
	case "kill server":
		m.lasting(b.Kind, b.For, xs...)
		m.server.Kill()
		time.Sleep(b.For)
		m.server.Restart()
	case "stop server":
		if b.For < lease {
			m.struck("pause server") // which doubles nothing
		} else {
			m.lasting(b.Kind, b.For, xs...)
		}
		m.server.Stop()
		time.Sleep(b.For)
		m.server.Cont()
	case "script flush":
		m.struck(b.Kind)
		do("SCRIPT", "FLUSH")
	case "client kill":
		m.lasting(b.Kind, 0, xs...)
		do("CLIENT", "KILL", "TYPE", []string{"normal", "pubsub"}[b.Nth%2], "SKIPME", "yes")
	case "squeeze":
		m.struck(b.Kind)
		do("CONFIG", "SET", "maxmemory", m.server.Memory()+100<<10)
		time.Sleep(b.For)
		do("CONFIG", "SET", "maxmemory", 0)
	case "wrong type":
		key := "{" + m.channels[b.Nth%3] + "}." + b.What
		if v, err := m.server.TryDo("SET", key, "not shunt's", "NX"); err == nil && v != nil {
			m.struck(b.Kind)
		}
		time.Sleep(b.For)
		do("EVAL", "if redis.call('TYPE', KEYS[1]).ok == 'string' then redis.call('DEL', KEYS[1]) end", 1, key)
	}
}

// heal ends what may still go on.
func (m *mixer) heal() {
	m.proxy.Refuse(false)
	m.proxy.Hole(false)
	m.proxy.DropReplies(false)
	m.proxy.Slow(0, 0, 0)
	m.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info})
}
