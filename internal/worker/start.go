package worker

import (
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/link"
)

// start gives the next item to handle, begun; nil: nothing may be started now, and a step comes next. A message with an
// Extra is marked first. In strict order the lanes above are asked before one starts that a waiter brought, or that was
// taken while they had something.
func (s *worker) start() *Item {
	for {
		it, must := s.choose()
		switch must {
		case beginNow:
			return it
		case markFirst:
			if !s.index.mark(it.Lane) {
				return nil
			}
		case askAbove:
			if !s.askAbove(it) {
				return nil
			}
		}
	}
}

// need is what an item needs before it begins.
type need uint8

const (
	beginNow need = iota
	markFirst
	askAbove
)

// choose gives the item to start next, and what it needs; with beginNow it has begun, or is nil.
func (s *worker) choose() (next *Item, must need) {
	strict := s.r.order.strict()
	s.mu.Lock()
	defer s.mu.Unlock()
	for next = s.next(s.now, s.passed, strict); next != nil && s.isOver(next); {
		next = s.next(s.now, s.passed, strict)
	}
	switch {
	case next == nil || s.r.Stopped(): // asked under mu, because End hands back what has not begun then
		return nil, beginNow
	case next.Extra != nil && !next.begun:
		return next, markFirst
	case strict && !next.asked && next.Lane.Index > 0:
		return next, askAbove
	}
	s.begin(next)
	if len(s.items) > 1 {
		s.r.watcher.note(next.Started.Add(Stall))
		for i := 0; strict && i < len(s.items); i++ {
			s.items[i].asked = false // what comes after it asks anew
		}
	}
	return next, beginNow
}

// isOver says that an item's deadline has passed since it was marked: what came before it took long. It has its
// verdict then. s.mu is held.
func (s *worker) isOver(it *Item) bool {
	if it.until == nil || s.now.Before(*it.until) {
		return false
	}
	h := it.custody(s)
	return it.decide(h.Refuse(custody.ErrDeadline, s.r.conf.MaxSize))
}

// askAbove asks the lanes above an item's own once more. What they have is started in its place, and the item goes back
// to where it came from. Another site that refuses is left out, as a step leaves it out. False: they could not be
// asked.
func (s *worker) askAbove(it *Item) bool {
	got, asked := false, true
	above := s.r.open(s.now, allLanes<<it.Lane.Index)
	for len(above) > 0 && !got && asked {
		v := firstOf(above)
		above = above[len(v.lanes):]
		if v.site == it.Lane.Site || v.site.Breaker.Pass() == 0 {
			got, asked = s.askSome(v)
		}
	}
	s.mu.Lock()
	it.asked = asked
	release := got && it.state == queued && it.decide(custody.Release)
	s.mu.Unlock()
	if release {
		s.release(it)
		return true
	}
	return asked // else the next step comes when the breaker lets it
}

// askSome asks lanes of one site for one message, by script. asked: they were asked.
func (s *worker) askSome(v visit) (got, asked bool) {
	if !v.site.Enter() {
		v.site.Breaker.Back()
		return false, false
	}
	defer v.site.Leave()
	s.passed |= v.site.Mask
	if s.r.Stopped() {
		v.site.Breaker.Back()
		return false, false
	}
	call := link.NewCall()
	t := takes{worker: s, site: v.site, from: v.lanes, n: 1, script: true, batch: &takeBatch{at: s.now}}
	t.ask(call)
	sent := v.site.ExchangeTakes(call, call.Len())
	s.now = time.Now()
	_, err := t.receive(call.Replies, call.Order)
	v.site.Judge(sent, err)
	return t.got > 0, err == nil && link.Classify(call.Replies[0].Err) == link.Done
}

// release hands an item back at once; if that fails its verdict is sent with the next step's.
func (s *worker) release(it *Item) {
	site := it.Lane.Site
	if !site.Enter() {
		return // the handover, or the next step, sees to it
	}
	defer site.Leave()
	call := link.NewCall()
	sent := dispatches{worker: s}
	s.mu.Lock()
	if it.isDecided() {
		sent.send(call, it)
	}
	s.mu.Unlock()
	if len(sent.all) > 0 {
		site.Exchange(call)
		site.Breaker.Judge(sent.settle(call.Replies))
	}
}
