package shunt

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Leased is one message that was pulled. Its methods may be called by many goroutines at once; the first verdict
// counts.
type Leased struct {
	Info
	Payload []byte // as Marshal made it
	Receipt Receipt
	// EndsAt is when the lease ends that Pull began, by the clock here; zero of what Queue.Leased has found.
	EndsAt time.Time

	// Result is kept with the outcome if the message is acked, as SetResult does for a handler: up to 1 MB. Set it
	// before Ack.
	Result []byte

	q     *Queue
	held  *custody.Held
	lease store.Lease
	then  []store.Followup
}

// leased makes what Pull returns of a message in a lease's list.
func (q *Queue) leased(h *custody.Held, l store.Lease, ends time.Time) *Leased {
	m := &Leased{
		Info: Info{
			Channel: h.Keys.Name, Serial: h.SerialString(), ID: h.ID(), Type: h.Type(), Attempt: h.Attempt(),
			Recoveries: int(h.Recoveries), Headers: h.Headers(), Failure: h.Failure(),
		},
		Payload: h.Payload, EndsAt: ends, q: q, held: h, lease: l,
	}
	if !h.Bare {
		m.EnqueuedAt = element.EnqueuedAt(h.Serial)
	}
	m.Receipt = receiptOf(h, l)
	return m
}

// Receipt names a leased message and its lease, for whoever settles the message: an opaque text that may stand in a URL
// as it is. Who has it can settle the message.
type Receipt string

// receiptOf is lease.identity.channel, the last escaped as in a URL.
func receiptOf(h *custody.Held, l store.Lease) Receipt {
	identity := h.SerialString()
	if h.Bare {
		identity = h.Identity(h.Raw)
	}
	return Receipt(l.Name + "." + identity + "." + url.QueryEscape(h.Keys.Name))
}

// errReceipt says that a text is no receipt.
var errReceipt = errors.New("shunt: that is no receipt: want the text that Pull gave with a message")

// named is what a receipt names.
type named struct {
	channel  string
	lease    store.Lease
	identity string // as scripts and element.Identity have it
}

func (r Receipt) parse() (n named, err error) {
	part := strings.SplitN(string(r), ".", 3)
	if len(part) < 3 {
		return n, errReceipt
	}
	if n.lease, err = store.ParseLease(part[0]); err != nil {
		return n, errReceipt
	}
	if serial, bad := ulid.ParseStrict(part[1]); bad == nil {
		n.identity = string(serial[:])
	} else if sum, bad := hex.DecodeString(part[1]); bad == nil && len(sum) == 20 {
		n.identity = strings.ToLower(part[1])
	} else {
		return n, errReceipt
	}
	n.channel, err = url.QueryUnescape(part[2])
	if err != nil || store.CheckChannel(n.channel) != nil {
		return n, errReceipt
	}
	return n, nil
}

// Channel is the channel of the receipt's message, empty where the text is no receipt.
func (r Receipt) Channel() string {
	n, err := r.parse()
	if err != nil {
		return ""
	}
	return n.channel
}

// Leased finds the message of a receipt, as Pull gave it, for a process that has but the receipt. ErrLeaseLost: it was
// settled, or its lease has ended. Where Queue.Payloads cannot decode the payload, Leased returns its error beside the
// message without a payload, which can be settled.
func (q *Queue) Leased(ctx context.Context, r Receipt) (_ *Leased, err error) {
	found, errs := q.findLeased(ctx, []Receipt{r})
	if errs[0] != nil {
		return nil, r.failed("find", errs[0])
	}
	m := q.leased(found[0].held, found[0].lease, time.Time{})
	if m.Payload, err = q.decode(ctx, payloadOf(m.Channel, m.held.Element)); err != nil {
		return m, r.failed("decode", err)
	}
	return m, nil
}

// LeasedBy finds a leased message by its Ref, whoever has pulled it: for operators, and for protocols in which a client
// settles a message by its ID alone. By an ID it is two looks; by a serial all leases of the channel are looked
// through. ErrNotFound: it is not leased. A payload that cannot be decoded is as for Leased.
func (q *Queue) LeasedBy(ctx context.Context, r Ref) (*Leased, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	m, err := q.leasedBy(ctx, store.KeysOf(r.Channel), r)
	if err != nil {
		return nil, r.failed("find the lease of", err)
	}
	if m.Payload, err = q.decode(ctx, payloadOf(m.Channel, m.held.Element)); err != nil {
		return m, r.failed("decode", err)
	}
	return m, nil
}

func (q *Queue) leasedBy(ctx context.Context, k *store.Keys, r Ref) (found *Leased, err error) {
	identity := ""
	if r.Serial != "" {
		identity, _ = r.identity()
	}
	look := func(name string, _ time.Time, raws [][]byte) {
		l, bad := store.ParseLease(name)
		for i, raw := range raws {
			s := newSettlement(k, l, raw, i)
			if bad == nil && (r.ID == "" || s.held.ID() == r.ID) &&
				(identity == "" || s.held.Identity(raw) == identity) {
				found = q.leased(s.held, l, time.Time{})
			}
		}
	}
	if r.ID == "" {
		err = store.EachLeased(ctx, asker{q: q}, k, &store.Span{Left: -1}, look)
	} else if a, bad := store.RunStatus(ctx, asker{q: q}, k, r.ID); bad != nil || a.Holder.Lease == "" {
		err = bad
	} else {
		var raws [][]byte
		if raws, err = store.HeldByLease(ctx, asker{q: q}, k, a.Holder.Lease); err == nil {
			look(a.Holder.Lease, time.Time{}, raws)
		}
	}
	if err == nil && found == nil {
		err = ErrNotFound
	}
	return found, err
}

// Ack ends the message, as a handler's nil does, with Result and with what Then has noted. ErrLeaseLost: the message
// was settled already, or its lease has ended. ErrUnconfirmed: the same, but the reply to a first command was lost, so
// this very call may have settled it.
func (m *Leased) Ack(ctx context.Context) error {
	switch {
	case len(m.Result) > maxResult:
		return m.Receipt.failed("ack", resultTooLarge(len(m.Result)))
	case m.Result != nil && m.ID == "":
		return m.Receipt.failed("ack", errNoResult)
	}
	// A copy, for a verdict that goes with others may be sent again after the caller has left.
	return m.settle(ctx, "ack", custody.Keep(slices.Clone(m.Result), m.then))
}

// Fail settles the message as a handler does that returns why. It is tried again after Queue.Backoff, or as RetryAfter
// and Snooze say; with Reject, or where its attempts are used up, it goes to dead. The errors are those of Ack.
func (m *Leased) Fail(ctx context.Context, why error) error {
	if why == nil {
		why = errors.New("failed")
	}
	return m.settle(ctx, "fail", m.q.judge(m.held, why))
}

// Release gives the message back unhandled: it is taken next, and no attempt is counted. The errors are those of Ack.
func (m *Leased) Release(ctx context.Context) error { return m.settle(ctx, "release", custody.Release) }

// Extend is Queue.Extend for the lease of this message.
func (m *Leased) Extend(ctx context.Context, d time.Duration) error {
	return m.q.Extend(ctx, d, m.Receipt)
}

// Then enqueues messages in the step that acks this one, as the func Then does for a handler. Call it before Ack, on
// one goroutine.
func (m *Leased) Then(ctx context.Context, ms ...IMessage) error {
	next := func(ctx context.Context, ms []IMessage) error {
		fs, err := m.q.followups(ctx, m.Headers, ms)
		if err != nil {
			return err
		}
		if n := len(m.then) + len(fs); n > thenMost {
			return tooManyFollow(n)
		}
		m.then = append(m.then, fs...)
		return nil
	}
	if m.q.conf.WrapEnqueue == nil {
		return next(ctx, ms)
	}
	return m.q.wrapped(ctx, append([]IMessage(nil), ms...), next)
}

// settle sends one verdict.
func (m *Leased) settle(ctx context.Context, what string, v *custody.Verdict) error {
	s := &settlement{held: m.held, lease: m.lease, verdict: v, place: -1}
	if m.q.settleOne(ctx, s); s.err != nil {
		return m.Receipt.failed(what, s.err)
	}
	return nil
}

// failed says what was attempted with a receipt. The lease's name does not stand in it: who reads it in a log could
// settle the message.
func (r Receipt) failed(what string, err error) error {
	part := strings.SplitN(string(r), ".", 3)
	if err == errReceipt || len(part) < 3 {
		return err
	}
	return fmt.Errorf("shunt: %s the leased message %s of %q: %w", what, part[1], r.Channel(), err)
}

// judge is the verdict on a message that failed, as the Queue and the message have it.
func (q *Queue) judge(h *custody.Held, why error) (v *custody.Verdict) {
	p := custody.Policy{
		MaxAttempts: func() int { return boundOf(h.MaxAttempts(), q.conf.MaxAttempts) },
		Backoff:     func(attempt int) time.Duration { return q.backoff(h, attempt) },
		MaxSize:     q.conf.MaxSize,
	}
	guard("a method of the error", func() error { v = h.Decide(p, nil, why); return nil }, func(bad error) {
		if bad != nil {
			v = h.Decide(p, nil, bad)
		}
	})
	return v
}

// backoff is how long a message waits after a failed attempt. Where the user's func fails, an Event reports it, and the
// default holds.
func (q *Queue) backoff(h *custody.Held, attempt int) time.Duration {
	wait := sidekiqBackoff(attempt)
	if f := q.conf.Backoff; f != nil {
		guard("Queue.Backoff", func() error { wait = f(attempt); return nil }, func(err error) {
			if err != nil {
				q.emit(event.Event{Kind: event.ReceiverError, Channel: h.Keys.Name, Serial: h.Serial, Err: err})
			}
		})
	}
	return min(max(wait, 0), store.MaxWait)
}

// Extend puts the end of the leases of some receipts to d from now, unless they end later already: 10 ms to 7 days. A
// lease is that of all messages which one Pull brought. The error joins a *ReceiptError for each receipt that was not
// extended: ErrLeaseLost, where its lease has ended, or nothing of that is left. It is ErrCancelled for a message that
// Cancel was called for, whose lease goes on until it is settled.
func (q *Queue) Extend(ctx context.Context, d time.Duration, rs ...Receipt) error {
	if d < leastTerm || d > mostTerm {
		return fmt.Errorf("shunt: extend by %v: want %v to %v", d, leastTerm, mostTerm)
	}
	gs, identities, errs := q.groups(rs)
	q.askLeases(ctx, gs, errs, false, func(c *link.Call, g *group) {
		var of []string
		for _, at := range g.of {
			of = append(of, identities[at])
		}
		store.AddExtend(c, g.keys, g.lease.Name, d, of...)
	}, func(g *group, rep link.Reply) error {
		left, cancelled, err := store.ExtendReply(rep)
		for _, i := range cancelled {
			errs[g.of[i]] = ErrCancelled
		}
		if err == nil && !left {
			err = ErrLeaseLost
		}
		return err
	})
	return receiptErrors("extend", rs, errs)
}
