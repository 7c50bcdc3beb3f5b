package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// wire is how a link speaks on its connection. One goroutine sends, one receives, as redigo has it.
type wire interface {
	send(name string, args []any, elements [][]byte) error // redigo's may write before flush
	sendReady(c *Command, elements [][]byte) error
	flush() error
	pending() int // bytes to be flushed, as far as it is known
	// receive tells by waits that it may have to wait for the reply. A redis.Error is a reply, any other error the connection's end.
	// A bulk lies in into, if that is not nil and the bulk is small.
	receive(timeout time.Duration, waits func(), into *Memory) (value any, bulk []byte, err error)
}

// foreign is the wire on a connection of a pool that is not NewPool's: redigo's own.
type foreign struct{ redis.Conn }

func (f foreign) send(name string, args []any, elements [][]byte) error {
	args = args[:len(args):len(args)]
	for _, e := range elements {
		args = append(args, e)
	}
	return f.Send(name, args...)
}
func (f foreign) sendReady(c *Command, elements [][]byte) error {
	return f.send(c.name, c.args, elements)
}
func (f foreign) pending() int { return 0 } // redigo has at most 4 KB
func (f foreign) flush() error { return f.Flush() }
func (f foreign) receive(timeout time.Duration, waits func(), into *Memory) (any, []byte, error) {
	waits() // redigo does not tell what it has
	v, err := redis.ReceiveWithTimeout(f.Conn, timeout)
	if b, ok := v.([]byte); ok {
		return nil, b, err
	}
	return v, nil, err
}

// stream is the wire on a connection that NewPool has dialled. redigo has buffers of 4 KB, and asks the clock and sets a deadline
// for each command and each reply: at a link's rate that costs more than all else. Here it is once a read or write of the socket. redigo
// dials, and no byte is left in its buffers when the stream begins.
type stream struct {
	net   net.Conn
	limit time.Duration // for a write to make progress

	out []byte // sender's
	err error  // sender's: of the first write that failed

	in      *bufio.Reader // receiver's
	timeout time.Duration // likewise, for the next read
	waits   func()        // likewise
}

const (
	streamBuffer = 32 << 10
	maxBulk      = 512 << 20 // of one string, as Redis itself has it
	maxDepth     = 8         // of arrays in arrays
)

func newStream(c net.Conn, limit time.Duration) *stream {
	s := &stream{net: quick(c), limit: limit}
	s.in = bufio.NewReaderSize(reader{s}, streamBuffer)
	return s
}

// send appends a command to what is to be written.
func (s *stream) send(name string, args []any, elements [][]byte) error {
	s.out = appendCommand(s.out, name, args, len(elements))
	return s.follow(elements)
}

func (s *stream) sendReady(c *Command, elements [][]byte) error {
	s.out = append(s.out, c.wire...)
	return s.follow(elements)
}

// follow appends the elements of a command.
func (s *stream) follow(elements [][]byte) error {
	for _, e := range elements {
		s.out = appendBytes(s.out, e)
	}
	return s.err
}

// appendCommand appends what comes before a command's elements.
func appendCommand(b []byte, name string, args []any, elements int) []byte {
	b = appendHead(b, '*', 1+len(args)+elements)
	b = appendText(b, name)
	for _, a := range args {
		switch a := a.(type) {
		case string:
			b = appendText(b, a)
		case []byte:
			b = appendBytes(b, a)
		case int:
			b = appendNumber(b, int64(a))
		case int64:
			b = appendNumber(b, a)
		default:
			b = appendText(b, fmt.Sprint(a))
		}
	}
	return b
}

func appendHead(b []byte, kind byte, n int) []byte {
	if n < 10 {
		return append(b, kind, '0'+byte(n), '\r', '\n')
	}
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, '\r', '\n')
}

func appendText(b []byte, s string) []byte {
	b = appendHead(b, '$', len(s))
	return append(append(b, s...), '\r', '\n')
}

func appendBytes(b, a []byte) []byte {
	b = appendHead(b, '$', len(a))
	return append(append(b, a...), '\r', '\n')
}

func appendNumber(b []byte, n int64) []byte {
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], n, 10)
	b = appendHead(b, '$', len(d))
	return append(append(b, d...), '\r', '\n')
}

// flush writes what there is. The time limit is for each part of it.
func (s *stream) flush() error {
	for b := s.out; len(b) > 0 && s.err == nil; {
		part := b[:min(len(b), progressChunk)]
		s.net.SetWriteDeadline(time.Now().Add(s.limit))
		var n int
		n, s.err = s.net.Write(part)
		b = b[n:]
	}
	if s.out = s.out[:0]; cap(s.out) > 8*streamBuffer { // of a large element
		s.out = nil
	}
	return s.err
}

func (s *stream) pending() int { return len(s.out) }

// reader reads the socket with a deadline for each read: it is for progress, not for a whole reply.
type reader struct{ s *stream }

func (r reader) Read(b []byte) (int, error) {
	r.s.waits()
	r.s.net.SetReadDeadline(time.Now().Add(r.s.timeout))
	return r.s.net.Read(b)
}

// receive reads a reply, in the types that redigo gives it.
func (s *stream) receive(timeout time.Duration, waits func(), into *Memory) (any, []byte, error) {
	s.timeout, s.waits = timeout, waits
	kind, line, err := s.head()
	if err != nil {
		return nil, nil, err
	}
	if kind == '$' {
		b, err := s.bulk(line, into)
		return nil, b, err
	}
	v, err := s.reply(kind, line, 0)
	if err != nil {
		return nil, nil, err
	}
	if e, ok := v.(redis.Error); ok {
		return nil, nil, e
	}
	return v, nil, nil
}

var errProtocol = errors.New("redis sent what is no reply")

// head reads the first line of a reply, which stays only until the next read.
func (s *stream) head() (kind byte, line []byte, err error) {
	line, err = s.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, nil, errProtocol
	}
	return line[0], line[1 : len(line)-2], nil
}

func (s *stream) reply(kind byte, line []byte, depth int) (any, error) {
	switch kind {
	case '+':
		return string(line), nil
	case '-':
		return redis.Error(line), nil
	case '$':
		b, err := s.bulk(line, nil)
		if b == nil {
			return nil, err
		}
		return b, err
	}
	n, ok := number(line)
	switch {
	case !ok:
	case kind == ':':
		return n, nil
	case kind == '*' && n == -1:
		return nil, nil
	case kind == '*' && n >= 0 && n <= maxBulk && depth < maxDepth:
		all := make([]any, 0, min(n, 1024))
		for range n {
			kind, line, err := s.head()
			if err != nil {
				return nil, err
			}
			v, err := s.reply(kind, line, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
	return nil, errProtocol
}

// bulk reads a string; nil is Redis's nil.
func (s *stream) bulk(line []byte, into *Memory) ([]byte, error) {
	n, ok := number(line)
	if n == -1 && ok {
		return nil, nil
	}
	if !ok || n < 0 || n > maxBulk {
		return nil, errProtocol
	}
	b := into.piece(int(n))
	if _, err := io.ReadFull(s.in, b); err != nil {
		return nil, err
	}
	end, err := s.in.Peek(2)
	if err == nil && string(end) != "\r\n" {
		err = errProtocol
	}
	if err != nil {
		return nil, err
	}
	s.in.Discard(2)
	return b, nil
}

// number reads a decimal number, without the memory that strconv's string would take.
func number(b []byte) (n int64, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if negative {
		return -n, n > 0 || n == math.MinInt64
	}
	return n, n >= 0
}

// revealKey is the context key under which whoever dials through a pool leaves a *net.Conn; NewPool's dialer puts there what it has
// dialled.
type revealKey struct{}

// revealed asks the dialer of a pool for the socket that it makes.
func revealed(ctx context.Context, to *net.Conn) context.Context {
	return context.WithValue(ctx, revealKey{}, to)
}
