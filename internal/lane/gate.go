package lane

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
)

// Gate stands before the lists of an incarnation. A goroutine that has commands under way on these lists is inside,
// from before it sends them until it has judged the replies. So the goroutine that has closed the gate sees every
// element in one known place. The gate also keeps why the incarnation has to end.
type Gate struct {
	inside  sync.RWMutex
	closers atomic.Int32          // how many want it closed, or have closed it
	unblock func(context.Context) // ends the blocking commands inside, until its context ends

	broken  chan error  // of capacity 1: why the incarnation has to end
	mustEnd atomic.Bool // it has to, and has not yet
}

func (g *Gate) init(unblock func(context.Context)) {
	g.unblock, g.broken = unblock, make(chan error, 1)
}

// Enter goes inside, for commands on the incarnation's lists; Leave goes out. False: the gate is closed, or about to
// be.
func (g *Gate) Enter() bool {
	if g.Pausing() || !g.inside.TryRLock() {
		return false
	}
	if g.Pausing() {
		g.inside.RUnlock()
		return false
	}
	return true
}

// Leave goes out again.
func (g *Gate) Leave() { g.inside.RUnlock() }

// Pausing says that nobody enters now: it is closed, or about to be, or the incarnation has to end.
func (g *Gate) Pausing() bool { return g.mustEnd.Load() || g.closers.Load() > 0 }

// CloseGate waits until all are outside, and keeps them there until OpenGate. A blocked waiter is unblocked. False: ctx
// ended first.
func (g *Gate) CloseGate(ctx context.Context) bool {
	g.closers.Add(1)
	unblocking, done := context.WithCancel(ctx)
	defer done()
	go g.unblock(unblocking)
	for !g.inside.TryLock() { // Lock would also keep out those who have to enter again before they leave
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			g.closers.Add(-1)
			return false
		}
	}
	return true
}

// OpenGate lets them in again.
func (g *Gate) OpenGate() {
	g.closers.Add(-1)
	g.inside.Unlock()
}

// MustHandOver says that the incarnation has to end. A connection broke that owed it a reply, its lease is lost, or its
// lists have elements that no worker holds. A goroutine inside calls it before it leaves.
func (g *Gate) MustHandOver(why error) {
	if planted.IgnoreLostReply && why != custody.ErrLeaseLost {
		return
	}
	g.mustEnd.Store(true)
	select {
	case g.broken <- why:
	default:
	}
}

// Broken gives why the incarnation has to end, once it has.
func (g *Gate) Broken() <-chan error { return g.broken }

// MustEnd says whether the incarnation has to end, and has not yet.
func (g *Gate) MustEnd() bool { return g.mustEnd.Load() }

// mended answers for all that broke so far. It is closed.
func (g *Gate) mended() {
	g.mustEnd.Store(false)
	select {
	case <-g.broken:
	default:
	}
}

// WasCut says whether it is a broken connection that ends an incarnation.
func WasCut(why error) bool {
	var e *link.Error
	return errors.As(why, &e) && e.Class == link.Unknown || closes(why)
}

// Broke says whether a command's connection ended with it: its outcome is unknown, or it is what ended the connection.
func Broke(err error) bool { return err != nil && (link.Classify(err) == link.Unknown || closes(err)) }

// closes says whether an error announces that Redis closes the connection, because it cannot read a command. The
// command has an argument over proto-max-bulk-len, or too many arguments.
func closes(err error) bool {
	var e redis.Error
	return errors.As(err, &e) && strings.HasPrefix(string(e), "ERR Protocol error")
}
