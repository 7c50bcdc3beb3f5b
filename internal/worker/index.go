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
	with  []*Item // of asked: those with an id
	said  []said  // of each asked
	read  bool    // the records are; else none of them can have anything to say
	now   int64   // ms of the server's clock
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
// cancelled meanwhile, or has expired. A cancellation looks for the entry and leaves its own mark in one step, so one
// of the two sees the other. Plain messages cost no question. False: the next step comes when the breaker lets it.
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
	s.now = time.Now()
	site.Breaker.Judge(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range x.asked {
		it.move(answer)
	}
	if err != nil {
		return false
	}
	for i, it := range x.asked {
		it.begun = true
		it.asked = it.asked && !s.r.order.strict() // it took a while
		if d := it.Extra.Deadline; d > 0 {
			until := sent.Add(time.Duration(d-x.now) * time.Millisecond)
			it.until = &until
		}
		a := x.said[i]
		known := custody.Known{Now: x.now + s.now.Sub(sent).Milliseconds(), Read: x.read, Record: a.record,
			Cancelled: a.cancelled || it.cancelled}
		h := it.custody(s)
		it.ownsID = h.Owns(known)
		h.OwnsID = it.ownsID
		if v := h.Admit(known, s.r.conf.MaxSize); v != nil {
			it.decide(v)
		}
	}
	return true
}

// consult sends what mark has to say and to ask, in one pipeline, and in a second one only where something is
// cancelled.
func (x *index) consult(l *lane.Lane, now time.Time) error {
	site := l.Site
	x.with, x.read, x.now = x.with[:0], false, 0
	x.said = slices.Grow(x.said[:0], len(x.asked))[:len(x.asked)]
	clear(x.said)
	if x.call == nil {
		x.call = link.NewCall()
	}
	m := store.Marks{Expires: site.Full.Lasts(now)}
	for _, it := range x.asked {
		if it.Extra.ID != "" {
			x.with, m.Expires = append(x.with, it), m.Expires || it.Extra.Expires != 0
		}
		x.read = x.read || it.Extra.Expires != 0
	}
	defer clear(x.with)
	m.N, m.At, m.Mark = len(x.with), func(i int) *element.Element { return &x.with[i].Element }, x.marks(site, now)
	for {
		x.call.Reset()
		store.AddStart(x.call, l.Keys, m, x.read)
		site.Exchange(x.call)
		a, err := store.StartReply(x.call.Replies, m, x.read)
		if err != nil {
			return err
		}
		if a.Full {
			site.Full.Begin(now, fullFor)
			m.Expires = true
			continue
		}
		x.now = a.Now
		x.records(a.Records)
		if !a.SomeCancelled {
			return nil
		}
		break
	}
	x.call.Reset()
	store.AddCancelled(x.call, l.Keys, m, !x.read)
	site.Exchange(x.call)
	at := 0 // in asked
	records, err := store.CancelledReply(x.call.Replies, m.N, func(i int, cancelled bool) {
		for x.asked[at] != x.with[i] {
			at++
		}
		x.said[at].cancelled = cancelled && !planted.IgnoreCancelled
	})
	if !x.read {
		x.read = true
		x.records(records)
	}
	return err
}

// marks makes the note of each item with an id; those of one attempt share it.
func (x *index) marks(site *lane.Site, now time.Time) func(i int) []byte {
	inc, attempt, as := site.Live(), 0, []byte(nil)
	return func(i int) []byte {
		if it := x.with[i]; as == nil || attempt != it.Attempt() {
			attempt = it.Attempt()
			as = store.Mark(inc, x.worker.n, attempt, now)
		}
		return as
	}
}

// records takes in the records of those with an id.
func (x *index) records(rep link.Reply) {
	at := 0
	store.EachRecord(rep, func(i int, raw []byte) {
		for i < len(x.with) && x.asked[at] != x.with[i] {
			at++
		}
		if i < len(x.with) {
			x.said[at].record = raw
		}
	})
}
