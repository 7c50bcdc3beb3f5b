package worker

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

const (
	// prefetchTime is how long a worker's handler may take for all that it holds: what it takes more often than once a
	// millisecond it takes in batches.
	prefetchTime = time.Millisecond
	// A worker may hold a few all the same, as long as they take no more than a fraction of Stall: so the round trip for the next, which a
	// handler of some ms would feel, is made for several at once.
	spares    = 4
	spareTime = 25 * time.Millisecond
	// Stall is how long a handler may hold up the rest of its batch: then the finished are acked and the unstarted released.
	Stall = 50 * time.Millisecond
)

// slot is a worker's place: its doing list, and the goroutine that works there now. A handler that is given up takes its
// goroutine with it, and the slot gets a fresh one.
type worker struct {
	r    *Pool
	n    int
	wake chan struct{} // of capacity 1

	take, ack *link.Command // for the list of the live incarnation, where there is but one channel; gate

	// The working goroutine's.
	mean  time.Duration // running mean of its handler's time; 0: not known yet
	size  int           // likewise of an element
	limit int           // slow start: what the last takes showed to be there
	now   time.Time     // lately: of the last step's or handler's end, so that the clock is asked once a message
	sent  []*Item       // of step; kept for their memory, as took is
	took  []*Item

	asked     []*Item // of start, likewise
	with      []int
	records   [][]byte
	cancelled []bool
	starts    *link.Call

	origins [2]*takeBatch // of the last takes

	flushing atomic.Bool   // from outside the goroutine; one at a time
	moves    atomic.Uint64 // steps begun, and what a waiter has brought: where it has not changed, nobody has touched the list

	mu         sync.Mutex
	vacant     bool                // no goroutine works here until an orphan ends
	refused    link.Holdoff        // of verdicts, whatever other workers are told
	sendSingly bool                // what is over goes one by one next time
	items      []*Item             // in hand, the one taken first first
	over       []*Item             // collect's, for their memory
	evs        []Event             // settle's, likewise
	generation int32               // of the goroutine that may work; one of an earlier turn goes home
	goroutines map[uint64]struct{} // that run handlers here
}

func (s *worker) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// spawn gives the slot a fresh goroutine; one that works there loses it. s.mu is held.
func (s *worker) spawn() {
	s.generation++
	turn := s.generation
	s.vacant = false
	s.r.workerGroup.Go(func() error {
		id := Goroutine()
		s.mu.Lock()
		if s.goroutines == nil {
			s.goroutines = make(map[uint64]struct{})
		}
		s.goroutines[id] = struct{}{}
		s.mu.Unlock()
		home := false
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.goroutines, id)
			if !home && s.generation == turn { // a handler has called runtime.Goexit
				s.spawn()
			}
		}()
		s.work(turn)
		home = true
		return nil
	})
}

// work is the life of a worker: step, handle what the step brought, and again.
func (s *worker) work(turn int32) {
	call := link.NewCall()
	for s.step(call) {
		for it := s.claim(turn); it != nil; it = s.claim(turn) {
			s.r.conf.Handle(it)
			if it.orphan {
				return
			}
		}
	}
}

// step sends the verdicts of the last batch and the next takes in one pipeline, and waits where there is nothing to do. False: the
// receiver has stopped and nothing is in hand.
func (s *worker) step(call *link.Call) bool {
	r := s.r
	for {
		if r.PoolCtx.Err() != nil {
			return false
		}
		if r.Stopped() && r.isSettled() && !s.busy() {
			return false
		}
		if wait := r.breaker.Pass(); wait > 0 {
			s.rest(wait)
			continue
		}
		if !r.enter() {
			r.breaker.Back()
			s.rest(time.Second)
			continue
		}
		stopped := r.Stopped()
		call.Reset()
		s.now = time.Now()
		fresh := r.lease.fresh(s.now)
		s.mu.Lock()
		held, ready, all := len(s.items), s.next() != nil, s.settles()
		s.mu.Unlock()
		takes := takes{slot: s}
		if all && !stopped && fresh {
			takes.add(call) // first, so that the list, which would be empty in between, need not be made anew
		}
		took := call.Len()
		s.mu.Lock()
		sent := s.collect(s.sent[:0], call, stopped && r.isSettled())
		s.mu.Unlock()
		s.sent = sent
		if call.Len() == 0 {
			r.leave()
			r.breaker.Back()
			if held == 0 && stopped && r.isSettled() {
				return false
			}
			if ready && !stopped && fresh {
				return true // brought by a waiter, or to be asked for once more
			}
			s.rest(Stall)
			continue
		}
		s.moves.Add(1)
		r.exchange(call)
		err := s.settle(call.Replies[took:], sent)
		clear(sent)
		empty, err2 := takes.receive(call.Replies[:took], call.Order)
		r.leave()
		s.now = time.Now()
		r.breaker.Judge(cmp.Or(err, err2))
		switch {
		case takes.got > 0:
			return true
		case s.mustSendSingly(): // at once
		case empty && err == nil && !s.busy():
			call.Drop()
			s.park()
		case s.busy(): // verdicts that were refused
			s.rest(Stall)
		}
	}
}

// origin is one of which nothing is left, or a new one.
func (s *worker) origin() *takeBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.origins {
		if o != nil && o.left == 0 {
			o.memory.Reuse()
			return o
		}
	}
	o := new(takeBatch)
	s.origins[0], s.origins[1] = s.origins[1], o
	return o
}

// parts says whether something is decided that was to leave together and has to go one by one.
func (s *worker) mustSendSingly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendSingly && slices.ContainsFunc(s.items, func(it *Item) bool { return it.state == decided })
}

// busy says whether something is in hand.
func (s *worker) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items) > 0
}

// rest waits, out of the waiters' sight, for a sign that something has changed; at most for d.
func (s *worker) rest(d time.Duration) {
	select {
	case <-s.wake:
	case <-s.r.PoolCtx.Done():
	case <-time.After(d):
	}
}

// parkedMemory is what a worker that finds nothing keeps for its next takes.
const parkedMemory = 4 << 10

// park waits where the waiters see it.
func (s *worker) park() {
	if s.starts != nil {
		s.starts.Drop()
	}
	for i, o := range s.origins {
		if o != nil && o.memory.Size() > parkedMemory {
			s.origins[i] = nil
		}
	}
	s.r.parking.enter(s)
	defer s.r.parking.leave(s)
	if s.r.suspecting() { // whoever found some has seen nobody here
		return
	}
	select {
	case <-s.wake:
	case <-s.r.TakeCtx.Done():
	}
}

// claim gives the next item to handle, begun, unless the receiver may start nothing now.
func (s *worker) claim(turn int32) *Item {
	if s.r.pausing() || !s.r.lease.fresh(s.now) {
		return nil
	}
	s.mu.Lock()
	next := s.next()
	if s.r.Stopped() { // asked under mu, because End hands back what has not begun then
		next = nil
	}
	begin := next != nil && next.Extra != nil && !next.begun
	strict := s.r.order.strict()
	ask := next != nil && !begin && !next.asked && next.Channel.Index > 0 && strict
	more := false
	if next != nil && !begin && !ask {
		s.begin(next, turn)
		more = len(s.items) > 1
		for i := 0; strict && i < len(s.items); i++ {
			s.items[i].asked = false // what comes after it asks anew
		}
	}
	s.mu.Unlock()
	switch {
	case begin:
		if !s.start(next.Channel) {
			return nil
		}
		return s.claim(turn)
	case ask:
		return s.askHigher(next, turn)
	}
	if more {
		s.r.watcher.note(next.Started.Add(Stall))
	}
	return next
}

// next is the item to start next: the first, or in strict order the first of the highest channel. s.mu is held.
func (s *worker) next() (next *Item) {
	for _, it := range s.items {
		if it.state == waiting && (next == nil || it.Channel.Index < next.Channel.Index) {
			if next = it; !s.r.order.strict() {
				break
			}
		}
	}
	return next
}

// decide files the verdict of a handler that has returned. False: it had been given up, and so has the goroutine.
func (s *worker) decide(it *Item, turn int32, v *Verdict, took time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != turn {
		return false
	}
	switch it.state {
	case running:
		if more := it.rare; v == Ack && more != nil && (more.result != nil || more.then != nil) {
			v = &Verdict{Kind: Acked, Result: more.result, Then: more.then}
		}
		it.verdict, it.took, it.state = v, took, decided
	case lost:
		s.remove(it)
		if it.back {
			break
		}
		s.r.emit(Event{Kind: LateVerdict, Channel: it.Channel.Name, Serial: it.Serial, Attempt: it.Attempt(),
			Receiver: s.r.live.Load().Name, Worker: s.n, Took: took, Err: ErrLeaseLost})
	}
	return true
}

// learn adapts the prefetch to what the handler takes.
func (s *worker) learn(took time.Duration, size int) {
	if s.mean == 0 {
		s.mean, s.size = max(took, 1), size
		return
	}
	s.mean = max(1, s.mean+(took-s.mean)/4)
	s.size += (size - s.size) / 4
}

// want is how many messages to take.
func (s *worker) want() int {
	if s.r.order != nil || s.mean == 0 || s.r.large.on() {
		return 1
	}
	n := int(prefetchTime / s.mean)
	if few := min(spares, int(spareTime/s.mean)); n < few {
		n = few - rand.IntN(2) // workers that began together would else ask together for ever, and wait for each other
	}
	return max(1, min(n, s.r.conf.Prefetch, s.r.conf.PrefetchBytes/max(1, s.size), s.limit))
}

// exchange sends a call of the incarnation's and waits for all replies, however long they take: a worker never walks away from
// a take. A reply that is lost ends the incarnation.
func (r *Pool) exchange(call *link.Call) {
	r.large.link(r).Do(context.Background(), call)
	for _, rep := range call.Replies {
		if broke(rep.Err) {
			r.mustHandOver(rep.Err)
			return
		}
	}
}
