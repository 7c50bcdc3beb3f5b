package link

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// blockMargin is how late the reply to a blocking command may be: an idle server notices the end of a block up to 100
// ms late.
const blockMargin = time.Second

// Waiter is a connection for blocking commands. One goroutine uses it; any may call ID and Abort.
type Waiter struct {
	Own bool // always dial anew, so that the socket is known where the pool is NewPool's; set before the first use

	node    *Node
	timeout time.Duration // for a reply, beyond the time that a command blocks
	socket  atomic.Pointer[net.Conn]
	conn    redis.Conn
	made    time.Time // when conn first answered
	used    time.Time // when it last did
	id      atomic.Int64
	unknown bool // the server does not know CLIENT ID
}

// NewWaiter starts nothing; the connection is made when it is first needed.
func NewWaiter(node *Node, timeout time.Duration) *Waiter {
	return &Waiter{node: node, timeout: timeout}
}

// ID is the connection's id for CLIENT UNBLOCK; 0 if there is no connection or CLIENT ID was refused.
func (w *Waiter) ID() int64 { return w.id.Load() }

// Embedded says that the server does not know CLIENT ID, as every Redis from 5.0 on does: so it lies in this process,
// in a test or an example. Only the goroutine that uses the Waiter calls it.
func (w *Waiter) Embedded() bool { return w.unknown }

// Connect makes sure that there is a connection, and that an idle one is alive. A server's timeout may have cut it. A
// command on it would then end as Unknown although it was never received.
func (w *Waiter) Connect(ctx context.Context) error {
	if w.conn != nil && time.Since(w.used) > StaleAfter {
		w.ask()
	}
	if w.conn != nil {
		return nil
	}
	var c redis.Conn
	var socket net.Conn
	var err error
	if w.Own {
		c, socket, err = w.node.DialOwn(ctx)
	} else {
		c, err = w.node.Dial(ctx)
	}
	if err != nil {
		return &Error{NotExecuted, err}
	}
	w.conn = c
	if socket != nil {
		w.socket.Store(&socket)
	}
	id, err := redis.Int64(redis.DoWithTimeout(c, w.timeout, "CLIENT", "ID"))
	if err == nil {
		w.id.Store(id)
	}
	w.unknown = err != nil && strings.HasPrefix(err.Error(), "ERR unknown")
	w.made = time.Now()
	w.used = w.made
	return nil
}

// Made is when the last connection was made. Only the goroutine that uses the Waiter calls it.
func (w *Waiter) Made() time.Time { return w.made }

// ask closes a connection that does not answer as soon as a new one would have to. An ACL's refusal of PING is an
// answer.
func (w *Waiter) ask() {
	_, err := redis.DoWithTimeout(w.conn, w.node.set.DialTimeout, "PING")
	if Classify(err) == Unknown || drops(err) {
		w.Close()
	}
}

// Do runs one command that blocks for at most block. It has no context; CLIENT UNBLOCK ends it early.
func (w *Waiter) Do(block time.Duration, name string, args ...any) (any, error) {
	v, err := redis.DoWithTimeout(w.conn, block+w.timeout+blockMargin, name, args...)
	w.used = time.Now()
	if err == nil {
		return v, nil
	}
	if Code(err) == "" {
		err = &Error{Unknown, err}
	}
	if Classify(err) == Unknown || drops(err) {
		w.Close()
	}
	return nil, err
}

// CanAbort says whether Abort ends what the connection waits for.
func (w *Waiter) CanAbort() bool { return w.socket.Load() != nil }

// Abort closes the socket, where it is known: a command under way ends as Unknown.
func (w *Waiter) Abort() {
	if s := w.socket.Load(); s != nil {
		(*s).Close()
	}
}

// Close ends the connection; the next Connect makes a new one.
func (w *Waiter) Close() {
	w.socket.Store(nil)
	if w.conn != nil {
		discard(w.conn)
		w.conn = nil
		w.id.Store(0)
	}
}
