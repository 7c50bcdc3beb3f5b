package resp

import (
	"net"
	"time"
)

// Conn speaks RESP on a connection that redigo has dialled and whose bytes have all left redigo's buffers. redigo has
// buffers of 4 KB, asks the clock, and sets a deadline for each command and each reply. At a link's rate that costs
// more than all else. A Conn does so once for a read or write of the socket. One goroutine sends and flushes, another
// may receive at the same time.
type Conn struct {
	net   net.Conn
	limit time.Duration // for a write to make progress

	out []byte // the sender's
	err error  // the sender's: of the first write that failed

	in      *Reader       // the receiver's
	timeout time.Duration // the receiver's, for the next read
	waits   func()        // the receiver's
}

const (
	// BufferSize is what a Conn reads at once at most, and what its user should let wait for a flush at most.
	BufferSize = 32 << 10
	// WriteChunk is how many bytes a write may take its whole time limit for.
	WriteChunk = 64 << 10
)

// NewConn returns a Conn on c, whose writes have so long to make progress.
func NewConn(c net.Conn, limit time.Duration) *Conn {
	s := &Conn{net: Direct(c), limit: limit}
	s.in = NewReader(progressReader{s}, BufferSize)
	return s
}

// Net is the connection underneath.
func (c *Conn) Net() net.Conn { return c.net }

// Send appends a command and its elements to what the next Flush writes.
func (c *Conn) Send(name string, args []any, elements [][]byte) error {
	c.out = AppendCommand(c.out, name, args, len(elements))
	return c.sendElements(elements)
}

// SendRendered appends a command that AppendCommand has rendered, and the elements that it announces.
func (c *Conn) SendRendered(rendered []byte, elements [][]byte) error {
	c.out = append(c.out, rendered...)
	return c.sendElements(elements)
}

func (c *Conn) sendElements(elements [][]byte) error {
	for _, e := range elements {
		c.out = AppendBytes(c.out, e)
	}
	return c.err
}

// Flush writes what was sent. The time limit is for each part of it.
func (c *Conn) Flush() error {
	for b := c.out; len(b) > 0 && c.err == nil; {
		part := b[:min(len(b), WriteChunk)]
		c.net.SetWriteDeadline(time.Now().Add(c.limit))
		var n int
		n, c.err = c.net.Write(part)
		b = b[n:]
	}
	if c.out = c.out[:0]; cap(c.out) > 8*BufferSize { // it has grown for a large element
		c.out = nil
	}
	return c.err
}

// Pending is how many bytes wait for a Flush.
func (c *Conn) Pending() int { return len(c.out) }

// Receive reads a reply, as Reader.Next does, in so much time for each read of the socket. It calls waits before each
// of these.
func (c *Conn) Receive(timeout time.Duration, waits func(), into *Memory) (value any, bulk []byte, err error) {
	c.timeout, c.waits = timeout, waits
	return c.in.Next(into)
}

// progressReader sets a deadline for each read of the socket: it is for progress, not for a whole reply.
type progressReader struct{ c *Conn }

func (r progressReader) Read(b []byte) (int, error) {
	r.c.waits()
	r.c.net.SetReadDeadline(time.Now().Add(r.c.timeout))
	return r.c.net.Read(b)
}
