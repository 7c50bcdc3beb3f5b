package shunt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
	"github.com/shuntmq/shunt/internal/store"
)

// settlement is one verdict on a leased message, on its way.
type settlement struct {
	held    *custody.Held
	lease   store.Lease
	verdict *custody.Verdict
	place   int // in the lease's list, from the one that was taken first; negative: not known

	inDoubt bool // it was sent, and no reply came
	over    bool // err is what it came to; else it is the last try's
	err     error
}

// newSettlement is a message in a lease's list, without a verdict yet.
func newSettlement(k *store.Keys, l store.Lease, raw []byte, place int) *settlement {
	h := &custody.Held{Keys: k, List: store.Key(k.LeaseList(l.Name))}
	e, newer := element.Decode(raw)
	h.Element, h.Raw, h.Newer = &e, raw, newer != nil
	return &settlement{held: h, lease: l, place: place}
}

// size is what of it goes to Redis.
func (s *settlement) size() int { return len(s.held.Raw) + len(s.verdict.Result) }

// ReceiptError is the error of one receipt among several.
type ReceiptError struct {
	Receipt Receipt // not in the error's text, for who has it can settle the message
	Err     error
}

func (e *ReceiptError) Error() string { return e.Err.Error() }

func (e *ReceiptError) Unwrap() error { return e.Err }

// Ack ends messages that were handled, each as a handler's nil does. The error joins a *ReceiptError for each message
// that was not acked; all others are acked. The errors of one are those of Leased.Ack.
func (q *Queue) Ack(ctx context.Context, rs ...Receipt) error {
	return q.settleReceipts(ctx, "ack", custody.Ack, rs)
}

// Release gives messages back unhandled: they are taken next, and no attempt is counted. The errors are those of Ack.
func (q *Queue) Release(ctx context.Context, rs ...Receipt) error {
	return q.settleReceipts(ctx, "release", custody.Release, rs)
}

// settleReceipts gives the messages of some receipts one verdict.
func (q *Queue) settleReceipts(ctx context.Context, what string, v *custody.Verdict, rs []Receipt) error {
	found, errs := q.findLeased(ctx, rs)
	var ss []*settlement
	for _, s := range found {
		if s != nil && s.verdict == nil { // a receipt that is there twice is settled once
			s.verdict = v
			ss = append(ss, s)
		}
	}
	q.settle(ctx, ss)
	for i, s := range found {
		if s != nil {
			errs[i] = s.err
		}
	}
	return receiptErrors(what, rs, errs)
}

// receiptErrors joins the errors of some receipts.
func receiptErrors(what string, rs []Receipt, errs []error) error {
	var all []error
	for i, err := range errs {
		if err != nil {
			all = append(all, &ReceiptError{rs[i], rs[i].failed(what, err)})
		}
	}
	return errors.Join(all...)
}

// settleOne is settle for one verdict. One that ends its message goes with others of its channel, where several come at
// once; what it could not learn there it asks for by itself.
func (q *Queue) settleOne(ctx context.Context, s *settlement) {
	if !s.verdict.Shares(s.held.Held) {
		q.settle(ctx, []*settlement{s})
		return
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	shared, err := q.stationOf(s.held.Keys).acks.Join(ctx, s.held.Keys, *s)
	if err != nil {
		s.end(q, err)
		return
	}
	if *s = shared; !s.over {
		new(link.Resend).Pause(ctx, 0)
		q.settle(ctx, []*settlement{s})
	}
}

// settle sends verdicts until each has an answer, or ctx ends; without a deadline of ctx that takes EnqueueTimeout at
// most. Each gets its error.
func (q *Queue) settle(ctx context.Context, ss []*settlement) {
	if len(ss) == 0 {
		return
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	server := q.router.For(ss[0].held.Keys.Name)
	for again := (link.Resend{Until: server.Data.Closed()}); ; again.Pause(ctx, 0) {
		q.sendVerdicts(ctx, server, ss)
		left := slices.DeleteFunc(slices.Clone(ss), func(s *settlement) bool { return s.over })
		if len(left) == 0 {
			return
		}
		failed := !slices.ContainsFunc(left, func(s *settlement) bool { return s.err == nil }) // else Redis is there
		if ctx.Err() != nil || failed && (server.Hopeless() != nil || errors.Is(left[0].err, link.ErrClosed)) {
			for _, s := range left {
				s.end(q, cmp.Or(s.err, error(&link.Error{Class: link.NotExecuted, Err: context.Cause(ctx)})))
			}
			return
		}
	}
}

// sendVerdicts sends, once, those verdicts that have no answer.
func (q *Queue) sendVerdicts(ctx context.Context, server *link.Server, ss []*settlement) {
	c := link.NewCall()
	parts := q.verdicts(c, ss)
	err := server.Data.Run(ctx, c)
	for i, p := range parts {
		if c.Answered {
			p.answered(q, c.Replies[i])
		} else {
			p.answered(q, link.Reply{Err: err})
		}
	}
}

// What one script settles at most, for it holds up everyone.
const (
	settledTogether = 128
	settledBytes    = 256 << 10 // of elements and results, or some more
)

// part is some verdicts that one command makes true.
type part struct {
	of    []*settlement
	first bool // they are those that were taken first, if they still are
	each  bool // each has a reply of its own in that of the command
}

// verdicts adds the commands of those verdicts that have no answer, and says of which each is. After them come those
// that forget leases of which nothing is left.
func (q *Queue) verdicts(c *link.Call, ss []*settlement) (parts []part) {
	type lease struct {
		keys *store.Keys
		name string
	}
	var leases []lease
	of := make(map[store.Key][]*settlement)
	for _, s := range ss {
		if s.over {
			continue
		}
		if of[s.held.List] == nil {
			leases = append(leases, lease{s.held.Keys, s.lease.Name})
		}
		of[s.held.List] = append(of[s.held.List], s)
	}
	ids, names := make(map[*store.Keys][]*settlement), make(map[*store.Keys][]string)
	for _, l := range leases {
		some, byID := q.verdictsOf(c, of[l.keys.LeaseList(l.name)])
		parts = append(parts, some...)
		ids[l.keys], names[l.keys] = append(ids[l.keys], byID...), append(names[l.keys], l.name)
	}
	for k, left := range ids {
		for len(left) > 0 {
			n, bytes := 0, 0
			for n < len(left) && n < settledTogether && (n == 0 || bytes < settledBytes) {
				bytes += left[n].size()
				n++
			}
			some := left[:n]
			left = left[n:]
			store.AddSettleEach(c, k, &q.conf.Bounds, n, func(i int) (store.Key, store.Held, *store.Verdict) {
				return some[i].held.List, some[i].held.Held, &some[i].verdict.Verdict
			})
			parts = append(parts, part{of: some, each: true})
		}
	}
	for k, some := range names {
		store.AddUnlease(c, k, some...)
	}
	return parts
}

// verdictsOf is verdicts for the messages of one lease. Those with an id that end here are left to the caller.
func (q *Queue) verdictsOf(c *link.Call, ss []*settlement) (parts []part, byID []*settlement) {
	slices.SortStableFunc(ss, func(a, b *settlement) int { return cmp.Compare(a.place, b.place) })
	var plain, others []*settlement
	for _, s := range ss {
		switch shares := s.verdict.Shares(s.held.Held); {
		case shares && s.held.ID() != "":
			byID = append(byID, s)
		case shares && s.place == len(plain) && !s.inDoubt:
			plain = append(plain, s)
		default:
			others = append(others, s)
		}
	}
	if n := len(plain); n > 2 {
		store.AddAckFirst(c, plain[0].held.List, plain[0].held.Raw, plain[n-1].held.Raw, n)
		parts = append(parts, part{of: plain, first: true})
	} else {
		others = append(plain, others...)
	}
	for i := range others { // what is released last is taken first
		s := others[len(others)-1-i]
		s.held.Leave(c, s.verdict, &q.conf.Bounds)
		parts = append(parts, part{of: []*settlement{s}})
	}
	return parts, byID
}

// answered takes in the reply to the command.
func (p *part) answered(q *Queue, rep link.Reply) {
	if p.first && rep.Err == nil && !store.FirstReply(rep) {
		for _, s := range p.of {
			s.place = -1 // each by itself
		}
		return
	}
	for i, s := range p.of {
		r := rep
		if p.each {
			r = store.EachReply(rep, i)
		}
		switch s.err = r.Err; link.Classify(r.Err) {
		case link.Done:
			s.answered(q, r)
		case link.Unknown:
			s.inDoubt = true
		case link.NotExecuted:
		default:
			s.end(q, r.Err)
		}
	}
}

// answered takes in that the verdict was executed, or found nothing.
func (s *settlement) answered(q *Queue, rep link.Reply) {
	s.over = true
	l, v := s.held.Left(s.verdict, rep)
	q.counter.count(s.held.Keys.Name, func(to meter.Adder) { s.held.Count(to, v, l.Found, time.Time{}, 0) })
	q.emit(s.held.Beside(s.verdict, l)...)
	if l.Found && q.overs != nil {
		q.overs.settled(s.held, v)
	}
	var e event.Event
	if s.held.Report(&e, v, l.Found, s.inDoubt) {
		q.emit(e)
	}
	switch {
	case !l.Found && s.inDoubt:
		s.err = ErrUnconfirmed
	case !l.Found:
		s.err = ErrLeaseLost
	}
}

// end ends the tries, with the error of the last one.
func (s *settlement) end(q *Queue, err error) {
	s.over = true
	if s.inDoubt {
		err = &link.Error{Class: link.Unknown, Err: err}
	}
	s.err = q.explain(err, "settle a message of", s.held.Keys.Name)
}
