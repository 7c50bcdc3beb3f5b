// Package link carries commands to Redis: pipelined on shared connections, blocking on connections of their own. It
// alone knows redigo's rules for a connection, and it decides, in one place, which outcome an error leaves open.
package link

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Settings of a Node.
type Settings struct {
	DialTimeout time.Duration // for a connection of the pool, and for its first answer
	MaxBackoff  time.Duration // between dials while the server is away
	// Changed is called when the server goes and comes, and when it refuses this client. It must not block.
	Changed func(up, refused bool, err error)
}

// minBackoff is the first wait after a failed dial. So a process dials an absent server at most once a second, however
// many connections it wants. MaxBackoff, which a short lease demands, may make that less.
const minBackoff = time.Second

// Node is one Redis server, to which it makes connections. They are dialled one after another unless a dial has just
// worked, and with a growing wait while the server is away. Safe for concurrent use.
type Node struct {
	pool    *redis.Pool
	set     Settings
	dialing chan struct{} // of capacity 1: the right to dial

	mu        sync.Mutex
	fails     int       // dials that failed since the last that worked
	notBefore time.Time // of the next dial
	why       error     // of the last failed dial, or of a server that refuses to serve; nil: neither came since
	shut      bool      // why is of a dial, and not of a server that took the connection and refuses to serve
	worked    time.Time // when a dial last worked; zero: none has yet
	reported  state

	hopeless atomic.Pointer[refusal] // nil: a dial may work

	reporting sync.Mutex
}

// refusal is a failed dial after which waiting will not help.
type refusal struct {
	err   error
	until time.Time // of the next dial, which finds out whether that is still so
}

// state is what Changed was last called with.
type state int

const (
	neverReported state = iota
	up
	down
	away // down, because the server refuses this client
)

// NewNode starts nothing.
func NewNode(pool *redis.Pool, s Settings) *Node {
	return &Node{pool: pool, set: s, dialing: make(chan struct{}, 1)}
}

// failed notes that the server could not be reached, or sent a connection away. Failures that are noticed at once
// count as one.
func (n *Node) failed(err error, shut bool) {
	n.mu.Lock()
	n.why, n.shut = err, shut
	if n.fails == 0 || time.Now().After(n.notBefore) {
		n.fails++
		wait := min(minBackoff<<min(n.fails-1, 8), n.set.MaxBackoff)
		n.notBefore = time.Now().Add(wait + time.Duration(rand.Int64N(int64(wait)/8+1)))
	}
	n.hopeless.Store(nil)
	if sentAway(err) || n.worked.IsZero() && nobodyThere(err) {
		n.hopeless.Store(&refusal{err, n.notBefore})
	}
	n.mu.Unlock()
	n.report()
}

func (n *Node) succeeded() {
	n.mu.Lock()
	n.fails, n.why, n.worked = 0, nil, time.Now()
	n.hopeless.Store(nil)
	n.mu.Unlock()
	n.report()
}

// Why is the error of the last dial, or of a server that refuses to serve; nil while the server is there.
func (n *Node) Why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.why
}

// Shut says that the last dial failed. It is false of a server that refuses to serve: that takes connections.
func (n *Node) Shut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.why != nil && n.shut
}

// Hopeless is the error of the last dial where waiting will not help, until it is time for another dial. The server
// refuses this client, or it has never been there.
func (n *Node) Hopeless() error {
	if r := n.hopeless.Load(); r != nil && time.Now().Before(r.until) {
		return r.err
	}
	return nil
}

// report calls Changed once a change. It reads the state when its turn comes, so the last call has the last state.
func (n *Node) report() {
	n.reporting.Lock()
	defer n.reporting.Unlock()
	n.mu.Lock()
	s, err := up, n.why
	switch {
	case err != nil && sentAway(err):
		s = away
	case err != nil && n.reported != away: // after a refusal other failures are not reported, until a dial works
		s = down
	case err != nil:
		s = away
	}
	changed := n.reported != s
	n.reported = s
	n.mu.Unlock()
	if changed && n.set.Changed != nil {
		n.set.Changed(s == up, s == away, err)
	}
}

// Dial gets a connection that has answered. It first waits for its turn and, while the server is away, for the backoff.
func (n *Node) Dial(ctx context.Context) (redis.Conn, error) { return n.dialAfterBackoff(ctx, nil) }

// DialOwn is Dial that returns the socket too, where the pool is NewPool's: a *tls.Conn for rediss://. Such a pool
// always dials anew for it, and closes idle connections that it meets.
func (n *Node) DialOwn(ctx context.Context) (c redis.Conn, socket net.Conn, err error) {
	c, err = n.dialAfterBackoff(ctx, &socket)
	return c, socket, err
}

func (n *Node) dialAfterBackoff(ctx context.Context, socket *net.Conn) (redis.Conn, error) {
	n.mu.Lock()
	justWorked := n.fails == 0 && time.Since(n.worked) < minBackoff
	n.mu.Unlock()
	if !justWorked {
		select {
		case n.dialing <- struct{}{}:
			defer func() { <-n.dialing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	wait := time.Until(n.notBefore)
	if n.fails == 0 {
		wait = 0
	}
	n.mu.Unlock()
	if err := Sleep(ctx, wait); err != nil {
		return nil, err
	}
	c, err := n.dial(ctx, socket)
	if err == nil {
		n.succeeded()
	} else if ctx.Err() == nil {
		n.failed(err, true)
	}
	return c, err
}

func (n *Node) dial(caller context.Context, socket *net.Conn) (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(caller, n.set.DialTimeout)
	defer cancel()
	failed := func(err error, late string) error {
		if err == context.DeadlineExceeded && caller.Err() == nil { // who reads of it knows nothing of that context
			err = fmt.Errorf("%s within %v", late, n.set.DialTimeout.Round(time.Millisecond))
		}
		return fmt.Errorf("connect to redis: %w", err)
	}
	if socket != nil {
		ctx = askForSocket(ctx, socket)
	}
	for {
		old := n.pool.IdleCount() > 0
		c, err := n.pool.GetContext(ctx)
		if err != nil {
			late := "no answer"
			if n.pool.Wait && n.pool.MaxActive > 0 && n.pool.ActiveCount() >= n.pool.MaxActive {
				late = fmt.Sprintf("none of the Pool's %d connections (MaxActive) was free", n.pool.MaxActive)
			}
			return nil, failed(err, late)
		}
		// The pool's connection may be an old one, and the server of a new one may not be ready. A refusal of PING
		// itself, by an ACL, is an answer.
		isOpen := closeAfter(ctx, socket)
		_, err = redis.DoWithTimeout(c, n.set.DialTimeout, "PING")
		if isOpen() && (err == nil || Code(err) == "NOPERM") {
			return c, nil
		}
		if ctx.Err() != nil { // the error is that of a socket that closeAfter has closed
			err = ctx.Err()
		}
		discard(c)
		if !old || Code(err) != "" || ctx.Err() != nil {
			return nil, failed(err, "no answer")
		}
	}
}

// closeAfter closes a socket when ctx ends, so that whoever closes a link does not wait for a server that is mute. The
// func that it returns ends that, and says whether the socket is still open.
func closeAfter(ctx context.Context, socket *net.Conn) (stop func() bool) {
	if socket == nil || *socket == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { (*socket).Close() })
}

// discard closes a connection of a pool, whatever replies it still expects. A pool keeps a connection that has no
// error. A read that times out at once gives it one, and needs no answer from the server.
func discard(c redis.Conn) {
	for c.Err() == nil { // replies that were read already come first
		if _, err := redis.ReceiveWithTimeout(c, time.Nanosecond); err != nil && Code(err) == "" {
			break
		}
	}
	c.Close()
}

// Sleep waits for d, or until ctx ends, which is then the error.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
