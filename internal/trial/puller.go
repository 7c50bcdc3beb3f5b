package trial

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

// Puller takes messages under leases, as a process that serves others does.
type Puller struct {
	*Orders
	Queue *shunt.Queue
	Log   *Ledger
}

// serve begins to pull, or to keep channels, or both.
func (o *Orders) serve(ctx context.Context, q *shunt.Queue, log *Ledger) (shunt.Shutdown, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if o.Upkeep {
		if err := q.Upkeep(ctx); err != nil {
			cancel()
			return nil, err
		}
		log.Say(Entry{Op: Keeping, Phase: OK})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if o.Pull > 0 {
			(&Puller{Orders: o, Queue: q, Log: log}).PullAll(ctx)
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

// PullAll pulls with as many requests at a time as there are workers, until ctx ends.
func (p *Puller) PullAll(ctx context.Context) {
	p.Log.Say(Entry{Op: Pulling, Phase: OK})
	p.Log.Say(p.takes()...)
	var all sync.WaitGroup
	for n := range p.Workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(p.Seed, uint64(n)))
			for ctx.Err() == nil {
				if err := p.pull(ctx, n, r); err != nil {
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
func (p *Puller) pull(ctx context.Context, worker int, r *rand.Rand) error {
	request, cancel := ctx, context.CancelFunc(func() {})
	if p.Hurry > 0 {
		request, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(p.Hurry))))
	}
	ms, err := p.Queue.Pull(request, shunt.PullOptions{Channels: p.Channels, Max: p.Pull, Lease: p.Hold, Wait: p.Wait})
	cancel()
	if err != nil {
		if ctx.Err() == nil && request.Err() == nil {
			p.Log.Say(Entry{Op: unpulled, Phase: Fail, N: worker, Note: err.Error()})
		}
		return err
	}
	p.Has(worker, ms)
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
	p.AckTogether(together)
	if len(ms) > 0 {
		p.Log.Say(Entry{Op: Settled, Phase: Info, N: worker})
	}
	return nil
}

// Has says what a Pull has brought, before any of it is handled.
func (p *Puller) Has(worker int, ms []*shunt.Leased) {
	es := make([]Entry, len(ms))
	for i, m := range ms {
		es[i] = Entry{Op: Pulled, Phase: Info, ID: ParseMessage(m.Payload).ID, Serial: m.Serial, Attempt: m.Attempt,
			N: worker, Due: m.EndsAt}
	}
	if len(es) > 0 {
		p.Log.Say(es...)
	}
}

// kindOf spreads messages over the ways in which they are settled: by what a seed draws, which a serial is not.
func kindOf(m *shunt.Leased) uint32 {
	return crc32.ChecksumIEEE(append([]byte{byte(m.Attempt)}, m.Payload[:min(64, len(m.Payload))]...))
}

// handle handles one message. later: it was handled well, and is to be acked with others.
func (p *Puller) handle(ctx context.Context, worker int, l *shunt.Leased) (later bool) {
	m := ParseMessage(l.Payload)
	m.On, m.Log, m.Hang, m.Die, m.Ask = l.Channel, p.Log, p.Hang, p.Die, asks(p.Queue, 8*time.Second)
	e := Entry{Op: Handle, Phase: Invoke, ID: m.ID, Serial: l.Serial, Attempt: l.Attempt, N: worker}
	if m.corrupt != "" {
		e.ID, e.Note = "corrupt "+m.ID, m.corrupt
	}
	if ctx.Err() != nil { // it ends, and has not begun this one
		e.Phase, e.Note = Info, "not begun"
		p.Log.Say(e)
		p.Said(l, "release", l.Release(context.Background()))
		return false
	}
	p.Log.Say(e)
	if ms, is := millis(m.Plan, PlanExtend); is && l.Attempt == 1 {
		p.extend(l, ms)
	}
	var err error
	if n := following(m.Plan); n > 0 {
		err = m.followBy(n, l.Attempt, func(next shunt.IMessage) error { return l.Then(ctx, next) })
	} else {
		err = m.act(ctx, l.Attempt)
	}
	if err == nil && l.Attempt == 1 && (m.Plan == PlanPanic || m.Plan == PlanGoexit) {
		err = errors.New(m.Plan)
	}
	e.At, e.Phase, e.Note = time.Time{}, OK, ""
	released := false
	switch {
	case err != nil && ctx.Err() != nil:
		e.Phase, e.Note, released = Info, err.Error(), true
	case err != nil:
		e.Phase, e.Note, e.At = Fail, err.Error(), time.Now()
		if ms, is := millis(m.Plan, PlanAfter); is {
			e.Due = e.At.Add(ms)
		} else if !strings.HasPrefix(m.Plan, PlanReject) {
			e.Due = e.At.Add(backoff)
		}
	}
	p.Log.Say(e)
	switch kind := kindOf(l); { // a receipt alone says nothing of what follows
	case released:
		p.Said(l, "release", p.settle(l, kind%2 == 0, (*shunt.Leased).Release, p.Queue.Release))
	case err != nil:
		p.Said(l, "fail", l.Fail(context.Background(), err))
	case following(m.Plan) > 0:
		p.Said(l, "ack", l.Ack(context.Background()))
	case kind%3 == 0 && p.Pull > 1:
		return true
	default:
		p.Said(l, "ack", p.settle(l, kind%2 == 0, (*shunt.Leased).Ack, p.Queue.Ack))
	}
	return false
}

// settle settles by the message, or by its receipt as another process would.
func (p *Puller) settle(l *shunt.Leased, itself bool, own func(*shunt.Leased, context.Context) error,
	by func(context.Context, ...shunt.Receipt) error) error {
	ctx := context.Background()
	if itself {
		return own(l, ctx)
	}
	return by(ctx, l.Receipt)
}

// extend puts the end of a lease off again and again, while its message is handled.
func (p *Puller) extend(l *shunt.Leased, during time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); {
		p.putOff(l)
		time.Sleep(min(time.Until(end), p.Hold/3))
	}
}

// putOff begins the lease of a message anew.
func (p *Puller) putOff(l *shunt.Leased) {
	began := time.Now()
	if err := l.Extend(context.Background(), p.Hold); err == nil {
		p.Log.Say(Entry{Op: Extended, Phase: OK, Serial: l.Serial, Attempt: l.Attempt, Due: began.Add(p.Hold)})
	} else {
		p.Said(l, "extend", err)
	}
}

// AckTogether acks what a Pull has brought in one call.
func (p *Puller) AckTogether(ms []*shunt.Leased) {
	if len(ms) == 0 {
		return
	}
	var rs []shunt.Receipt
	for _, m := range ms {
		rs = append(rs, m.Receipt)
	}
	err := p.Queue.Ack(context.Background(), rs...)
	of := make(map[shunt.Receipt]error)
	if all, is := err.(interface{ Unwrap() []error }); is {
		for _, err := range all.Unwrap() {
			if one := (*shunt.ReceiptError)(nil); errors.As(err, &one) {
				of[one.Receipt] = err
			}
		}
	}
	for _, m := range ms {
		p.Said(m, "ack", of[m.Receipt])
	}
}

// Said says what came of a verdict. What Redis has answered an Event tells besides; the rest only this call does.
func (p *Puller) Said(l *shunt.Leased, what string, err error) {
	e := Entry{Op: Answered, Phase: OK, Serial: l.Serial, Attempt: l.Attempt, Note: what}
	switch {
	case errors.Is(err, shunt.ErrUnconfirmed):
		e.Phase, e.Note = Info, what+" unconfirmed"
	case errors.Is(err, shunt.ErrLeaseLost):
		e.Phase, e.Note = Fail, what+" "+tooLate
		if p.TakeAnyway {
			p.takeAway(l)
		}
	case err != nil:
		e.Phase, e.Note = Info, what+": "+err.Error()
	}
	p.Log.Say(e)
}

// takeAway takes a message out of whichever lease holds it.
func (p *Puller) takeAway(l *shunt.Leased) {
	k := store.KeysOf(l.Channel)
	c := p.Queue.Pool.Get()
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
