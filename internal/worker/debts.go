package worker

import (
	"context"
	"sync"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// debts are the incarnations that have ended and are not yet listed as dead at some channel. They are paid outside of
// the gate, again and again until Redis lets. Their entries run out besides, so that a debt that is never paid costs
// the term of a lease.
type debts struct {
	more chan struct{} // of capacity 1: there are some
	mu   sync.Mutex
	all  []debt
	// abandoned are the names of the last incarnations whose register failed. They hold nothing, and go with the next
	// register that is answered. They belong to the goroutine that has closed the gate.
	abandoned []string
}

type debt struct {
	inc     store.Incarnation
	in      *Channel
	counted bool
}

const (
	maxDebts     = 1024
	maxAbandoned = 128 // those before them run out
	debtsAtOnce  = 128
	scriptsAtOne = 512 // in one pipeline
)

func (d *debts) add(inc store.Incarnation, channels []*Channel, counted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, in := range channels {
		d.all = append(d.all, debt{inc, in, counted})
	}
	if over := len(d.all) - maxDebts; over > 0 {
		d.all = append([]debt(nil), d.all[over:]...)
	}
	select {
	case d.more <- struct{}{}:
	default:
	}
}

func (d *debts) list() []debt {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]debt(nil), d.all...)
}

func (d *debts) remove(paid map[debt]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.all[:0]
	for _, o := range d.all {
		if !paid[o] {
			left = append(left, o)
		}
	}
	clear(d.all[len(left):])
	d.all = left
}

// payLoop pays what is owed, with a wait that grows while Redis does not let.
func (r *Pool) payLoop() {
	for {
		select {
		case <-r.debts.more:
		case <-r.TakeCtx.Done():
			return // the rest is the shutdown's
		}
		for wait := link.MinTrouble / 4; len(r.debts.list()) > 0; wait = min(2*wait, link.MaxTrouble) {
			ctx, cancel := context.WithTimeout(r.TakeCtx, r.conf.ReplyTimeout)
			if err := r.payDebts(ctx); err != nil && r.TakeCtx.Err() == nil {
				r.ReportFatal(r.channels[0], err)
			}
			cancel()
			if link.Sleep(r.TakeCtx, link.Jitter(wait)) != nil {
				return
			}
		}
	}
}

// payDebts lists what has ended as dead. The first error is returned; other channels' debts are paid all the same.
func (r *Pool) payDebts(ctx context.Context) (first error) {
	for left := r.debts.list(); len(left) > 0; {
		some := left[:min(len(left), debtsAtOnce)]
		left = left[len(some):]
		c := link.NewCall()
		for _, d := range some {
			store.AddSupersede(c, d.in.Keys, d.inc.Name, d.counted)
		}
		if err := r.all(ctx, c); !c.Answered {
			return err
		}
		paid := make(map[debt]bool)
		for i, rep := range c.Replies {
			if rep.Err == nil {
				paid[some[i]] = true
			} else if first == nil {
				first = rep.Err
			}
		}
		r.debts.remove(paid)
	}
	return first
}
