package worker

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// holder is how it is told who has a message with an id in hand.
func holder(i store.Incarnation, worker int) string { return i.Name + "/" + strconv.Itoa(worker) }

// mark is what is told of one that is about to be handled: the holder, the attempt, and ms since 1970 by the clock here.
func mark(i store.Incarnation, worker, attempt int, now time.Time) []byte {
	return fmt.Appendf(nil, "%s %d %d", holder(i, worker), attempt, now.UnixMilli())
}

// start makes known, of all that waits in the slot and has an id, in whose hands it is, and then asks what has been asked for meanwhile: whether
// it was cancelled or put off, or has expired. Whoever cancels looks for the one and leaves the other, in one step: so one of the two sees the
// other. A plain message is never asked for. False: the next step comes when the breaker lets it.
func (s *worker) start(in *Channel) bool {
	r := s.r
	if !r.enter() {
		return false
	}
	defer r.leave()
	sent := time.Now()
	if !r.lease.fresh(sent) { // it was suspended since the step: what it marked now may be another's
		return false
	}
	asked := s.asked[:0]
	s.mu.Lock()
	for _, it := range s.items {
		if it.Channel == in && it.state == waiting && it.Extra != nil && !it.begun {
			asked = append(asked, it)
			it.state = asking // so that nobody releases it meanwhile, which the mark would not show
		}
	}
	s.mu.Unlock()
	s.asked = asked
	defer clear(asked)
	if len(asked) == 0 {
		return true
	}
	said := s.ask(in, asked, sent)
	s.now = time.Now()
	r.breaker.Judge(said.err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range asked {
		it.state = waiting
	}
	if said.err != nil {
		return false
	}
	for i, it := range asked {
		it.begun = true
		it.asked = it.asked && !r.order.strict() // it took a while
		if d := it.Extra.Deadline; d > 0 {
			until := sent.Add(time.Duration(d-said.now) * time.Millisecond)
			it.until = &until
		}
		if v := it.meanwhile(said, i); v != nil {
			it.state, it.verdict = decided, v
		} else if it.until != nil && !s.now.Before(*it.until) {
			it.state, it.verdict = decided, it.refuse(ErrDeadline)
		}
	}
	return true
}

// meanwhile is the verdict on a message that is not to be handled, the ith of those asked for, else nil.
func (it *Item) meanwhile(said said, i int) *Verdict {
	now := said.now
	rec, ok := element.ParseRecord(said.records[i])
	it.ownsID = !said.read || ok && rec.Serial == it.Serial && rec.State != 'u' // who did not have to be asked has lost it to nobody
	expires := it.Extra.Expires
	switch {
	case it.ownsID && said.read: // it knows best
		expires = rec.Expires
	case it.Extra.ID == "" && it.Attempts+it.Recoveries > 0: // it was taken before; and one with an id has lost that to another
		expires = 0
	}
	switch {
	case said.cancelled[i] || it.cancelled:
		return &Verdict{Kind: Cancelled}
	case it.ownsID && rec.Off && rec.At > now:
		return &Verdict{Kind: Postponed, Wait: time.Duration(rec.At-now) * time.Millisecond}
	case expires <= 0 || expires > now:
		return nil
	case it.Extra.ToDead:
		return it.refuse(ErrExpired)
	}
	return &Verdict{Kind: Expired}
}

// refuse is the verdict that a message goes to dead unhandled.
func (it *Item) refuse(why error) *Verdict {
	e, _ := element.Decode(it.Raw)
	e.SetFailure(why.Error())
	return &Verdict{Kind: Rejected, Next: e.Encode(), Failure: why.Error(), Err: why}
}

// said is what Redis says of messages that are about to be handled.
type said struct {
	now       int64 // ms
	read      bool  // the records are; else none of them can have anything to say
	records   [][]byte
	cancelled []bool
	err       error
}

// ask sends what start has to say and to ask, in one pipeline, and in a second one only where something is cancelled or was put off.
func (s *worker) ask(in *Channel, asked []*Item, now time.Time) said {
	r := s.r
	s.records = slices.Grow(s.records[:0], len(asked))[:len(asked)]
	s.cancelled = slices.Grow(s.cancelled[:0], len(asked))[:len(asked)]
	clear(s.records)
	clear(s.cancelled)
	a := said{records: s.records, cancelled: s.cancelled}
	if s.starts == nil {
		s.starts = link.NewCall()
	}
	call := s.starts
	call.Reset()
	with, bound := s.with[:0], now.UnixNano() < r.full.Load()
	for i, it := range asked {
		if it.Extra.ID != "" {
			with, bound = append(with, i), bound || it.Extra.Expires != 0
		}
		a.read = a.read || it.Extra.Expires != 0
	}
	s.with = with
	if len(with) > 0 {
		s.mark(call, in, asked, bound, now)
		call.Add("EXISTS", in.Keys.Cancelled, in.Keys.Postponed)
		if a.read {
			s.addRecords(call, in, asked)
		}
	}
	call.Add("TIME") // after the mark: what has one had not expired then
	r.exchange(call)
	for i, rep := range call.Replies {
		switch {
		case i == 0 && !bound && link.Code(rep.Err) == "OOM":
			r.full.Store(now.Add(fullFor).UnixNano())
			return s.ask(in, asked, now)
		case i == len(call.Replies)-1 || link.Classify(rep.Err) != link.Failed && link.Code(rep.Err) != "WRONGTYPE": // an index that cannot be read holds up no message
			a.err = cmp.Or(a.err, rep.Err)
		}
	}
	if a.err != nil {
		return a
	}
	t, _ := redis.Int64s(call.Replies[len(call.Replies)-1].Value, nil)
	if len(t) == 2 {
		a.now = t[0]*1000 + t[1]/1000
	}
	if len(with) == 0 {
		return a
	}
	if a.read {
		a.takeRecords(call.Replies[2], with)
	}
	if some, _ := redis.Int(call.Replies[1].Value, call.Replies[1].Err); some == 0 {
		return a
	}
	call.Reset()
	for _, i := range with {
		call.Add("SISMEMBER", in.Keys.Cancelled)
		call.AddElements(asked[i].Serial[:])
	}
	if !a.read {
		s.addRecords(call, in, asked)
	}
	r.exchange(call)
	for j, rep := range call.Replies {
		if link.Code(rep.Err) != "WRONGTYPE" {
			a.err = cmp.Or(a.err, rep.Err)
		}
		if j < len(with) {
			n, _ := redis.Int(rep.Value, rep.Err)
			a.cancelled[with[j]] = n == 1
		} else {
			a.read = true
			a.takeRecords(rep, with)
		}
	}
	return a
}

// mark adds the command that tells who has them.
func (s *worker) mark(call *link.Call, in *Channel, asked []*Item, bound bool, now time.Time) {
	if bound {
		call.AddScript(store.Start, 3, in.Receivers, in.Running, in.IDs)
	} else {
		call.Add("HSET", in.Running)
	}
	inc, attempt, as := *s.r.live.Load(), 0, []byte(nil)
	for _, i := range s.with {
		it := asked[i]
		if as == nil || attempt != it.Attempt() {
			attempt = it.Attempt()
			as = mark(inc, s.n, attempt, now)
		}
		if bound {
			call.AddElements(it.Extra.IDBytes())
		}
		call.AddElements(it.Serial[:], as)
	}
}

// addRecords adds the command that reads the records of some.
func (s *worker) addRecords(call *link.Call, in *Channel, asked []*Item) {
	call.Add("HMGET", in.IDs)
	for _, i := range s.with {
		call.AddElements(asked[i].Extra.IDBytes())
	}
}

func (a *said) takeRecords(rep link.Reply, with []int) {
	found, _ := redis.Values(rep.Value, rep.Err)
	for j, i := range with {
		if j < len(found) {
			a.records[i], _ = found[j].([]byte)
		}
	}
}

// Cancel ends the handler of a message, or keeps it from being begun. It does nothing where the message is not in hand.
func (r *Pool) Cancel(in *Channel, serial ulid.ULID) {
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			if it.Channel != in || it.Bare || it.Serial != serial {
				continue
			}
			it.cancelled = true
			if it.state == running {
				it.cancel(ErrCancelled)
			} else if it.state == waiting {
				it.state, it.verdict = decided, &Verdict{Kind: Cancelled}
				s.poke()
			}
		}
		s.mu.Unlock()
	}
	r.watcher.note(time.Now())
}

// Tracked are the serials of the messages with an id that are in hand, of one channel.
func (r *Pool) Tracked(in *Channel) (all []ulid.ULID) {
	for _, s := range r.workers {
		s.mu.Lock()
		for _, it := range s.items {
			if it.Channel == in && it.ID() != "" && (it.state == running || it.state == waiting) && !it.cancelled {
				all = append(all, it.Serial)
			}
		}
		s.mu.Unlock()
	}
	return all
}
