package sender

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

// group is where concurrent enqueues by id to one channel meet: while two scripts are under way the rest waits, and
// goes together. A script costs Redis about as much as three messages in it.
type group struct {
	s  *Sender
	mu sync.Mutex

	underWay int // scripts
	waiting  []*member
}

const scriptsAtOnce = 2 // of a group

// member is a message that waits for a script.
type member struct {
	Message
	ctx   context.Context
	raw   []byte
	limit time.Time // until when its enqueue may take
	timer *time.Timer

	refused Refused
	err     error
	done    chan struct{} // of capacity 1
}

// members are those whose producers have their answers.
var members = sync.Pool{New: func() any {
	m := &member{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	m.timer.Stop()
	return m
}}

var errBehind = errors.New("others are enqueued before it")

// send brings one message into the channel.
func (g *group) send(ctx context.Context, m Message, raw []byte) (Refused, error) {
	g.mu.Lock()
	leads := g.underWay < scriptsAtOnce
	if leads {
		g.underWay++
		g.mu.Unlock()
		runtime.Gosched() // producers that were woken with it come along
		g.mu.Lock()
		if len(g.waiting) == 0 {
			g.mu.Unlock()
			defer g.next()
			_, refused, err := g.s.alone(ctx, m, raw)
			return refused, err
		}
	}
	e, over := g.join(ctx, m, raw)
	g.mu.Unlock()
	if leads {
		g.next()
	}
	why := error(context.DeadlineExceeded)
	select {
	case <-e.done:
		refused, err := e.refused, e.err
		e.timer.Stop()
		*e = member{done: e.done, timer: e.timer}
		members.Put(e)
		return refused, err
	case <-over:
	case <-ctx.Done():
		why = ctx.Err()
	}
	if g.leave(e) {
		return Refused{}, late(why, errBehind)
	}
	return Refused{}, &link.Error{Class: link.Unknown, Err: why} // it is under way
}

// join adds a message to those that wait. over is when the Sender's timeout has passed, where ctx has no deadline. mu
// is held.
func (g *group) join(ctx context.Context, m Message, raw []byte) (e *member, over <-chan time.Time) {
	e = members.Get().(*member)
	e.Message, e.ctx, e.raw = m, ctx, raw
	var has bool
	if e.limit, has = ctx.Deadline(); !has {
		e.limit = time.Now().Add(g.s.timeout)
		e.timer.Reset(g.s.timeout)
		over = e.timer.C
	}
	g.waiting = append(g.waiting, e)
	return e, over
}

// leave takes a message out, unless its script is under way.
func (g *group) leave(e *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, e)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// next sends what waits, or gives the script's place back.
func (g *group) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	some := g.pick()
	if len(some) == 0 {
		g.underWay--
		return
	}
	go func() {
		defer g.next()
		g.sendAll(some)
	}()
}

// pick takes out as many messages as one script carries. None overtakes one that was too large. mu is held.
func (g *group) pick() (some []*member) {
	bytes, full := 0, false
	g.waiting = slices.DeleteFunc(g.waiting, func(e *member) bool {
		if e.ctx.Err() != nil { // it is just about to leave
			return false
		}
		full = full || len(some) == chunkTracked || len(some) > 0 && bytes+len(e.raw) > chunkBytes
		if !full {
			some = append(some, e)
			bytes += len(e.raw)
		}
		return !full
	})
	return some
}

// sendAll sends messages in one script, which has as long as the most patient of them: the others leave by themselves.
func (g *group) sendAll(some []*member) {
	es, raws := make([]*element.Element, len(some)), make([][]byte, len(some))
	for i, e := range some {
		es[i], raws[i] = &e.Element, e.raw
	}
	limit := slices.MaxFunc(some, func(a, b *member) int { return a.limit.Compare(b.limit) }).limit
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	_, refused, err := g.s.pushTracked(ctx, some[0].Keys, some[0].Due, es, raws)
	for i, e := range some {
		if e.err = err; err == nil {
			e.refused = refused[i]
		}
		e.done <- struct{}{}
	}
}

// groupOf is a channel's.
func (s *Sender) groupOf(k *store.Keys) *group {
	s.mu.RLock()
	g := s.groups[k]
	s.mu.RUnlock()
	if g != nil {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g = s.groups[k]; g == nil {
		g = &group{s: s}
		s.groups[k] = g
	}
	return g
}
