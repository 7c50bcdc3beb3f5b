package worker

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Item is one message in hand, and its handler's context. Its state is guarded by its slot's mu. The context's deadline is the watcher's to
// keep, so that no message costs a timer; and what a context proper costs is paid only by a handler that asks its own for more than whether
// it has ended. It is small, for memory is what most of a receiver's time goes to.
type Item struct {
	element.Element
	Channel *Channel
	Raw     []byte // as received: what is removed

	batch   *takeBatch
	verdict *Verdict
	took    time.Duration // by the handler
	until   *time.Time    // its deadline, by the clock here

	Started    time.Time     // its handler
	slot       *worker       // where that was called; nil while it was not
	message    any           // what Decoded was given
	timeout    time.Duration // negative: none
	rare       *rare
	inner      atomic.Pointer[proper]
	cause      atomic.Int32 // why the context has ended: one of causes
	generation int32        // of the goroutine that it runs on
	orphan     bool         // Finish's: the goroutine has lost its slot
	judged     bool         // its handler has failed, and its verdict is being made

	Newer      bool // the version is not known here
	state      itemState
	suspect    bool
	asked      bool // the higher channels had nothing when it was taken
	unknown    bool // the verdict was sent, and no reply came
	refused    bool // it was not executed
	wasUnknown bool // that was so once
	back       bool // handed back while its handler ran
	ownsID     bool // its id, as Redis said then
	begun      bool // Redis was told, of one with an Extra, that it is about to be handled
	cancelled  bool // off: it was cancelled
	gone       bool // no longer in hand; for settle
}

// origin is what the items share that came together. left is guarded by the slot's mu.
type takeBatch struct {
	order  int64       // of the replies that brought them
	memory link.Memory // of Raw
	left   int         // of them, whose Raw is still needed
}

type itemState uint8

const (
	waiting itemState = iota // to be started
	asking                   // whether it is still to be
	running
	decided // a verdict is there
	sending // a verdict or a release is under way
	lost    // somebody else's by now; its handler's verdict will be dropped
)

// Verdict is what becomes of a message; it is not written to any more.
type Verdict struct {
	Kind    Kind          // Acked, Retried, Rejected, Undecodable, Released, Cancelled, Expired or Postponed
	Wait    time.Duration // of Retried and Postponed
	Next    []byte        // the new element of Retried, Rejected and Undecodable
	Failure string        // of these: Err's text, which is a user's to make, and not asked for where anything is held
	Result  []byte        // of Acked
	Then    []Follow      // of Acked: what follows it
	Err     error
}

// Follow is a message that is enqueued when another is acked.
type Follow struct {
	*store.Keys
	Mode    string // now, in or at
	MS      int64
	Expires int64 // ms after its enqueue; 0: never
	element.Element
	Raw []byte
}

// Ack is the verdict on most messages; decide adds what the handler asked for.
var Ack = &Verdict{Kind: Acked}

// release is the verdict on what was not begun.
var release = &Verdict{Kind: Released}

func (it *Item) fill(in *Channel, raw []byte, from *takeBatch) {
	it.Channel, it.Raw, it.batch = in, raw, from
	it.Newer = it.Read(raw) != nil
}

// collect adds the commands of all verdicts to the call, but for those that were refused lately, and with unstarted the release of what has not
// begun; it appends the items to out in the order of the replies, of which the last may be of several. s.mu is held.
func (s *worker) collect(out []*Item, call *link.Call, unstarted bool) []*Item {
	held := s.refused.Left() > 0
	due := func(it *Item) bool { return it.state == decided && !it.unknown && !(held && it.refused) }
	send := func(it *Item) {
		it.state = sending
		s.command(call, it, it.Channel.doing[s.n])
		out = append(out, it)
	}
	back := false
	over := s.over[:0] // together, of one channel, and with ids or without
	for _, it := range s.items {
		if unstarted && it.state == waiting && !held {
			it.state, it.verdict = decided, release
		}
		switch {
		case !due(it):
		case it.verdict == release:
			back = true
		case it.together() && (len(over) == 0 || it.Channel == over[0].Channel && (it.ID() == "") == (over[0].ID() == "")):
			over = append(over, it)
		default:
			send(it)
		}
	}
	if back {
		for _, it := range slices.Backward(s.items) { // the one taken first goes back last
			if due(it) && it.verdict == release {
				send(it)
			}
		}
	}
	if len(over) == 0 {
		return out
	}
	doing, n, first := over[0].Channel.doing[s.n], len(over), s.first(over, out)
	switch {
	case over[0].ID() != "":
		s.settleAll(call, doing, first, over...)
	case first:
		call.AddScript(store.Ack, 1, doing, n)
		call.AddElements(over[0].head(), over[n-1].head())
	default:
		for _, it := range over {
			send(it)
		}
		n = 0
	}
	for _, it := range over[:n] {
		it.state = sending
		out = append(out, it)
	}
	clear(over)
	s.over = over
	return out
}

// replyTo is the reply to the ith of n items, where the last one is that of several if there are fewer: what it says of each, or of all. It
// says which.
func replyTo(replies []link.Reply, n, i int) (rep link.Reply, together bool) {
	last := len(replies) - 1
	if len(replies) == n || i < last {
		return replies[i], false
	}
	rep = replies[last]
	if vs, each := rep.Value.([]any); each && i-last < len(vs) {
		rep.Value = vs[i-last]
		if err, ok := rep.Value.(redis.Error); ok {
			rep.Err = err
		}
	}
	return rep, true
}

// settles says whether all that is in hand is decided and may be sent. s.mu is held.
func (s *worker) settles() bool {
	for _, it := range s.items {
		pending := it.state == sending && it.verdict == nil // its user is still asked for it
		if !pending && (it.state != decided || it.unknown || it.refused) {
			return false
		}
	}
	return s.refused.Left() <= 0
}

// command adds the one command that makes an item's verdict true, with the element in the given doing list.
func (s *worker) command(call *link.Call, it *Item, doing any) {
	in, v, id := it.Channel, it.verdict, it.ID()
	conf := s.r.conf
	switch v.Kind {
	case Acked, Cancelled, Expired:
		if v.Then != nil {
			s.follow(call, it, doing)
		} else if id != "" {
			s.settleAll(call, doing, false, it)
		} else if s.ack != nil && doing == in.doing[s.n] {
			call.AddReady(s.ack, it.Raw)
		} else {
			call.Add("LREM", doing, fromTail)
			call.AddElements(it.Raw)
		}
	case Retried, Postponed:
		next, over, wait := v.Next, it.Attempt(), max(0, (v.Wait+time.Millisecond-1).Milliseconds())
		failure, off := "", 0
		if v.Kind == Postponed {
			next, over, failure, off = it.Raw, int(it.Attempts), it.Failure(), 1
		} else if id != "" {
			failure = v.Failure
		}
		if id == "" {
			call.AddScript(store.Retry, 3, in.Receivers, doing, in.Delay, wait, it.Raw, next)
			break
		}
		call.AddScript(store.Retry, 10, in.Receivers, doing, in.Delay, in.IDs, in.Cancelled, in.Done, in.DoneAt, in.Kept, in.Running, in.Waited, wait, it.Raw, next,
			id, it.Serial[:], over, failure, off)
	case Rejected, Undecodable:
		most, age := max(0, conf.MaxDead), max(0, conf.DeadFor.Milliseconds())
		if id == "" {
			call.AddScript(store.Reject, 3, in.Receivers, doing, in.Dead, it.Raw, v.Next, most, age)
			break
		}
		call.AddScript(store.Reject, 10, in.Receivers, doing, in.Dead, in.IDs, in.Cancelled, in.Done, in.DoneAt, in.Kept, in.Running, in.Waited, it.Raw, v.Next, most, age,
			id, it.Serial[:], it.Attempt(), v.Failure, max(0, it.Extra.Retain), max(0, conf.MaxDone), max(0, conf.MaxDoneBytes))
	case Released:
		call.AddScript(store.Release, 5, in.Receivers, doing, in.Prepare, in.IDs, in.Running, it.began(), it.Identity(it.Raw))
	}
}

// together says whether a verdict may share a script with others of its kind: that of a message that is over.
func (it *Item) together() bool {
	if it.verdict == Ack {
		return !it.Bare
	}
	k := it.verdict.Kind
	return (k == Acked || k == Cancelled || k == Expired) && it.verdict.Then == nil && it.ID() != ""
}

// head is what scripts know one of several by: its counts and its serial.
func (it *Item) head() []byte { return it.Raw[2:20] }

// settleAll adds the one script by which messages of a channel leave their list for good.
func (s *worker) settleAll(call *link.Call, doing any, first bool, its ...*Item) {
	in, conf, n := its[0].Channel, s.r.conf, len(its)
	if !first {
		n = 0
	}
	call.AddScript(store.Settle, 8, doing, in.IDs, in.Cancelled, in.Done, in.DoneAt, in.Kept, in.Running, in.Waited,
		max(0, conf.MaxDone), max(0, conf.MaxDoneBytes), n)
	if !first {
		for _, it := range its {
			call.AddElements(it.Extra.IDBytes(), it.Raw, it.how())
		}
		return
	}
	call.AddElements(its[0].head(), its[n-1].head())
	for _, it := range its {
		call.AddElements(it.Extra.IDBytes())
	}
	for _, it := range its {
		call.AddElements(it.Serial[:])
	}
}

// first says whether they are several, all that is left of what was taken first when those before them in the call are out of the list, and
// nothing is to be kept of them. s.mu is held.
func (s *worker) first(its, before []*Item) bool {
	if len(its) < 3 || s.sendSingly {
		return false
	}
	left := its
	for _, it := range s.items {
		switch {
		case len(left) == 0:
			return true
		case it == left[0]:
			if it.ID() != "" && it.how() != nil {
				return false
			}
			left = left[1:]
		case it.Channel == its[0].Channel && !slices.Contains(before, it):
			return false
		}
	}
	return len(left) == 0
}

// how says what is to be kept of a message that is over; nothing for most.
func (it *Item) how() []byte {
	x, v := it.Extra, it.verdict
	kind, attempt := byte('a'), it.Attempt()
	switch {
	case v.Kind == Cancelled:
		kind = 'c'
	case v.Kind == Expired:
		kind, attempt = 'x', int(it.Attempts)
	case it.ownsID && x.Retain <= 0 && x.Unique <= 0 && v.Result == nil:
		return nil
	}
	return append(fmt.Appendf(nil, "%c %d %d %d\n", kind, attempt, max(0, x.Retain), max(0, x.Unique)), v.Result...)
}

// follow adds the script that acks a message and enqueues what follows it.
func (s *worker) follow(call *link.Call, it *Item, doing any) {
	in, v, conf := it.Channel, it.verdict, s.r.conf
	args := []any{in.Receivers, doing, in.IDs, in.Cancelled, in.Done, in.DoneAt, in.Kept, in.Running, in.Waited}
	for i := range v.Then {
		k := v.Then[i].Keys
		args = append(args, k.Prepare, k.Delay, k.IDs, k.Running)
	}
	keys := len(args)
	retain, unique := int64(0), int64(0)
	if x := it.Extra; x != nil {
		retain, unique = max(0, x.Retain), max(0, x.Unique)
	}
	args = append(args, it.Raw, it.ID(), it.Serial[:], it.Attempt(), v.Result, retain, unique, max(0, conf.MaxDone), max(0, conf.MaxDoneBytes))
	for i := range v.Then {
		f := &v.Then[i]
		args = append(args, f.Mode, f.MS, f.ID(), f.Expires, f.Raw)
	}
	call.AddScript(store.Follow, keys, args...)
}

// began is 1 if its handler was called.
func (it *Item) began() int {
	if it.slot != nil {
		return 1
	}
	return 0
}

// fromTail removes one element, looked for from the end where the one taken first is.
var fromTail any = -1

// settle judges each reply to a verdict alone. It returns an error where the receiver should slow down.
func (s *worker) settle(replies []link.Reply, sent []*Item) error {
	if len(sent) == 0 {
		return nil
	}
	var trouble, refused error
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendSingly = false
	evs := s.evs[:0]
	for i, it := range sent {
		rep, together := replyTo(replies, len(sent), i)
		if together && rep.Value == int64(-1) || together && it.ID() == "" && link.Code(rep.Err) == "NOSCRIPT" {
			it.state, it.refused, s.sendSingly = decided, false, true // others were first, or an LREM needs no script: each by itself
			continue
		}
		switch {
		case rep.Err == nil:
			it.gone = true
			evs = s.report(it, s.outcome(it, rep.Value), evs)
		case broke(rep.Err): // the handover finds out
			it.state, it.unknown, it.wasUnknown = decided, true, true
			s.r.mustHandOver(rep.Err)
		default: // it stays queued, and the slot takes nothing meanwhile; a release gives its claim back
			it.state, it.refused, s.sendSingly = decided, true, true
			if it.verdict.Kind == Released && !s.r.Stopped() && it.slot == nil {
				it.state, it.verdict, it.asked, it.refused = waiting, nil, false, false
			}
			refused = cmp.Or(refused, rep.Err)
			switch link.Code(rep.Err) {
			case "WRONGTYPE": // of this channel's delay or dead: no reason to hold up the other workers
				evs = append(evs, Event{Kind: ReceiverError, Channel: it.Channel.Name, Receiver: s.r.live.Load().Name, Worker: s.n, Fatal: true, Err: rep.Err})
			default:
				trouble = rep.Err
			}
		}
	}
	if refused != nil {
		s.refused.Refuse(refused)
	} else {
		s.clearHoldoff()
	}
	s.items = slices.DeleteFunc(s.items, func(it *Item) bool {
		if it.gone {
			s.suspectDone(it)
		}
		if it.gone && it.verdict == Ack {
			// Whoever keeps the handler's context keeps the items of the same take, and need not keep these.
			it.batch.left--
			it.Raw, it.Payload, it.message, it.batch = nil, nil, nil, nil
		}
		return it.gone
	})
	s.r.emit(evs...)
	clear(evs)
	s.evs = evs
	return trouble
}

// relent ends the wait for refused verdicts where none is left. s.mu is held.
func (s *worker) clearHoldoff() {
	if !slices.ContainsFunc(s.items, func(it *Item) bool { return it.refused && !it.gone }) {
		s.refused = link.Holdoff{}
	}
}

// outcome says whether the verdict's reply means that the element was there.
func (s *worker) outcome(it *Item, reply any) bool {
	switch it.verdict.Kind {
	case Retried, Postponed:
		due, _ := redis.Int64(reply, nil)
		if due > 0 {
			it.Channel.ScheduledHere(it.verdict.Wait)
		} else if due < 0 {
			it.verdict = &Verdict{Kind: Cancelled, Err: it.verdict.Err}
		}
		return due != 0
	case Acked:
		if it.verdict.Then != nil {
			return s.followed(it, reply)
		}
	case Rejected, Undecodable:
		ns, _ := redis.Ints(reply, nil)
		if len(ns) == 2 && ns[1] > 0 {
			s.r.emit(Event{Kind: Trimmed, Channel: it.Channel.Name, N: ns[1]})
		}
		if len(ns) == 2 && ns[0] < 0 {
			it.verdict = &Verdict{Kind: Cancelled, Err: it.verdict.Err}
		}
		return len(ns) == 2 && ns[0] != 0
	}
	if vs, ok := reply.([]any); ok && len(vs) > 0 { // of settle, for one
		reply = vs[0]
	}
	n, _ := redis.Int64(reply, nil)
	return n > 0
}

// followed tells of what was enqueued with an ack.
func (s *worker) followed(it *Item, reply any) bool {
	ns, _ := redis.Ints(reply, nil)
	if len(ns) == 0 || ns[0] == 0 {
		return false
	}
	if s.r.conf.Emit != nil {
		for i, n := range ns[1:] {
			f := &it.verdict.Then[i]
			e := Event{Kind: Enqueued, Channel: f.Name, Serial: f.Serial, ID: f.ID(), N: 1}
			if n == 0 {
				e.Kind = Duplicate
			}
			s.r.emit(e)
		}
	}
	return true
}

// report adds what an item whose verdict was executed came to. s.mu is held.
func (s *worker) report(it *Item, found bool, evs []Event) []Event {
	if it.verdict.Kind == Released && it.slot != nil && found && s.r.handlerCtx.Err() != nil {
		s.r.returned.Add(1)
	}
	if s.r.conf.Emit == nil {
		return nil
	}
	v := it.verdict
	if !found && v.Kind == Released && !it.wasUnknown {
		return evs // reaped or released by somebody else
	}
	evs = slices.Grow(evs, 1)[:len(evs)+1]
	e := &evs[len(evs)-1] // zero, and written in place
	e.Kind, e.Channel, e.Receiver = v.Kind, it.Channel.Name, s.r.live.Load().Name
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
	case v.Kind == Retried, v.Kind == Postponed:
		e.Due = time.Now().Add(v.Wait).UnixNano()
	case v.Kind == Released:
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

// cleared makes room for the next suspect, if the item was one.
func (s *worker) suspectDone(it *Item) {
	if it.suspect {
		it.suspect = false
		s.r.suspect.Store(false)
		s.r.parking.wakeOne() // there may be more, and this worker may be busy
	}
}

// flush sends, from outside the slot's goroutine, what a stalled or stopping slot holds: verdicts, and what has not begun.
func (s *worker) flush() {
	r := s.r
	if r.breaker.Pass() > 0 {
		return
	}
	if !r.enter() {
		r.breaker.Back()
		return
	}
	defer r.leave()
	call := link.NewCall()
	s.mu.Lock()
	sent := s.collect(nil, call, true)
	s.mu.Unlock()
	if len(sent) == 0 {
		r.breaker.Back()
		return
	}
	r.exchange(call)
	r.breaker.Judge(s.settle(call.Replies, sent))
	s.poke()
}
