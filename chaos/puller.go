package main

import (
	"context"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// usualTerm is the lease of a Pull, where orders say nothing.
const usualTerm = 2 * time.Second

// puller takes messages under leases, as a process that serves others does.
type puller struct {
	*orders
	q    *shunt.Queue
	log  *ledger
	hang chan struct{}
}

// serve begins to pull, or to keep channels, or both.
func (o *orders) serve(q *shunt.Queue, log *ledger) (shunt.Shutdown, error) {
	ctx, cancel := context.WithCancel(context.Background())
	if o.Upkeep {
		if err := q.Upkeep(ctx); err != nil {
			cancel()
			return nil, err
		}
		log.say(entry{Op: keeping, Phase: ok})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if o.Pull > 0 {
			(&puller{orders: o, q: q, log: log, hang: make(chan struct{})}).pullAll(ctx)
		}
	}()
	return func(end context.Context) error {
		cancel()
		select {
		case <-ended:
			return nil
		case <-end.Done():
			return end.Err()
		}
	}, nil
}

// pullAll pulls with as many requests at a time as there are workers, until ctx ends.
func (p *puller) pullAll(ctx context.Context) {
	p.log.say(entry{Op: pulling, Phase: ok})
	var all sync.WaitGroup
	for n := range p.Workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := p.pull(ctx, n); err != nil {
					select {
					case <-time.After(50 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	all.Wait()
}

// pull is one request. Where orders say so it is given up after a time, whatever it has brought until then.
func (p *puller) pull(ctx context.Context, worker int) error {
	request, cancel := ctx, context.CancelFunc(func() {})
	if p.Hurry > 0 {
		request, cancel = context.WithTimeout(ctx, rand.N(p.Hurry))
	}
	ms, err := p.q.Pull(request, shunt.PullOptions{Channels: p.Channels, Max: p.Pull, Lease: p.Hold, Wait: p.Wait})
	cancel()
	if err != nil {
		if ctx.Err() == nil && request.Err() == nil {
			p.log.say(entry{Op: "unpulled", Phase: fail, Note: err.Error()})
		}
		return err
	}
	p.has(worker, ms)
	var together []*shunt.Leased
	var ends time.Time
	for i, m := range ms {
		if i == 0 {
			ends = m.EndsAt
		} else if time.Until(ends) < p.Hold*3/4 && ctx.Err() == nil { // others came before it
			ends = time.Now().Add(p.Hold)
			p.putOff(m)
		}
		if p.handle(ctx, worker, m) {
			together = append(together, m)
		}
	}
	p.ackTogether(together)
	return nil
}

// has says what a Pull has brought, before any of it is handled.
func (p *puller) has(worker int, ms []*shunt.Leased) {
	es := make([]entry, len(ms))
	for i, m := range ms {
		es[i] = entry{Op: pulled, Phase: info, ID: parseMessage(m.Payload).id, Serial: m.Serial, Attempt: m.Attempt,
			N: worker, Due: m.EndsAt}
	}
	if len(es) > 0 {
		p.log.say(es...)
	}
}

// kindOf spreads messages over the ways in which they are settled.
func kindOf(m *shunt.Leased) uint32 {
	return crc32.ChecksumIEEE([]byte(m.Serial + string(m.Payload[:min(8, len(m.Payload))])))
}

// handle handles one message. later: it was handled well, and is to be acked with others.
func (p *puller) handle(ctx context.Context, worker int, l *shunt.Leased) (later bool) {
	m := parseMessage(l.Payload)
	m.channel, m.log, m.hang = l.Channel, p.log, p.hang
	e := entry{Op: handle, Phase: invoke, ID: m.id, Serial: l.Serial, Attempt: l.Attempt, N: worker}
	if m.corrupt != "" {
		e.ID, e.Note = "corrupt "+m.id, m.corrupt
	}
	if ctx.Err() != nil { // it ends, and has not begun this one
		e.Phase, e.Note = info, "not begun"
		p.log.say(e)
		p.said(l, "release", l.Release(context.Background()))
		return false
	}
	p.log.say(e)
	if ms, is := millis(m.plan, planExtend); is && l.Attempt == 1 {
		p.extend(l, ms)
	}
	var err error
	if n := following(m.plan); n > 0 {
		err = m.followBy(n, l.Attempt, func(next shunt.IMessage) error { return l.Then(ctx, next) })
	} else {
		err = m.act(ctx, l.Attempt)
	}
	if err == nil && l.Attempt == 1 && (m.plan == planPanic || m.plan == planGoexit) {
		err = errors.New(m.plan)
	}
	e.At, e.Phase, e.Note = time.Time{}, ok, ""
	released := false
	switch {
	case err != nil && ctx.Err() != nil:
		e.Phase, e.Note, released = info, err.Error(), true
	case err != nil:
		e.Phase, e.Note, e.At = fail, err.Error(), time.Now()
		if ms, is := millis(m.plan, planAfter); is {
			e.Due = e.At.Add(ms)
		} else if !strings.HasPrefix(m.plan, planReject) {
			e.Due = e.At.Add(backoff)
		}
	}
	p.log.say(e)
	switch kind := kindOf(l); { // a receipt alone says nothing of what follows
	case released:
		p.said(l, "release", p.settle(l, kind%2 == 0, (*shunt.Leased).Release, p.q.Release))
	case err != nil:
		p.said(l, "fail", l.Fail(context.Background(), err))
	case following(m.plan) > 0:
		p.said(l, "ack", l.Ack(context.Background()))
	case kind%3 == 0 && p.Pull > 1:
		return true
	default:
		p.said(l, "ack", p.settle(l, kind%2 == 0, (*shunt.Leased).Ack, p.q.Ack))
	}
	return false
}

// settle settles by the message, or by its receipt as another process would.
func (p *puller) settle(l *shunt.Leased, itself bool, own func(*shunt.Leased, context.Context) error,
	by func(context.Context, ...shunt.Receipt) error) error {
	ctx := context.Background()
	if itself {
		return own(l, ctx)
	}
	return by(ctx, l.Receipt)
}

// extend puts the end of a lease off again and again, while its message is handled.
func (p *puller) extend(l *shunt.Leased, during time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); {
		p.putOff(l)
		time.Sleep(min(time.Until(end), p.Hold/3))
	}
}

// putOff begins the lease of a message anew.
func (p *puller) putOff(l *shunt.Leased) {
	began := time.Now()
	if err := l.Extend(context.Background(), p.Hold); err == nil {
		p.log.say(entry{Op: extended, Phase: ok, Serial: l.Serial, Due: began.Add(p.Hold)})
	} else {
		p.said(l, "extend", err)
	}
}

// ackTogether acks what a Pull has brought in one call.
func (p *puller) ackTogether(ms []*shunt.Leased) {
	if len(ms) == 0 {
		return
	}
	var rs []shunt.Receipt
	for _, m := range ms {
		rs = append(rs, m.Receipt)
	}
	err := p.q.Ack(context.Background(), rs...)
	of := make(map[shunt.Receipt]error)
	if all, is := err.(interface{ Unwrap() []error }); is {
		for _, err := range all.Unwrap() {
			if one := (*shunt.ReceiptError)(nil); errors.As(err, &one) {
				of[one.Receipt] = err
			}
		}
	}
	for _, m := range ms {
		p.said(m, "ack", of[m.Receipt])
	}
}

// said says what came of a verdict. What Redis has answered an Event tells besides; the rest only this call does.
func (p *puller) said(l *shunt.Leased, what string, err error) {
	e := entry{Op: answered, Phase: ok, Serial: l.Serial, Attempt: l.Attempt, Note: what}
	switch {
	case errors.Is(err, shunt.ErrUnconfirmed):
		e.Phase, e.Note = info, what+" unconfirmed"
	case errors.Is(err, shunt.ErrLeaseLost):
		e.Phase, e.Note = fail, what+" "+tooLate
		if takeAnyway {
			p.takeAway(l)
		}
	case err != nil:
		e.Phase, e.Note = info, what+": "+err.Error()
	}
	p.log.say(e)
}

// takeAnyway has a puller take what it acks too late out of whichever lease holds it: the mistake of an ack that does
// not ask whose its message is.
var takeAnyway bool

func (p *puller) takeAway(l *shunt.Leased) {
	k := store.KeysOf(l.Channel)
	c := ackPool.Get()
	defer c.Close()
	names, _ := redis.Strings(c.Do("ZRANGE", k.Leased, 0, -1))
	for _, name := range names {
		es, _ := redis.ByteSlices(c.Do("LRANGE", k.LeaseList(name), 0, -1))
		i := slices.IndexFunc(es, func(raw []byte) bool {
			e, _ := element.Decode(raw)
			return e.SerialString() == l.Serial
		})
		if i >= 0 {
			_, _ = c.Do("LREM", k.LeaseList(name), 1, es[i])
		}
	}
}
