package trial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
)

// Asked is what an enqueue asks for beside its ID.
type Asked struct{ Unique, Retain, Expire, In time.Duration }

func (a Asked) options() (opts []shunt.Option) {
	if a.Unique > 0 {
		opts = append(opts, shunt.UniqueFor(a.Unique))
	}
	if a.Retain > 0 {
		opts = append(opts, shunt.Retain(a.Retain))
	}
	if a.Expire > 0 {
		opts = append(opts, shunt.Expire(a.Expire))
	}
	if a.In > 0 {
		opts = append(opts, shunt.In(a.In))
	}
	return opts
}

// Kind is a plan, and what the enqueue of a message with that plan asks for.
type Kind struct {
	Plan string
	Asked
}

// Named is a load in which everything that a message with an ID can ask for has its part.
var Named = []Kind{
	{PlanOK, Asked{}},
	{PlanSlow + "20", Asked{}},
	{PlanRetry, Asked{}},
	{PlanThen + "1", Asked{}},
	{PlanOK, Asked{Unique: 200 * time.Millisecond}},
	{PlanAfter + "50", Asked{}},
	{PlanOK, Asked{Retain: 500 * time.Millisecond}},
	{PlanReject, Asked{Retain: 300 * time.Millisecond}},
	{PlanOK, Asked{Expire: 60 * time.Millisecond}},
	{PlanSlow + "100", Asked{Expire: 100 * time.Millisecond}},
	{PlanOK, Asked{In: 100 * time.Millisecond}},
	{PlanTwice, Asked{Unique: 100 * time.Millisecond}},
	{PlanPanic, Asked{}},
	{PlanRetry, Asked{In: 150 * time.Millisecond}},
	{PlanOK, Asked{In: 200 * time.Millisecond, Expire: 400 * time.Millisecond}},
	{PlanFalter + "1", Asked{Retain: 200 * time.Millisecond}},
}

// Namer enqueues messages with IDs, and does with them what can be done by ID. All of it is said.
type Namer struct {
	Queue   *shunt.Queue
	Log     *Ledger
	Channel string
	next    atomic.Int64
}

// message makes one of that ID.
func (n *Namer) message(id, plan string) *Message {
	return &Message{On: n.Channel, ID: fmt.Sprintf("%s#%s.%d", id, n.Log.By, n.next.Add(1)), Plan: plan}
}

// Enqueue enqueues one with an ID.
func (n *Namer) Enqueue(id, plan string, a Asked, opts ...shunt.Option) error {
	m := n.message(id, plan)
	n.Log.Say(a.entry(m))
	err := n.Queue.Enqueue(context.Background(), m, append(append(a.options(), opts...), shunt.ID(id))...)
	n.answered(m, a, err)
	return err
}

// entry begins an enqueue.
func (a Asked) entry(m *Message) Entry {
	return Entry{Op: Enqueue, Phase: Invoke, ID: m.ID, Note: m.Plan, N: int(a.Unique.Milliseconds())}
}

// all enqueues several at once.
func (n *Namer) all(ids []string, plan string, a Asked) {
	var ms []shunt.IMessage
	var said []*Message
	for _, id := range ids {
		m := n.message(id, plan)
		n.Log.Say(a.entry(m))
		ms, said = append(ms, shunt.With(m, shunt.ID(id))), append(said, m)
	}
	err := n.Queue.EnqueueAll(context.Background(), ms, a.options()...)
	var of *shunt.EnqueueError
	for i, m := range said {
		err := err
		if errors.As(err, &of) {
			err = of.Failed[i]
			if unknown := of.Unknown[i]; unknown != nil {
				err = unknown
			}
		}
		n.answered(m, a, err)
	}
}

func (n *Namer) answered(m *Message, a Asked, err error) {
	e := Entry{At: time.Now(), Op: Enqueue, Phase: Outcome(err), ID: m.ID}
	if dup := (*shunt.DuplicateError)(nil); errors.As(err, &dup) {
		e.Note = duplicate
		n.Log.Say(Entry{At: e.At, Op: refused, Phase: Info, ID: m.ID, Serial: dup.Status.Serial})
	} else if err != nil {
		e.Note = err.Error()
	}
	n.Log.Say(e)
	if a.In > 0 {
		n.Log.Say(Entry{At: e.At, Op: delayed, Phase: Info, ID: m.ID})
	}
	if a.Expire > 0 {
		n.Log.Say(Entry{At: e.At, Op: expires, Phase: Info, ID: m.ID, Due: e.At.Add(a.Expire)})
	}
}

// CallOff cancels. What it cannot say for sure is info.
func (n *Namer) CallOff(id string) error {
	n.Log.Say(Entry{Op: callOff, Phase: Invoke, ID: id})
	s, err := n.Queue.Cancel(context.Background(), shunt.ByID(n.Channel, id))
	e := Entry{Op: callOff, Phase: OK, ID: id, Serial: s.Serial, Note: string(s.State)}
	if err != nil {
		e.Phase, e.Note = Info, err.Error()
	}
	n.Log.Say(e)
	return err
}

// PutOff postpones by d.
func (n *Namer) PutOff(id string, d time.Duration) error {
	due := time.Now().Add(d)
	n.Log.Say(Entry{Op: putOff, Phase: Invoke, ID: id, Due: due})
	err := n.Queue.Postpone(context.Background(), shunt.ByID(n.Channel, id), shunt.In(d))
	e := Entry{Op: putOff, Phase: OK, ID: id, Due: due}
	if err != nil {
		e.Phase, e.Note = Info, err.Error()
	}
	n.Log.Say(e)
	return err
}

// waitFor waits for the end of what has the ID.
func (n *Namer) waitFor(ctx context.Context, id string) {
	_, err := n.Queue.Wait(ctx, shunt.ByID(n.Channel, id))
	if errors.Is(err, shunt.ErrNotKept) {
		n.Log.Say(Entry{Op: unkept, Phase: Fail, ID: id, Note: err.Error()})
	}
}

// Namers is how many goroutines a load of names has.
const Namers = 8

// name has some goroutines enqueue to a few IDs, again and again, and cancel, postpone, and wait for what has them,
// until ctx ends.
func (o *Orders) name(ctx context.Context, q *shunt.Queue, log *Ledger) {
	n := &Namer{Queue: q, Log: log, Channel: o.Channels[0]}
	var all sync.WaitGroup
	for i := range Namers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
			by := log.As(fmt.Sprintf("%s%d", log.By, i)) // whose calls come one after another
			n := &Namer{Queue: q, Log: by, Channel: n.Channel}
			tick := time.NewTicker(Namers * time.Second / time.Duration(o.Enqueue))
			defer tick.Stop()
			for ctx.Err() == nil {
				id := func() string { return fmt.Sprintf("%s/x%d", n.Channel, r.IntN(o.Names)) }
				switch k := Named[r.IntN(len(Named))]; r.IntN(10) {
				case 0, 1:
					_ = n.CallOff(id())
				case 2:
					_ = n.PutOff(id(), 100*time.Millisecond+time.Duration(r.Int64N(int64(300*time.Millisecond))))
				case 3:
					ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
					n.waitFor(ctx, id())
					cancel()
				case 4:
					n.all([]string{id(), id(), id(), id()}, k.Plan, k.Asked)
				default:
					_ = n.Enqueue(id(), k.Plan, k.Asked)
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}
