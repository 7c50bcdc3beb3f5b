package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/trial"
)

// deskVerb is what somebody does by hand to all messages of a state. It goes on from where an earlier call ended.
type deskVerb struct {
	name        string
	from, until shunt.State // empty: nowhere
	do          func(ctx context.Context, q *shunt.Queue, channel, next string) (string, error)
}

var deskVerbs = []deskVerb{
	{"retry all dead", shunt.StateDead, shunt.StatePrepare, bulk((*shunt.Queue).RetryAllDead)},
	{"delete all dead", shunt.StateDead, "", bulk((*shunt.Queue).DeleteAllDead)},
	{"promote all", shunt.StateDelay, shunt.StatePrepare, bulk((*shunt.Queue).PromoteAll)},
	{"cancel all delayed", shunt.StateDelay, "", cancelAll(shunt.StateDelay)},
	{"cancel all that wait", shunt.StatePrepare, "", cancelAll(shunt.StatePrepare)},
	{"purge", shunt.StateDead, "", func(ctx context.Context, q *shunt.Queue, c, _ string) (string, error) {
		_, err := q.Purge(ctx, c, shunt.StateDead)
		return "", err
	}},
	{"restore", shunt.StateDead, shunt.StateDead, restore},
	{"browse", shunt.StateDead, shunt.StateDead, browse},
}

type bulkCall func(q *shunt.Queue, ctx context.Context, channel string, f shunt.Filter) (shunt.BulkResult, error)

func bulk(call bulkCall) func(ctx context.Context, q *shunt.Queue, channel, next string) (string, error) {
	return func(ctx context.Context, q *shunt.Queue, channel, next string) (string, error) {
		r, err := call(q, ctx, channel, shunt.Filter{From: next})
		return r.Next, err
	}
}

func cancelAll(state shunt.State) func(ctx context.Context, q *shunt.Queue, channel, next string) (string, error) {
	return bulk(func(q *shunt.Queue, ctx context.Context, channel string, f shunt.Filter) (shunt.BulkResult, error) {
		return q.CancelAll(ctx, channel, state, f)
	})
}

// restore deletes what is dead, and puts it back.
func restore(ctx context.Context, q *shunt.Queue, channel, _ string) (string, error) {
	es, err := q.List(ctx, channel, shunt.StateDead, 0, 0)
	if err != nil {
		return "", err
	}
	_, deleted := q.DeleteDead(ctx, channel, es...)
	for try := range 3 { // what was deleted is in hand, so it is put back whatever happens
		if _, err = q.RestoreDead(ctx, channel, es...); err == nil || try == 2 {
			break
		}
	}
	return "", errors.Join(deleted, err)
}

// browse wants each message on one page, whatever strikes between and within them.
func browse(ctx context.Context, q *shunt.Queue, channel, _ string) (string, error) {
	seen := make(map[string]int)
	o := shunt.BrowseOptions{Channel: channel, State: shunt.StateDead, Limit: 40, Payload: -1}
	for tries := 0; ; {
		p, err := q.Browse(ctx, o)
		if err != nil {
			if tries++; tries > 5 {
				return "", err
			}
			continue
		}
		for _, e := range p.Entries {
			if seen[string(e.Payload)]++; seen[string(e.Payload)] > 1 {
				return "", fmt.Errorf("%.40q was shown again", e.Payload)
			}
		}
		if o.From = p.Next; o.From == "" {
			break
		}
	}
	if len(seen) != atDesk {
		return "", fmt.Errorf("%d of %d were shown", len(seen), atDesk)
	}
	return "", nil
}

// atDesk is how many messages a verb is for: some pages.
const atDesk = 250

// deskCells are those of what is done by hand: a cut at each of the first commands of a verb, and error replies.
func deskCells() (all []cell) {
	for _, v := range deskVerbs {
		for nth := 1; nth <= 4; nth++ {
			for _, cut := range cuts {
				name := fmt.Sprintf("%s/%s of command %d", v.name, cut.name, nth)
				all = append(all, cell{row: "desk", name: name, run: func(w *world) { w.byHand(v, nth, cut.act) }})
			}
			name := fmt.Sprintf("%s/NOSCRIPT to command %d", v.name, nth)
			refusal := redistest.ReplyError("NOSCRIPT No matching script. Please use EVAL.")
			all = append(all, cell{row: "desk", name: name, run: func(w *world) { w.byHand(v, nth, refusal) }})
		}
	}
	return all
}

// byHand has a verb struck once, and goes on from where that left it. Each message is then where it has to be, once.
func (w *world) byHand(v deskVerb, nth int, act redistest.Action) {
	c, ctx := w.channels[0], context.Background()
	w.laysOut(v.from)
	px := redistest.NewProxy(w.TB, w.server.Addr())
	q := w.queue("hand", px.URL(), trial.Orders{Quiet: true})
	q.Quiet = true
	rule := px.On(redistest.Command(""), nth, act)
	next, err := v.do(ctx, q, c, "")
	for tries := 0; err != nil && tries < 10; tries++ {
		next, err = v.do(ctx, q, c, next)
	}
	if err != nil {
		w.Errorf("%s: %v", v.name, err)
	}
	if rule.Struck() > 0 {
		w.struck(v.name)
	}
	where := make(map[string]shunt.State)
	for _, state := range shunt.States {
		es, err := w.direct.List(ctx, c, state, 0, 0)
		if err != nil {
			w.Fatal(err)
		}
		for _, e := range es {
			if was := where[string(e.Payload)]; was != "" {
				w.Errorf("%.40q is in %s and in %s", e.Payload, was, state)
			}
			where[string(e.Payload)] = state
			if state != v.until {
				w.Errorf("%.40q is in %s", e.Payload, state)
			}
		}
	}
	if v.until != "" && len(where) != atDesk {
		w.Errorf("%d of %d are there", len(where), atDesk)
	}
	for _, state := range []shunt.State{shunt.StatePrepare, shunt.StateDelay, shunt.StateDead} {
		if _, err := w.direct.Purge(ctx, c, state); err != nil {
			w.Error(err)
		}
	}
}

// laysOut has messages in a state, half of them with an ID. The ledgers know nothing of them.
func (w *world) laysOut(state shunt.State) {
	ctx, c := context.Background(), w.channels[0]
	q := w.queue("layer", w.server.URL(), trial.Orders{Quiet: true})
	q.NoCounts, q.Quiet = true, true
	for n := range 2 {
		var ms []shunt.IMessage
		var opts []shunt.Option
		if state == shunt.StateDelay {
			opts = append(opts, shunt.In(time.Hour))
		}
		for i := range atDesk / 2 {
			m := shunt.IMessage(&trial.Message{On: c, ID: fmt.Sprintf("%s/%d.%d", c, n, i), Plan: trial.PlanOK})
			if n == 1 {
				m = shunt.With(m, shunt.ID(fmt.Sprint(i)))
			}
			ms = append(ms, m)
		}
		if err := q.EnqueueAll(ctx, ms, opts...); err != nil {
			w.Fatal(err)
		}
	}
	for n := 0; state == shunt.StateDead && n < atDesk; {
		ls, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{c}, Max: 100, Lease: time.Minute})
		if err != nil {
			w.Fatal(err)
		}
		for _, l := range ls {
			if err := l.Fail(ctx, shunt.Reject(errors.New("as planned"))); err != nil {
				w.Fatal(err)
			}
		}
		n += len(ls)
	}
}
