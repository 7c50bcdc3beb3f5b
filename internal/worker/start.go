package worker

import (
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/lists"
)

// holder is how the record of an id names who has its message.
func holder(i lists.Incarnation, worker int) string { return i.Name + "/" + strconv.Itoa(worker) }

// start asks, of all that waits in the slot and has an id or a time of its own, whether it is still to be handled, and notes in whose
// hands it is. A plain message is never asked for. False: the next step comes when the breaker lets it.
func (s *slot) start(in *Intake) bool {
	r := s.r
	call := link.NewCall()
	call.FailFast = true
	r.gate.RLock()
	defer r.gate.RUnlock()
	if r.pausing.Load() {
		return false
	}
	args := []any{in.Living, in.IDs, in.Cancelled, holder(*r.live.Load(), s.n)}
	var asked []*Item
	s.mu.Lock()
	for _, it := range s.items {
		if it.In != in || it.state != waiting || it.Extra == nil || it.begun {
			continue
		}
		taken := 0
		if it.Attempts+it.Recoveries > 0 {
			taken = 1
		}
		args = append(args, it.Extra.ID, it.Serial[:], it.Extra.Expires, it.Attempts+1, taken)
		asked = append(asked, it)
		it.state = asking // so that nobody releases it meanwhile, which the record would not show
	}
	s.mu.Unlock()
	if len(asked) == 0 {
		return true
	}
	call.AddScript(lists.Start, 3, args...)
	sent := time.Now()
	r.exchange(call)
	s.now = time.Now()
	err := call.Replies[0].Err
	r.breaker.Judge(err)
	replies, _ := redis.Int64s(call.Replies[0].Value, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range asked {
		it.state = waiting
	}
	if len(replies) != 1+len(asked) {
		return false
	}
	server := replies[0]
	for i, it := range asked {
		it.begun = true
		it.asked = it.asked && !r.order.strict() // it took a while
		if d := it.Extra.Deadline; d > 0 {
			it.until = sent.Add(time.Duration(d-server) * time.Millisecond)
		}
		switch reply := replies[1+i]; {
		case reply == 1, it.called:
			it.decide(&Verdict{Kind: Cancelled})
		case reply == 2 && !it.Extra.ToDead:
			it.decide(&Verdict{Kind: Expired})
		case reply == 2:
			it.decide(it.refuse(ErrExpired))
		case reply > 2:
			it.decide(&Verdict{Kind: Postponed, Wait: time.Duration(reply-server) * time.Millisecond})
		case !it.until.IsZero() && !s.now.Before(it.until):
			it.decide(it.refuse(ErrDeadline))
		}
	}
	return true
}

// decide gives a verdict on a message that no handler has. The slot's mu is held.
func (it *Item) decide(v *Verdict) { it.state, it.verdict = decided, v }

// refuse is the verdict that a message goes to dead unhandled.
func (it *Item) refuse(why error) *Verdict {
	e, _ := lists.Decode(it.Raw)
	e.Failure = why.Error()
	return &Verdict{Kind: Rejected, Next: e.Encode(), Err: why}
}

// Cancel ends the handler of a message, or keeps it from being begun. It does nothing where the message is not in hand.
func (r *Pool) Cancel(in *Intake, serial ulid.ULID) {
	for _, s := range r.slots {
		s.mu.Lock()
		for _, it := range s.items {
			if it.In != in || it.Bare || it.Serial != serial {
				continue
			}
			it.called = true
			if it.state == running && it.h != nil {
				it.h.cancel(ErrCancelled)
			} else if it.state == waiting {
				it.decide(&Verdict{Kind: Cancelled})
				s.poke()
			}
		}
		s.mu.Unlock()
	}
	r.watcher.note(time.Now())
}

// Tracked are the messages with an id that are in hand, of one channel.
func (r *Pool) Tracked(in *Intake) map[string]ulid.ULID {
	var all map[string]ulid.ULID
	for _, s := range r.slots {
		s.mu.Lock()
		for _, it := range s.items {
			if id := it.ID(); it.In == in && id != "" && (it.state == running || it.state == waiting) && !it.called {
				if all == nil {
					all = make(map[string]ulid.ULID)
				}
				all[id] = it.Serial
			}
		}
		s.mu.Unlock()
	}
	return all
}
