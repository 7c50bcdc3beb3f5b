package worker

import (
	"slices"

	"github.com/shuntmq/shunt/internal/custody"
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
	all   []dispatch
	items []*Item // of all, kept for their memory
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

// collect adds the commands of all verdicts to the call, but for those that were refused lately. With unstarted it also
// adds the release of what has not begun. It adds to out what they answer for. s.mu is held.
func (s *worker) collect(out *dispatches, call *link.Call, unstarted bool) {
	held := s.refused.Left() > 0
	due := func(it *Item) bool { return it.isDecided() || it.isRefused() && !held }
	back := false
	over := s.kept.over[:0] // together, of one channel, and with ids or without
	for _, it := range s.items {
		if unstarted && it.state == queued && !held {
			it.decide(custody.Release)
		}
		switch {
		case !due(it):
		case it.verdict == custody.Release:
			back = true
		case it.together() && (len(over) == 0 || it.alike(over[0])):
			over = append(over, it)
		default:
			s.send(out, call, it)
		}
	}
	if back {
		for _, it := range slices.Backward(s.items) { // the one taken first goes back last
			if due(it) && it.verdict == custody.Release {
				s.send(out, call, it)
			}
		}
	}
	if len(over) > 0 {
		s.sendOver(out, call, over)
	}
	clear(over)
	s.kept.over = over
}

// send adds the verdict of one item. s.mu is held.
func (s *worker) send(out *dispatches, call *link.Call, it *Item) {
	s.command(call, it, it.Channel.doing[s.n])
	out.add(single, it)
}

// sendOver adds the verdicts of messages that are over, of one channel, together as far as they can be. s.mu is held.
func (s *worker) sendOver(out *dispatches, call *link.Call, over []*Item) {
	in, n := over[0].Channel, len(over)
	doing, bounds, together := in.doing[s.n], &s.r.conf.Bounds, s.areFirst(over, out.items)
	switch {
	case over[0].ID() != "" && together:
		store.AddSettleFirst(call, in.Keys, doing, bounds, n, func(i int) store.Held { return over[i].held() })
		out.add(first, over...)
	case over[0].ID() != "":
		store.AddSettle(call, in.Keys, doing, bounds, n, func(i int) (store.Held, *store.Verdict) {
			return over[i].held(), &over[i].verdict.Verdict
		})
		out.add(each, over...)
	case together:
		store.AddAckFirst(call, doing, over[0].Raw, over[n-1].Raw, n)
		out.add(first, over...)
	default:
		for _, it := range over {
			s.send(out, call, it)
		}
	}
}

// command adds the one command that makes an item's verdict true, with the element in the given doing list.
func (s *worker) command(call *link.Call, it *Item, doing store.Key) {
	v := &it.verdict.Verdict
	if s.ack != nil && doing == it.Channel.doing[s.n] && v.Plain(it.held()) {
		call.AddReady(s.ack, it.Raw)
		return
	}
	store.AddLeave(call, it.Channel.Keys, doing, it.held(), v, &s.r.conf.Bounds)
}

// together says whether a verdict may share a command with others of its kind: that of a message that is over.
func (it *Item) together() bool {
	v := it.verdict
	return v.Shares(it.held()) && (it.ID() != "" || v == custody.Ack)
}

// alike says whether the two are of one channel, and with ids or without.
func (it *Item) alike(o *Item) bool {
	return it.Channel == o.Channel && (it.ID() == "") == (o.ID() == "")
}

// areFirst says whether one script may end several verdicts. They must be all that is left of what was taken first,
// once those before them in the call have left the list. Nothing may have to be kept of them. s.mu is held.
func (s *worker) areFirst(its, before []*Item) bool {
	if len(its) < 3 || s.sendSingly {
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
		case it.Channel == its[0].Channel && !slices.Contains(before, it):
			return false
		}
	}
	return len(left) == 0
}
