package link

import (
	"fmt"
	"runtime"
	"time"

	"github.com/shuntmq/shunt/internal/resp"
)

// write is the writer goroutine.
func (l *Link) write() {
	defer close(l.ended)
	for {
		l.sending.Lock()
		closed := l.sendQueued()
		conn := l.conn
		l.sending.Unlock()
		if closed {
			return
		}
		if l.queue.len() == 0 {
			l.waitForWork(conn)
		}
	}
}

// sendQueued sends what is in the queue, and flushes. It returns true after it has ended the connection because the
// link is closed. The writer holds the right to send.
func (l *Link) sendQueued() bool {
	for {
		calls, closed := l.queue.takeAll(l.spare)
		l.spare = nil
		if closed {
			l.failUnsent(calls, false, ErrClosed)
			l.disconnect()
			return true
		}
		if len(calls) == 0 {
			c := l.conn
			if c == nil {
				return false
			}
			if len(c.inflight) > maxInlineCalls || c.wire.Pending() < maxInlineBytes && c.justAnswered.Swap(0) > 1 {
				runtime.Gosched() // callers that have just been answered may queue calls for the same write
			}
			if l.queue.len() > 0 {
				continue
			}
			c.flush() // the reader finds the error too, and ends the connection
			return false
		}
		for i, call := range calls {
			if err := l.connect(); err != nil {
				l.dialFailed(calls[i:], err)
				break
			}
			l.conn.send(call)
			if l.conn.wire.Pending() >= resp.BufferSize || l.conn.unflushed >= maxCallsPerWrite {
				l.conn.flush()
			}
		}
		l.recycle(calls)
	}
}

// dialFailed puts back into the queue the calls that outlive a failed dial. They come before calls that were queued
// meanwhile, which have the same fate.
func (l *Link) dialFailed(calls []*Call, err error) {
	later, _ := l.queue.takeAll(nil)
	calls = append(append([]*Call(nil), calls...), later...)
	l.queue.putBack(l.failUnsent(calls, true, err))
}

// failUnsent ends calls that were not sent, all or only those in a hurry, and returns the others.
func (l *Link) failUnsent(calls []*Call, hurried bool, err error) []*Call {
	kept := calls[:0]
	for _, c := range calls {
		if hurried && c.KeepWhileDown && l.node.Hopeless() == nil {
			if c.state.Load() == queued {
				kept = append(kept, c)
			}
		} else if c.state.CompareAndSwap(queued, sent) {
			c.fail(NotExecuted, err)
		}
	}
	return kept
}

// waitForWork waits until there is something to send. If the connection ends first, it is put away.
func (l *Link) waitForWork(c *conn) {
	var ended chan struct{}
	if c != nil {
		ended = c.ended
	}
	select {
	case <-l.wake:
	case <-ended:
		l.sending.Lock()
		l.disconnect()
		l.sending.Unlock()
	}
}

// connect makes sure that there is a connection to send on.
func (l *Link) connect() error {
	if c := l.conn; c != nil {
		switch {
		case c.broken():
			l.disconnect()
		case c.mustClose.Load() != nil:
			l.node.failed(fmt.Errorf("the server refuses to serve: %w", *c.mustClose.Load()), false)
			l.disconnect()
		case l.check && len(c.inflight) == 0 && time.Since(c.flushed) > StaleAfter && !c.alive():
			l.disconnect()
		}
	}
	if l.conn != nil {
		return nil
	}
	redigo, socket, err := l.node.DialOwn(l.ctx)
	if err != nil {
		return err
	}
	l.conn = newConn(redigo, socket, l.timeout)
	l.socket.Store(nil)
	if socket != nil {
		l.socket.Store(&socket)
	}
	l.dials.Add(1)
	l.up.Store(true)
	return nil
}

// disconnect ends the connection. Calls that were sent get the replies that still come.
func (l *Link) disconnect() {
	c := l.conn
	if c == nil {
		return
	}
	l.conn = nil
	l.up.Store(false)
	c.end()
}
