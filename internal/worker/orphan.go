package worker

import (
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/event"
)

// orphans are the handlers that ignored their ended context and have not returned. Where they are more than the
// workers, the places of the last stay vacant. Both are counted in one step: an orphan that ends while another place is
// left behind must not pass it.
type orphans struct {
	mu     sync.Mutex
	n      int
	vacant []*worker
}

// add counts one more, of the worker s, and says how many there are and whether its place is left vacant.
func (o *orphans) add(s *worker, most int) (n int, left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	if left = o.n > most; left {
		o.vacant = append(o.vacant, s)
	}
	return o.n, left
}

// end counts one less, and gives the worker whose place is vacant no more, or nil.
func (o *orphans) end() (s *worker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n--
	if i := len(o.vacant) - 1; i >= 0 {
		s, o.vacant = o.vacant[i], o.vacant[:i]
	}
	return s
}

func (o *orphans) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n
}

// orphanEnded gives a vacant place its goroutine back. It is called from the orphan's own, while workers still counts
// that one.
func (r *Pool) orphanEnded() {
	if s := r.orphans.end(); s != nil {
		s.mu.Lock()
		s.spawn()
		s.mu.Unlock()
	}
}

// orphan gives up a handler that has ignored its ended context: its message is judged on a goroutine of its own, and
// its worker gets a fresh one. s.mu is held.
func (r *Pool) orphan(s *worker, it *Item, now time.Time) {
	if it.move(leaveBe) { // nobody else's until its verdict is there
		m := it.message
		go func() {
			v := r.conf.Judge(it, m, it.Cause())
			s.mu.Lock()
			if it.state == judging {
				it.decide(v)
				it.took = now.Sub(it.Started)
			}
			s.mu.Unlock()
			s.poke()
			r.watcher.note(time.Now())
		}()
	} else {
		s.remove(it)
	}
	n, left := r.orphans.add(s, len(r.workers))
	e := it.timed(event.Orphaned, s, now)
	e.N = n
	r.emit(e)
	if !left {
		s.spawn()
		return
	}
	s.generation++ // the handler's goroutine has lost its place all the same
	s.vacant = true
	r.emit(event.Event{Kind: event.WorkersMissing, Channel: it.Lane.Name, Receiver: it.receiver(),
		N: n - len(r.workers)})
}
