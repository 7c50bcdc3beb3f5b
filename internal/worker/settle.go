package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// settle judges each reply to a verdict alone. It returns an error where the site should be slowed down.
func (d *dispatches) settle(replies []link.Reply) (trouble error) {
	if len(d.all) == 0 {
		return nil
	}
	s := d.worker
	var refusal error
	s.mu.Lock()
	defer s.mu.Unlock()
	site := d.all[0].items[0].Lane.Site // they are all of one
	s.sendSingly &^= site.Mask
	evs := s.kept.evs[:0]
	for i, c := range d.all {
		forgotten := c.items[0].ID() == "" && link.Code(replies[i].Err) == "NOSCRIPT"
		if c.form == first && (forgotten || !store.FirstReply(replies[i])) {
			s.sendSingly |= site.Mask // others were first, or an LREM needs no script: each by itself
			for _, it := range c.items {
				it.move(parted)
			}
			continue
		}
		for j, it := range c.items {
			rep := replies[i]
			if c.form == each {
				rep = store.EachReply(rep, j)
			}
			switch {
			case rep.Err == nil:
				it.move(execute)
				evs = s.left(it, rep, evs)
			case lane.Broke(rep.Err):
				evs = d.unanswered(it, evs)
				site.MustHandOver(rep.Err)
			default:
				refusal = cmp.Or(refusal, rep.Err)
				var bad error
				evs, bad = d.wasRefused(it, rep.Err, evs)
				trouble = cmp.Or(trouble, bad)
			}
		}
	}
	if refusal != nil {
		s.refused.Refuse(refusal)
	} else {
		s.clearHoldoff()
	}
	s.letGo()
	s.r.emit(evs...)
	clear(evs)
	s.kept.evs = evs
	return trouble
}

// letGo takes what is gone out of hand. s.mu is held.
func (s *worker) letGo() {
	s.items = slices.DeleteFunc(s.items, func(it *Item) bool {
		if it.state < gone {
			return false
		}
		s.suspectDone(it)
		if it.verdict == custody.Ack && it.state == gone {
			// Whoever keeps the handler's context keeps the items of the same take, and need not keep these.
			it.batch.left--
			it.Raw, it.Payload, it.message, it.batch = nil, nil, nil, nil
		}
		return true
	})
}

// unanswered takes in that a verdict was sent and no reply came. The handover sends it again, but not for a
// bare payload: that might have a twin in its list, which the second verdict would hit. So that message is
// handled again, if the first was not executed. s.mu is held.
func (d *dispatches) unanswered(it *Item, evs []event.Event) []event.Event {
	if !it.Bare {
		it.move(silence)
		return evs
	}
	it.move(forsake)
	if it.verdict.IsUnhandled() {
		return evs
	}
	h := it.custody(d.worker)
	return d.worker.report(it, &h, false, evs)
}

// refusal is what it means that Redis has not executed a verdict.
type refusal struct {
	lasts   bool  // a person has to mend it
	trouble error // the whole site's; nil: the lane's alone, of its delay or dead, and no reason to hold up others
}

// refusalOf judges why a verdict was refused, of one of several lanes or of the only one.
func refusalOf(why error, several bool) refusal {
	class := link.Classify(why)
	lasts := class == link.Fatal || class == link.Failed
	if lasts && (several || link.Code(why) == "WRONGTYPE") {
		return refusal{lasts: true}
	}
	return refusal{lasts, why}
}

// wasRefused takes in that Redis has not executed a verdict. The item stays held, to be sent again, and its worker
// takes nothing of its lane meanwhile. A release gives its claim back. trouble is for the whole site. s.mu is held.
func (d *dispatches) wasRefused(it *Item, why error, evs []event.Event) (_ []event.Event, trouble error) {
	s := d.worker
	it.move(refuse)
	s.sendSingly |= it.Lane.Site.Mask
	if it.verdict == custody.Release && !s.r.Stopped() {
		it.move(withdraw)
		it.verdict, it.asked = nil, false
	}
	r := refusalOf(why, len(s.r.Lanes) > 1)
	if !r.lasts {
		if it.rare != nil {
			it.rare.refused = time.Time{}
		}
		return evs, r.trouble
	}
	if r.trouble == nil {
		evs = append(evs, event.Event{Kind: event.ReceiverError, Channel: it.Lane.Name, Receiver: it.receiver(),
			Worker: s.n, Fatal: true, Err: why})
	}
	if !it.isRefused() {
		return evs, r.trouble
	}
	if m, now := it.more(), time.Now(); m.refused.IsZero() {
		m.refused = now
	} else if now.Sub(m.refused) >= s.r.conf.RefusedFor {
		evs = d.abandon(it, why, evs)
	}
	return evs, r.trouble
}

// abandon ends the wait for a verdict that Redis has refused for long, for a reason that only a person can mend. The
// message goes back to the taking end, to be handled again. Where Redis refuses that as well, it stays in its list, and
// comes back at the receiver's end. s.mu is held.
func (d *dispatches) abandon(it *Item, why error, evs []event.Event) []event.Event {
	s, m := d.worker, it.more()
	if it.verdict.Fate != store.Released {
		m.refused, s.refused = time.Time{}, link.Holdoff{}
		why = fmt.Errorf("shunt: Redis has refused the verdict for %v, so the message is handled again: %w",
			s.r.conf.RefusedFor, why)
		it.decide(&custody.Verdict{Verdict: custody.Release.Verdict, Err: why})
		return evs
	}
	it.move(abandon)
	why = fmt.Errorf("shunt: Redis refuses to take the message back, so it stays with this receiver "+
		"until that ends: %w", why)
	e := it.event(event.ReceiverError, s)
	e.Fatal, e.Err = true, why
	return append(evs, e)
}

// left takes in the answer to an item's verdict, and adds what it came to. s.mu is held.
func (s *worker) left(it *Item, rep link.Reply, evs []event.Event) []event.Event {
	h, sent := it.custody(s), it.verdict
	l, v := h.Left(sent, rep)
	if v != sent {
		it.verdict = v
	}
	if s.r.conf.Emit != nil && (l.Trimmed > 0 || len(l.Followed) > 0) {
		s.r.emit(h.Beside(sent, l)...)
	}
	if l.Found && v.Fate == store.Retried {
		it.Lane.Promoter.ScheduledHere(sent.Wait)
	}
	return s.report(it, &h, l.Found, evs)
}

// report adds what an item whose verdict was executed came to; h is the item. s.mu is held.
func (s *worker) report(it *Item, h *custody.Held, found bool, evs []event.Event) []event.Event {
	v := it.verdict
	if v.Fate == store.Released && v != custody.Release && found && s.r.handlerCtx.Err() != nil {
		s.r.returned.Add(1)
	}
	s.count(it, found)
	if found && s.r.conf.Over != nil {
		s.r.conf.Over(h, v)
	}
	if s.r.conf.Emit == nil || !s.r.conf.Every && found && v.Kind().Level(false, nil) < slog.LevelWarn {
		return evs
	}
	evs = slices.Grow(evs, 1)[:len(evs)+1]
	e := &evs[len(evs)-1] // zero, and written in place
	if !h.Report(e, v, found, it.inDoubt()) {
		return evs[:len(evs)-1]
	}
	e.Receiver, e.Worker, e.Took = it.receiver(), s.n, it.took
	return evs
}
