package worker

import (
	"bytes"
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/semaphore"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// takes are the takes of one step.
type takes struct {
	slot    *worker
	n       int
	got     int
	script  bool
	suspect bool
	above   bool       // the last reply counts the channels above that have something
	from    []*Channel // where each channel number of the script's reply stands for; the only one, without a script
	bytes   int64      // reserved for large elements
	origin  *takeBatch
}

// fullFor is how long a Redis that refused a take for want of memory is asked by script, which it does not refuse.
const fullFor = 10 * time.Second

// add appends the takes to the call. A suspect is taken alone, and only one a receiver.
func (t *takes) add(call *link.Call) {
	s, r := t.slot, t.slot.r
	if r.large.on() {
		if t.bytes = r.large.reserve(); t.bytes == 0 {
			return // too much is under way
		}
	}
	t.n, t.from, t.origin = 1, r.channels, s.origin()
	call.Into = &t.origin.memory
	for _, in := range r.channels {
		if in.suspects.Load() && time.Now().UnixNano() >= r.suspectsAfter.Load() && r.suspect.CompareAndSwap(false, true) {
			t.suspect, t.script, t.from = true, true, []*Channel{in}
			if r.order.strict() {
				t.from = append(sound(r.channels[:in.Index:in.Index]), in)
			}
			s.addTake(call, t.from, in.Keys.Suspect, 1)
			return
		}
	}
	t.script = s.now.UnixNano() < r.full.Load()
	if r.order != nil {
		t.from = r.order.turn(r.channels)
		i := r.order.guess(t.from)
		t.script = t.script || i < 0
		if !t.script {
			t.above, t.from = i > 0, t.from[:i+1]
			s.addGuess(call, t.from)
			t.from = t.from[i:]
			return
		}
	}
	t.n = s.want()
	if t.script {
		s.addTake(call, t.from, nil, t.n)
		return
	}
	for range t.n {
		call.AddReady(s.take)
	}
}

// suspecting says whether there may be suspects to take, and none is in hand.
func (r *Pool) suspecting() bool {
	for _, in := range r.channels {
		if in.suspects.Load() && time.Now().UnixNano() >= r.suspectsAfter.Load() {
			return !r.suspect.Load()
		}
	}
	return false
}

// Suspects sends a worker for them.
func (r *Pool) Suspects(in *Channel) {
	in.suspects.Store(true)
	r.parking.wakeOne()
}

// addGuess takes from the last of the channels, which had something lately, and then counts those above that have something, without
// the costs of a script. Where it counts some, what it has brought does not start before they were asked.
func (s *worker) addGuess(call *link.Call, from []*Channel) {
	var keys [64]any
	for i, in := range from[:len(from)-1] {
		keys[i] = in.Prepare
	}
	n := len(from) - 1
	call.Add("RPOPLPUSH", from[n].Prepare, from[n].doing[s.n])
	if n > 0 {
		call.Add("EXISTS", keys[:n]...) // last, so that nothing which was enqueued after a message of theirs starts before it
	}
}

// addTake asks the channels in turn, in one script; the last one, where suspect is given, for a suspect.
func (s *worker) addTake(call *link.Call, from []*Channel, suspect any, n int) {
	args := make([]any, 0, 3*len(from)+1)
	for _, in := range from {
		args = append(args, in.Receivers, in.Prepare, in.doing[s.n])
	}
	if suspect != nil {
		args[len(args)-2] = suspect
	}
	call.AddScript(store.Take, 3*len(from), append(args, n)...)
}

// receive files what came. empty: there was nothing, so the worker may park.
func (t *takes) receive(replies []link.Reply, order int64) (empty bool, trouble error) {
	if t.n == 0 {
		return false, nil
	}
	s, r := t.slot, t.slot.r
	defer r.large.release(t.bytes)
	t.origin.order = order
	items := s.took[:0]
	again := false
	var chunk []Item // of one piece of memory
	add := func(in *Channel, raw []byte, more int) {
		if len(chunk) == 0 {
			chunk = make([]Item, 1+more)
		}
		in.nonEmptyLately.Store(true)
		chunk[0].fill(in, raw, t.origin)
		items, chunk = append(items, &chunk[0]), chunk[1:]
	}
	asked := true
	if t.above {
		last := len(replies) - 1
		n, _ := replies[last].Value.(int64)
		asked = n == 0 && replies[last].Err == nil
		if link.Classify(replies[last].Err) == link.Fatal { // without this right it is the scripts that ask
			if !r.order.blind.Swap(true) {
				r.ReportFatal(t.from[0], replies[last].Err)
			}
			replies = replies[:last]
		}
	}
	for i, rep := range replies {
		if rep.Err != nil {
			switch class := link.Classify(rep.Err); {
			case link.Code(rep.Err) == "OOM" && !t.script:
				r.full.Store(time.Now().Add(fullFor).UnixNano())
				again = true
			case class != link.Unknown && r.order != nil && !t.script && i == 0:
				trouble = t.refused(t.from[0], rep.Err)
			case class != link.Unknown:
				trouble = rep.Err // no one channel's
			default:
				again = true // the handover comes first
			}
			continue
		}
		if t.script {
			trouble = cmp.Or(trouble, t.flat(rep.Value, add))
		} else if rep.Bulk != nil {
			more := len(replies) - 1 - i
			if len(chunk) == 0 && replies[len(replies)-1].Bulk == nil {
				more = 0 // the list's end
			}
			add(t.from[0], rep.Bulk, more)
		}
	}
	if r.order != nil && !t.script && len(items) == 0 {
		t.from[0].nonEmptyLately.Store(false)
		again = true // the others, by script
	}
	t.got = len(items)
	own(items)
	for _, it := range items {
		it.asked = asked
		it.suspect = t.suspect && it.Channel == t.from[len(t.from)-1]
		r.large.saw(len(it.Raw))
	}
	if t.suspect && trouble != nil { // other workers have no part in it, so their breaker does not grow
		wait := r.suspectsOff.Refuse(trouble)
		r.suspectsAfter.Store(time.Now().Add(wait).UnixNano())
		time.AfterFunc(wait, r.parking.wakeOne)
	} else if t.suspect {
		r.suspectsOff = link.Holdoff{}
	}
	if t.suspect && (t.got == 0 || !items[0].suspect) {
		if t.got == 0 && trouble == nil && !again {
			t.from[len(t.from)-1].suspects.Store(false)
		}
		r.suspect.Store(false)
		again = true
	}
	s.mu.Lock()
	s.items = append(s.items, items...)
	t.origin.left = len(items)
	s.mu.Unlock()
	clear(items)
	s.took = items
	if t.got == t.n {
		s.limit = min(4*s.limit, r.conf.Prefetch)
	} else {
		s.limit = max(1, t.got)
	}
	if t.got > 0 && r.parking.polls.Load() {
		r.parking.wakeOne() // no waiter does it
	}
	return t.got == 0 && !again && trouble == nil, trouble
}

// ownTogether bounds the payloads that share a piece of memory, which all of them keep alive.
const ownTogether = 1 << 10

// own gives each message a payload that it may write to: Raw is what is removed in the end.
func own(items []*Item) {
	n := 0
	for _, it := range items {
		if len(it.Payload) <= ownTogether {
			n += len(it.Payload)
		}
	}
	all := make([]byte, 0, n)
	for _, it := range items {
		if len(it.Payload) > ownTogether {
			it.Payload = bytes.Clone(it.Payload)
			continue
		}
		from := len(all)
		all = append(all, it.Payload...)
		it.Payload = all[from:len(all):len(all)]
	}
}

// flat reads the take script's reply: channel number and element in turns.
func (t *takes) flat(reply any, add func(in *Channel, raw []byte, more int)) error {
	vs, err := redis.Values(reply, nil)
	for i := 0; i+1 < len(vs); i += 2 {
		c, _ := redis.Int(vs[i], nil)
		raw, _ := vs[i+1].([]byte)
		switch {
		case c > 0 && c <= len(t.from):
			add(t.from[c-1], raw, 0)
		case c < 0 && -c <= len(t.from):
			err = cmp.Or(t.refused(t.from[-c-1], redis.Error(raw)), err)
		}
	}
	return err
}

// refused takes in why a channel could not be read: one of several is left out for a while, unless it is its suspects that could not. It
// returns what is the receiver's trouble.
func (t *takes) refused(in *Channel, why error) error {
	r := t.slot.r
	if len(r.channels) == 1 || t.suspect && in == t.from[len(t.from)-1] || link.Classify(why) != link.Fatal {
		return why
	}
	in.unreadableUntil.Store(time.Now().Add(link.MaxTrouble).UnixNano())
	r.ReportFatal(in, why)
	return nil
}

const (
	largeElement  = 64 << 10 // what is larger holds up a shared connection
	largeInFlight = 64 << 20 // bytes of takes under way at once, by the largest element lately seen
	largeFor      = 100      // elements that have to be small before the receiver goes back to the shared connection
)

// large is a receiver's way with large elements: one at a time a worker, on a link of the receiver's own.
type large struct {
	left    atomic.Int32 // small elements still to be seen
	biggest atomic.Int64
	bytes   *semaphore.Weighted

	mu     sync.Mutex
	l      *link.Link
	closed bool
}

func (l *large) saw(n int) {
	if n > largeElement {
		l.left.Store(largeFor)
		l.biggest.Store(max(l.biggest.Load(), int64(n)))
	} else if l.left.Load() > 0 && l.left.Add(-1) <= 0 {
		l.biggest.Store(0)
	}
}

func (l *large) on() bool { return l.left.Load() > 0 }

// reserve returns 0 if there is no room now.
func (l *large) reserve() int64 {
	n := min(max(l.biggest.Load(), 1), largeInFlight)
	if !l.bytes.TryAcquire(n) {
		return 0
	}
	return n
}

func (l *large) release(n int64) {
	if n > 0 {
		l.bytes.Release(n)
	}
}

// link is the connection for the commands of a step.
func (l *large) link(r *Pool) *link.Link {
	if !l.on() {
		return r.s.Data
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return r.s.Data
	}
	if l.l == nil {
		l.l = link.New(r.s.Node, r.conf.ReplyTimeout, true)
	}
	return l.l
}

func (l *large) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.l != nil {
		l.l.Close()
		l.l = nil
	}
}
