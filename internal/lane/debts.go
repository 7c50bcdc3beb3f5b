package lane

import (
	"context"
	"slices"
	"sync"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Debts are the incarnations of a site that have ended and are not yet listed as dead at some lane. They are paid
// outside of the gate, again and again until Redis lets. Their entries run out besides, so that a debt that is never
// paid costs the term of a lease.
type Debts struct {
	site *Site
	more chan struct{} // of capacity 1: there are some
	mu   sync.Mutex
	all  []Debt
	// ended are the last incarnations that were owed. A Redis that comes back with an older state has them among the
	// living.
	ended []store.Incarnation
	// abandoned are the names of the last incarnations whose register failed. They hold nothing, and go with the next
	// register that is answered. They belong to the goroutine that has closed the gate.
	abandoned []string
}

// Debt is one incarnation that has ended, at one lane.
type Debt struct {
	Incarnation store.Incarnation
	Lane        *Lane
	Counted     bool // what is in its lists is counted as recovered
}

const (
	maxDebts     = 1024
	maxAbandoned = 128 // those before them run out
	maxEnded     = 8   // the entries of those before them run out
	debtsAtOnce  = 128
)

func (d *Debts) init(s *Site) { d.site, d.more = s, make(chan struct{}, 1) }

// Add lists an incarnation at every lane of the site.
func (d *Debts) Add(inc store.Incarnation, counted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owe(inc, counted)
	d.ended = append(d.ended, inc)
	d.ended = d.ended[max(0, len(d.ended)-maxEnded):]
}

// Renew owes again what was paid to a Redis that has been replaced. Nothing that is owed is counted.
func (d *Debts) Renew() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = slices.DeleteFunc(d.all, func(o Debt) bool { return slices.Contains(d.ended, o.Incarnation) })
	for i := range d.all {
		d.all[i].Counted = false
	}
	for _, inc := range d.ended {
		d.owe(inc, false)
	}
}

// owe lists an incarnation at every lane of the site. mu is held.
func (d *Debts) owe(inc store.Incarnation, counted bool) {
	for _, l := range d.site.Lanes {
		d.all = append(d.all, Debt{inc, l, counted})
	}
	if over := len(d.all) - maxDebts; over > 0 {
		d.all = append([]Debt(nil), d.all[over:]...)
	}
	select {
	case d.more <- struct{}{}:
	default:
	}
}

// List is what is owed now.
func (d *Debts) List() []Debt {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Debt(nil), d.all...)
}

func (d *Debts) remove(paid map[Debt]bool) {
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

// abandon notes an incarnation whose register may have been executed. The gate is closed, or nobody has entered yet.
func (d *Debts) abandon(name string) {
	names := append(d.abandoned, name)
	d.abandoned = names[max(0, len(names)-maxAbandoned):]
}

// Forget takes away the incarnations whose register failed. The gate is closed.
func (d *Debts) Forget(ctx context.Context) {
	if len(d.abandoned) == 0 {
		return
	}
	c := link.NewCall()
	for _, l := range d.site.Lanes {
		store.AddForget(c, l.Keys, d.abandoned...)
	}
	if d.site.Do(ctx, c) == nil {
		d.abandoned = nil
	}
}

// Loop pays what is owed, with a wait that grows while Redis does not let.
func (d *Debts) Loop() {
	taking := d.site.conf.Taking
	for {
		select {
		case <-d.more:
		case <-taking.Done():
			return // the rest is the shutdown's
		}
		for wait := link.MinTrouble / 4; len(d.List()) > 0; wait = min(2*wait, link.MaxTrouble) {
			ctx, cancel := context.WithTimeout(taking, d.site.conf.ReplyTimeout)
			if err := d.Pay(ctx); err != nil && taking.Err() == nil {
				d.site.ReportFatal(d.site.Lanes[0], err)
			}
			cancel()
			if link.Sleep(taking, link.Jitter(wait)) != nil {
				return
			}
		}
	}
}

// Pay lists what has ended as dead. The first error is returned; other lanes' debts are paid all the same.
func (d *Debts) Pay(ctx context.Context) (first error) {
	for left := d.List(); len(left) > 0; {
		some := left[:min(len(left), debtsAtOnce)]
		left = left[len(some):]
		c := link.NewCall()
		for _, o := range some {
			store.AddSupersede(c, o.Lane.Keys, o.Incarnation.Name, o.Counted)
		}
		for _, o := range some {
			store.AddDropAbout(c, o.Lane.Keys, o.Incarnation)
		}
		if err := d.site.Do(ctx, c); !c.Answered {
			return err
		}
		paid := make(map[Debt]bool)
		for i, rep := range c.Replies[:len(some)] {
			if rep.Err == nil {
				paid[some[i]] = true
			} else if first == nil {
				first = rep.Err
			}
		}
		d.remove(paid)
	}
	return first
}
