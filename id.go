package shunt

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

// receipts are serials of tracked deliveries whose replies have come: the server is told with the next of their channel, and needs to remember
// them no more. One that was ever in doubt is not among them: a command of a broken connection may be executed late, and has to find its
// receipt; an hour later nothing is left of either.
type receipts struct {
	mu  sync.Mutex
	had map[string][]any // by channel
}

const (
	receiptsTold = 200   // at once
	receiptsKept = 10000 // of a channel: what is beyond goes after an hour
)

func (r *receipts) take(channel string) []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.had[channel]
	if n := len(had) - receiptsTold; n > 0 {
		r.had[channel] = had[:n:n]
		return had[n:]
	}
	delete(r.had, channel)
	return had
}

func (r *receipts) put(channel string, serials []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.had == nil {
		r.had = make(map[string][]any)
	}
	if had := r.had[channel]; len(had) < receiptsKept {
		r.had[channel] = append(had, serials...)
	}
}

// forget tells what has not been told yet, as far as that can be done at once: the replies are nobody's.
func (r *receipts) forget(q *Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for channel, all := range r.had {
		for had := range slices.Chunk(all, receiptsTold) {
			c := link.NewCall()
			c.FailFast = true
			c.Add("ZREM", append([]any{lists.KeysOf(channel).Receipts}, had...)...)
			q.serverOf(channel).Data.Post(c)
		}
	}
	r.had = nil
}

// putTracked brings messages with an id or an expiry into d's channel, all that are not refused in one step, and again where the outcome is
// unknown: a receipt tells whether that step was made. taken has a *DuplicateError for each whose id is another's.
func (q *Queue) putTracked(ctx context.Context, d *delivery, es []*lists.Element, raws [][]byte) (due time.Time, taken []error, err error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.conf.DeliverTimeout)
		defer cancel()
	}
	began, doubt := time.Now(), false
	mode, ms := d.when(began)
	had := q.receipts.take(d.channel)
	k := d.keys
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		v, err := q.ask(ctx, 0, d, func(c *link.Call) {
			args := make([]any, 0, 7+len(had)+3*len(es))
			args = append(append(args, k.Prepare, k.Delay, k.IDs, k.Receipts, mode, ms, len(had)), had...)
			for i, e := range es {
				args = append(args, e.Extra.ID, e.Extra.Expires, raws[i])
			}
			c.AddScript(lists.Deliver, 4, args...)
		})
		if err == nil {
			if !doubt {
				serials := make([]any, len(es))
				for i, e := range es {
					serials[i] = e.Serial[:]
				}
				q.receipts.put(d.channel, serials)
			}
			vs, _ := redis.Values(v, nil)
			at, taken := d.admitted(vs, es)
			return at, taken, nil
		}
		doubt = doubt || link.Classify(err) == link.Unknown
		if doubt { // whatever this one came to, the first one may have been executed
			err = &link.Error{Class: link.Unknown, Err: err}
		}
		if !doubt || ctx.Err() != nil || errors.Is(err, link.ErrClosed) {
			if !doubt {
				q.receipts.put(d.channel, had)
			}
			return due, nil, explain(err, "deliver to", d.channel)
		}
		link.Sleep(ctx, link.Jitter(wait))
	}
}

// admitted reads the reply of the script.
func (d *delivery) admitted(vs []any, es []*lists.Element) (due time.Time, taken []error) {
	taken = make([]error, len(es))
	for i, v := range vs {
		if i == 0 {
			if at, _ := redis.Int64(v, nil); d.later {
				due = time.UnixMilli(at)
			}
		} else if raw, ok := v.([]byte); ok && i <= len(es) {
			taken[i-1] = &DuplicateError{Channel: d.channel, Status: statusOf(es[i-1].Extra.ID, raw, time.Time{})}
		}
	}
	return due, taken
}
