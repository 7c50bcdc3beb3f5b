package link

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/resp"
)

const (
	maxInflight      = 1024 // calls that wait for replies on one connection
	maxCallsPerWrite = 16   // Redis works on these while others are sent
)

// StaleAfter is when an idle connection may have been cut: the shortest timeout of a server is a second. It is set only
// where all of time is scaled down.
var StaleAfter = time.Second

// conn is one connection of a link, from its dial to its end.
type conn struct {
	redigo   redis.Conn
	wire     wire
	buffered bool // nothing is written before flush
	inflight chan *Call
	made     time.Time     // after its first answer
	ended    chan struct{} // closed when the reader has returned
	err      error         // of the reader, once ended is closed

	// Owned by the holder of the link's right to send.
	loaded    map[*Script]bool // whose text has been sent
	flushed   time.Time        // when something was last flushed
	unflushed int              // calls that were sent since

	owed          atomic.Int64                // bytes of the calls in flight
	justAnswered  atomic.Int32                // callers that were answered together: they may send again at once
	scriptMissing atomic.Bool                 // a reply was NOSCRIPT
	mustClose     atomic.Pointer[redis.Error] // after it another one is used
}

// newConn starts the reader. socket may be nil: the connection is then spoken to by redigo.
func newConn(redigo redis.Conn, socket net.Conn, timeout time.Duration) *conn {
	now := time.Now()
	c := &conn{
		redigo: redigo, wire: foreign{redigo}, loaded: make(map[*Script]bool), made: now, flushed: now,
		inflight: make(chan *Call, maxInflight), ended: make(chan struct{}),
	}
	if socket != nil {
		c.wire, c.buffered = direct{resp.NewConn(socket, timeout)}, true
	}
	go c.read(timeout)
	return c
}

// broken reports whether the reader has ended.
func (c *conn) broken() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// send writes a call, unless it was cancelled, and queues it for its replies. redigo may write a part of it before a
// flush, so from here on it counts as sent.
func (c *conn) send(call *Call) {
	if !call.state.CompareAndSwap(queued, sent) {
		return
	}
	if !call.Before.IsZero() && !c.made.Before(call.Before) {
		call.fail(NotExecuted, ErrYoung)
		return
	}
	if call.Timed {
		call.Sent = time.Now()
	}
	c.unflushed++
	if c.scriptMissing.Swap(false) {
		clear(c.loaded)
	}
	before := c.wire.Pending()
	for _, cmd := range call.cmds {
		if c.sendCommand(call, cmd) != nil {
			break // the reader finds the error too, and ends the connection
		}
	}
	call.size = int64(c.wire.Pending() - before)
	c.owed.Add(call.size)
	select {
	case c.inflight <- call:
		return
	default:
	}
	c.flush() // so that replies come, and make room
	select {
	case c.inflight <- call:
	case <-c.ended:
		call.fail(Unknown, c.err)
	}
}

func (c *conn) sendCommand(call *Call, cmd command) error {
	if cmd.ready != nil {
		for i := range cmd.times {
			if err := c.wire.sendReady(cmd.ready, call.elementsOf(cmd, i)); err != nil {
				return err
			}
		}
		return nil
	}
	name := cmd.name
	if cmd.script != nil && !c.loaded[cmd.script] {
		name, call.args[cmd.from] = "EVAL", cmd.script.text
		c.loaded[cmd.script] = true
	}
	return c.wire.Send(name, call.args[cmd.from:cmd.to], call.elements(cmd))
}

// flush writes what was sent.
func (c *conn) flush() error {
	if c.unflushed > 0 {
		c.flushed, c.unflushed = time.Now(), 0
	}
	return c.wire.Flush()
}

// alive asks a connection that has been idle for long. An error reply is an answer, too.
func (c *conn) alive() bool {
	ping := NewCall()
	ping.Add("PING")
	ping.state.Store(sent)
	c.unflushed++
	c.wire.Send("PING", nil, nil)
	select {
	case c.inflight <- ping:
	case <-c.ended:
		return false
	}
	c.flush()
	select {
	case <-ping.done:
		return Classify(ping.Replies[0].Err) != Unknown
	case <-c.ended:
		return false
	}
}

// end lets the reader finish, and closes the connection. Calls without a reply become Unknown.
func (c *conn) end() {
	c.flush()
	close(c.inflight)
	<-c.ended
	for call := range c.inflight {
		call.fail(Unknown, c.err)
	}
	discard(c.redigo)
}

// read is the reader goroutine: it ends with the connection, or when inflight is closed. It wakes the callers whose
// replies came together only when it has read all of these, so that what they send next goes together too.
func (c *conn) read(timeout time.Duration) {
	var answered []*Call
	wake := func() {
		if len(answered) == 0 {
			return
		}
		c.justAnswered.Store(int32(len(answered)))
		for _, call := range answered {
			call.done <- struct{}{}
		}
		clear(answered)
		answered = answered[:0]
	}
	for call := range c.inflight {
		for range call.n {
			v, bulk, err := c.wire.Receive(timeout, wake, call.Into)
			if err != nil && !c.isReply(err) {
				c.err = err
				close(c.ended) // first, so that a caller that gets the error does not use this connection again
				wake()
				call.fail(Unknown, err)
				return
			}
			call.Replies = append(call.Replies, Reply{v, bulk, err})
		}
		call.Order = Order()
		c.owed.Add(-call.size)
		if answered = append(answered, call); len(c.inflight) == 0 {
			wake()
		}
	}
	wake()
	c.err = ErrClosed
	close(c.ended)
}

// isReply reports whether an error is a reply of the server, and notes replies that concern the connection.
func (c *conn) isReply(err error) bool {
	refusal, reply := err.(redis.Error)
	if !reply {
		return false
	}
	if Code(err) == "NOSCRIPT" {
		c.scriptMissing.Store(true)
	} else if drops(err) {
		c.mustClose.Store(&refusal)
	}
	return true
}

// wire is how a link speaks on its connection. One goroutine sends, one receives, as redigo requires.
type wire interface {
	Send(name string, args []any, elements [][]byte) error // redigo's may write before Flush
	sendReady(c *Command, elements [][]byte) error
	Flush() error
	Pending() int // bytes to be flushed, as far as known
	// Receive calls waits before it may have to wait for the reply. A redis.Error is a reply, any other error the
	// connection's end. A bulk lies in into, if that is not nil and the bulk is small.
	Receive(timeout time.Duration, waits func(), into *Memory) (value any, bulk []byte, err error)
}

// direct is the wire on a connection whose socket is known.
type direct struct{ *resp.Conn }

func (d direct) sendReady(c *Command, elements [][]byte) error {
	return d.SendRendered(c.wire, elements)
}

// foreign is the wire on a connection of a pool that is not NewPool's: redigo's own.
type foreign struct{ conn redis.Conn }

func (f foreign) Send(name string, args []any, elements [][]byte) error {
	args = args[:len(args):len(args)]
	for _, e := range elements {
		args = append(args, e)
	}
	return f.conn.Send(name, args...)
}

func (f foreign) sendReady(c *Command, elements [][]byte) error {
	return f.Send(c.name, c.args, elements)
}

func (f foreign) Flush() error { return f.conn.Flush() }
func (f foreign) Pending() int { return 0 } // redigo has at most 4 KB

func (f foreign) Receive(timeout time.Duration, waits func(), _ *Memory) (any, []byte, error) {
	waits() // redigo does not say what is in its buffer
	v, err := redis.ReceiveWithTimeout(f.conn, timeout)
	if b, ok := v.([]byte); ok {
		return nil, b, err
	}
	return v, nil, err
}

// socketKey is the context key of a *net.Conn in which NewPool's dialer leaves the connection that it has dialled.
type socketKey struct{}

// askForSocket asks the dialer of a pool for the connection under redigo's.
func askForSocket(ctx context.Context, to *net.Conn) context.Context {
	return context.WithValue(ctx, socketKey{}, to)
}
