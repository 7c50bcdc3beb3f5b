package worker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Verdict is what becomes of a message; it is not written to any more.
type Verdict struct {
	store.Verdict       // its Failure is Err's text: a user's method made it, so it is not asked for where a lock is held
	Undecodable   bool  // Rejected, because it could not be decoded
	Err           error // why, for an Event
}

// Ack is the verdict on most messages; decide adds what the handler asked for.
var Ack = new(Verdict)

// release is the verdict on what was not begun.
var release = &Verdict{Verdict: store.Verdict{Fate: store.Released}}

// Follow is a message that is enqueued when another is acked.
type Follow = store.Followup

var kinds = [...]Kind{store.Acked: Acked, store.Cancelled: Cancelled, store.Expired: Expired, store.Retried: Retried, store.Rejected: Rejected,
	store.Released: Released}

// kind is the Event of the verdict.
func (v *Verdict) kind() Kind {
	if v.Undecodable {
		return Undecodable
	}
	return kinds[v.Fate]
}

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
		it.state = sending
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

// collect adds the commands of all verdicts to the call, but for those that were refused lately, and with unstarted the release of what has not
// begun. It adds to out what they answer for. s.mu is held.
func (s *worker) collect(out *dispatches, call *link.Call, unstarted bool) {
	held := s.refused.Left() > 0
	due := func(it *Item) bool { return it.state == decided || it.state == refused && !held }
	back := false
	over := s.over[:0] // together, of one channel, and with ids or without
	for _, it := range s.items {
		if unstarted && it.state == queued && !held {
			it.state, it.verdict = decided, release
		}
		switch {
		case !due(it):
		case it.verdict == release:
			back = true
		case it.together() && (len(over) == 0 || it.Channel == over[0].Channel && (it.ID() == "") == (over[0].ID() == "")):
			over = append(over, it)
		default:
			s.send(out, call, it)
		}
	}
	if back {
		for _, it := range slices.Backward(s.items) { // the one taken first goes back last
			if due(it) && it.verdict == release {
				s.send(out, call, it)
			}
		}
	}
	if len(over) > 0 {
		s.sendOver(out, call, over)
	}
	clear(over)
	s.over = over
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
func (s *worker) command(call *link.Call, it *Item, doing string) {
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
	return v.Shares(it.held()) && (it.ID() != "" || v == Ack)
}

// areFirst says whether they are several, all that is left of what was taken first when those before them in the call are out of the list,
// and nothing is to be kept of them. s.mu is held.
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

// settle judges each reply to a verdict alone. It returns an error where the receiver should slow down.
func (s *worker) settle(replies []link.Reply, sent *dispatches) (trouble error) {
	if len(sent.all) == 0 {
		return nil
	}
	var refusal error
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendSingly = false
	evs := s.evs[:0]
	for i, d := range sent.all {
		if d.form == first && (!store.FirstReply(replies[i]) || d.items[0].ID() == "" && link.Code(replies[i].Err) == "NOSCRIPT") {
			s.sendSingly = true // others were first, or an LREM needs no script: each by itself
			for _, it := range d.items {
				it.state = decided
			}
			continue
		}
		for j, it := range d.items {
			rep := replies[i]
			if d.form == each {
				rep = store.EachReply(rep, j)
			}
			switch link.Classify(rep.Err) {
			case link.Done:
				it.state = gone
				evs = s.report(it, s.outcome(it, rep), evs)
			case link.Unknown:
				evs = s.unanswered(it, evs)
				s.r.mustHandOver(rep.Err)
			default:
				refusal = cmp.Or(refusal, rep.Err)
				var bad error
				bad, evs = s.wasRefused(it, rep.Err, evs)
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
	s.evs = evs
	return trouble
}

// letGo takes what is gone out of hand. s.mu is held.
func (s *worker) letGo() {
	s.items = slices.DeleteFunc(s.items, func(it *Item) bool {
		if it.state != gone {
			return false
		}
		s.suspectDone(it)
		if it.verdict == Ack && !it.wasUnknown {
			// Whoever keeps the handler's context keeps the items of the same take, and need not keep these.
			it.batch.left--
			it.Raw, it.Payload, it.message, it.batch = nil, nil, nil, nil
		}
		return true
	})
}

// unanswered takes in that a verdict was sent and no reply came. The handover sends it again, but not for a bare payload: that might have a twin
// in its list, which the second verdict would hit. So that message is handled again, if the first was not executed. s.mu is held.
func (s *worker) unanswered(it *Item, evs []Event) []Event {
	it.state, it.wasUnknown = unknown, true
	if !it.Bare {
		return evs
	}
	it.state = gone
	if it.verdict.Fate == store.Released {
		return evs
	}
	return s.report(it, false, evs)
}

// wasRefused takes in that Redis has not executed a verdict. It stays in hand, to be sent again, and its worker takes nothing of its channel
// meanwhile. A release gives its claim back. trouble is for the whole receiver. s.mu is held.
func (s *worker) wasRefused(it *Item, why error, evs []Event) (trouble error, _ []Event) {
	it.state, s.sendSingly = refused, true
	if it.verdict.Fate == store.Released && !s.r.Stopped() && it.slot == nil {
		it.state, it.verdict, it.asked = queued, nil, false
	}
	class := link.Classify(why)
	if class != link.Fatal && class != link.Failed {
		if it.rare != nil {
			it.rare.refused = time.Time{}
		}
		return why, evs
	}
	if link.Code(why) != "WRONGTYPE" && len(s.r.channels) == 1 {
		trouble = why
	} else { // of this channel's delay or dead: no reason to hold up the other workers
		evs = append(evs, Event{Kind: ReceiverError, Channel: it.Channel.Name, Receiver: s.r.live.Load().Name, Worker: s.n, Fatal: true, Err: why})
	}
	if it.state != refused {
		return trouble, evs
	}
	if m, now := it.more(), time.Now(); m.refused.IsZero() {
		m.refused = now
	} else if now.Sub(m.refused) >= s.r.conf.RefusedFor {
		evs = s.abandon(it, why, evs)
	}
	return trouble, evs
}

// abandon ends the wait for a verdict that Redis has refused for long, for what only a person can mend: the message goes back to the taking end,
// to be handled again. Where that is refused as well, it stays in its list, from which it comes back at the receiver's end. s.mu is held.
func (s *worker) abandon(it *Item, why error, evs []Event) []Event {
	m := it.more()
	if it.verdict.Fate != store.Released {
		m.refused = time.Time{}
		it.state, s.refused = decided, link.Holdoff{}
		it.verdict = &Verdict{Verdict: store.Verdict{Fate: store.Released},
			Err: fmt.Errorf("shunt: Redis has refused the verdict for %v, so the message is handled again: %w", s.r.conf.RefusedFor, why)}
		return evs
	}
	it.state = gone
	return append(evs, Event{Kind: ReceiverError, Channel: it.Channel.Name, Serial: it.Serial, ID: it.ID(), Receiver: s.r.live.Load().Name, Worker: s.n,
		Fatal: true, Err: fmt.Errorf("shunt: Redis refuses to take the message back, so it stays with this receiver until that ends: %w", why)})
}

// clearHoldoff ends the wait for refused verdicts where none is left. s.mu is held.
func (s *worker) clearHoldoff() {
	if !slices.ContainsFunc(s.items, func(it *Item) bool { return it.state == refused }) {
		s.refused = link.Holdoff{}
	}
}

// outcome says whether the verdict's reply means that the element was there. s.mu is held.
func (s *worker) outcome(it *Item, rep link.Reply) bool {
	v := it.verdict
	l, _ := store.LeaveReply(&v.Verdict, rep)
	if l.Trimmed > 0 {
		s.r.emit(Event{Kind: Trimmed, Channel: it.Channel.Name, N: l.Trimmed})
	}
	if s.r.conf.Emit != nil {
		for i, enqueued := range l.Followed {
			f := &v.Then[i]
			e := Event{Kind: Enqueued, Channel: f.Name, Serial: f.Serial, ID: f.ID(), N: 1}
			if !enqueued {
				e.Kind = Duplicate
			}
			s.r.emit(e)
		}
	}
	if l.Cancelled {
		it.verdict = &Verdict{Verdict: store.Verdict{Fate: store.Cancelled}, Err: v.Err}
	} else if l.Found && v.Fate == store.Retried {
		it.Channel.ScheduledHere(v.Wait)
	}
	return l.Found
}

// report adds what an item whose verdict was executed came to. s.mu is held.
func (s *worker) report(it *Item, found bool, evs []Event) []Event {
	v := it.verdict
	if v.Fate == store.Released && it.slot != nil && found && s.r.handlerCtx.Err() != nil {
		s.r.returned.Add(1)
	}
	if s.r.conf.Emit == nil {
		return nil
	}
	if !found && v.Fate == store.Released && !it.wasUnknown {
		return evs // reaped or released by somebody else
	}
	evs = slices.Grow(evs, 1)[:len(evs)+1]
	e := &evs[len(evs)-1] // zero, and written in place
	e.Kind, e.Channel, e.Receiver = v.kind(), it.Channel.Name, s.r.live.Load().Name
	e.Serial, e.Attempt, e.Worker, e.Took = it.Serial, it.Attempt(), s.n, it.took
	if id := it.ID(); id != "" {
		e.ID = id
	}
	if v.Err != nil {
		e.Err = v.Err
	}
	switch {
	case !found && it.wasUnknown:
		e.Kind = UnconfirmedVerdict
	case !found:
		e.Kind = LateVerdict
		if e.Err == nil {
			e.Err = ErrLeaseLost
		}
	case v.Fate == store.Retried:
		e.Due = time.Now().Add(v.Wait).UnixNano()
	case v.Fate == store.Released:
		e.N, e.Attempt = 1, 0
	}
	return evs
}

// remove takes an item out of hand. s.mu is held.
func (s *worker) remove(it *Item) {
	for i, o := range s.items {
		if o == it {
			s.items = slices.Delete(s.items, i, i+1)
			break
		}
	}
	s.suspectDone(it)
}

// flush sends, from outside the worker's goroutine, what a stalled or stopping worker holds: verdicts, and what has not begun.
func (s *worker) flush() {
	r := s.r
	if r.breaker.Pass() > 0 {
		return
	}
	if !r.enter() {
		r.breaker.Back()
		return
	}
	defer r.gate.RUnlock()
	call := link.NewCall()
	var sent dispatches
	s.mu.Lock()
	s.collect(&sent, call, true)
	s.mu.Unlock()
	if len(sent.all) == 0 {
		r.breaker.Back()
		return
	}
	r.exchange(call)
	r.breaker.Judge(s.settle(call.Replies, &sent))
	s.poke()
}
