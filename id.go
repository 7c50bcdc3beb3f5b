package shunt

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// receipts are those of tracked enqueues whose replies have come: the server is told, some at a time, with another enqueue to their channel,
// and needs to remember them no more. One that was ever in doubt is not among them: a command of a broken connection may be executed
// late, and has to find its receipt; a day later nothing is left of either.
type receipts struct {
	mu  sync.Mutex
	had map[string][][]byte // by channel
}

const (
	receiptsTold = 32    // at once, at least
	receiptsCall = 200   // and at most: more than a chunk leaves
	receiptsMost = 10000 // of a channel: what is beyond is forgotten here
)

// take is what is to be told now, if it is enough.
func (r *receipts) take(channel string) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.had[channel]
	if len(had) < receiptsTold {
		return nil
	}
	n := max(0, len(had)-receiptsCall)
	r.had[channel] = had[:n]
	return slices.Clone(had[n:])
}

// put takes in what is to be told.
func (r *receipts) put(channel string, had ...[]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.had == nil {
		r.had = make(map[string][][]byte)
	}
	all := r.had[channel]
	r.had[channel] = append(all, had[:min(len(had), max(0, receiptsMost-len(all)))]...)
}

// forget tells what has not been told yet, if that can be done at once.
func (r *receipts) forget(q *Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	for channel, all := range r.had {
		c := link.NewCall()
		for had := range slices.Chunk(all, 1000) {
			c.Add("SREM", store.KeysOf(channel).Receipts)
			c.AddElements(had...)
		}
		if c.Len() > 0 {
			_ = q.serverOf(channel).Data.Run(ctx, c) // else they go in a day
		}
	}
	r.had = nil
}

// putTracked brings messages with an id or an expiry into d's channel, all that are not refused in one step, and again where the outcome is
// unknown: a receipt tells whether that step was made. taken has a *DuplicateError for each whose id is another's.
func (q *Queue) enqueueTracked(ctx context.Context, d *draft, es []*element.Element, raws [][]byte) (due time.Time, taken []error, err error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.conf.EnqueueTimeout)
		defer cancel()
	}
	began, doubt := time.Now(), false
	mode, ms := d.when(began)
	had := q.receipts.take(d.channel)
	k := d.keys
	simple := mode == "now" && !slices.ContainsFunc(es, func(e *element.Element) bool { return e.Extra.ID == "" || e.Extra.Expires != 0 })
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		v, err := q.ask(ctx, 0, d, func(c *link.Call) {
			if simple {
				c.AddScript(store.Enter, 3, k.Prepare, k.IDs, k.Receipts, len(had))
				c.AddElements(had...)
				for i, e := range es {
					c.AddElements(e.Extra.IDBytes(), raws[i])
				}
				return
			}
			args := make([]any, 0, 8+len(had)+3*len(es))
			args = append(args, k.Prepare, k.Delay, k.IDs, k.Receipts, k.Running, mode, ms, len(had))
			for _, serial := range had {
				args = append(args, serial)
			}
			for i, e := range es {
				args = append(args, e.Extra.ID, e.Extra.Expires, raws[i])
			}
			c.AddScript(store.Enqueue, 5, args...)
		})
		if err == nil {
			vs, _ := redis.Values(v, nil)
			if simple {
				vs = append([]any{int64(0)}, vs...)
			}
			at, taken, again := d.admitted(vs, es)
			if simple && again { // an id that is taken may be so no more: the other script finds out
				simple, had = false, nil
				continue
			}
			if !doubt {
				q.receipts.put(d.channel, receiptsOf(es, taken)...)
			}
			q.inHand(ctx, d, taken)
			return at, taken, nil
		}
		doubt = doubt || link.Classify(err) == link.Unknown
		if doubt && link.Code(err) == "OOM" && q.remembered(ctx, d, es) {
			return due, make([]error, len(es)), nil
		}
		simple = simple && !doubt
		if doubt { // whatever this one came to, the first one may have been executed
			err = &link.Error{Class: link.Unknown, Err: err}
		}
		if !doubt || ctx.Err() != nil || errors.Is(err, link.ErrClosed) {
			if !doubt {
				q.receipts.put(d.channel, had...)
			}
			return due, nil, explain(err, "enqueue to", d.channel)
		}
		link.Sleep(ctx, link.Jitter(wait))
	}
}

// refusal stands among the receipts for a message that was refused beside others.
func refusal(e *element.Element) []byte { return append([]byte{'x'}, e.Serial[:]...) }

// receiptsOf are the receipts of an enqueue in one step: the first one's serial and the refusals, or none where none was enqueued.
func receiptsOf(es []*element.Element, taken []error) (all [][]byte) {
	for i, e := range es {
		if taken[i] != nil {
			all = append(all, refusal(e))
		}
	}
	if len(all) == len(es) {
		return nil
	}
	return append(all, bytes.Clone(es[0].Serial[:]))
}

// inHand completes what is known of the messages that have the ids: whether a worker has them.
func (q *Queue) inHand(ctx context.Context, d *draft, taken []error) {
	var dups []*DuplicateError
	for _, err := range taken {
		if dup, ok := err.(*DuplicateError); ok && dup.Status.State != StateDone {
			dups = append(dups, dup)
		}
	}
	if len(dups) == 0 {
		return
	}
	vs, err := q.queryAll(ctx, d.channel, func(c *link.Call) {
		for _, dup := range dups {
			serial, _ := ulid.ParseStrict(dup.Status.Serial)
			c.Add("HGET", d.keys.Running, serial[:])
		}
	})
	if err != nil {
		return // it is as well known as it can be
	}
	for i, dup := range dups {
		holder, _ := vs[i].([]byte)
		dup.Status = statusOf(dup.Status.ID, dup.record, holder, time.Time{})
	}
}

// remembered says whether the receipt says that every message was enqueued: a full Redis does not run the script that would tell.
func (q *Queue) remembered(ctx context.Context, d *draft, es []*element.Element) bool {
	vs, err := q.queryAll(ctx, d.channel, func(c *link.Call) {
		c.Add("SISMEMBER", d.keys.Receipts, es[0].Serial[:])
		for _, e := range es {
			c.Add("SISMEMBER", d.keys.Receipts, refusal(e))
		}
	})
	there := func(v any) bool { n, _ := redis.Int(v, nil); return n == 1 }
	return err == nil && there(vs[0]) && !slices.ContainsFunc(vs[1:], there)
}

// admitted reads the reply of the script. again: an id that is taken may be so no more.
func (d *draft) admitted(vs []any, es []*element.Element) (due time.Time, taken []error, again bool) {
	taken = make([]error, len(es))
	for i, v := range vs {
		if i == 0 {
			if at, _ := redis.Int64(v, nil); d.later {
				due = time.UnixMilli(at)
			}
		} else if raw, ok := v.([]byte); ok && i <= len(es) {
			r, _ := element.ParseRecord(raw)
			again = again || r.State == 'u' || r.Expires > 0
			taken[i-1] = &DuplicateError{Channel: d.channel, Status: statusOf(es[i-1].Extra.ID, raw, nil, time.Time{}), record: raw}
		}
	}
	return due, taken, again
}
