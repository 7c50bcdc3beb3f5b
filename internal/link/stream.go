package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

// wire is how a link speaks on its connection. One goroutine sends, one receives, as redigo has it.
type wire interface {
	send(name string, args []any) error // it may write before flush
	flush() error
	receive(timeout time.Duration) (any, error) // a redis.Error is a reply, any other error the connection's end
}

// foreign is the wire on a connection of a pool that is not NewPool's: redigo's own.
type foreign struct{ redis.Conn }

func (f foreign) send(name string, args []any) error { return f.Send(name, args...) }
func (f foreign) flush() error                       { return f.Flush() }
func (f foreign) receive(timeout time.Duration) (any, error) {
	return redis.ReceiveWithTimeout(f.Conn, timeout)
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
}

const (
	streamBuffer = 32 << 10
	maxBulk      = 512 << 20 // of one string, as Redis itself has it
	maxDepth     = 8         // of arrays in arrays
)

func newStream(c net.Conn, limit time.Duration) *stream {
	s := &stream{net: c, limit: limit}
	s.in = bufio.NewReaderSize(reader{s}, streamBuffer)
	return s
}

// send appends a command to what is to be written.
func (s *stream) send(name string, args []any) error {
	b := appendHead(s.out, '*', 1+len(args))
	b = appendText(b, name)
	for _, a := range args {
		switch a := a.(type) {
		case string:
			b = appendText(b, a)
		case []byte:
			b = appendHead(b, '$', len(a))
			b = append(append(b, a...), '\r', '\n')
		case int:
			b = appendNumber(b, int64(a))
		case int64:
			b = appendNumber(b, a)
		default:
			b = appendText(b, fmt.Sprint(a))
		}
	}
	if s.out = b; len(b) >= streamBuffer {
		return s.flush()
	}
	return s.err
}

func appendHead(b []byte, kind byte, n int) []byte {
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, '\r', '\n')
}

func appendText(b []byte, s string) []byte {
	b = appendHead(b, '$', len(s))
	return append(append(b, s...), '\r', '\n')
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

// reader reads the socket with a deadline for each read: it is for progress, not for a whole reply.
type reader struct{ s *stream }

func (r reader) Read(b []byte) (int, error) {
	r.s.net.SetReadDeadline(time.Now().Add(r.s.timeout))
	return r.s.net.Read(b)
}

// receive reads a reply, in the types that redigo gives it.
func (s *stream) receive(timeout time.Duration) (any, error) {
	s.timeout = timeout
	v, err := s.reply(0)
	if err != nil {
		return nil, err
	}
	if e, ok := v.(redis.Error); ok {
		return nil, e
	}
	return v, nil
}

var errProtocol = errors.New("redis sent what is no reply")

func (s *stream) reply(depth int) (any, error) {
	line, err := s.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, errProtocol
	}
	kind, line := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return string(line), nil
	case '-':
		return redis.Error(line), nil
	}
	n, ok := number(line)
	if !ok {
		return nil, errProtocol
	}
	switch {
	case kind == ':':
		return n, nil
	case n == -1 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$' && n >= 0 && n <= maxBulk:
		b := make([]byte, n)
		if _, err := io.ReadFull(s.in, b); err != nil {
			return nil, err
		}
		if cr, err := s.in.ReadByte(); err != nil || cr != '\r' {
			return nil, cmpErr(err)
		}
		if lf, err := s.in.ReadByte(); err != nil || lf != '\n' {
			return nil, cmpErr(err)
		}
		return b, nil
	case kind == '*' && n >= 0 && n <= maxBulk && depth < maxDepth:
		all := make([]any, 0, min(n, 1024))
		for range n {
			v, err := s.reply(depth + 1)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
	return nil, errProtocol
}

func cmpErr(err error) error {
	if err == nil {
		err = errProtocol
	}
	return err
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
		n = -n
	}
	return n, n >= 0 != negative || n == 0
}

// revealKey is the context key under which whoever dials through a pool leaves a *net.Conn; NewPool's dialer puts there what it has
// dialled.
type revealKey struct{}

// revealed asks the dialer of a pool for the socket that it makes.
func revealed(ctx context.Context, to *net.Conn) context.Context {
	return context.WithValue(ctx, revealKey{}, to)
}
