package sim

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/store"
	"github.com/shuntmq/shunt/internal/trial"
)

// The channel that operators change. Its messages have invariants of their own.
const desk = "desk"

// The plans of messages there.
var desked = []string{trial.PlanOK, trial.PlanOK + "+700", trial.PlanOK + "+9000", trial.PlanRetry,
	trial.PlanAfter + "1500", trial.PlanReject, trial.PlanReject, trial.PlanReject, trial.PlanTwice,
	trial.PlanSlow + "30", trial.PlanDeaf + "800"}

// The verbs of operators, those that change nothing first.
var (
	looks = []string{"channels", "overview", "health", "stats", "counts", "receivers", "browse", "browse", "browse",
		"list", "failures", "audit log", "moves", "peek"}
	acts = []string{"retry all", "retry all", "retry", "delete all", "delete", "cancel all", "cancel", "promote all",
		"promote", "purge", "copy", "audit"}
)

// Call is one that an operator makes.
type Call struct {
	At      time.Duration
	What    string
	Channel string
	State   shunt.State
	Limit   int
	Within  time.Duration // the end of its context; 0: it has none
}

// operates draws what operators do, and who handles what they change.
func (p *Plot) operates(r *rand.Rand, join func(trial.Orders)) {
	acting := r.IntN(2) == 0
	if acting {
		for range 1 + r.IntN(2) {
			join(trial.Orders{Channels: []string{desk}})
		}
	}
	for at := time.Duration(0); at < p.length()-lull/2; at += between(r, 50*time.Millisecond, 2*time.Second) {
		c := Call{At: at, What: pick(r, looks), Channel: pick(r, p.channels()), State: pick(r, shunt.States),
			Limit: pick(r, []int{0, 0, 1, 3, 50})}
		if r.IntN(3) == 0 {
			c.Within = between(r, 10*time.Millisecond, 2*time.Second)
		}
		if acting && r.IntN(3) == 0 {
			c.What, c.Channel = pick(r, acts), desk
		}
		p.Calls = append(p.Calls, c)
	}
}

// heaps is the stream of a seed from which the heaps are drawn.
const heaps = 1000

// heap has more messages wait in the operators' channel, or lie in dead, than a page has, and calls for all of them.
// Meanwhile others come that are due sooner.
func (p *Plot) heap(r *rand.Rand) {
	if !slices.ContainsFunc(p.Crew, func(o trial.Orders) bool { return o.Channels[0] == desk }) {
		return
	}
	for c := range p.Cycles {
		at, plan, verbs := p.cycleAt(c)+between(r, 0, p.Storm/2), trial.PlanReject,
			[]string{"retry all", "delete all"}
		if r.IntN(3) > 0 {
			plan, verbs = trial.PlanOK+"+9000", []string{"promote all", "cancel all"}
		}
		for range 80 + r.IntN(200) {
			p.Posts = append(p.Posts, Post{At: at, Channel: desk, Plan: plan, How: "enqueue",
				Terms: trial.Terms{Named: r.IntN(2) == 0}})
		}
		for range 1 + r.IntN(3) {
			at += between(r, 200*time.Millisecond, 2*time.Second)
			p.Calls = append(p.Calls, Call{At: at, What: pick(r, verbs), Channel: desk, State: shunt.StateDelay,
				Limit: pick(r, []int{0, 0, 0, 50})})
			for range r.IntN(40) {
				p.Posts = append(p.Posts, Post{At: at + between(r, 0, 5*time.Millisecond), Channel: desk,
					Plan: pick(r, []string{trial.PlanOK + "+700", plan}), How: "enqueue"})
			}
		}
	}
	p.sort()
}

// operator makes calls, one after another.
type operator struct {
	w   *world
	q   *shunt.Queue
	log *trial.Ledger

	mayBeGone map[string]time.Time // messages that a call may have ended, and when it returned last
	purged    time.Time            // when what is dead was purged last
	promoted  []time.Time          // when calls had promoted what was in delay
}

// operate has an operator make the plot's calls.
func (w *world) operate(p *process) {
	w.operator = operator{w: w, q: p.queue, log: p.log, mayBeGone: make(map[string]time.Time)}
	w.hands.Go(func() {
		for _, c := range w.plot.Calls {
			w.sleepUntil(c.At)
			w.operator.call(c)
		}
	})
}

// pages are more than a Browse has that ends.
const pages = 3000

func (o *operator) call(c Call) {
	ctx, cancel := context.Background(), func() {}
	if c.Within > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.Within)
	}
	defer cancel()
	began := time.Now()
	if slices.Contains(looks, c.What) {
		_ = o.look(ctx, c) // in a storm it may fail
	} else {
		_ = o.act(ctx, c)
	}
	took := time.Since(began)
	o.w.took("call of an operator", took, c.What)
	if c.Within > 0 {
		o.w.took("call of an operator after its context", took-c.Within, c.What)
	}
}

// look makes a call that changes nothing.
func (o *operator) look(ctx context.Context, c Call) (err error) {
	q := o.q
	switch c.What {
	case "channels":
		_, err = q.Channels(ctx)
	case "overview":
		_, err = q.Overview(ctx)
	case "health":
		_, err = q.Health(ctx, c.Channel)
	case "stats":
		_, err = q.Stats(ctx, c.Channel)
	case "counts":
		_, err = q.Counts(ctx, shunt.CountsOptions{Channels: []string{c.Channel}})
	case "receivers":
		_, err = q.Receivers(ctx, c.Channel)
	case "list":
		_, err = q.List(ctx, c.Channel, c.State, 0, c.Limit)
	case "failures":
		state := shunt.StateDead
		if c.Limit == 1 {
			state = shunt.StateDelay
		}
		_, err = q.Failures(ctx, c.Channel, state, shunt.Filter{})
	case "audit log":
		_, err = q.AuditLog(ctx, "", max(1, c.Limit))
	case "moves":
		_, err = q.Moves(ctx)
	case "peek":
		if es, _ := q.List(ctx, c.Channel, c.State, 0, 1); len(es) > 0 {
			_, err = q.Peek(ctx, es[0].Ref())
		}
	case "browse":
		b := shunt.BrowseOptions{Channel: c.Channel, State: c.State, Limit: c.Limit, Payload: c.Limit - 1,
			Latest: c.Limit > 1}
		for n := 0; ; n++ {
			page, err := q.Browse(ctx, b)
			if err != nil || page.Next == "" {
				return err
			}
			if n > pages {
				o.w.problem("I23 operators: browse of %s of %s does not end", c.State, c.Channel)
				return nil
			}
			b.From = page.Next
		}
	}
	return err
}

// chosen says whether an operator is to end a message for good. What is not chosen must stay.
func chosen(id string) bool { return crc32.ChecksumIEEE([]byte(id))%2 == 0 }

func idOf(e *shunt.Entry) string { return trial.ParseMessage(e.Payload).ID }

// act makes a call that changes what is in the operators' channel.
func (o *operator) act(ctx context.Context, c Call) error {
	var ends []string
	choose := shunt.Filter{Limit: c.Limit, Match: func(e shunt.Entry) bool {
		id := idOf(&e)
		if chosen(id) {
			ends = append(ends, id)
		}
		return chosen(id)
	}}
	some := shunt.Filter{Limit: c.Limit}
	defer func() {
		for _, id := range ends {
			o.mayBeGone[id] = time.Now()
		}
	}()
	q := o.q
	each := func(state shunt.State, do func(shunt.Entry) error) error {
		es, err := q.List(ctx, desk, state, 0, max(1, c.Limit))
		for _, e := range es {
			if err == nil {
				err = do(e)
			}
		}
		return err
	}
	end := func(do func(shunt.Ref) error) func(e shunt.Entry) error {
		return func(e shunt.Entry) error {
			if !choose.Match(e) {
				return nil
			}
			return do(e.Ref())
		}
	}
	var b shunt.BulkResult
	var err error
	began, before := time.Now(), o.passes(c)
	switch c.What {
	case "retry all":
		b, err = q.RetryAllDead(ctx, desk, some)
	case "delete all":
		b, err = q.DeleteAllDead(ctx, desk, choose)
	case "promote all":
		b, err = q.PromoteAll(ctx, desk, some)
		o.promoted = append(o.promoted, time.Now())
	case "cancel all":
		b, err = q.CancelAll(ctx, desk, c.cancels(), choose)
	case "retry":
		return each(shunt.StateDead, func(e shunt.Entry) error { return q.Retry(ctx, e.Ref()) })
	case "promote":
		err = each(shunt.StateDelay, func(e shunt.Entry) error { return q.Promote(ctx, e.Ref()) })
		o.promoted = append(o.promoted, time.Now())
		return err
	case "delete":
		return each(shunt.StateDead, end(func(r shunt.Ref) error { return q.Delete(ctx, r) }))
	case "cancel":
		return each(shunt.StateDelay, end(func(r shunt.Ref) error { _, err := q.Cancel(ctx, r); return err }))
	case "purge":
		_, err = q.Purge(ctx, desk, shunt.StateDead)
		o.purged = time.Now()
		return err
	case "audit":
		return q.Audit(ctx, shunt.AuditEntry{By: "sim", Verb: "looked", Channel: desk})
	case "copy":
		return each(shunt.StateDead, func(e shunt.Entry) error {
			m := trial.ParseMessage(e.Payload)
			said := trial.Entry{Op: trial.Enqueue, Phase: trial.Invoke, ID: m.ID, Note: m.Plan}
			o.log.Say(said)
			err := q.Enqueue(ctx, e.Copy())
			said.Phase = trial.Outcome(err)
			o.log.Say(said)
			return err
		})
	}
	over := b.Changed+b.Refused > b.Looked || c.Limit > 0 && b.Changed > c.Limit
	if over || b.Next != "" && err == nil && c.Limit == 0 && c.What != "cancel all" {
		o.w.problem("I23 operators: %s gave %+v at a limit of %d", c.What, b, c.Limit)
	}
	if err == nil && b.Next == "" {
		var left []string
		now := o.passes(c)
		said := o.w.said.Entries()
		for raw := range now {
			if id := trial.MessageIn([]byte(raw)); before[raw] && !back(said, id, began) {
				left = append(left, id)
			}
		}
		if len(left) > b.Refused { // whose IDs are of others, which were copied
			o.w.problem("I23 operators: %s gave %+v, and left %s", c.What, b, left)
		}
	}
	return err
}

// cancels is the state of which a call cancels all.
func (c *Call) cancels() shunt.State {
	if c.State == shunt.StatePrepare || c.State == shunt.StateSuspect {
		return c.State
	}
	return shunt.StateDelay
}

// back says whether a message may have come back since then: somebody has begun on it, or it was being enqueued, and a
// second sending may have come behind what removed it.
func back(said []trial.Entry, id string, since time.Time) bool {
	asked := 0
	for _, e := range said {
		switch late := !e.At.Before(since); {
		case e.ID != id:
		case e.Op == trial.Handle && late:
			return true
		case e.Op == trial.Enqueue && e.Phase == trial.Invoke && !late:
			asked++
		case e.Op == trial.Enqueue && e.Phase != trial.Invoke && !late:
			asked--
		}
	}
	return asked > 0
}

// passes is what is in dead or delay now of what a call is to change all.
func (o *operator) passes(c Call) map[string]bool {
	k, all := store.KeysOf(desk), make(map[string]bool)
	key, some := k.Dead, false
	switch {
	case c.What == "retry all":
	case c.What == "delete all":
		some = true
	case c.What == "promote all":
		key = k.Delay
	case c.What == "cancel all" && c.cancels() == shunt.StateDelay:
		key, some = k.Delay, true
	default:
		return nil
	}
	raws, _ := redis.Strings(o.w.do("ZRANGE", key, 0, -1))
	for _, raw := range raws {
		if !some || chosen(trial.MessageIn([]byte(raw))) {
			all[raw] = true
		}
	}
	return all
}

// looking makes each call that changes nothing, and tells of commands that write.
func (w *world) looking() {
	time.Sleep(time.Second) // what others had sent before they ended has arrived
	before := w.calls()
	o := operator{w: w, q: w.direct.queue}
	for _, what := range slices.Compact(slices.Clone(looks)) {
		for _, c := range w.plot.channels() {
			for _, s := range shunt.States {
				if err := o.look(context.Background(), Call{What: what, Channel: c, State: s, Limit: 3}); err != nil {
					w.problem("I23 operators: %s of %s: %v", what, c, err)
				}
			}
		}
	}
	for name, n := range w.calls() {
		if n > before[name] && !slices.Contains(reading, name) && !strings.HasSuffix(name, "subscribe") {
			w.problem("I23 operators: looking took %d %s", n-before[name], name)
		}
	}
}

// reading are the commands that change nothing.
var reading = []string{"eval", "evalsha", "exists", "get", "getrange", "hget", "hgetall", "hlen", "hmget", "hscan",
	"hstrlen", "info", "lindex", "llen", "lrange", "memory", "ping", "scard", "script", "sismember", "smembers",
	"strlen", "subscribe", "time", "type", "unsubscribe", "xrange", "xrevrange", "zcard", "zcount", "zrange",
	"zrangebyscore", "zrevrange", "zrevrangebyscore", "zscore"}

// calls are how often each command was called.
func (w *world) calls() map[string]int {
	text, err := redis.String(w.do("INFO", "commandstats"))
	if err != nil {
		w.problem("commandstats: %v", err)
	}
	of := make(map[string]int)
	for line := range strings.Lines(text) {
		name, n, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		var calls int
		_, _ = fmt.Sscan(strings.Split(n, ",")[0], &calls)
		of[name] = calls
	}
	return of
}
