package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link is one connection that many callers share. A writer goroutine sends the calls that they queue, and flushes
// when the queue is empty or a write is large enough. A reader goroutine hands out the replies in order. redigo
// allows one of each. While few calls are under way a caller sends for itself, which saves waking the writer. When
// the connection breaks, calls that were sent end as Unknown, and calls that were not wait for the next connection.
// Safe for concurrent use.
type Link struct {
	node    *Node
	timeout time.Duration // for the next reply of a connection that owes one
	check   bool          // an idle connection is asked whether it is alive before it is used; else calls are repeated

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // of capacity 1: there is something to send
	ended  chan struct{} // closed when the writer has returned
	queue  callQueue
	up     atomic.Bool              // there is a connection, as far as is known
	socket atomic.Pointer[net.Conn] // of the last connection; nil where its pool does not give it

	dials atomic.Int64 // connections that were made

	sending sync.Mutex // the right to send; its holder owns what follows. Only the writer dials and disconnects.
	conn    *conn
	spare   []*Call // memory for the queue
}

// New starts the link's goroutines. The connection is made when it is first needed. timeout is for a reply. check is
// for links whose commands are not idempotent: such a link asks an idle connection whether it is alive before it sends
// on it. On any other link each call may be executed twice, and Run repeats it.
func New(node *Node, timeout time.Duration, check bool) *Link {
	l := &Link{node: node, timeout: timeout, check: check, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.write()
	return l
}

// Post sends the call and does not wait for its replies: the caller does not touch it again.
func (l *Link) Post(c *Call) {
	first, open := l.queue.push(c)
	if !open {
		c.fail(NotExecuted, ErrClosed)
		return
	}
	if !first {
		return // the caller that found the queue empty sends this one too, or wakes the writer
	}
	// If the lock is taken, its holder looks at the queue again after it has released it.
	for l.queue.len() > 0 && l.sending.TryLock() {
		done := l.sendInline()
		l.sending.Unlock()
		if !done {
			l.wakeWriter()
			return
		}
	}
}

// A caller sends only what the socket surely takes at once, even where the server reads no more. A write that blocks
// would make the caller wait beyond its context.
const (
	maxInlineCalls = 16       // that wait for replies
	maxInlineOwed  = 32 << 10 // bytes of these
	maxInlineBytes = 4 << 10  // to be written
)

// sendInline does the writer's work in a caller, who holds the right to send. It returns false if the writer has to
// go on.
func (l *Link) sendInline() bool {
	c := l.conn
	switch {
	case c == nil, !c.buffered, c.mustClose.Load() != nil, c.owed.Load() > maxInlineOwed,
		l.queue.len()+len(c.inflight)+int(c.justAnswered.Load()) > maxInlineCalls,
		l.check && time.Since(c.flushed) > StaleAfter, c.broken():
		return false
	}
	calls, closed := l.queue.takeAll(l.spare)
	l.spare = nil
	if closed {
		l.queue.putBack(calls)
		return false
	}
	for _, call := range calls {
		c.send(call)
	}
	l.recycle(calls)
	if c.wire.Pending() > maxInlineBytes {
		return false
	}
	c.flush()
	return true
}

// recycle keeps the memory of a queue that was taken.
func (l *Link) recycle(calls []*Call) {
	clear(calls)
	l.spare = calls[:0]
}

// Do sends the call and waits for its replies. It returns early, with the error, only when ctx ends: NotExecuted where
// nothing had been sent, Unknown otherwise. Errors of the commands stand in their Replies.
func (l *Link) Do(ctx context.Context, c *Call) error { return l.DoFor(ctx, 0, c) }

// DoFor is Do with a limit, if it is not 0, on the waiting. The call keeps the limit's timer; a context would need a
// new one each time.
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
	// Its caller may have asked before a dial failed, and queued it afterwards: then it would wait for the next dial.
	if c.KeepWhileDown {
		if why := l.node.Hopeless(); why != nil && c.state.CompareAndSwap(queued, cancelled) {
			return &Error{NotExecuted, why}
		}
	}
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

// Run sends a call and returns the first of its errors, an unknown outcome before others. Scripts that the server has
// forgotten are sent once more, with their text. So is a whole call that may be executed twice and whose connection has
// ended before the first reply, as one does that the server's timeout has cut while it was idle. Nothing else is.
func (l *Link) Run(ctx context.Context, c *Call) error {
	err := l.run(ctx, c)
	if !c.Repeats && l.check || !c.hungUp() || ctx.Err() != nil {
		return err
	}
	c.Repeated = true
	again := c.again()
	if err = l.run(ctx, again); again.Answered {
		for i := range again.Replies {
			again.Replies[i].Err = inDoubt(again.Replies[i].Err)
		}
		c.Replies, c.Order = again.Replies, again.Order
	}
	return inDoubt(err)
}

// inDoubt is the error of a command's second sending, where the first may have been executed.
func inDoubt(err error) error {
	if Classify(err) == NotExecuted {
		return &Error{Unknown, err}
	}
	return err
}

func (l *Link) run(ctx context.Context, c *Call) error {
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
	return c.First(len(c.Replies))
}

// First is the first error of the first n commands, an unknown outcome before others. The call is Answered.
func (c *Call) First(n int) (first error) {
	for _, rep := range c.Replies[:n] {
		if rep.Err != nil && (first == nil || Classify(rep.Err) == Unknown) {
			first = rep.Err
		}
	}
	return first
}

func (l *Link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Up says whether the link has a connection, as far as it knows.
func (l *Link) Up() bool { return l.up.Load() }

// Dials counts the connections that the link has had.
func (l *Link) Dials() int64 { return l.dials.Load() }

// ErrClosed is the error of a call that was not sent before the link was closed.
var ErrClosed = errors.New("the link is closed")

// ErrYoung is the error of a call that was not sent because its connection is too young (see Call.Before).
var ErrYoung = errors.New("the connection to redis is a new one")

// Closed is closed when nothing is sent any more.
func (l *Link) Closed() <-chan struct{} { return l.ctx.Done() }

// Close waits for the replies to calls that were sent, within the reply timeout, and ends the goroutines. Calls that
// were not sent fail.
func (l *Link) Close() {
	l.end()
	<-l.ended
}

// Abort is Close without the wait for replies: calls that were sent and have none are Unknown. A pool that is not
// NewPool's does not give its sockets, and there Abort waits as Close does.
func (l *Link) Abort() {
	l.end()
	for again := time.NewTicker(10 * time.Millisecond); ; { // a dial that had just ended may bring another connection
		if socket := l.socket.Load(); socket != nil {
			(*socket).Close()
		}
		select {
		case <-l.ended:
			again.Stop()
			return
		case <-again.C:
		}
	}
}

// CloseWithin is Close, and becomes Abort when ctx ends: with a pool that is not NewPool's it waits on, as Abort does.
func (l *Link) CloseWithin(ctx context.Context) {
	l.end()
	select {
	case <-l.ended:
	case <-ctx.Done():
		l.Abort()
	}
}

// end lets nothing more be sent.
func (l *Link) end() {
	l.queue.close()
	l.cancel()
	l.wakeWriter()
}
