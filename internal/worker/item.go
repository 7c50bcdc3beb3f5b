package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

// Item is one message in hand. Its state is guarded by its slot's mu.
type Item struct {
	In  *Intake
	Raw []byte // as received: what is removed
	lists.Element
	Newer error // the version is not known here
	taken int64 // order of the replies that brought it

	h        *Handling // while it is handled
	handling Handling  // what h points to
	verdict  *Verdict
	took     time.Duration // by the handler

	state   itemState
	suspect bool
	asked   bool      // the higher channels had nothing when it was taken
	unknown bool      // the verdict was sent, and no reply came
	refused bool      // it was not executed
	doubt   bool      // that was so once
	back    bool      // handed back while its handler ran
	begun   bool      // Redis was told, of one with an Extra, that it is about to be handled
	called  bool      // off: it was cancelled
	until   time.Time // its deadline, by the clock here; zero: none
	gone    bool      // no longer in hand; for settle
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
	Kind   Kind          // Acked, Retried, Rejected, Undecodable, Released, Cancelled, Expired or Postponed
	Wait   time.Duration // of Retried and Postponed
	Next   []byte        // the new element of Retried, Rejected and Undecodable
	Result []byte        // of Acked
	Then   []Follow      // of Acked: what follows it
	Err    error
}

// Follow is a message that is delivered when another is acked.
type Follow struct {
	*lists.Keys
	Mode    string // now, in or at
	MS      int64
	Expires int64 // ms after its delivery; 0: never
	lists.Element
	Raw []byte
}

// Ack is the verdict on most messages.
var Ack = &Verdict{Kind: Acked}

// release is the verdict on what was not begun.
var release = &Verdict{Kind: Released}

func (it *Item) fill(in *Intake, raw []byte, taken int64) {
	it.In, it.Raw, it.taken = in, raw, taken
	it.Element, it.Newer = lists.Decode(raw)
}

// collect adds the commands of all verdicts to the call, unless they are held off, and with unstarted the release of what has not begun;
// it appends the items to out in the order of the replies. s.mu is held.
func (s *slot) collect(out []*Item, call *link.Call, unstarted bool) []*Item {
	if s.refused.Left() > 0 {
		return out
	}
	back := false
	send := func(it *Item) {
		if it.state == decided && !it.unknown {
			it.state = sending
			s.command(call, it, it.In.doing[s.n])
			out = append(out, it)
		}
	}
	for _, it := range s.items {
		if unstarted && it.state == waiting {
			it.state, it.verdict = decided, release
		}
		if it.verdict == release {
			back = true
		} else {
			send(it)
		}
	}
	if back {
		for _, it := range slices.Backward(s.items) { // the one taken first goes back last
			send(it)
		}
	}
	return out
}

// settles says whether all that is in hand is decided and may be sent. s.mu is held.
func (s *slot) settles() bool {
	for _, it := range s.items {
		if it.state != decided || it.unknown || it.refused {
			return false
		}
	}
	return s.refused.Left() <= 0
}

// command adds the one command that makes an item's verdict true, with the element in the given doing list.
func (s *slot) command(call *link.Call, it *Item, doing any) {
	in, v, id := it.In, it.verdict, it.ID()
	conf := s.r.conf
	switch v.Kind {
	case Acked, Cancelled, Expired:
		if id == "" && v.Then == nil {
			call.Add("LREM", doing, fromTail)
			call.AddElements(it.Raw)
			break
		}
		kind, attempt, retain, unique := "a", it.Attempts+1, int64(0), int64(0)
		if x := it.Extra; x != nil {
			retain, unique = max(0, x.Retain), max(0, x.Unique)
		}
		switch v.Kind {
		case Cancelled:
			kind = "c"
		case Expired:
			kind, attempt = "x", it.Attempts
		}
		args := []any{in.Living, doing, in.IDs, in.Cancelled, in.Done, in.DoneAt, in.Kept}
		for i := range v.Then {
			args = append(args, v.Then[i].Prepare, v.Then[i].Delay, v.Then[i].IDs)
		}
		keys := len(args)
		args = append(args, it.Raw, id, it.Serial[:], kind, attempt, v.Result, retain, unique, max(0, conf.MaxDone), max(0, conf.MaxDoneBytes))
		if v.Then == nil {
			call.AddScript(lists.Settle, keys, args...)
			break
		}
		for i := range v.Then {
			f := &v.Then[i]
			args = append(args, f.Mode, f.MS, f.ID(), f.Expires, f.Raw)
		}
		call.AddScript(lists.Follow, keys, args...)
	case Retried, Postponed:
		next, over, wait := v.Next, it.Attempts+1, max(0, (v.Wait+time.Millisecond-1).Milliseconds())
		failure, off := "", 0
		if v.Kind == Postponed {
			next, over, failure, off = it.Raw, it.Attempts, it.Failure, 1
		} else if id != "" {
			failure = lists.FailureText(v.Err)
		}
		if id == "" {
			call.AddScript(lists.Retry, 3, in.Living, doing, in.Delay, wait, it.Raw, next)
			break
		}
		call.AddScript(lists.Retry, 8, in.Living, doing, in.Delay, in.IDs, in.Cancelled, in.Done, in.DoneAt, in.Kept, wait, it.Raw, next,
			id, it.Serial[:], over, failure, off)
	case Rejected, Undecodable:
		most, age := max(0, conf.MaxDead), max(0, conf.DeadFor.Milliseconds())
		if id == "" {
			call.AddScript(lists.Reject, 3, in.Living, doing, in.Dead, it.Raw, v.Next, most, age)
			break
		}
		call.AddScript(lists.Reject, 8, in.Living, doing, in.Dead, in.IDs, in.Cancelled, in.Done, in.DoneAt, in.Kept, it.Raw, v.Next, most, age,
			id, it.Serial[:], it.Attempts+1, lists.FailureText(v.Err), max(0, it.Extra.Retain), max(0, conf.MaxDone), max(0, conf.MaxDoneBytes))
	case Released:
		call.AddScript(lists.Release, 4, in.Living, doing, in.Prepare, in.IDs, it.began(), it.Identity(it.Raw))
	}
}

// began is 1 if its handler was called.
func (it *Item) began() int {
	if it.h != nil {
		return 1
	}
	return 0
}

// fromTail removes one element, looked for from the end where the one taken first is.
var fromTail any = -1

// settle judges each reply to a verdict alone. It returns an error where the receiver should slow down.
func (s *slot) settle(replies []link.Reply, sent []*Item) error {
	if len(sent) == 0 {
		return nil
	}
	var trouble, refused error
	s.mu.Lock()
	defer s.mu.Unlock()
	evs := s.evs[:0]
	for i, it := range sent {
		rep := replies[i]
		switch link.Classify(rep.Err) {
		case link.Done:
			it.gone = true
			evs = s.report(it, s.outcome(it, rep.Value), evs)
		case link.Unknown: // the handover finds out
			it.state, it.unknown, it.doubt = decided, true, true
			s.r.breaks(rep.Err)
		default: // it stays queued, and the slot takes nothing meanwhile; a release gives its claim back
			it.state, it.refused = decided, true
			if it.verdict.Kind == Released && !s.r.Stopped() && it.h == nil {
				it.state, it.asked, it.refused = waiting, false, false
			}
			refused = cmp.Or(refused, rep.Err)
			switch link.Code(rep.Err) {
			case "WRONGTYPE": // of this channel's delay or dead: no reason to hold up the other workers
				evs = append(evs, Event{Kind: Trouble, Channel: it.In.Channel, Receiver: s.r.live.Load().Name, Worker: s.n, Fatal: true, Err: rep.Err})
			default:
				trouble = rep.Err
			}
		}
	}
	if refused != nil {
		s.refused.Refuse(refused)
	} else {
		s.refused = link.Holdoff{}
	}
	s.items = slices.DeleteFunc(s.items, func(it *Item) bool {
		if it.gone {
			s.cleared(it)
		}
		if it.gone && it.verdict == Ack {
			// Whoever keeps the handler's context keeps the items of the same take, and need not keep these.
			it.Raw, it.Payload, it.handling.message = nil, nil, nil
		}
		return it.gone
	})
	s.r.emit(evs...)
	clear(evs)
	s.evs = evs
	return trouble
}

// outcome says whether the verdict's reply means that the element was there.
func (s *slot) outcome(it *Item, reply any) bool {
	switch it.verdict.Kind {
	case Retried, Postponed:
		due, _ := redis.Int64(reply, nil)
		if due > 0 {
			it.In.Own(it.verdict.Wait)
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
			s.r.emit(Event{Kind: Trimmed, Channel: it.In.Channel, N: ns[1]})
		}
		if len(ns) == 2 && ns[0] < 0 {
			it.verdict = &Verdict{Kind: Cancelled, Err: it.verdict.Err}
		}
		return len(ns) == 2 && ns[0] != 0
	}
	n, _ := redis.Int64(reply, nil)
	return n > 0
}

// followed tells of what was delivered with an ack.
func (s *slot) followed(it *Item, reply any) bool {
	ns, _ := redis.Ints(reply, nil)
	if len(ns) == 0 || ns[0] == 0 {
		return false
	}
	if s.r.conf.Emit != nil {
		for i, n := range ns[1:] {
			f := &it.verdict.Then[i]
			e := Event{Kind: Delivered, Channel: f.Channel, Serial: f.Serial, ID: f.ID(), N: 1}
			if n == 0 {
				e.Kind = Duplicate
			}
			s.r.emit(e)
		}
	}
	return true
}

// report adds what an item whose verdict was executed came to. s.mu is held.
func (s *slot) report(it *Item, found bool, evs []Event) []Event {
	if it.verdict.Kind == Released && it.h != nil && found && s.r.patience.Err() != nil {
		s.r.returned.Add(1)
	}
	if s.r.conf.Emit == nil {
		return nil
	}
	v := it.verdict
	e := Event{Kind: v.Kind, Channel: it.In.Channel, Serial: it.Serial, ID: it.ID(), Attempt: it.Attempts + 1,
		Receiver: s.r.live.Load().Name, Worker: s.n, Took: it.took, Err: v.Err}
	switch {
	case !found && it.doubt:
		e.Kind = DoneOrLost
	case !found && v.Kind == Released:
		return evs // reaped or released by somebody else
	case !found:
		e.Kind = Lost
		if e.Err == nil {
			e.Err = ErrLeaseLost
		}
	case v.Kind == Retried, v.Kind == Postponed:
		e.Due = time.Now().Add(v.Wait)
	case v.Kind == Released:
		e.N, e.Attempt = 1, 0
	}
	return append(evs, e)
}

// remove takes an item out of hand. s.mu is held.
func (s *slot) remove(it *Item) {
	for i, o := range s.items {
		if o == it {
			s.items = slices.Delete(s.items, i, i+1)
			break
		}
	}
	s.cleared(it)
}

// cleared makes room for the next suspect, if the item was one.
func (s *slot) cleared(it *Item) {
	if it.suspect {
		it.suspect = false
		s.r.suspect.Store(false)
		s.r.parking.wakeOne() // there may be more, and this worker may be busy
	}
}

// flush sends, from outside the slot's goroutine, what a stalled or stopping slot holds: verdicts, and what has not begun.
func (s *slot) flush() {
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
	call.FailFast = true
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
