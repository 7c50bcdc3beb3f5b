package worker

import (
	"cmp"
	"math"
	"time"

	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
)

// visit is one exchange of a step, with one site.
type visit struct {
	site  *lane.Site
	lanes []*lane.Lane // to take from, in this order; none: verdicts alone
	later bool         // lanes of other sites come first in order, and were asked before
}

// firstOf is the visit of those lanes that come first in order and are of one site.
func firstOf(lanes []*lane.Lane) visit {
	n := 1
	for n < len(lanes) && lanes[n].Site == lanes[0].Site {
		n++
	}
	return visit{site: lanes[0].Site, lanes: lanes[:n:n]}
}

// visited is what the visits of a step have come to.
type visited struct {
	sent    bool          // something was
	got     bool          // a message was taken
	empty   bool          // takes have found nothing
	more    bool          // takes may find something at once
	trouble bool          // a reply was an error
	wait    time.Duration // after which a site that refuses is tried again; 0: none refuses
}

// step sends the verdicts of the last batch and the next takes, in one pipeline for each site, and waits where there is
// nothing to do. False: the receiver has stopped and nothing is in hand.
func (s *worker) step(call *link.Call) bool {
	r := s.r
	for {
		if r.PoolCtx.Err() != nil || r.Stopped() && r.isCleared() && !s.busy() {
			return false
		}
		stuck := s.plan()
		var all visited
		s.passed = 0
		for _, v := range s.visits {
			if all.got || all.more { // in strict order the lanes of the sites before come first
				v.lanes = nil
			}
			s.visit(v, call, &all)
		}
		switch {
		case all.got:
			return true
		case !all.sent && s.ready(s.now, s.passed) && !r.Stopped():
			return true // brought by a waiter, or to be asked for once more
		case !all.sent:
			s.rest(s.pause(all.wait))
		case s.mustSendSingly(): // at once
		case s.ready(s.now, s.passed) && !r.Stopped():
			return true // left aside while its site refused
		case all.empty && !all.more && !all.trouble && !s.holds(s.passed):
			call.Drop()
			s.park(all.wait)
		case stuck:
			s.rest(link.MinTrouble)
		case s.busy(): // verdicts that were refused
			s.rest(Stall)
		}
	}
}

// pause is how long to wait where nothing could be sent. What brings the worker something pokes it, and so do the end
// of a handover and of a handback. refused: after that a site that refuses is tried again; 0: none refuses.
func (s *worker) pause(refused time.Duration) time.Duration {
	switch {
	case s.holds(s.passed):
		return Stall
	case refused > 0 && s.passed == 0:
		return refused
	case refused > 0:
		return min(refused, time.Second)
	}
	return time.Second
}

// plan lays out the visits of a step. Lanes that follow one another in their turn and are of one site share one. A site
// of which nothing may be taken is visited for the verdicts. stuck: see barred.
func (s *worker) plan() (stuck bool) {
	r := s.r
	s.now = time.Now()
	bars, stuck := s.barred(s.now, len(r.Lanes) > 1)
	open := r.open(s.now, bars)
	s.visits = s.visits[:0]
	if r.order != nil && len(open) > 0 {
		open = r.order.turn(r.Lanes, open)
	}
	if len(r.Sites) == 1 {
		s.visits = append(s.visits, visit{site: r.Sites[0], lanes: open})
		return stuck
	}
	met := uint64(0) // the lanes of the sites that are visited
	for len(open) > 0 {
		v := firstOf(open)
		v.later = met != 0
		open = open[len(v.lanes):]
		s.visits, met = append(s.visits, v), met|v.site.Mask
	}
	for _, site := range r.Sites {
		if met&site.Mask == 0 {
			s.visits = append(s.visits, visit{site: site})
		}
	}
	return stuck
}

// open are the lanes that a worker may take from now, but for those that are barred.
func (r *Pool) open(now time.Time, bars uint64) []*lane.Lane {
	may := func(l *lane.Lane) bool {
		n, _, _ := l.MayTake(now)
		return n > 0 && bars&(1<<l.Index) == 0
	}
	for i, l := range r.Lanes {
		if may(l) {
			continue
		}
		open := append([]*lane.Lane(nil), r.Lanes[:i]...)
		for _, l := range r.Lanes[i+1:] {
			if may(l) {
				open = append(open, l)
			}
		}
		return open
	}
	return r.Lanes
}

// permitted are the lanes that may be taken from, asked inside the gate, of those that might when the step was planned;
// and how many messages each may give.
func permitted(lanes []*lane.Lane, now time.Time) (open []*lane.Lane, most int) {
	most = math.MaxInt
	for i, l := range lanes {
		n, _, _ := l.MayTake(now)
		switch {
		case n > 0 && open == nil:
			most = min(most, n)
		case n > 0:
			open, most = append(open, l), min(most, n)
		case open == nil:
			open = append(make([]*lane.Lane, 0, len(lanes)), lanes[:i]...)
		}
	}
	if open == nil {
		open = lanes
	}
	return open, most
}

// visit sends a site the verdicts that are its own, and takes from the lanes.
func (s *worker) visit(v visit, call *link.Call, all *visited) {
	r, site := s.r, v.site
	if wait := site.Breaker.Pass(); wait > 0 {
		if all.wait == 0 || wait < all.wait {
			all.wait = wait
		}
		return
	}
	if !site.Enter() {
		site.Breaker.Back()
		return
	}
	s.passed |= site.Mask
	unstarted := r.Stopped() && r.isCleared()
	call.Reset()
	takes := takes{worker: s, site: site, later: v.later}
	takes.from, takes.most = permitted(v.lanes, s.now)
	takes.add(call) // first, so that the list, which would be empty in between, need not be made anew
	took := call.Len()
	s.sent.reset()
	s.mu.Lock()
	s.sent.collect(site, call, unstarted)
	s.mu.Unlock()
	if call.Len() == 0 {
		site.Leave()
		site.Breaker.Back()
		return
	}
	s.moves.Add(1)
	sent := site.ExchangeTakes(call, took)
	err := s.sent.settle(call.Replies[took:])
	s.sent.reset()
	empty, err2 := takes.receive(call.Replies[:took], call.Order)
	site.Leave()
	s.now = time.Now()
	err = cmp.Or(err, err2)
	site.Judge(sent, err)
	all.sent, all.got = all.sent || sent, all.got || takes.got > 0
	all.empty, all.more = all.empty || empty, all.more || sent && !empty && took > 0
	all.trouble = all.trouble || err != nil
}
