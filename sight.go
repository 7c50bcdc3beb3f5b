package shunt

import (
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

const (
	lookEvery = 500 * time.Millisecond
	// longestBlink is the longest absence of Redis that is none: looks that are further apart begin a new row.
	longestBlink = 3 * lookEvery
)

// sight is what a Queue sees of one Redis: a row of looks without a break. The ends of leases are judged by it, so that
// after an absence of Redis their holders have time to settle. A receiver's heart has a coarser one for leases of
// receivers, which beat themselves.
type sight struct {
	q      *Queue
	server *link.Server

	mu      sync.Mutex
	looking bool
	sent    time.Time // of the last look, by the clock here
	at      time.Time // the same by the server's clock
	since   time.Time // of the first look of the row
}

// fence is from when on the view of Redis counts. The first call begins the looks, which end with Close.
func (s *sight) fence() store.Fence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.looking && s.q.begin() == nil {
		s.looking = true
		go s.look()
	}
	if s.at.IsZero() || time.Since(s.sent) > longestBlink {
		return store.Fence{}
	}
	return store.Fence{At: s.at, Since: s.since, Age: longestBlink}
}

// look asks for the time again and again.
func (s *sight) look() {
	defer s.q.waits.Done()
	timer := time.NewTicker(lookEvery)
	defer timer.Stop()
	for {
		sent := time.Now()
		at, err := store.Clock(s.q.life, s.server.Pulse)
		if err == nil {
			s.saw(sent, time.Now(), at)
		}
		select {
		case <-timer.C:
		case <-s.q.ending.Done():
			return
		}
	}
}

// saw takes in a look.
func (s *sight) saw(sent, answered, at time.Time) {
	if answered.Sub(sent) > longestBlink/2 {
		return // when the server saw it is not known well enough
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	here, there := sent.Sub(s.sent), at.Sub(s.at)
	if s.at.IsZero() || max(here, there) > longestBlink || (here-there).Abs() > longestBlink/2 {
		s.since = at
	}
	s.sent, s.at = sent, at
}
