// Package link carries commands to Redis: pipelined on shared connections, blocking on connections of their own. It is the
// only place that knows redigo's rules for a connection, and it decides, once, what an error says about a command's outcome.
package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Settings of a Node.
type Settings struct {
	DialTimeout time.Duration            // for a connection to be had from the pool and to answer
	MaxBackoff  time.Duration            // between dials while the server is away
	Changed     func(up bool, err error) // told, on a goroutine that may not wait, when the server goes and comes
}

// minBackoff is the first wait after a failed dial, so that a process dials an absent server at most once a second
// however many connections it wants, unless MaxBackoff, which a short lease demands, is less.
const minBackoff = time.Second

// Node is one Redis server as its connections see it. Unless it has just been seen there, connections are dialled
// one after another, and while it is away with a growing wait. Safe for concurrent use.
type Node struct {
	pool *redis.Pool
	set  Settings
	turn chan struct{} // of capacity 1: the right to dial

	mu    sync.Mutex
	fails int       // dials that failed since the last that worked
	until time.Time // no dial before
	why   error     // of the last failed dial
	seen  time.Time // the last dial that worked
	told  state

	telling sync.Mutex
}

type state int

const (
	untold state = iota
	up
	down
)

// NewNode starts nothing.
func NewNode(pool *redis.Pool, s Settings) *Node {
	return &Node{pool: pool, set: s, turn: make(chan struct{}, 1)}
}

// failed notes that the server could not be reached, or sent a connection away. Several who find out at once count as one.
func (n *Node) failed(err error) {
	n.mu.Lock()
	n.why = err
	if n.fails == 0 || time.Now().After(n.until) {
		n.fails++
		wait := min(minBackoff<<min(n.fails-1, 8), n.set.MaxBackoff)
		n.until = time.Now().Add(wait + time.Duration(rand.Int64N(int64(wait)/8+1)))
	}
	n.mu.Unlock()
	n.tell()
}

func (n *Node) worked() {
	n.mu.Lock()
	n.fails, n.why, n.seen = 0, nil, time.Now()
	n.mu.Unlock()
	n.tell()
}

// Why is what the last dial failed with; nil while the server is there.
func (n *Node) Why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.why
}

// tell reports a change, once. What is told last is how it is, whoever comes late.
func (n *Node) tell() {
	n.telling.Lock()
	defer n.telling.Unlock()
	n.mu.Lock()
	s, err := up, n.why
	if err != nil {
		s = down
	}
	changed := n.told != s
	n.told = s
	n.mu.Unlock()
	if changed && n.set.Changed != nil {
		n.set.Changed(s == up, err)
	}
}

// Dial gets a connection that has answered. It first waits for its turn and, while the server is away, for the backoff.
func (n *Node) Dial(ctx context.Context) (redis.Conn, error) { return n.dialInTurn(ctx, nil) }

// DialOwn is Dial for one who wants the socket too, where that can be had: of a pool of NewPool's, without TLS. Such a pool dials anew
// for it, and parts with its idle connections.
func (n *Node) DialOwn(ctx context.Context) (c redis.Conn, socket net.Conn, err error) {
	c, err = n.dialInTurn(ctx, &socket)
	return c, socket, err
}

func (n *Node) dialInTurn(ctx context.Context, socket *net.Conn) (redis.Conn, error) {
	n.mu.Lock()
	seen := n.fails == 0 && time.Since(n.seen) < minBackoff
	n.mu.Unlock()
	if !seen {
		select {
		case n.turn <- struct{}{}:
			defer func() { <-n.turn }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	n.mu.Lock()
	wait := time.Until(n.until)
	if n.fails == 0 {
		wait = 0
	}
	n.mu.Unlock()
	if err := Sleep(ctx, wait); err != nil {
		return nil, err
	}
	c, err := n.dial(ctx, socket)
	if err == nil {
		n.worked()
	} else if ctx.Err() == nil {
		n.failed(err)
	}
	return c, err
}

func (n *Node) dial(ctx context.Context, socket *net.Conn) (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.set.DialTimeout)
	defer cancel()
	if socket != nil {
		ctx = askForSocket(ctx, socket)
	}
	for {
		old := n.pool.IdleCount() > 0
		c, err := n.pool.GetContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("connect to redis: %w", err)
		}
		// The pool's connection may be an old one, and a new one may be to a server that is not ready. A user who may not PING
		// is as good as one who may.
		_, err = redis.DoWithTimeout(c, n.set.DialTimeout, "PING")
		if err == nil || Code(err) == "NOPERM" {
			return c, nil
		}
		discard(c)
		if !old || Code(err) != "" || ctx.Err() != nil {
			return nil, fmt.Errorf("connect to redis: %w", err)
		}
	}
}

// discard ends a connection for good, with what it may still be owed: a pool takes back only what has no error. A reply
// that is due in no time is such an error, and needs no answer from the server.
func discard(c redis.Conn) {
	for c.Err() == nil { // what has been read already comes first
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

// ErrClosed says that the link was closed before the command was sent.
var ErrClosed = errors.New("the link is closed")
