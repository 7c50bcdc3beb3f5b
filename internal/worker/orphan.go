package worker

import "sync"

// orphans are the handlers that ignored their ended context and have not returned. Where they are more than the
// workers, the slots of the last stay vacant. Both are counted in one step: an orphan that ends while another slot is
// left behind must not pass it.
type orphans struct {
	mu     sync.Mutex
	n      int
	vacant []*worker
}

// add counts one more, whose slot is s, and says how many there are and whether the slot is left vacant.
func (o *orphans) add(s *worker, most int) (n int, left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	if left = o.n > most; left {
		o.vacant = append(o.vacant, s)
	}
	return o.n, left
}

// end counts one less, and gives the slot that is vacant no more, or nil.
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

// orphanEnded gives an empty slot its goroutine back. It is called from the orphan's own, while workers still counts
// that one.
func (r *Pool) orphanEnded() {
	if s := r.orphans.end(); s != nil {
		s.mu.Lock()
		s.spawn()
		s.mu.Unlock()
	}
}
