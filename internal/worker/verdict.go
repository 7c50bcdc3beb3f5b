package worker

import (
	"slices"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// dispatch is one command with verdicts, and the items that it answers for.
type dispatch struct {
	form  form
	items []*Item
}

type form uint8

const (
	single form = iota // one verdict, one reply
	each               // several, of each its own reply in one
	first              // several that were taken first: all are executed or none
)

// dispatches are the verdicts of one worker that are under way, in the order of their commands.
type dispatches struct {
	worker *worker
	all    []dispatch
	items  []*Item // of all, kept for their memory
}

func (d *dispatches) add(f form, items ...*Item) {
	from := len(d.items)
	for _, it := range items {
		it.move(send)
		d.items = append(d.items, it)
	}
	d.all = append(d.all, dispatch{f, d.items[from:len(d.items):len(d.items)]})
}

// reset forgets all, and keeps the memory.
func (d *dispatches) reset() {
	clear(d.all)
	clear(d.items)
	d.all, d.items = d.all[:0], d.items[:0]
}

// collect adds the commands of all verdicts for a site to the call, but for those that were refused lately. It also
// adds the release of what has not begun and is not to: what is of a closed lane, or with unstarted all of it. The
// worker's mu is held.
func (d *dispatches) collect(site *lane.Site, call *link.Call, unstarted bool) {
	s := d.worker
	held := s.refused.Left() > 0
	due := func(it *Item) bool {
		return it.Lane.Site == site && (it.isDecided() || it.isRefused() && !held)
	}
	back := false
	over := s.kept.over[:0] // together, of one lane, and with ids or without
	for _, it := range s.items {
		if it.state == queued && !held && it.Lane.Site == site && (unstarted || it.Lane.Closed()) {
			it.decide(custody.Release)
		}
		switch {
		case !due(it):
		case it.verdict == custody.Release:
			back = true
		case it.together() && (len(over) == 0 || it.alike(over[0])):
			over = append(over, it)
		default:
			d.send(call, it)
		}
	}
	if back {
		for _, it := range slices.Backward(s.items) { // the one taken first goes back last
			if due(it) && it.verdict == custody.Release {
				d.send(call, it)
			}
		}
	}
	if len(over) > 0 {
		d.sendOver(call, over)
	}
	clear(over)
	s.kept.over = over
}

// send adds the verdict of one item. The worker's mu is held.
func (d *dispatches) send(call *link.Call, it *Item) {
	d.worker.leave(call, it)
	d.add(single, it)
}

// leave adds the command that makes an item's verdict true.
func (s *worker) leave(call *link.Call, it *Item) {
	if s.ack != nil && it.verdict.Plain(it.held()) {
		call.AddReady(s.ack, it.Raw)
		return
	}
	h := it.custody(s)
	h.Leave(call, it.verdict, &s.r.conf.Bounds)
}

// sendOver adds the verdicts of messages that are over, of one lane, together as far as they can be. The worker's mu is
// held.
func (d *dispatches) sendOver(call *link.Call, over []*Item) {
	s, l, n := d.worker, over[0].Lane, len(over)
	list, bounds, together := l.Lists[s.n], &s.r.conf.Bounds, d.areFirst(over)
	switch {
	case over[0].ID() != "" && together:
		store.AddSettleFirst(call, l.Keys, list, bounds, n, func(i int) store.Held { return over[i].held() })
		d.add(first, over...)
	case over[0].ID() != "":
		store.AddSettle(call, l.Keys, list, bounds, n, func(i int) (store.Held, *store.Verdict) {
			return over[i].held(), &over[i].verdict.Verdict
		})
		d.add(each, over...)
	case together:
		store.AddAckFirst(call, list, over[0].Raw, over[n-1].Raw, n)
		d.add(first, over...)
	default:
		for _, it := range over {
			d.send(call, it)
		}
	}
}

// together says whether a verdict may share a command with others of its kind: that of a message that is over.
func (it *Item) together() bool {
	v := it.verdict
	return v.Shares(it.held()) && (it.ID() != "" || v == custody.Ack)
}

// alike says whether the two are of one lane, and with ids or without.
func (it *Item) alike(o *Item) bool {
	return it.Lane == o.Lane && (it.ID() == "") == (o.ID() == "")
}

// areFirst says whether one script may end several verdicts. They must be all that is left of what was taken first,
// once those before them in the call have left the list. Nothing may have to be kept of them. The worker's mu is held.
func (d *dispatches) areFirst(its []*Item) bool {
	s := d.worker
	if len(its) < 3 || s.sendsSingly(its[0].Lane) {
		return false
	}
	left := its
	for _, it := range s.items {
		switch {
		case len(left) == 0:
			return true
		case it == left[0]:
			if it.ID() != "" && it.verdict.Keeps(it.held()) {
				return false
			}
			left = left[1:]
		case it.Lane == its[0].Lane && !slices.Contains(d.items, it):
			return false
		}
	}
	return len(left) == 0
}
