package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

const (
	// prefetchTime is how long a worker's handler may take for all that it holds: what it takes more often than once a
	// millisecond it takes in batches.
	prefetchTime = time.Millisecond
	// Stall is how long a handler may hold up the rest of its batch: then the finished are acked and the unstarted released.
	Stall = 50 * time.Millisecond
)

// slot is a worker's place: its doing list, and the goroutine that works there now. A handler that is given up takes its
// goroutine with it, and the slot gets a fresh one.
type slot struct {
	r    *Pool
	n    int
	wake chan struct{} // of capacity 1

	// The working goroutine's.
	mean  time.Duration // running mean of its handler's time; 0: not known yet
	size  int           // likewise of an element
	limit int           // slow start: what the last takes showed to be there

	flushing atomic.Bool // from outside the goroutine; one at a time

	mu         sync.Mutex
	vacant     bool                // no goroutine works here until an orphan ends
	refused    time.Time           // no verdict before: a key that they need is not shunt's
	items      []*Item             // in hand, the one taken first first
	turn       int                 // of the goroutine that may work; one of an earlier turn goes home
	goroutines map[uint64]struct{} // that run handlers here
}

// Item is one message in hand. Its state is guarded by its slot's mu.
type Item struct {
	In  *Intake
	Raw []byte // as received: what is removed
	arg any    // raw, boxed once
	lists.Element
	Newer   error // the version is not known here
	state   itemState
	suspect bool
	taken   int64 // order of the replies that brought it
	asked   bool  // the higher channels had nothing when it was taken

	h       *Handling // while it is handled
	verdict Verdict
	unknown bool // the verdict was sent, and no reply came
	doubt   bool // that was so once
	back    bool // handed back while its handler ran
}

type itemState int

const (
	waiting itemState = iota // to be started
	running
	decided // a verdict is there
	sending // a verdict or a release is under way
	lost    // somebody else's by now; its handler's verdict will be dropped
)

// Verdict is what becomes of a message.
type Verdict struct {
	Kind Kind          // Acked, Retried, Rejected, Undecodable or Released
	Wait time.Duration // of Retried
	Next []byte        // the new element of all but Acked and Released
	Err  error
	Took time.Duration
}

func newItem(in *Intake, raw []byte, taken int64) *Item {
	it := &Item{In: in, Raw: raw, arg: raw, taken: taken}
	it.Element, it.Newer = lists.Decode(raw)
	return it
}

func (s *slot) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// spawn gives the slot a fresh goroutine; one that works there loses it. s.mu is held.
func (s *slot) spawn() {
	s.turn++
	turn := s.turn
	s.vacant = false
	s.r.workers.Go(func() error {
		id := Goroutine()
		s.mu.Lock()
		if s.goroutines == nil {
			s.goroutines = make(map[uint64]struct{})
		}
		s.goroutines[id] = struct{}{}
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			delete(s.goroutines, id)
			s.mu.Unlock()
		}()
		s.work(turn)
		return nil
	})
}

// work is the life of a worker: step, handle what the step brought, and again.
func (s *slot) work(turn int) {
	call := link.NewCall()
	for s.step(call) {
		for it := s.claim(); it != nil; it = s.claim() {
			if !s.handle(it, turn) {
				return
			}
		}
	}
}

// step sends the verdicts of the last batch and the next takes in one pipeline, and waits where there is nothing to do. False: the
// receiver has stopped and nothing is in hand.
func (s *slot) step(call *link.Call) bool {
	r := s.r
	for {
		if r.Life.Err() != nil {
			return false
		}
		if r.Stopped() && r.isSettled() && !s.busy() {
			return false
		}
		if wait := r.breaker.Pass(); wait > 0 {
			s.rest(wait)
			continue
		}
		if r.pausing.Load() || !r.enter() {
			s.rest(time.Second)
			continue
		}
		stopped := r.Stopped()
		call.Reset()
		call.FailFast = true
		s.mu.Lock()
		sent := s.collect(call, stopped && r.isSettled())
		held, ready := len(s.items), s.next() != nil
		s.mu.Unlock()
		takes := takes{slot: s}
		if held == len(sent) && !stopped && r.lease.fresh() {
			takes.add(call)
		}
		if call.Len() == 0 {
			r.gate.RUnlock()
			if held == 0 && stopped && r.isSettled() {
				return false
			}
			if ready && !stopped && r.lease.fresh() {
				return true // brought by a waiter
			}
			s.rest(Stall)
			continue
		}
		r.exchange(call)
		err := s.settle(call.Replies[:len(sent)], sent)
		empty, err2 := takes.receive(call.Replies[len(sent):], call.Order)
		r.gate.RUnlock()
		r.breaker.Judge(cmp.Or(err, err2))
		switch {
		case takes.got > 0:
			return true
		case empty && err == nil && !s.busy() && !r.suspecting():
			s.park()
		case s.busy(): // verdicts that were refused
			s.rest(Stall)
		}
	}
}

// busy says whether something is in hand.
func (s *slot) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items) > 0
}

// rest waits, out of the waiters' sight, for a sign that something has changed; at most for d.
func (s *slot) rest(d time.Duration) {
	select {
	case <-s.wake:
	case <-s.r.Life.Done():
	case <-time.After(d):
	}
}

// park waits where the waiters see it.
func (s *slot) park() {
	s.r.parking.enter(s)
	defer s.r.parking.leave(s)
	select {
	case <-s.wake:
	case <-s.r.Taking.Done():
	}
}

// collect adds the commands of all verdicts to the call, and with unstarted the release of what has not begun; it returns the
// items in the order of the replies. s.mu is held.
func (s *slot) collect(call *link.Call, unstarted bool) []*Item {
	var out []*Item
	send := func(it *Item) {
		if it.state == decided && !it.unknown && time.Now().After(s.refused) {
			it.state = sending
			s.command(call, it, it.In.doing[s.n])
			out = append(out, it)
		}
	}
	for _, it := range s.items {
		if unstarted && it.state == waiting {
			it.state, it.verdict = decided, Verdict{Kind: Released}
		}
		if it.verdict.Kind != Released {
			send(it)
		}
	}
	for _, it := range slices.Backward(s.items) { // the one taken first goes back last
		send(it)
	}
	return out
}

// command adds the one command that makes an item's verdict true, with the element in the given doing list.
func (s *slot) command(call *link.Call, it *Item, doing any) {
	in, v := it.In, &it.verdict
	conf := s.r.conf
	switch v.Kind {
	case Acked:
		call.Add("LREM", doing, one, it.arg)
	case Retried:
		call.AddScript(lists.Retry, 3, in.Living, doing, in.Delay, max(0, (v.Wait+time.Millisecond-1).Milliseconds()), it.arg, v.Next)
	case Rejected, Undecodable:
		call.AddScript(lists.Reject, 3, in.Living, doing, in.Dead, it.arg, v.Next, max(0, conf.MaxDead), max(0, conf.DeadFor.Milliseconds()))
	case Released:
		call.AddScript(lists.Release, 3, in.Living, doing, in.Prepare, it.Identity(it.Raw))
	}
}

var one any = 1

// settle judges each reply to a verdict alone. It returns an error where the receiver should slow down.
func (s *slot) settle(replies []link.Reply, sent []*Item) error {
	if len(sent) == 0 {
		return nil
	}
	var trouble error
	var evs []Event
	s.mu.Lock()
	for i, it := range sent {
		rep := replies[i]
		switch link.Classify(rep.Err) {
		case link.Done:
			evs = s.drop(it, s.outcome(it, rep.Value), evs)
		case link.Unknown: // the handover finds out
			it.state, it.unknown, it.doubt = decided, true, true
			s.r.breaks(rep.Err)
		default: // it stays queued, and the slot takes nothing meanwhile; a release gives its claim back
			it.state = decided
			if it.verdict.Kind == Released && !s.r.Stopped() && it.h == nil {
				it.state, it.asked = waiting, false
			}
			switch link.Code(rep.Err) {
			case "WRONGTYPE": // of this channel's delay or dead: no reason to hold up the other workers
				s.refused = time.Now().Add(link.MaxTrouble)
				evs = append(evs, Event{Kind: Trouble, Channel: it.In.Channel, Receiver: s.r.live.Load().Name, Worker: s.n, Fatal: true, Err: rep.Err})
			default:
				trouble = rep.Err
			}
		}
	}
	s.mu.Unlock()
	s.r.emit(evs...)
	return trouble
}

// outcome says whether the verdict's reply means that the element was there.
func (s *slot) outcome(it *Item, reply any) bool {
	switch it.verdict.Kind {
	case Retried:
		due, _ := redis.Int64(reply, nil)
		if due > 0 {
			it.In.Own(it.verdict.Wait)
		}
		return due > 0
	case Rejected, Undecodable:
		ns, _ := redis.Ints(reply, nil)
		if len(ns) == 2 && ns[1] > 0 {
			s.r.emit(Event{Kind: Trimmed, Channel: it.In.Channel, N: ns[1]})
		}
		return len(ns) == 2 && ns[0] == 1
	}
	n, _ := redis.Int64(reply, nil)
	return n > 0
}

// drop takes an item whose verdict was executed out of hand. s.mu is held.
func (s *slot) drop(it *Item, found bool, evs []Event) []Event {
	s.remove(it)
	if it.verdict.Kind == Released && it.h != nil && found && s.r.patience.Err() != nil {
		s.r.returned.Add(1)
	}
	if s.r.conf.Emit == nil {
		return nil
	}
	v := &it.verdict
	e := Event{Kind: v.Kind, Channel: it.In.Channel, Serial: it.Name(), Attempt: it.Attempts + 1,
		Receiver: s.r.live.Load().Name, Worker: s.n, Took: v.Took, Err: v.Err}
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
	case v.Kind == Retried:
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
			s.items = append(s.items[:i], s.items[i+1:]...)
			break
		}
	}
	if it.suspect {
		it.suspect = false
		s.r.suspect.Store(false)
		s.r.parking.wakeOne() // there may be more, and this worker may be busy
	}
}

// claim gives the next item to start, unless the receiver may start nothing now.
func (s *slot) claim() *Item {
	if s.r.Stopped() || s.r.pausing.Load() || !s.r.lease.fresh() {
		return nil
	}
	s.mu.Lock()
	next := s.next()
	ask := next != nil && !next.asked && next.In.Index > 0 && s.r.order.strict()
	if next != nil && !ask {
		next.state = running
	}
	s.mu.Unlock()
	if ask {
		return s.askHigher(next)
	}
	return next
}

// next is the item to start next. s.mu is held.
func (s *slot) next() *Item {
	for _, it := range s.items {
		if it.state == waiting {
			return it
		}
	}
	return nil
}

// handle runs the handler on the slot's goroutine. False: the goroutine has lost its slot and goes home.
func (s *slot) handle(it *Item, turn int) bool {
	r := s.r
	h := newHandling(s, it)
	s.mu.Lock()
	if it.state != running { // revoked since it was claimed
		s.mu.Unlock()
		return true
	}
	it.h = h
	if r.lease.lost.Load() { // whoever ended the others' contexts has not seen this one
		h.cancel(ErrLeaseLost)
	} else if r.patience.Err() != nil {
		h.cancel(ErrShutdown)
	}
	more := len(s.items) > 1
	s.mu.Unlock()
	if more {
		r.watcher.note(h.Started.Add(Stall))
	}
	keeps := true
	r.conf.Handle(h, func(err error, exits bool) {
		h.cancel(context.Canceled)
		v := r.conf.Judge(h, h.message, cmp.Or(h.Undecodable, err))
		keeps = s.decide(it, turn, v)
		if !keeps {
			r.orphanEnded()
		} else {
			s.learn(v.Took, len(it.Raw))
			if exits { // this goroutine ends with the guard
				s.mu.Lock()
				s.spawn()
				s.mu.Unlock()
			}
		}
	})
	return keeps
}

// decide files the verdict of a handler that has returned. False: it had been given up, and so has the goroutine.
func (s *slot) decide(it *Item, turn int, v Verdict) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != turn {
		return false
	}
	switch it.state {
	case running:
		it.verdict, it.state = v, decided
	case lost:
		s.remove(it)
		if it.back {
			break
		}
		s.r.emit(Event{Kind: Lost, Channel: it.In.Channel, Serial: it.Name(), Attempt: it.Attempts + 1,
			Receiver: s.r.live.Load().Name, Worker: s.n, Took: v.Took, Err: ErrLeaseLost})
	}
	return true
}

// learn adapts the prefetch to what the handler takes.
func (s *slot) learn(took time.Duration, size int) {
	if s.mean == 0 {
		s.mean, s.size = max(took, 1), size
		return
	}
	s.mean = max(1, s.mean+(took-s.mean)/4)
	s.size += (size - s.size) / 4
}

// want is how many messages to take.
func (s *slot) want() int {
	if s.r.order != nil || s.mean == 0 || s.r.large.on() {
		return 1
	}
	n := min(s.r.conf.Prefetch, int(prefetchTime/s.mean), s.r.conf.PrefetchBytes/max(1, s.size), s.limit)
	return max(1, n)
}

// flush sends, from outside the slot's goroutine, what a stalled or stopping slot holds: verdicts, and what has not begun.
func (s *slot) flush() {
	r := s.r
	if r.breaker.Pass() > 0 || !r.enter() {
		return
	}
	defer r.gate.RUnlock()
	call := link.NewCall()
	call.FailFast = true
	s.mu.Lock()
	sent := s.collect(call, true)
	s.mu.Unlock()
	if len(sent) == 0 {
		return
	}
	r.exchange(call)
	r.breaker.Judge(s.settle(call.Replies, sent))
	s.poke()
}

// exchange sends a call of the incarnation's and waits for all replies, however long they take: a worker never walks away from
// a take. A reply that is lost ends the incarnation.
func (r *Pool) exchange(call *link.Call) {
	r.large.link(r).Do(context.Background(), call)
	for _, rep := range call.Replies {
		if link.Classify(rep.Err) == link.Unknown {
			r.breaks(rep.Err)
			return
		}
	}
}
