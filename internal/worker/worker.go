package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
)

// Stall is how long a handler may hold up the rest of its batch: then the finished are acked and the unstarted
// released.
const Stall = 50 * time.Millisecond

// worker is a place to work: a doing list, and the goroutine that works there now. A handler that does not end
// takes its goroutine with it, and the worker gets a fresh one.
type worker struct {
	r    *Pool
	n    int
	wake chan struct{} // of capacity 1

	take, ack *link.Command // for the list of the live incarnation, where there is but one channel; gate

	// The working goroutine's.
	pace    pace
	now     time.Time     // lately: of the last step's or handler's end, so that the clock is asked once a message
	sent    dispatches    // of step; kept for their memory, as took is
	took    []*Item       // of takes
	index   index         // what is asked before messages with an id are handled
	batches [2]*takeBatch // of the last takes

	flushing atomic.Bool // from outside the goroutine; one at a time
	// steps begun, and what a waiter has brought: where it has not changed, nobody has touched the list
	moves atomic.Uint64

	mu sync.Mutex
	turns
	refused    link.Holdoff // of its own verdicts, whatever Redis answers other workers
	sendSingly bool         // what is over goes one by one next time
	items      []*Item      // that it holds, the one taken first first
	kept       struct {     // for its memory
		over []*Item       // collect's
		evs  []event.Event // settle's
	}
}

// turns says which goroutine works for a worker. The worker's mu guards them.
type turns struct {
	vacant     bool                // no goroutine works here until an orphan ends
	generation int32               // of the goroutine that may work; one of an earlier turn ends
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
			if !s.handle(it, turn) {
				return
			}
		}
	}
}

// step sends the verdicts of the last batch and the next takes in one pipeline, and waits where there is
// nothing to do. False: the receiver has stopped and nothing is in hand.
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
		s.mu.Lock()
		held, ready := len(s.items), s.next() != nil
		all, stuck := s.settles()
		s.mu.Unlock()
		takes := takes{slot: s, stuck: stuck}
		if all {
			takes.add(call) // first, so that the list, which would be empty in between, need not be made anew
		}
		took := call.Len()
		s.sent.reset()
		s.mu.Lock()
		s.collect(&s.sent, call, stopped && r.isSettled())
		s.mu.Unlock()
		if call.Len() == 0 {
			r.leave()
			r.breaker.Back()
			if held == 0 && stopped && r.isSettled() {
				return false
			}
			if ready && !stopped && r.mayStart(s.now) {
				return true // brought by a waiter, or to be asked for once more
			}
			if held > 0 {
				s.rest(Stall)
			} else {
				s.rest(time.Second) // what brings it something pokes it, and so does the end of the handback
			}
			continue
		}
		s.moves.Add(1)
		r.exchange(call)
		err := s.settle(call.Replies[took:], &s.sent)
		s.sent.reset()
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
		case stuck:
			s.rest(link.MinTrouble)
		case s.busy(): // verdicts that were refused
			s.rest(Stall)
		}
	}
}

// settles says whether the worker may take: all that it holds is decided and may be sent. stuck: it holds verdicts that
// Redis refuses for good, and so may not take from their channels, only from the others. s.mu is held.
func (s *worker) settles() (may, stuck bool) {
	for _, it := range s.items {
		switch {
		case it.state == judging || it.isDecided():
		case it.isRefused() && len(s.r.channels) > 1 && it.rare != nil && !it.rare.refused.IsZero():
			stuck = true
		default:
			return false, false
		}
	}
	return stuck || s.refused.Left() <= 0, stuck
}

// origin is one of which nothing is left, or a new one.
func (s *worker) origin() *takeBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.batches {
		if o != nil && o.left == 0 {
			o.memory.Reuse()
			return o
		}
	}
	o := new(takeBatch)
	s.batches[0], s.batches[1] = s.batches[1], o
	return o
}

// parts says whether something is decided that was to leave together and has to go one by one.
func (s *worker) mustSendSingly() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sendSingly && slices.ContainsFunc(s.items, func(it *Item) bool { return it.isDecided() })
}

// busy says whether the worker holds something.
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
	s.index.drop()
	for i, o := range s.batches {
		if o != nil && o.memory.Size() > parkedMemory {
			s.batches[i] = nil
		}
	}
	s.r.parking.enter(s)
	defer s.r.parking.leave(s)
	// A sweep that found suspects, or the end of taking, may have seen no worker parked; one that is parked is woken.
	if s.r.suspecting() || s.r.Stopped() {
		return
	}
	<-s.wake
}

// handle has an item handled and files its verdict, also where the handler ends its goroutine. False: the handler
// became an orphan meanwhile, and its goroutine has lost its place.
func (s *worker) handle(it *Item, turn int32) (stays bool) {
	returned := false
	defer func() {
		if !returned {
			it.Returned()
			s.decide(it, turn, s.r.conf.Judge(it, it.message, ErrExited))
		}
	}()
	v := s.r.conf.Handle(it)
	returned = true
	return s.decide(it, turn, v)
}

// decide files the verdict of a handler that has returned. False: it is an orphan, and its goroutine has lost its
// place.
func (s *worker) decide(it *Item, turn int32, v *custody.Verdict) (stays bool) {
	now := time.Now()
	it.cancel(context.Canceled)
	s.mu.Lock()
	took, size := now.Sub(it.Started), len(it.Raw)
	if it.state == concluding {
		took = it.took
	}
	if stays = s.generation == turn; stays {
		s.file(it, v, took)
	}
	s.mu.Unlock()
	if !stays {
		s.r.orphanEnded()
		return false
	}
	s.now = now
	s.pace.learn(took, size)
	return true
}

// file files a verdict. s.mu is held.
func (s *worker) file(it *Item, v *custody.Verdict, took time.Duration) {
	switch it.state {
	case running, concluding:
		if more := it.rare; v == custody.Ack && more != nil {
			v = custody.Keep(more.result, more.then)
		}
		it.decide(v)
		it.took = took
	case handedBack:
		it.move(execute)
		s.remove(it)
	case lost:
		it.move(execute)
		s.remove(it)
		s.r.emit(event.Event{Kind: event.LateVerdict, Channel: it.Channel.Name, Serial: it.Serial,
			Attempt: it.Attempt(), Receiver: s.r.live.Load().Name, Worker: s.n, Took: took, Err: custody.ErrLeaseLost})
	}
}

// exchange sends a call of the incarnation's and waits for all replies, however long they take: a worker never
// walks away from a take. A reply that is lost ends the incarnation.
func (r *Pool) exchange(call *link.Call) {
	r.large.link(r).Do(context.Background(), call)
	for _, rep := range call.Replies {
		if broke(rep.Err) {
			r.mustHandOver(rep.Err)
			return
		}
	}
}
