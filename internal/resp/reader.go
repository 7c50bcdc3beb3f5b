package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gomodule/redigo/redis"
)

// ErrProtocol means that a stream of bytes is not RESP2.
var ErrProtocol = errors.New("the bytes received are not RESP2")

const (
	maxBulk  = 512 << 20 // bytes of one string: the bound of Redis itself, so that garbage is not taken for a length
	maxDepth = 8         // of arrays in arrays
)

// Reader parses replies. One goroutine uses it.
type Reader struct {
	in   *bufio.Reader
	skip int // bytes of the last Peek that are still in the buffer
}

// NewReader returns a Reader with a buffer of so many bytes; a line of a reply must fit into it.
func NewReader(r io.Reader, buffer int) *Reader { return &Reader{in: bufio.NewReaderSize(r, buffer)} }

// Buffered is how many bytes are read already, and not parsed.
func (r *Reader) Buffered() int { return r.in.Buffered() - r.skip }

// Next reads a reply, in the types that redigo gives it. A string that is the whole reply is returned as bulk, in
// into if that is not nil and the string is short. An error of type redis.Error is a reply; after any other the
// stream is of no further use.
func (r *Reader) Next(into *Memory) (value any, bulk []byte, err error) {
	kind, line, err := r.head()
	if err != nil {
		return nil, nil, err
	}
	if kind == '$' {
		b, err := r.bulk(line, into)
		return nil, b, err
	}
	v, err := r.reply(kind, line, 0)
	if err != nil {
		return nil, nil, err
	}
	if e, ok := v.(redis.Error); ok {
		return nil, nil, e
	}
	return v, nil, nil
}

// Peek reads a reply that is no array, and returns its type and its text without a copy. body stays as it is until the
// next Peek. A nil string has a nil body. A string must fit into the buffer. Next must not follow a Peek.
func (r *Reader) Peek() (kind byte, body []byte, err error) {
	if _, err := r.in.Discard(r.skip); err != nil {
		return 0, nil, err
	}
	r.skip = 0
	kind, line, err := r.head()
	if err != nil || kind != '$' {
		return kind, line, err
	}
	n, ok := number(line)
	switch {
	case ok && n == -1:
		return kind, nil, nil
	case !ok || n < 0 || n > maxBulk:
		return kind, nil, fmt.Errorf("%w: length %q", ErrProtocol, line)
	}
	body, err = r.in.Peek(int(n) + 2)
	if err != nil {
		return kind, nil, err
	}
	r.skip = len(body)
	return kind, body[:n:n], nil
}

// head reads the first line of a reply, which stays only until the next read.
func (r *Reader) head() (kind byte, line []byte, err error) {
	line, err = r.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, nil, ErrProtocol
	}
	return line[0], line[1 : len(line)-2], nil
}

// reply reads the rest of a reply. An error inside an array is an element of it.
func (r *Reader) reply(kind byte, line []byte, depth int) (any, error) {
	switch kind {
	case '+':
		return string(line), nil
	case '-':
		return redis.Error(line), nil
	case '$':
		b, err := r.bulk(line, nil)
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
			kind, line, err := r.head()
			if err != nil {
				return nil, err
			}
			v, err := r.reply(kind, line, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	}
	return nil, ErrProtocol
}

// bulk reads a string; nil is Redis's nil.
func (r *Reader) bulk(line []byte, into *Memory) ([]byte, error) {
	n, ok := number(line)
	if n == -1 && ok {
		return nil, nil
	}
	if !ok || n < 0 || n > maxBulk {
		return nil, ErrProtocol
	}
	b := into.piece(int(n))
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, err
	}
	end, err := r.in.Peek(2)
	if err == nil && string(end) != "\r\n" {
		err = ErrProtocol
	}
	if err != nil {
		return nil, err
	}
	r.in.Discard(2)
	return b, nil
}

// number parses a decimal number. strconv would need the memory of a string.
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
