//go:build chaos

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/lists"
	"github.com/shuntmq/shunt/internal/redistest"
)

// blow is one fault of the random mix. All of it is derived from the seed before anything starts, so that it can be struck again.
type blow struct {
	At, For time.Duration // since the beginning; how long it goes on
	Kind    string
	Who     int    // of the workers that there are then; of the network -1 is all of them
	What    string // a command, an error's text, a key
	Nth     int
}

func (b blow) String() string {
	return fmt.Sprintf("%8.3fs %-14s for %v who %d nth %d %q", b.At.Seconds(), b.Kind, b.For.Round(time.Millisecond), b.Who, b.Nth, b.What)
}

// The kinds of blows, by the hand that strikes them: what one hand does it does one after another, what two do comes at once.
var hands = [][]string{
	{"kill", "kill", "stop", "stop", "term", "corpse", "corpse"},
	{"cut before", "cut unread", "cut after", "cut after", "cut after", "cut after", "cut all", "hole", "mute", "slow", "slice", "refuse", "error"},
	{"kill server", "stop server", "stop server", "stop server", "script flush", "client kill", "client kill", "squeeze", "wrong type", "wrong type"},
}

var (
	// A command's name, or the keys that it goes by, from one to the other.
	struckAt = []string{"RPOPLPUSH", "BRPOPLPUSH", "LREM", "LPUSH", "EVALSHA", ".doing.>}.delay", ".doing.>}.delay", ".doing.>}.dead",
		".doing.>}.prepare", "}.delay>}.prepare", "}.receivers", ""}
	mistaken = []string{"prepare", "prepare", "suspect", "delay", "dead", "keeper"}
)

// Every lull the hands rest: what is doubled then, no fault can have caused, and what was there before it has to be handled
// when it ends, be it in whose hands it may.
const (
	storm = 12 * time.Second
	lull  = 10 * time.Second
)

// plot draws all blows of a mix.
func plot(seed uint64, length time.Duration) []blow {
	var all []blow
	for i, kinds := range hands {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		between := func(least, most time.Duration) time.Duration {
			return least + time.Duration(r.Int64N(int64(most-least)))
		}
		for at := time.Second; ; {
			at += between(100*time.Millisecond, 2*time.Second)
			if into := at % (storm + lull); into > storm {
				at += storm + lull - into
			}
			b := blow{At: at, Kind: kinds[r.IntN(len(kinds))], Who: r.IntN(4), Nth: 1 + r.IntN(5)}
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
				b.For, b.What = between(100*time.Millisecond, 800*time.Millisecond), struckAt[r.IntN(len(struckAt))]
			case "error":
				b.For, b.What = between(200*time.Millisecond, 2*time.Second), refusals[r.IntN(len(refusals))]
				b.Nth = r.IntN(len(struckAt))
			case "wrong type":
				b.For, b.What = between(200*time.Millisecond, 1500*time.Millisecond), mistaken[r.IntN(len(mistaken))]
			case "hole", "mute", "slow", "slice", "squeeze", "refuse":
				b.For = between(200*time.Millisecond, 3*time.Second)
			}
			if r.IntN(3) == 0 && b.Kind != "corpse" {
				b.Who = -1
			}
			if b.At+b.For > length {
				break
			}
			all = append(all, b)
			at += b.For
		}
	}
	return all
}

// mix is one run of the random mix.
func mix(t testing.TB, s *redistest.Server, bin string, seed uint64, length time.Duration) *verdict {
	t.Helper()
	w := newWorld(t, s, bin, "high", "low")
	w.h = history{recover: 30 * time.Second}
	m := &mixer{world: w, began: time.Now(), over: make(chan struct{})}
	for range 2 {
		m.join(w.channels[:1])
		m.join(w.channels[1:])
	}
	deliverer := w.start(orders{Name: "deliverer", Deliver: 60, Channels: w.channels, Plans: usual})
	w.flow(150, planOK, planRetry, planSlow+"30", "after:50", planOK+"+100", planReject, planAfter+"1500", planDeaf+"1200", planOK, planTwice, planOK+"+40", planPanic, planOK, planGoexit)
	w.load.Go(m.oddities)
	blows := plot(seed, length)
	for i := range hands {
		w.load.Go(func() {
			for _, b := range blows {
				if handOf(b.Kind) == i {
					time.Sleep(time.Until(m.began.Add(b.At)))
					m.strike(b)
				}
			}
		})
	}
	for end := m.began.Add(length); time.Now().Before(end); {
		next := time.Since(m.began)/(storm+lull)*(storm+lull) + storm + lull
		time.Sleep(min(time.Until(m.began.Add(next)), time.Until(end)))
		if calm := m.began.Add(next - lull); time.Now().Before(end) {
			w.log.say(entry{Op: quiet, Phase: info, Due: calm})
		}
	}
	close(m.over)
	w.still()
	m.heal()
	_ = deliverer.Term()
	<-deliverer.Ended()
	return w.end(40 * time.Second)
}

func handOf(kind string) int {
	for i, kinds := range hands {
		for _, k := range kinds {
			if k == kind {
				return i
			}
		}
	}
	panic(kind)
}

// mixer strikes the blows of one mix.
type mixer struct {
	*world
	began time.Time
	over  chan struct{}
}

// join starts a worker process on some channels.
func (m *mixer) join(channels []string) *worker {
	return m.start(orders{Channels: channels, Workers: 6, Grace: 2 * time.Second})
}

// oddities deliver, beside the flow, what is large and what has a twin.
func (m *mixer) oddities() {
	large := make([]byte, 100<<10)
	for i := 0; ; i++ {
		select {
		case <-m.over:
			return
		case <-time.After(250 * time.Millisecond):
		}
		if c := m.channels[i%3]; i%4 == 0 {
			_ = m.post(c, planOK, large)
		} else {
			id := fmt.Sprintf("%s/twin%d", c, i)
			e := &message{id: id, plan: planRetry}
			m.push(id, planRetry, 2, func() error {
				_, err := m.server.TryDo("LPUSH", "{"+c+"}.prepare", e.payload(), e.payload())
				return err
			})
		}
	}
}

// push says of n deliveries at once, by somebody who is no shunt, what came of them.
func (m *mixer) push(id, plan string, n int, do func() error) {
	say := func(phase string) {
		for range n {
			m.log.say(entry{Op: deliver, Phase: phase, ID: id, Note: plan})
		}
	}
	say(invoke)
	if do() != nil {
		say(info)
		return
	}
	say(ok)
}

// corpse leaves in Redis what a process that died with full lists leaves there, and cuts off who looks after it, in the midst of it.
func (m *mixer) corpse(b blow) {
	c := m.channels[b.Nth%3]
	k := lists.KeysOf(c)
	dead := lists.NewIncarnation(1, lease)
	args := []any{"redis.call('RPUSH', KEYS[1], unpack(ARGV, 2)) return redis.call('ZADD', KEYS[2], 0, ARGV[1])", 2, k.List(dead, 0), k.Gone,
		fmt.Sprintf("%s %d r", dead.Name, time.Now().UnixMilli())}
	id := fmt.Sprintf("%s/corpse%d", c, b.At.Milliseconds())
	e := &message{id: id, plan: planRetry}
	for range 1 + b.Nth {
		args = append(args, e.payload())
	}
	rule := m.proxy.On(redistest.Command("", k.List(dead, 0).(string)), b.Nth, redistest.CutAfter)
	defer rule.Remove()
	m.lasting(b.Kind, b.For, m.all()...)
	m.push(id, planRetry, 1+b.Nth, func() error { _, err := m.server.TryDo("EVAL", args...); return err })
	time.Sleep(b.For)
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
	at := func(what string) redistest.Match {
		if strings.ContainsAny(what, "}.") {
			return redistest.Command("", strings.Split(what, ">")...)
		}
		return redistest.Command(what)
	}
	switch b.Kind {
	case "kill":
		m.kill(x)
		m.join(x.Channels)
	case "term":
		_ = x.Term()
		m.struck(b.Kind)
		<-x.Ended()
		m.forget(x)
		m.join(x.Channels)
	case "stop":
		_ = x.Stop()
		m.lasting(b.Kind, b.For, x)
		time.Sleep(b.For)
		_ = x.Cont()
	case "corpse":
		m.corpse(b)
	case "cut before":
		rule(at(b.What), b.Nth, redistest.CutBefore)
	case "cut unread":
		rule(at(b.What), b.Nth, redistest.CutUnread)
	case "cut after":
		rule(at(b.What), b.Nth, redistest.CutAfter)
	case "error":
		rule(at(struckAt[b.Nth]), 0, redistest.ReplyError(b.What))
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
		text, _ := redis.String(m.server.TryDo("INFO", "memory"))
		_, rest, _ := strings.Cut(text, "\nused_memory:")
		var used int
		fmt.Sscan(rest, &used)
		m.struck(b.Kind)
		do("CONFIG", "SET", "maxmemory", used+100<<10)
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
	m.log.say(entry{Op: healing, Phase: info})
}
