package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
)

// Stall is how long a handler may hold up the rest of its batch: then the finished are acked and the unstarted
// released.
const Stall = 50 * time.Millisecond

// worker is a place to work: a doing list at each lane, and the goroutine that works there now. A handler that does not
// end takes its goroutine with it, and the worker gets a fresh one.
type worker struct {
	r    *Pool
	n    int
	wake chan struct{} // of capacity 1

	take, ack *link.Command // for the list of the live incarnation, where there is but one lane; gate

	// The working goroutine's.
	pace    pace
	now     time.Time     // lately: of the last step's or handler's end, so that the clock is asked once a message
	passed  uint64        // the lanes of the sites that the last step could visit, as bits by their index
	visits  []visit       // of step; kept for their memory, as sent and took are
	sent    dispatches    // of a visit
	took    []*Item       // of takes
	index   index         // what is asked before messages with an id are handled
	batches [2]*takeBatch // of the last takes

	sums []*meter.Sums // by lane, nil where nothing was counted; mu

	flushing atomic.Bool // from outside the goroutine; one at a time
	// steps begun, and what a waiter has brought: where it has not changed, nobody has touched the lists
	moves atomic.Uint64

	hand
	place
}

// place says which goroutine works for a worker. The worker's mu guards it.
type place struct {
	vacant     bool                // no goroutine works here until an orphan ends
	generation int32               // of the goroutine that may work; an earlier one ends
	goroutines map[uint64]struct{} // that run handlers here
}

func newWorker(r *Pool, n int) *worker {
	s := &worker{r: r, n: n, wake: make(chan struct{}, 1), pace: pace{limit: 1}}
	s.sent.worker, s.index.worker = s, s
	return s
}

func (s *worker) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// spawn gives the worker a fresh goroutine; one that works there loses it. s.mu is held.
func (s *worker) spawn() {
	s.generation++
	generation := s.generation
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
			if !home && s.generation == generation { // a handler has called runtime.Goexit
				s.spawn()
			}
		}()
		s.work(generation)
		home = true
		return nil
	})
}

// work is the life of a worker: step, handle what the step brought, and again.
func (s *worker) work(generation int32) {
	call := link.NewCall()
	for s.step(call) {
		for it := s.start(); it != nil; it = s.start() {
			if !s.handle(it, generation) {
				return
			}
		}
	}
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

// park waits where the waiters see it; at most for d, if that is not 0.
func (s *worker) park(d time.Duration) {
	s.index.drop()
	for i, o := range s.batches {
		if o != nil && o.memory.Size() > parkedMemory {
			s.batches[i] = nil
		}
	}
	s.r.parking.enter(s)
	defer s.r.parking.leave(s)
	// A sweep that found suspects, or the end of taking, may have seen no worker parked; one that is parked is woken.
	if s.r.Stopped() {
		return
	}
	for _, site := range s.r.Sites {
		if site.SuspectsWait(time.Now()) {
			return
		}
	}
	if d > 0 {
		s.rest(d)
		return
	}
	<-s.wake
}

// handle has an item handled and files its verdict, also where the handler ends its goroutine. False: the handler
// became an orphan meanwhile, and its goroutine has lost its place.
func (s *worker) handle(it *Item, generation int32) (stays bool) {
	returned := false
	defer func() {
		if !returned {
			it.Returned()
			s.decide(it, generation, s.r.conf.Judge(it, it.message, ErrExited))
		}
	}()
	v := s.r.conf.Handle(it)
	returned = true
	return s.decide(it, generation, v)
}

// decide files the verdict of a handler that has returned. False: it is an orphan, and its goroutine has lost its
// place.
func (s *worker) decide(it *Item, generation int32, v *custody.Verdict) (stays bool) {
	now := time.Now()
	it.cancel(context.Canceled)
	s.mu.Lock()
	took, size := now.Sub(it.Started), len(it.Raw)
	if it.state == concluding {
		took = it.took
	}
	if stays = s.generation == generation; stays {
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
		s.countOf(it.Lane, meter.Late, 1)
		e := it.event(event.LateVerdict, s)
		e.Attempt, e.Took, e.Err = it.Attempt(), took, custody.ErrLeaseLost
		s.r.emit(e)
	}
}

// remove takes an item out of hand. s.mu is held.
func (s *worker) remove(it *Item) {
	if i := slices.Index(s.items, it); i >= 0 {
		s.items = slices.Delete(s.items, i, i+1)
	}
	s.suspectDone(it)
}

// suspectDone makes room for the next suspect, if the item was one.
func (s *worker) suspectDone(it *Item) {
	if it.suspect {
		it.suspect = false
		it.Lane.Site.Suspects.Done()
		s.r.parking.wakeOne() // there may be more, and this worker may be busy
	}
}

// lose marks an item that somebody else has by now, and ends its handler. s.mu is held.
func (s *worker) lose(it *Item) {
	doubt := it.inDoubt()
	it.move(lose)
	if it.state == lost {
		it.cancel(custody.ErrLeaseLost)
		s.r.watcher.note(time.Now())
		return
	}
	s.remove(it)
	s.countOf(it.Lane, meter.Late, 1)
	kind := event.LateVerdict
	if doubt {
		kind = event.UnconfirmedVerdict
	}
	e := it.event(kind, s)
	e.Err = custody.ErrLeaseLost
	s.r.emit(e)
}
