package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// climates is the stream of a seed from which comes what a server is like.
const climates = 200

// climate draws what the server is like all along, and what foreign hands leave there in lulls.
func (p *Plot) climate(r *rand.Rand) {
	if p.Calm || len(p.Recurs) > 0 || len(p.Calls) > 0 {
		return // what recurs, and what operators do, is judged by bounds of its own
	}
	switch r.IntN(8) {
	case 0:
		p.Lossy, p.Names = true, nil
		if r.IntN(2) == 0 {
			p.busy(r)
		}
	case 1:
		p.Idle = between(r, 300*time.Millisecond, 600*time.Millisecond)
		if r.IntN(2) == 0 { // nobody is dead when the first is killed in a lull, so beats are all that is sent
			p.Blows = slices.DeleteFunc(p.Blows, func(b Blow) bool { return b.At < p.Storm+shots })
		}
	case 2:
		p.Bulk = 64 << 10
		p.large(r)
	case 3:
		p.Reply = 300 << 10
		p.cutOff(r)
	case 4:
		p.Stepped, p.Names = true, nil
		for c := range p.Cycles {
			p.Blows = append(p.Blows, Blow{At: p.cycleAt(c) + between(r, time.Second, p.Storm/2),
				For: between(r, time.Second, p.Storm/2), Kind: "step", Nth: 200 + r.IntN(3600)})
		}
	}
	if r.IntN(3) == 0 {
		p.MaxDead = 5 + r.IntN(10)
	}
	for c := range p.Cycles {
		at := between(r, p.Storm/2, p.Storm)
		b := Blow{At: p.cycleAt(c) + at, For: p.cycle() - time.Second - at, Nth: r.IntN(len(p.channels()))}
		switch r.IntN(6) {
		case 0, 1:
			b.Kind, b.What = "foreign", pick(r, foreign)
			p.orphan(r, b)
		case 2:
			b.Kind, b.What = "forbid", pick(r, forbidden)
		default:
			continue
		}
		p.Blows = append(p.Blows, b)
	}
	for at := between(r, 0, 2*p.Storm); at < p.length()-lull; at += between(r, p.Storm, 4*p.Storm) {
		p.Blows = append(p.Blows, Blow{At: at, Kind: "close"})
	}
}

// orphan has a puller be killed with messages in hand, just before a foreign hand puts something where they would go
// back. So leases end that cannot be given back.
func (p *Plot) orphan(r *rand.Rand, b Blow) {
	channel := p.channels()[b.Nth]
	who := slices.IndexFunc(p.Crew, func(o trial.Orders) bool {
		return b.What == "prepare" && o.Pull > 0 && slices.Contains(o.Channels, channel)
	})
	if who < 0 {
		return
	}
	at := b.At - between(r, 0, lease/4)
	p.Blows = append(p.Blows, Blow{At: at, Kind: "kill", Who: who, Nth: 1 + r.IntN(2)})
	for range 4 {
		p.Posts = append(p.Posts, Post{At: at - 100*time.Millisecond, Channel: channel, How: "direct",
			Plan: trial.PlanDeaf + fmt.Sprint(takes.Milliseconds())})
	}
	p.sort()
}

// staleAfter is to a timeout of the server here what a second is to a real one: both are shorter, as leases are.
const staleAfter = 150 * time.Millisecond

// foreign are the keys at which foreign hands leave something of another type for a whole lull, and forbidden is what
// no process may do in one.
var (
	foreign = []string{"delay", "delay", "delay", "prepare", "prepare", "suspect", "receivers.dead",
		"receivers.dead", "keeper", "dead", "leased", "running", "done"}
	forbidden = []string{"suspects", "suspects", "counts"}
)

// cutOff has a few messages that the server takes, and never gives.
func (p *Plot) cutOff(r *rand.Rand) {
	for i := range p.Posts {
		post := &p.Posts[i]
		post.Bytes = 0
		if r.IntN(80) == 0 && post.How == "enqueue" && !p.pulls(post.Channel) && post.Channel != "batch" {
			post.Bytes, post.Plan = p.Reply, trial.PlanReject
		}
	}
}

// busy has handlers that take long, so that messages wait in the hands of workers of which none is idle.
func (p *Plot) busy(r *rand.Rand) {
	for i := range p.Posts {
		if post := &p.Posts[i]; post.Plan == trial.PlanOK && r.IntN(2) == 0 {
			post.Plan = trial.PlanDeaf + fmt.Sprint(between(r, 100*time.Millisecond, lease*3/4).Milliseconds())
		}
	}
}

// large has messages that fill what the server takes at most in one argument.
func (p *Plot) large(r *rand.Rand) {
	for i := range p.Posts {
		post := &p.Posts[i]
		post.Bytes = 0
		if post.How != "enqueue" && post.How != "direct" || r.IntN(6) > 0 {
			continue
		}
		if post.Bytes = p.Bulk - 20 - r.IntN(300); r.IntN(2) == 0 {
			post.Plan = trial.PlanRetry
		}
	}
}

// lulled says of what the calm of a lull says nothing: a channel, or what is delayed there alone.
func (w *world) lulled(c int) (channel string, delayed bool) {
	for _, b := range w.plot.Blows {
		if b.Kind != "foreign" || w.plot.cycleOf(b.At) != c {
			continue
		}
		channel = w.plot.channels()[b.Nth%len(w.plot.channels())]
		switch b.What {
		case "keeper", "dead", "done", "leased":
			return channel, true
		case "suspect":
			return channel, !w.plot.leaves(b.At, b.At+b.For)
		case "receivers.dead":
			return channel, !w.plot.leaves(b.At, b.At+b.For) && !w.handedOver(channel, w.began.Add(b.At))
		}
		return channel, false
	}
	return "", false
}

// handedOver says whether a receiver of a channel has gone on as another incarnation since then: what lies unknown in
// the lists of the one before comes back when that one is among the dead.
func (w *world) handedOver(channel string, since time.Time) bool {
	takes := make(map[string]bool)
	for _, p := range w.all() {
		takes[p.Name] = slices.Contains(p.Channels, channel)
	}
	return slices.ContainsFunc(w.said.Entries(), func(e trial.Entry) bool {
		return e.Op == "handed-over" && takes[e.By] && e.At.After(since)
	})
}

// foreign is which key of a channel is another one's in the lull of a cycle; empty: none.
func (w *world) foreign(c int, channel string) string {
	for _, b := range w.plot.Blows {
		if b.Kind == "foreign" && w.plot.cycleOf(b.At) == c &&
			w.plot.channels()[b.Nth%len(w.plot.channels())] == channel {
			return b.What
		}
	}
	return ""
}

// leaves says whether some process may leave to others what it holds, so shortly before or in a time.
func (p *Plot) leaves(from, to time.Duration) bool {
	return slices.ContainsFunc(p.Blows, func(b Blow) bool {
		brief := notes[b.Kind] == trial.Brief || b.Kind == "foreign" || b.Kind == "close" || b.Kind == "script flush" ||
			b.Kind == "clock"
		return !brief && b.At < to && b.At+b.For > from-p.Storm/2
	})
}

// suspected says which messages wait to be handled alone.
func (w *world) suspected() {
	for i, post := range w.plot.Posts {
		if w.plot.Reply > 0 && post.Bytes >= w.plot.Reply {
			w.log.Say(trial.Entry{Op: trial.Alone, Phase: trial.Info, ID: post.id(i)})
		}
	}
	for _, c := range w.plot.channels() {
		es, err := w.do("LRANGE", store.KeysOf(c).Suspect, 0, -1)
		if err != nil {
			continue
		}
		all, _ := es.([]any)
		for _, e := range all {
			raw, _ := e.([]byte)
			w.log.Say(trial.Entry{Op: trial.Alone, Phase: trial.Info, ID: trial.MessageIn(raw)})
		}
	}
}

// strikeClimate strikes what is neither a process's nor a line's, and lasts for a lull.
func (w *world) strikeClimate(b Blow) {
	channel := w.plot.channels()[b.Nth%len(w.plot.channels())]
	key := "{" + channel + "}." + b.What
	switch b.Kind {
	case "foreign":
		w.harmless(b)
		if b.What == "receivers.dead" { // no message is there, and it is seldom empty
			w.lasting(b, b.For, w.all()...) // a handover does not end before it is gone
			_, _ = w.do("RENAME", key, key+".aside")
		}
		v, err := w.do("SET", key, "not shunt's", "NX")
		if err != nil || v == nil {
			return
		}
		time.Sleep(b.For)
		const goes = "redis.call('DEL', KEYS[1]) redis.pcall('RENAME', KEYS[1] .. '.aside', KEYS[1]) return 1"
		for range 100 {
			if _, err := w.do("EVAL", goes, 1, key); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		w.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info, ID: channel})
	case "forbid":
		w.harmless(b)
		takes, reaps := on("", "}.suspect", ".doing."), on("", "}.dead")
		match := match(func(args [][]byte) bool { return takes(args) && !reaps(args) })
		if b.What == "counts" {
			match = on("", "}.counts")
		}
		r := &rule{match: match, act: replyError, text: "NOPERM User default has no permissions to run this command"}
		w.net.add(&w.net.trunk, r)
		time.Sleep(b.For)
		w.net.remove(&w.net.trunk, r)
		if b.What != "counts" { // a suspect could not be taken meanwhile
			w.log.Say(trial.Entry{Op: trial.Healing, Phase: trial.Info})
		}
	case "step":
		ends := time.Now().Add(b.For + time.Second)
		ill := func(p *process) {
			if p.Pull > 0 {
				w.lasting(b, time.Until(ends), p)
			}
		}
		defer w.arm(new(rule), ill)()
		for _, p := range w.all() {
			ill(p)
		}
		w.harmless(b)
		by := time.Duration(b.Nth) * time.Second
		w.server.Step(-by)
		time.Sleep(b.For)
		w.server.Step(by)
	case "close":
		w.harmless(b)
		w.closeProducer()
	}
	w.struck(true)
}

// setting says what the server is like.
func (p *Plot) setting() string {
	return fmt.Sprintf("older state %t, timeout %v, largest argument %d, reply %d, clock set %t, dead letters %d\n",
		p.Lossy, p.Idle, p.Bulk, p.Reply, p.Stepped, p.MaxDead)
}

// reap closes connections that have been idle for long, as a server with a timeout does.
func (w *world) reap() (stop func()) {
	over := make(chan struct{})
	if w.plot.Idle > 0 {
		w.hands.Go(func() {
			for {
				select {
				case <-time.After(50 * time.Millisecond):
					of := w.net.cutIdle(w.plot.Idle)
					for _, p := range w.all() {
						if slices.Contains(of, p.port) { // which may be about to send something
							w.lasting(Blow{Kind: trial.CutIdle}, 0, p)
						}
					}
				case <-over:
					return
				}
			}
		})
	}
	return func() { close(over) }
}

// onTime has what the server's clock said as it was in truth: none was set by less than a run takes.
func (w *world) onTime(es []trial.Entry) []trial.Entry {
	for i, e := range es {
		for _, b := range w.plot.Blows {
			at := e.At.Add(time.Duration(b.Nth) * time.Second).Sub(w.began)
			if b.Kind == "step" && b.At <= at && at <= b.At+b.For+time.Second {
				es[i].At = w.began.Add(at)
			}
		}
	}
	return es
}
