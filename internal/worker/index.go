package worker

import (
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/lane"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

// index is what a worker asks before messages with an Extra are handled. It keeps its memory from one use to the next.
type index struct {
	worker *worker

	call  *link.Call
	asked []*Item
	with  []int  // of asked: the places of those with an id
	said  []said // of each asked
	read  bool   // the records are; else none of them can have anything to say

	// The server's clock showed now, in ms, at some time before heard.
	now   int64
	heard time.Time
}

// said is what Redis says of a message that is about to be handled.
type said struct {
	record    []byte
	cancelled bool
}

// drop lets go of what was sent and what came.
func (x *index) drop() {
	if x.call != nil {
		x.call.Drop()
	}
}

// mark enters the worker in the index for all queued messages of a lane with an id. Then it asks whether each was
// cancelled meanwhile, or has expired. Plain messages cost no question. False: the next step comes when the breaker
// lets it, and not before the worker's own wait is over.
func (x *index) mark(l *lane.Lane) bool {
	s, site := x.worker, l.Site
	if !site.Enter() {
		return false
	}
	defer site.Leave()
	sent := time.Now()
	if !site.Lease.Fresh(sent) { // it was suspended since the step: what it marked now may be another's
		return false
	}
	x.asked = x.asked[:0]
	s.mu.Lock()
	for _, it := range s.items {
		if it.Lane == l && it.state == queued && it.Extra != nil && !it.begun {
			x.asked = append(x.asked, it)
			it.move(ask) // so that nobody releases it meanwhile, which the mark would not show
		}
	}
	s.mu.Unlock()
	defer clear(x.asked)
	if len(x.asked) == 0 {
		return true
	}
	err := x.consult(l, sent)
	now := x.now
	if err == nil && x.late(sent) {
		var asked time.Time
		var again int64
		if again, asked, err = x.askClock(site); s.now.Sub(asked) < x.heard.Sub(sent) { // the better of the two
			now, sent = again, asked
		}
	}
	site.Breaker.Judge(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range x.asked {
		it.move(answer)
	}
	if err != nil {
		s.markRefused(site, err)
		return false
	}
	delete(s.unmarked, site)
	for i, it := range x.asked {
		it.begun = true
		it.asked = it.asked && !s.r.order.strict() // it took a while
		if d := it.Extra.Deadline; d > 0 {
			until := sent.Add(time.Duration(d-now) * time.Millisecond)
			it.until = &until
		}
		a := x.said[i]
		known := custody.Known{Now: now + s.now.Sub(sent).Milliseconds(), Taken: x.taken(it), Read: x.read,
			Record: a.record, Cancelled: a.cancelled || it.cancelled}
		h := it.custody(s)
		it.ownsID = h.Owns(known)
		h.OwnsID = it.ownsID
		if v := h.Admit(known, s.r.conf.MaxSize); v != nil {
			it.decide(v)
		}
	}
	return true
}

// consult sends what mark has to say and to ask.
func (x *index) consult(l *lane.Lane, now time.Time) error {
	site := l.Site
	x.with, x.read, x.now = x.with[:0], false, 0
	x.said = slices.Grow(x.said[:0], len(x.asked))[:len(x.asked)]
	clear(x.said)
	if x.call == nil {
		x.call = link.NewCall()
	}
	c := store.Consultation{Record: x.record, Cancelled: x.cancelled}
	c.Expires = site.Full.Lasts(now)
	for i, it := range x.asked {
		if it.Extra.ID != "" {
			x.with, c.Expires = append(x.with, i), c.Expires || it.Extra.Expires != 0
		}
		c.Read = c.Read || it.Extra.Expires != 0
	}
	c.N, c.At = len(x.with), func(i int) *element.Element { return &x.asked[x.with[i]].Element }
	c.Mark = x.marks(site, now)
	ask := func() error {
		err := c.Ask(x.call, l.Keys, func(call *link.Call) error { site.Exchange(call); return nil })
		x.worker.now = time.Now()
		if x.read = c.Read; c.Full {
			site.Full.Begin(now, fullFor)
		}
		return err
	}
	err := ask()
	if x.now, x.heard = c.Now, x.worker.now; err != nil || !c.Late {
		return err
	}
	c.Taken = func(i int) int64 { return x.taken(x.asked[x.with[i]]) }
	return ask()
}

// slow is how long an answer may take where a message has a deadline. It may be so much later at the server by then.
const slow = 100 * time.Millisecond

// late says that the server's clock is to be asked once more: otherwise a pause of Redis would end a message, or its
// handler's context, that much before its deadline.
func (x *index) late(sent time.Time) bool {
	return x.heard.Sub(sent) > slow &&
		slices.ContainsFunc(x.asked, func(it *Item) bool { return it.Extra.Deadline > 0 })
}

// askClock asks the server's clock alone. It says what that showed, in ms, and when the question went out.
func (x *index) askClock(site *lane.Site) (now int64, asked time.Time, err error) {
	x.call.Reset()
	x.call.Timed = true
	store.AddClock(x.call)
	site.Exchange(x.call)
	x.worker.now = time.Now()
	rep := x.call.Replies[0]
	return store.ServerTime(rep.Value).UnixMilli(), x.call.Sent, rep.Err
}

// taken is when an item was taken at the earliest, in ms of the server's clock. What had not expired then was taken in
// time, and does not expire in hand.
func (x *index) taken(it *Item) int64 { return x.now - x.heard.Sub(it.batch.at).Milliseconds() - 1 }

// record takes in the record of the ith with an id.
func (x *index) record(i int, raw []byte) { x.said[x.with[i]].record = raw }

// cancelled takes in that the ith with an id was cancelled.
func (x *index) cancelled(i int) { x.said[x.with[i]].cancelled = !planted.IgnoreCancelled }

// marks makes the note of each item with an id; those of one attempt share it.
func (x *index) marks(site *lane.Site, now time.Time) func(i int) []byte {
	inc, attempt, as := site.Live(), 0, []byte(nil)
	return func(i int) []byte {
		if it := x.asked[x.with[i]]; as == nil || attempt != it.Attempt() {
			attempt = it.Attempt()
			as = store.Mark(inc, x.worker.n, attempt, now)
		}
		return as
	}
}
