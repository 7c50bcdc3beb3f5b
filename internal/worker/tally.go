package worker

import (
	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/meter"
)

// count counts what an item whose verdict was executed came to. s.mu is held.
func (s *worker) count(it *Item, found bool) {
	if !s.r.conf.Count {
		return
	}
	if s.sums == nil {
		s.sums = make([]*meter.Sums, len(s.r.Lanes))
	}
	of := &s.sums[it.Lane.Index]
	if *of == nil {
		*of = new(meter.Sums)
	}
	h := custody.Held{Held: it.held()}
	h.Count(*of, it.verdict, found, it.Started, it.took)
}

// Tally gives what the workers have counted since it was called last, by channel.
func (r *Pool) Tally(give func(channel string, sums *meter.Sums)) {
	for _, s := range r.workers {
		s.mu.Lock()
		all := s.sums
		s.sums = nil
		s.mu.Unlock()
		for i, sums := range all {
			if sums != nil {
				give(r.Lanes[i].Name, sums)
			}
		}
	}
}
