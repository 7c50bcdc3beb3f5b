package worker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/custody"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/planted"
	"github.com/shuntmq/shunt/internal/store"
)

// incarnation is the pool's entry in Redis: the name under which it takes, its lease, why it has to end, and the gate
// before its lists. A goroutine that has commands under way on these lists is inside the gate, from before it sends
// them until it has judged the replies. So the goroutine that has closed the gate sees every element in one known
// place.
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
	i.debts.more = make(chan struct{}, 1)
}

// enter goes inside the gate, for commands on the incarnation's lists; leave goes out. False: the gate is closed, or
// about to be.
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

// closeGate waits until all are outside, and keeps them there until openGate. A blocked waiter is unblocked. False:
// ctx ended first.
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

// mustHandOver says that the incarnation has to end. A connection broke that owed it a reply, its lease is lost, or its
// lists have elements that no worker holds. A goroutine inside the gate calls it before it leaves.
func (i *incarnation) mustHandOver(why error) {
	if planted.IgnoreLostReply && why != custody.ErrLeaseLost {
		return
	}
	i.mustEnd.Store(true)
	select {
	case i.broken <- why:
	default:
	}
}

// succeed puts the next incarnation in the place of the live one, and answers for all that broke so far. The gate is
// closed.
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
		i.mustHandOver(custody.ErrLeaseLost)
	}
}

// wasCut says whether it is a broken connection that ends an incarnation.
func wasCut(why error) bool {
	var e *link.Error
	return errors.As(why, &e) && e.Class == link.Unknown || closes(why)
}

// closes says whether an error announces that Redis closes the connection, because it cannot read a command. The
// command has an argument over proto-max-bulk-len, or too many arguments.
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

// registerNext makes another incarnation known to Redis. It asks nothing else, with a wait that grows, for as long as
// Redis is away. nil: the pool has ended.
func (r *Pool) registerNext() *registered {
	for wait := link.MinTrouble; ; {
		next, err := r.register(r.PoolCtx, store.NewIncarnation(len(r.workers), r.conf.Lease))
		if err == nil {
			return next
		}
		if r.PoolCtx.Err() != nil {
			return nil
		}
		if r.ReportFatal(r.channels[0], err) {
			wait = min(2*wait, link.MaxTrouble)
		}
		link.Sleep(r.PoolCtx, link.Jitter(wait))
	}
}

// register enters an incarnation among the living of every channel. Only then may it take. Each attempt has a name of
// its own, and takes those of failed attempts away. So no name is ever both among the living and among the dead.
func (r *Pool) register(ctx context.Context, inc store.Incarnation) (*registered, error) {
	keys := make([]*store.Keys, len(r.channels))
	for i, in := range r.channels {
		keys[i] = in.Keys
	}
	sent := time.Now()
	run, err := store.RegisterIncarnation(ctx, r.s.Data, keys, inc, r.debts.abandoned)
	if err != nil {
		if link.Classify(err) != link.NotExecuted || len(keys) > 1 {
			names := append(r.debts.abandoned, inc.Name)
			r.debts.abandoned = names[max(0, len(names)-maxAbandoned):]
		}
		return nil, err
	}
	r.debts.abandoned = nil
	return &registered{inc, run, sent}, nil
}

// adopt makes the lists of an incarnation the workers' own. The gate is closed.
func (r *Pool) adopt(inc store.Incarnation) {
	for _, in := range r.channels {
		in.doing = in.DoingKeys(inc)
		if r.order != nil {
			continue
		}
		for n, s := range r.workers { // of the only channel
			s.take, s.ack = store.NewTake(in.Keys, in.doing[n]), store.NewAck(in.doing[n])
		}
	}
}
