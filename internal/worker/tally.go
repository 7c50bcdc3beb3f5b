package worker

import (
	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/meter"
)

// count counts what an item whose verdict was executed came to. s.mu is held.
func (s *worker) count(it *Item, found bool) {
	if of := s.sumsOf(it.Lane); of != nil {
		h := custody.Held{Held: it.held()}
		h.Count(of, it.verdict, found, it.Started, it.took)
	}
}

// countOf counts some of a kind. s.mu is held.
func (s *worker) countOf(l *lane.Lane, k meter.Kind, n int) {
	if of := s.sumsOf(l); of != nil && n > 0 {
		of.Add(k, n)
	}
}

// sumsOf are the sums of a lane; nil: nothing is counted. s.mu is held.
func (s *worker) sumsOf(l *lane.Lane) *meter.Sums {
	if !s.r.conf.Count {
		return nil
	}
	if s.sums == nil {
		s.sums = make([]*meter.Sums, len(s.r.Lanes))
	}
	if s.sums[l.Index] == nil {
		s.sums[l.Index] = new(meter.Sums)
	}
	return s.sums[l.Index]
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
