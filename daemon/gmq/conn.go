package gmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/daemon/budget"
)

const (
	lingerFor = 500 * time.Millisecond // for a client to read the last answer, after which we are the ones to leave
	lingerTo  = 1 << 20                // bytes that are thrown away meanwhile
)

var (
	errGone     = errors.New("gmq: the client has left")
	errStopping = errors.New("gmq: the server stops")
)

// conn is one connection. One goroutine reads, and each request has one.
type conn struct {
	s      *Server
	nc     net.Conn
	frames frames
	pops   context.Context // of pops; ends when the client has left, or the server stops
	leave  context.CancelCauseFunc

	calls   sync.WaitGroup
	busy    chan struct{} // has one for each push or ack that runs
	popping atomic.Int64
	running atomic.Int64 // requests

	writing sync.Mutex // guards the writes, and dead
	dead    error      // why nothing can be written any more

	reading sync.Mutex // guards the deadline of reads, and stopped
	stopped bool
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, busy: make(chan struct{}, s.Limits.MaxCalls)}
	c.pops, c.leave = context.WithCancelCause(s.life)
	c.frames = frames{from: nc, most: s.maxRequest, budget: s.Budget, begun: c.await}
	return c
}

// serve reads requests until the client leaves or the server stops, and ends when all are answered.
func (c *conn) serve() {
	defer func() { _ = c.nc.Close() }()
	err := c.read()
	c.frames.close()
	ours := !errors.Is(err, io.EOF) && !errors.Is(err, errGone)
	switch {
	case errors.Is(err, errStopping):
		c.leave(errStopping)
	default:
		c.leave(errGone)
	}
	switch text := err; {
	case errors.Is(err, errNoObject), errors.Is(err, errNoJSON), errors.Is(err, errTooLong),
		errors.Is(err, budget.ErrFull), errors.Is(err, errSlow):
		c.s.Metrics.request("", wrong)
		_ = c.write(&response{Error: text.Error()})
	}
	c.calls.Wait()
	if ours {
		c.linger()
	}
}

var errSlow = errors.New("the rest of the request did not come in time")

// read takes requests up. Its error is why there are no more.
func (c *conn) read() error {
	for {
		object, err := c.frames.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			switch {
			case c.isStopped():
				return errStopping
			case c.frames.seen > 0:
				return errSlow
			case c.running.Load() > 0: // it is not idle
				continue
			}
			return errGone
		}
		if err != nil {
			return c.why(err)
		}
		if err := c.take(object); err != nil {
			c.s.Budget.Return(len(object))
			return err
		}
	}
}

// why tells our errors from those of the connection, which has ended.
func (c *conn) why(err error) error {
	for _, ours := range []error{errNoObject, errTooLong, budget.ErrFull, errStopping} {
		if errors.Is(err, ours) {
			return ours
		}
	}
	return errGone
}

// await bounds the next read. While part of a request is there, its deadline stays that of the request.
func (c *conn) await(part bool) error {
	c.reading.Lock()
	defer c.reading.Unlock()
	switch {
	case c.stopped:
		return errStopping
	case !part:
		return c.nc.SetReadDeadline(time.Now().Add(c.s.Limits.IdleTimeout))
	case c.frames.since.IsZero():
		c.frames.since = time.Now()
	}
	return c.nc.SetReadDeadline(c.frames.since.Add(c.s.Budget.Limits().BodyTimeout))
}

// stop ends the reading; a request that has not come in full is dropped.
func (c *conn) stop() {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.stopped = true
	_ = c.nc.SetReadDeadline(time.Now())
	c.leave(errStopping) // the reader may wait for a push
}

func (c *conn) isStopped() bool {
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.stopped
}

// take starts a request. It waits while too many pushes and acks run; pops that are too many are answered with an
// error, since the reader is who sees that a client has left.
func (c *conn) take(object []byte) error {
	r, err := parse(object)
	if errors.Is(err, errNoJSON) {
		return err
	}
	if r.Method == methodPop && err == nil {
		if c.popping.Add(1) > int64(c.s.Limits.MaxPops) {
			c.popping.Add(-1)
			err = errPops
		}
	}
	pops := r.Method == methodPop && err == nil
	if !pops {
		select {
		case c.busy <- struct{}{}:
		case <-c.pops.Done():
			return errStopping
		}
	}
	c.running.Add(1)
	c.calls.Go(func() {
		defer func() {
			c.s.Budget.Return(len(object))
			if c.running.Add(-1); pops {
				c.popping.Add(-1)
			} else {
				<-c.busy
			}
		}()
		c.answer(&r, err)
	})
	return nil
}

// answer handles a request. A panic is an internal error, with a line in the log.
func (c *conn) answer(r *request, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.s.Log.Error("gmq: a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			_ = c.write(&response{ID: r.ID, Error: errInternal.Error()})
		}
	}()
	c.handle(r, err)
}

// write writes an answer. The error says that the client cannot have it, and that the connection has ended.
func (c *conn) write(r *response) error {
	b := r.line()
	c.s.Budget.Hold(len(b))
	defer c.s.Budget.Return(len(b))
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.dead != nil {
		return c.dead
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.s.Limits.WriteTimeout))
	if _, err := c.nc.Write(b); err != nil {
		c.dead = fmt.Errorf("gmq: write an answer: %w", err)
		_ = c.nc.Close() // the reader ends
		return c.dead
	}
	return nil
}

// broken ends the connection at once.
func (c *conn) broken() {
	c.leave(errGone)
	_ = c.nc.Close()
}

// linger lets the client read the last answer: a connection that is closed while something is unread loses what was
// written.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.nc, lingerTo)
}
