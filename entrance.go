package shunt

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// entrance is where concurrent enqueues by id to one channel meet: while two scripts are under way the rest waits, and goes together. A
// script costs Redis about as much as three messages in it.
type entrance struct {
	mu      sync.Mutex
	busy    int
	waiting []*entry
}

// entry is one that waits.
type entry struct {
	draft
	ctx   context.Context
	raw   []byte
	limit time.Time // until when it may take: the end of ctx, or EnqueueTimeout
	timer *time.Timer
	err   error
	done  chan struct{} // of capacity 1
}

// entriesDone are those whose producers have their answers.
var entriesDone = sync.Pool{New: func() any {
	e := &entry{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	e.timer.Stop()
	return e
}}

const entrances = 2 // scripts under way

// putOne brings one tracked message into its channel.
func (q *Queue) putOne(ctx context.Context, d draft) (due time.Time, err error) {
	raw := d.element.Encode()
	if x := d.element.Extra; d.later || x.ID == "" || x.Expires != 0 {
		return q.putAlone(ctx, d, raw)
	}
	g := q.entranceOf(d.keys)
	g.mu.Lock()
	leads := g.busy < entrances
	if leads {
		g.busy++
		g.mu.Unlock()
		runtime.Gosched() // those who were woken with it come along
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.mu.Unlock()
			defer q.next(g)
			return q.putAlone(ctx, d, raw)
		}
	}
	e := entriesDone.Get().(*entry)
	e.draft, e.ctx, e.raw = d, ctx, raw
	var over <-chan time.Time
	var has bool
	if e.limit, has = ctx.Deadline(); !has {
		e.limit = time.Now().Add(q.conf.EnqueueTimeout)
		e.timer.Reset(q.conf.EnqueueTimeout)
		over = e.timer.C
	}
	g.waiting = append(g.waiting, e)
	g.mu.Unlock()
	if leads {
		q.next(g)
	}
	why := error(context.DeadlineExceeded)
	select {
	case <-e.done:
		err = e.err
		e.timer.Stop()
		*e = entry{done: e.done, timer: e.timer}
		entriesDone.Put(e)
		return due, err
	case <-over:
	case <-ctx.Done():
		why = ctx.Err()
	}
	g.mu.Lock()
	i := slices.Index(g.waiting, e)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.mu.Unlock()
	err = late(why, errors.New("others are enqueued before it"))
	if i < 0 { // it is under way
		err = &link.Error{Class: link.Unknown, Err: why}
	}
	return due, explain(err, "enqueue to", d.channel)
}

func (q *Queue) putAlone(ctx context.Context, d draft, raw []byte) (time.Time, error) {
	due, taken, err := q.enqueueTracked(ctx, &d, []*element.Element{&d.element}, [][]byte{raw})
	if err == nil {
		err = taken[0]
	}
	return due, err
}

// next lets those who wait in, or gives the place back.
func (q *Queue) next(g *entrance) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*entry
	bytes, full := 0, false
	g.waiting = slices.DeleteFunc(g.waiting, func(e *entry) bool {
		if e.ctx.Err() != nil { // it is just about to leave
			return false
		}
		full = full || len(all) == chunkTracked || len(all) > 0 && bytes+len(e.raw) > chunkBytes // and nobody overtakes what was too large
		if !full {
			all = append(all, e)
			bytes += len(e.raw)
		}
		return !full
	})
	n := len(all)
	if n == 0 {
		g.busy--
		return
	}
	go func() {
		defer q.next(g)
		es, raws := make([]*element.Element, n), make([][]byte, n)
		for i, e := range all {
			es[i], raws[i] = &e.element, e.raw
		}
		limit := slices.MaxFunc(all, func(a, b *entry) int { return a.limit.Compare(b.limit) }).limit // whose is before that leaves by itself
		ctx, cancel := context.WithDeadline(context.Background(), limit)
		defer cancel()
		_, taken, err := q.enqueueTracked(ctx, &all[0].draft, es, raws)
		for i, e := range all {
			if e.err = err; err == nil {
				e.err = taken[i]
			}
			e.done <- struct{}{}
		}
	}()
}

// entranceOf is a channel's.
func (q *Queue) entranceOf(k *store.Keys) *entrance {
	q.knownMu.RLock()
	g := q.entrances[k]
	q.knownMu.RUnlock()
	if g != nil {
		return g
	}
	q.knownMu.Lock()
	defer q.knownMu.Unlock()
	if g = q.entrances[k]; g == nil {
		g = new(entrance)
		q.entrances[k] = g
	}
	return g
}
