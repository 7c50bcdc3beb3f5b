package worker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// incarnation is the pool's hold on Redis: the name under which it takes, its lease, why it has to end, and the gate that stands before its
// lists. Whoever has commands under way on these lists is inside the gate, from before they are sent until their replies have been
// judged. So whoever has closed the gate sees every element in one known place.
type incarnation struct {
	live  atomic.Pointer[store.Incarnation]
	lease lease

	gate    sync.RWMutex
	closers atomic.Int32          // how many want the gate closed, or have closed it
	unblock func(context.Context) // ends the blocking commands inside the gate, until its context ends

	broken       chan error  // of capacity 1: why the incarnation has to end
	mustEnd      atomic.Bool // it has to, and has not yet
	requestedFor *time.Time  // the watcher's: the lease for which it last asked for a beat

	run   atomic.Pointer[store.ServerRun] // the process of Redis at which it is registered
	debts debts
}

func (i *incarnation) init(first store.Incarnation) {
	i.live.Store(&first)
	i.lease.length = first.Term()
	i.broken = make(chan error, 1)
}

// enter goes inside the gate, for commands on the incarnation's lists; leave goes out. False: the gate is closed, or about to be.
func (i *incarnation) enter() bool {
	if i.pausing() || !i.gate.TryRLock() {
		return false
	}
	if i.pausing() {
		i.gate.RUnlock()
		return false
	}
	return true
}

func (i *incarnation) leave() { i.gate.RUnlock() }

// pausing says that nobody enters the gate now: it is closed, or about to be, or the incarnation has to end.
func (i *incarnation) pausing() bool { return i.mustEnd.Load() || i.closers.Load() > 0 }

// closeGate waits until all are outside, and keeps them there until openGate. A blocked waiter is unblocked. False: ctx ended first.
func (i *incarnation) closeGate(ctx context.Context) bool {
	i.closers.Add(1)
	unblocking, done := context.WithCancel(ctx)
	defer done()
	go i.unblock(unblocking)
	for !i.gate.TryLock() { // Lock would also keep out those who have to enter again before they leave
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			i.closers.Add(-1)
			return false
		}
	}
	return true
}

func (i *incarnation) openGate() {
	i.closers.Add(-1)
	i.gate.Unlock()
}

// mustHandOver says that the incarnation has to end: a connection broke that owed it a reply, its lease is lost, or its lists hold
// what nobody has in hand. Whoever is inside the gate says so before leaving it.
func (i *incarnation) mustHandOver(why error) {
	i.mustEnd.Store(true)
	select {
	case i.broken <- why:
	default:
	}
}

// succeed puts the next incarnation in the place of the live one, and answers for all that broke so far. The gate is closed.
func (i *incarnation) succeed(next *registered) {
	i.live.Store(&next.inc)
	i.run.Store(&next.run)
	i.lease.renew(next.sent)
	i.mustEnd.Store(false)
	select {
	case <-i.broken:
	default:
	}
	if i.lease.lost.Load() { // the watcher saw the old lease lost just when it was renewed
		i.mustHandOver(ErrLeaseLost)
	}
}

// wasCut says whether it is a broken connection that ends an incarnation.
func wasCut(why error) bool {
	var e *link.Error
	return errors.As(why, &e) && e.Class == link.Unknown || closes(why)
}

// closes says whether an error is Redis's word that it closes the connection, because it cannot read what was sent: an argument over
// proto-max-bulk-len, or more arguments than it knows.
func closes(err error) bool {
	var e redis.Error
	return errors.As(err, &e) && strings.HasPrefix(string(e), "ERR Protocol error")
}

// broke says whether a command's connection ended with it: its outcome is unknown, or it is what ended the connection.
func broke(err error) bool { return err != nil && (link.Classify(err) == link.Unknown || closes(err)) }

// registered is an incarnation that every channel has among the living.
type registered struct {
	inc  store.Incarnation
	run  store.ServerRun
	sent time.Time // from which its lease counts
}

// debts are the incarnations that have ended and are not yet listed as dead at some channel. They are paid outside of the gate, again and again
// until Redis lets. Their entries run out besides, so that a debt that is never paid costs the term of a lease.
type debts struct {
	mu  sync.Mutex
	all []debt
	// abandoned is the name of the last incarnation whose register failed; it holds nothing, and goes with the next register. It belongs to
	// whoever has closed the gate.
	abandoned string
}

type debt struct {
	inc     store.Incarnation
	in      *Channel
	counted bool
}

const (
	maxDebts     = 1024
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
