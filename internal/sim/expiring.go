package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	redigo "github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/trial"
)

// expiries is the stream of a seed from which comes what expires.
const expiries = 700

// Look is a time for which it is looked again and again at what the workers of a channel have in hand.
type Look struct {
	At, For time.Duration
	Channel string
}

// expires draws messages that expire soon, among others that take long. Workers have them in hand when their time is
// over, or had them. A lone puller would be busy with that for too long.
func (p *Plot) expires(r *rand.Rand) {
	channels := slices.DeleteFunc(p.posted(), func(c string) bool { return c == desk || c == "batch" || p.pulls(c) })
	if p.Lossy || p.Stepped || r.IntN(4) > 0 || len(channels) == 0 {
		return
	}
	for at := between(r, 0, p.Storm); at < p.length()-lull; at += between(r, time.Second, 2*p.Storm) {
		if at%p.cycle() > p.Storm {
			continue
		}
		c := pick(r, channels)
		for range 40 + r.IntN(40) {
			post := Post{At: at + between(r, 0, 20*time.Millisecond), Channel: c, How: "enqueue"}
			if r.IntN(3) == 0 {
				takes := between(r, 50*time.Millisecond, 800*time.Millisecond)
				post.Plan = trial.PlanDeaf + fmt.Sprint(takes.Milliseconds())
			} else {
				post.Plan, post.Expire = trial.PlanOK, between(r, 50*time.Millisecond, 2*time.Second)
			}
			p.Posts = append(p.Posts, post)
		}
		p.Looks = append(p.Looks, Look{At: at, For: 500 * time.Millisecond, Channel: c})
	}
	p.stalls(r)
	p.sort()
}

// stalls has the processes begin on many messages of one channel: quick ones, of which a worker takes ever more at
// once, and then what expires, with so many among it that take long that each worker soon has one of these. Then
// workers give back what they have taken, and nobody is free to take it until its time is over.
func (p *Plot) stalls(r *rand.Rand) {
	workers := 0
	for _, o := range p.Crew {
		if len(o.Channels) == 1 && o.Channels[0] == "plain" {
			workers += o.Workers
		}
	}
	if p.pulls("plain") || r.IntN(2) == 0 {
		return
	}
	p.Late = 50 * time.Millisecond
	var posts []Post
	post := func(plan string, expire time.Duration) {
		posts = append(posts, Post{Channel: "plain", How: "enqueue", Plan: plan,
			Terms: trial.Terms{Expire: expire}})
	}
	for range 6 * workers {
		post(trial.PlanOK, 0)
	}
	for i := range 16 * workers {
		if i%9 == 0 { // so that each of the hands that post has some
			post(trial.PlanDeaf+fmt.Sprint(between(r, 700*time.Millisecond, time.Second).Milliseconds()), 0)
		} else {
			post(trial.PlanOK, p.Late+between(r, 200*time.Millisecond, 600*time.Millisecond))
		}
	}
	p.Posts = append(posts, p.Posts...)
	p.Looks = append([]Look{{For: 700 * time.Millisecond, Channel: "plain"}}, p.Looks...)
}

// holding is a message that some worker had in hand before its time was over.
type holding struct {
	at      time.Time
	expires time.Time
	by      string // the incarnation
	taken   bool   // since it was looked last, which is onItsWay ago
}

// onItsWay is how long the reply to a take may be on its way. Where Redis stops meanwhile, the worker hears of what it
// has only when that is over.
const onItsWay = 10 * time.Millisecond

// looks looks at what is in hand as the plot says.
func (w *world) looks() {
	w.held = make(map[string]holding)
	if len(w.plot.Looks) == 0 {
		return
	}
	w.hands.Go(func() {
		for _, l := range w.plot.Looks {
			w.sleepUntil(l.At)
			looked := false
			for end := time.Now().Add(l.For); time.Now().Before(end); time.Sleep(onItsWay) {
				w.look(l.Channel, looked)
				looked = true
			}
		}
	})
}

func (w *world) look(channel string, before bool) {
	now := time.Now()
	keys, _ := redigo.Strings(w.do("KEYS", "{"+channel+"}.doing.*"))
	for _, key := range keys {
		_, by, _ := strings.Cut(key, ".doing.")
		raws, _ := redigo.ByteSlices(w.do("LRANGE", key, 0, -1))
		for _, raw := range raws {
			e, err := element.Decode(raw)
			if err != nil || e.Extra == nil || e.Extra.Expires == 0 {
				continue
			}
			ends, serial := time.UnixMilli(e.Extra.Expires), e.SerialString()
			if _, known := w.held[serial]; !known && now.Before(ends) {
				w.held[serial] = holding{at: now, expires: ends, by: by[:strings.LastIndex(by, ".")], taken: before}
			}
		}
	}
}

// expired finds messages that have expired although some worker had them in time, and no fault struck it since.
func (w *world) expired(es []trial.Entry) {
	owner := make(map[string]string)
	for _, e := range es {
		if e.Op == "started" || e.Op == "handed-over" || e.Op == trial.Handle && e.Phase == trial.Invoke {
			name, _, _ := strings.Cut(e.Note, " ")
			owner[name] = e.By
		}
	}
	for _, e := range es {
		h, held := w.held[e.Serial]
		if e.Op != "expired" || !held {
			continue
		}
		if !slices.ContainsFunc(es, func(f trial.Entry) bool {
			return f.Op == trial.Fault && (f.ID == "stop server" && h.taken && h.at.Sub(f.At).Abs() < onItsWay ||
				f.N > 0 && f.By == owner[h.by] && f.At.Before(e.At) &&
					(f.Due.After(h.at) || f.At.After(h.at.Add(-margins.Aftermath))))
		}) {
			w.problem("I24 taken: %s expired at %s, by %s, and was to expire at %s: %s of %s had it at %s", e.Serial,
				e.At.Format(clock), e.By, h.expires.Format(clock), h.by, owner[h.by], h.at.Format(clock))
		}
	}
}

const clock = "15:04:05.000"
