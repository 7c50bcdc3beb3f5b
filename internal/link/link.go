package link

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	maxInflight = 1024        // calls that wait for replies on one connection
	together    = 16          // calls that are written at once: Redis works on them while others come
	staleAfter  = time.Second // a link that idle is asked whether it lives before it is used: a server's own timeout may have cut it
)

// Link is one connection shared by many callers: a writer goroutine sends what they enqueue and flushes when there is no
// more, or enough, a reader goroutine hands out the replies in order. redigo allows one of each and nothing else. While little is under way
// a caller does the writer's work itself, which saves waking it. When the connection breaks, what was sent comes back as Unknown,
// and what was not waits for the next connection. Safe for concurrent use.
type Link struct {
	node    *Node
	timeout time.Duration // for the next reply of a connection that owes one
	check   bool          // ask a stale connection whether it lives

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // of capacity 1
	ended  chan struct{} // the writer has returned

	mu     sync.Mutex
	queue  []*Call
	closed bool

	dials atomic.Int64 // connections had
	up    atomic.Bool  // there is a connection, as far as is known

	turn  sync.Mutex // to send: what follows is its holder's; only the writer dials, and parts
	conn  *conn
	spare []*Call
}

// conn is one connection of the link.
type conn struct {
	redis.Conn
	wire
	buffers   bool             // nothing is written before flush
	loaded    map[*Script]bool // sender's: whose text has been sent
	idle      time.Time        // sender's: of the last flush of something
	unflushed int              // sender's: calls that were sent since
	inflight  chan *Call
	owed      atomic.Int64  // bytes of the calls in flight
	woken     atomic.Int32  // callers that were answered together and are likely to come again
	gone      chan struct{} // closed when the reader has returned
	err       error         // why, once gone is closed
	forgot    atomic.Bool   // a script was not there
	useless   atomic.Bool   // a reply says to use another connection
}

// flush writes what was sent.
func (c *conn) flush() error {
	if c.unflushed > 0 {
		c.idle, c.unflushed = time.Now(), 0
	}
	return c.wire.flush()
}

// New starts the link's goroutines; the connection is made when it is first needed. check is for links whose commands are not idempotent.
func New(node *Node, timeout time.Duration, check bool) *Link {
	l := &Link{node: node, timeout: timeout, check: check, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.write()
	return l
}

// Post sends the call and forgets it: its maker does not touch it again.
func (l *Link) Post(c *Call) {
	l.mu.Lock()
	closed, first := l.closed, len(l.queue) == 0
	if !closed {
		l.queue = append(l.queue, c)
	}
	l.mu.Unlock()
	if closed {
		c.fail(NotExecuted, ErrClosed)
		return
	}
	if !first {
		return // who was first has seen to it, or is about to
	}
	for l.waiting() > 0 && l.turn.TryLock() { // who has the turn looks again when he has given it back
		swift := l.swift()
		l.turn.Unlock()
		if !swift {
			l.poke()
			return
		}
	}
}

// A caller sends only what the socket surely takes at once, even where nothing is read any more: it must not wait beyond its context.
const (
	swiftCalls = 16       // that wait for replies
	swiftOwed  = 32 << 10 // bytes of these
	swiftBytes = 4 << 10  // to be written
)

// swift does the writer's work for a caller who has the turn, and says whether it is done.
func (l *Link) swift() bool {
	c := l.conn
	if c == nil || !c.buffers || c.useless.Load() || c.owed.Load() > swiftOwed || l.waiting()+len(c.inflight)+int(c.woken.Load()) > swiftCalls || l.check && time.Since(c.idle) > staleAfter {
		return false
	}
	select {
	case <-c.gone:
		return false
	default:
	}
	calls, closed := l.take()
	if closed {
		l.back(calls)
		return false
	}
	for _, call := range calls {
		l.send(call)
	}
	clear(calls)
	l.spare = calls[:0]
	if c.pending() > swiftBytes {
		return false
	}
	c.flush()
	return true
}

// back puts calls before what has come since.
func (l *Link) back(calls []*Call) {
	l.mu.Lock()
	l.queue = append(calls, l.queue...)
	l.mu.Unlock()
}

// Do sends the call and waits for its replies. It returns early, with the error, only when ctx ends: NotExecuted where
// nothing had been sent, Unknown otherwise. Errors of the commands stand in their Replies.
func (l *Link) Do(ctx context.Context, c *Call) error { return l.DoFor(ctx, 0, c) }

// Within is Do with a limit, where it is not 0, on the waiting. It is a timer that the call keeps, which a context would make anew each
// time.
func (l *Link) DoFor(ctx context.Context, limit time.Duration, c *Call) error {
	c.Answered = false
	if ctx.Err() != nil {
		return &Error{NotExecuted, context.Cause(ctx)}
	}
	var late <-chan time.Time
	if limit > 0 {
		if c.timer == nil {
			c.timer = time.NewTimer(limit)
		} else {
			c.timer.Reset(limit)
		}
		defer c.timer.Stop()
		late = c.timer.C
	}
	l.Post(c)
	why := context.DeadlineExceeded
	select {
	case <-c.done:
		c.Answered = true
		return nil
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-late:
	}
	if c.state.CompareAndSwap(queued, cancelled) {
		return &Error{NotExecuted, why}
	}
	select {
	case <-c.done:
		c.Answered = true
		return nil
	default:
		return &Error{Unknown, why}
	}
}

// Run sends a call and returns the first of its errors, an unknown outcome before others. Scripts that the server has forgotten
// are sent once more, with their text, and nothing else is.
func (l *Link) Run(ctx context.Context, c *Call) error {
	if err := l.Do(ctx, c); err != nil {
		return err
	}
	var forgotten []int
	for i, rep := range c.Replies {
		if Code(rep.Err) == "NOSCRIPT" {
			forgotten = append(forgotten, i)
		}
	}
	if len(forgotten) > 0 {
		again := c.Only(forgotten)
		if err := l.Do(ctx, again); err != nil {
			for _, i := range forgotten {
				c.Replies[i].Err = err
			}
			return err
		}
		for i, rep := range again.Replies {
			c.Replies[forgotten[i]] = rep
		}
	}
	var first error
	for _, rep := range c.Replies {
		if rep.Err != nil && (first == nil || Classify(rep.Err) == Unknown) {
			first = rep.Err
		}
	}
	return first
}

func (l *Link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Up says whether the link has a connection, as far as it knows.
func (l *Link) Up() bool { return l.up.Load() }

// Dials counts the connections that the link has had.
func (l *Link) Dials() int64 { return l.dials.Load() }

// Close lets what was sent get its replies, within the reply timeout, and ends the goroutines; what was not sent fails.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.poke()
	<-l.ended
}

// write is the writer goroutine.
func (l *Link) write() {
	defer close(l.ended)
	for {
		l.turn.Lock()
		closed := l.drain()
		conn := l.conn
		l.turn.Unlock()
		if closed {
			return
		}
		if l.waiting() == 0 {
			l.rest(conn)
		}
	}
}

// drain sends all that is queued, and flushes; true: the link is closed, and its connection has ended. The turn is held.
func (l *Link) drain() bool {
	for {
		calls, closed := l.take()
		if closed {
			l.fail(calls, false, ErrClosed)
			l.part()
			return true
		}
		if len(calls) == 0 {
			if l.conn == nil {
				return false
			}
			if len(l.conn.inflight) > swiftCalls || l.conn.pending() < swiftBytes && l.conn.woken.Swap(0) > 1 {
				runtime.Gosched() // what those have who have just been answered goes with the same write
			}
			if l.waiting() > 0 {
				continue
			}
			l.conn.flush() // an error ends the reader too
			return false
		}
		for i, c := range calls {
			if err := l.ready(); err != nil {
				l.keep(calls[i:], err)
				break
			}
			l.send(c)
			if l.conn.pending() >= streamBuffer || l.conn.unflushed >= together {
				l.conn.flush()
			}
		}
		clear(calls)
		l.spare = calls[:0]
	}
}

// take gets all that is queued.
func (l *Link) take() ([]*Call, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.queue
	l.queue, l.spare = l.spare, nil
	return calls, l.closed
}

// keep puts back the calls that outlive a failed dial.
func (l *Link) keep(calls []*Call, err error) {
	l.mu.Lock()
	calls = append(append([]*Call(nil), calls...), l.queue...)
	l.queue = nil
	l.mu.Unlock()
	l.back(l.fail(calls, true, err))
}

// fail ends calls that were not sent, all or only those in a hurry, and returns the others.
func (l *Link) fail(calls []*Call, hurried bool, err error) []*Call {
	kept := calls[:0]
	for _, c := range calls {
		if hurried && c.KeepWhileDown && Classify(err) != Fatal {
			if c.state.Load() == queued {
				kept = append(kept, c)
			}
		} else if c.state.CompareAndSwap(queued, sent) {
			c.fail(NotExecuted, err)
		}
	}
	return kept
}

// rest waits for more to send or for the connection's end.
func (l *Link) rest(c *conn) {
	var gone chan struct{}
	if c != nil {
		gone = c.gone
	}
	select {
	case <-l.wake:
	case <-gone:
		l.turn.Lock()
		l.part()
		l.turn.Unlock()
	}
}

// waiting counts the calls that are to be sent.
func (l *Link) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// ready makes sure that there is a connection to send on.
func (l *Link) ready() error {
	if c := l.conn; c != nil {
		select {
		case <-c.gone:
			l.part()
		default:
			if c.useless.Load() {
				l.node.failed(errors.New("the server refused to serve"))
				l.part()
			} else if l.check && len(c.inflight) == 0 && time.Since(c.idle) > staleAfter && !l.alive(c) {
				l.part()
			}
		}
	}
	if l.conn != nil {
		return nil
	}
	rc, socket, err := l.node.DialOwn(l.ctx)
	if err != nil {
		return err
	}
	c := &conn{Conn: rc, wire: foreign{rc}, loaded: make(map[*Script]bool), idle: time.Now(), inflight: make(chan *Call, maxInflight), gone: make(chan struct{})}
	if socket != nil {
		c.wire, c.buffers = newStream(socket, l.timeout), true
	}
	l.conn = c
	l.dials.Add(1)
	l.up.Store(true)
	go c.read(l.timeout)
	return nil
}

// alive asks a connection that has been idle for long.
func (l *Link) alive(c *conn) bool {
	ping := NewCall()
	ping.Add("PING")
	ping.state.Store(sent)
	c.unflushed++
	c.send("PING", nil, nil)
	select {
	case c.inflight <- ping:
	case <-c.gone:
		return false
	}
	c.flush()
	select {
	case <-ping.done:
		return Classify(ping.Replies[0].Err) != Unknown
	case <-c.gone:
		return false
	}
}

// send writes one call and owes it the replies. redigo may send a part before Flush, so from here on it counts as sent.
func (l *Link) send(c *Call) {
	if !c.state.CompareAndSwap(queued, sent) {
		return
	}
	l.conn.unflushed++
	if l.conn.forgot.Swap(false) {
		clear(l.conn.loaded)
	}
	before := l.conn.pending()
	for _, cmd := range c.cmds {
		var err error
		if cmd.ready != nil {
			for i := 0; i < cmd.times && err == nil; i++ {
				err = l.conn.sendReady(cmd.ready, c.elementsOf(cmd, i))
			}
		} else {
			name := cmd.name
			if cmd.script != nil && !l.conn.loaded[cmd.script] {
				name, c.args[cmd.from] = "EVAL", cmd.script.text
				l.conn.loaded[cmd.script] = true
			}
			err = l.conn.send(name, c.args[cmd.from:cmd.to], c.elements(cmd))
		}
		if err != nil {
			break // the connection is at its end; the reader will see it
		}
	}
	c.size = int64(l.conn.pending() - before)
	l.conn.owed.Add(c.size)
	select {
	case l.conn.inflight <- c:
		return
	default:
	}
	l.conn.flush()
	select {
	case l.conn.inflight <- c:
	case <-l.conn.gone:
		c.fail(Unknown, l.conn.err)
	}
}

// part ends the connection: the reader first, then whatever still waits for a reply.
func (l *Link) part() {
	c := l.conn
	if c == nil {
		return
	}
	l.conn = nil
	l.up.Store(false)
	c.flush()
	close(c.inflight)
	<-c.gone
	for call := range c.inflight {
		call.fail(Unknown, c.err)
	}
	discard(c.Conn)
}

// read is the reader goroutine of one connection: it ends with the connection, or when the writer closes inflight. Whoever waits
// for replies that came together is woken when all of these are read, so that what they send next goes together too.
func (c *conn) read(timeout time.Duration) {
	var answered []*Call
	wake := func() {
		if len(answered) == 0 {
			return
		}
		c.woken.Store(int32(len(answered)))
		for _, call := range answered {
			call.done <- struct{}{}
		}
		clear(answered)
		answered = answered[:0]
	}
	for call := range c.inflight {
		for range call.n {
			v, bulk, err := c.receive(timeout, wake, call.Into)
			if err != nil {
				if _, reply := err.(redis.Error); !reply {
					c.err = err
					close(c.gone) // first, so that whoever hears of it does not come again the same way
					wake()
					call.fail(Unknown, err)
					return
				}
				if Code(err) == "NOSCRIPT" {
					c.forgot.Store(true)
				} else if drops(err) {
					c.useless.Store(true)
				}
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
	close(c.gone)
}
