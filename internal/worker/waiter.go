package worker

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/lane"
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

// waiter waits for a lane's messages, on a goroutine of its own. While some worker is parked it blocks on the lane, on
// a connection of its own and into that worker's list. So an idle receiver costs next to nothing, and a message wakes
// it at once.
type waiter struct {
	pool *Pool
	lane *lane.Lane
}

// target blocks until some worker is parked and the lane may be taken from. It names one worker, as far as possible
// another for each waiter. nil: the receiver stops.
func (w *waiter) target() *worker {
	r, p := w.pool, &w.pool.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	for !r.Stopped() {
		may, retryAt, _ := w.lane.MayTake(time.Now())
		if n := len(p.parked); n > 0 && may > 0 {
			if !w.young() {
				return p.parked[n-1-w.lane.Index%n]
			}
			w.lane.Site.RequestBeat() // which signals
		}
		if may == 0 && !retryAt.IsZero() {
			again := time.AfterFunc(time.Until(retryAt), p.signal)
			p.some.Wait()
			again.Stop()
		} else {
			p.some.Wait()
		}
	}
	return nil
}

// young says that the waiter's connection is younger than the last good beat. The Redis behind it may not know the
// incarnation.
func (w *waiter) young() bool { return !w.lane.Waiter.Made().Before(*w.lane.Site.Lease.Last()) }

// wait is the waiter's goroutine.
func (w *waiter) wait() {
	r, l := w.pool, w.lane
	// Whole seconds: servers before 6.0 know no others.
	block := max(time.Second, min(maxBlock, r.conf.Lease/3).Truncate(time.Second))
	for {
		s := w.target()
		if s == nil {
			return
		}
		if l.Waiter.Connect(r.TakeCtx) != nil {
			continue // Dial has waited
		}
		b := block
		if l.Waiter.ID() == 0 { // it cannot be unblocked, so shutdown has to wait for it
			if b = time.Second; l.Waiter.Embedded() {
				b = embeddedBlock
			}
		}
		err := w.block(s, b)
		class, code := link.Classify(err), link.Code(err)
		if class == link.Done || class == link.Unknown {
			continue
		}
		// Anything else that is not just refused: a server without the command, or a key that is not shunt's.
		if refused := class == link.NotExecuted; !refused || code != "OOM" && code != "UNBLOCKED" {
			r.emit(event.Event{Kind: event.ReceiverError, Channel: l.Name, Receiver: l.Site.Live().Name, Err: err,
				Fatal: !refused})
		}
		w.poll()
	}
}

// block runs one blocking take into s's list. What it brings is s's; the stall rule releases it if s is busy after all.
func (w *waiter) block(s *worker, d time.Duration) error {
	r, l, site := w.pool, w.lane, w.lane.Site
	if !site.Enter() {
		return nil
	}
	defer site.Leave()
	l.Waiter.Blocked.Store(true)
	defer l.Waiter.Blocked.Store(false)
	if may, _, _ := l.MayTake(time.Now()); may == 0 { // asked once who closes the lane could unblock it
		return nil
	}
	if w.young() {
		return nil
	}
	raw, err := store.BlockingTake(l.Waiter.Waiter, l.Keys, l.Lists[s.n], d)
	if err != nil {
		if link.Classify(err) == link.Unknown && !planted.IgnoreWaiterBreak {
			site.MustHandOver(err) // before the gate is left: the goroutine that closes it must know
		}
		return err
	}
	if raw == nil {
		return nil
	}
	l.NonEmptyLately.Store(true)
	it := new(Item)
	it.fill(l, raw, &takeBatch{order: link.Order(), at: time.Now()})
	own([]*Item{it})
	site.Large.Saw(len(it.Raw))
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
func (w *waiter) poll() {
	r := w.pool
	r.parking.polls.Store(true)
	select {
	case <-time.After(link.Jitter(1100 * time.Millisecond)):
		r.parking.wakeOne()
	case <-r.TakeCtx.Done():
	}
}
