package worker

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

// maxBlock bounds a waiter's blocking command; so does a third of the lease, after which its list must be looked at
// anew.
const maxBlock = 5 * time.Second

// embeddedBlock is for a server in this process: a test, or an example, ends soon, and a command costs nothing.
const embeddedBlock = 50 * time.Millisecond

// parking is the set of a receiver's workers that found nothing to take, and whom the waiters wait for.
type parking struct {
	mu     sync.Mutex
	some   sync.Cond // a worker has parked, or something else has changed for a waiter
	parked []*worker // the last one parked is the first to be woken

	polls atomic.Bool // a waiter may not block, so a worker that finds something wakes the next
}

// waiter is a channel's connection for blocking takes.
type waiter struct {
	conn    *link.Waiter
	blocked atomic.Bool // it is in a blocking command
}

func (p *parking) init() { p.some.L = &p.mu }

// enter parks s; it is woken through s.wake.
func (p *parking) enter(s *worker) {
	p.mu.Lock()
	p.parked = append(p.parked, s)
	p.mu.Unlock()
	p.some.Broadcast()
}

// leave takes s out; it does nothing if somebody else has.
func (p *parking) leave(s *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.parked {
		if o == s {
			p.parked = append(p.parked[:i], p.parked[i+1:]...)
			return
		}
	}
}

// wakeOne sends one parked worker to look for itself.
func (p *parking) wakeOne() {
	p.mu.Lock()
	var s *worker
	if n := len(p.parked); n > 0 {
		s = p.parked[n-1]
		p.parked = p.parked[:n-1]
	}
	p.mu.Unlock()
	if s != nil {
		s.poke()
	}
}

// list is the workers that are parked now.
func (p *parking) list() []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.parked)
}

// signal sends the waiters to look whether something has changed.
func (p *parking) signal() {
	p.mu.Lock()
	p.some.Broadcast()
	p.mu.Unlock()
}

// wakeAll sends all to look whether something has changed, the waiters too.
func (p *parking) wakeAll() {
	p.mu.Lock()
	all := p.parked
	p.parked = nil
	p.mu.Unlock()
	for _, s := range all {
		s.poke()
	}
	p.some.Broadcast()
}

// target blocks until some worker is parked, and tells one, as far as possible another for each waiter. nil: the
// receiver stops.
func (r *Pool) target(in *Channel) *worker {
	p := &r.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	for !r.Stopped() {
		if n := len(p.parked); n > 0 && !r.pausing() && r.lease.fresh(time.Now()) {
			return p.parked[n-1-in.Index%n]
		}
		p.some.Wait()
	}
	return nil
}

// wait is a waiter, one goroutine a channel. While some worker is parked it blocks on the channel, on a connection of
// its own and into that worker's list. So an idle receiver costs next to nothing, and a message wakes it at once.
func (r *Pool) wait(in *Channel) {
	// Whole seconds: servers before 6.0 know no others.
	block := max(time.Second, min(maxBlock, r.conf.Lease/3).Truncate(time.Second))
	for {
		s := r.target(in)
		if s == nil {
			return
		}
		if in.waiter.conn.Connect(r.TakeCtx) != nil {
			continue // Dial has waited
		}
		b := block
		if in.waiter.conn.ID() == 0 { // it cannot be unblocked, so shutdown has to wait for it
			if b = time.Second; in.waiter.conn.Embedded() {
				b = embeddedBlock
			}
		}
		err := r.block(in, s, b)
		switch link.Classify(err) {
		case link.Done:
		case link.Unknown:
		case link.NotExecuted:
			if code := link.Code(err); code != "OOM" && code != "UNBLOCKED" {
				r.emit(event.Event{Kind: event.ReceiverError, Channel: in.Name, Receiver: r.live.Load().Name, Err: err})
			}
			r.poll(in)
		default: // a server without the command, or a key that is not shunt's
			r.emit(event.Event{Kind: event.ReceiverError, Channel: in.Name, Receiver: r.live.Load().Name, Err: err,
				Fatal: true})
			r.poll(in)
		}
	}
}

// block runs one blocking take into s's list. What it brings is s's; the stall rule releases it if s is busy after all.
func (r *Pool) block(in *Channel, s *worker, d time.Duration) error {
	if !r.enter() {
		return nil
	}
	defer r.leave()
	in.waiter.blocked.Store(true)
	defer in.waiter.blocked.Store(false)
	if r.Stopped() {
		return nil
	}
	raw, err := store.BlockingTake(in.waiter.conn, in.Keys, in.doing[s.n], d)
	if err != nil {
		if link.Classify(err) == link.Unknown && !planted.IgnoreWaiterBreak {
			r.mustHandOver(err) // before the gate is left: the goroutine that closes it must know
		}
		return err
	}
	if raw == nil {
		return nil
	}
	in.nonEmptyLately.Store(true)
	it := new(Item)
	it.fill(in, raw, &takeBatch{order: link.Order()})
	own([]*Item{it})
	r.large.saw(len(it.Raw))
	s.mu.Lock()
	s.items = append(s.items, it)
	s.mu.Unlock()
	s.moves.Add(1)
	r.parking.polls.Store(false)
	r.parking.leave(s)
	s.poke()
	runtime.Gosched() // it begins at once, here, before this goroutine has had the next awaited
	r.watcher.note(time.Now().Add(Stall))
	return nil
}

// poll is what a waiter does where blocking is refused: about once a second it sends a worker to look.
func (r *Pool) poll(in *Channel) {
	r.parking.polls.Store(true)
	select {
	case <-time.After(link.Jitter(1100 * time.Millisecond)):
		r.parking.wakeOne()
	case <-r.TakeCtx.Done():
	}
}
