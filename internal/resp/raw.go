package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// A proxy passes on the bytes of commands and replies as they came; it needs only their boundaries:
//
//	request  *2 CRLF  $4 CRLF LLEN CRLF  $3 CRLF key CRLF
//	reply    + - : one line;  $ bytes or $-1;  * replies or *-1

// maxArgs bounds the arguments of a request, as Redis does.
const maxArgs = 1 << 20

// ReadCommand appends one request's bytes to raw, and returns them with its arguments, at least one, which point into
// them.
func ReadCommand(r *bufio.Reader, raw []byte) ([]byte, [][]byte, error) {
	raw, n, err := readHead(r, raw, '*')
	if err != nil {
		return raw, nil, err
	}
	if n < 1 || n > maxArgs {
		return raw, nil, fmt.Errorf("%w: a request of %d arguments", ErrProtocol, n)
	}
	ends := make([]int, 0, 2*min(n, 64)) // positions, since raw may still move
	for range n {
		var size int
		if raw, size, err = readHead(r, raw, '$'); err != nil {
			return raw, nil, err
		}
		if size < 0 {
			return raw, nil, fmt.Errorf("%w: a null argument", ErrProtocol)
		}
		ends = append(ends, len(raw), len(raw)+size)
		if raw, err = readBulk(r, raw, size); err != nil {
			return raw, nil, err
		}
	}
	args := make([][]byte, n)
	for i := range args {
		args[i] = raw[ends[2*i]:ends[2*i+1]]
	}
	return raw, args, nil
}

// ReadReply returns the bytes of one whole reply, however nested.
func ReadReply(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for left := 1; left > 0; left-- {
		start := len(raw)
		var err error
		if raw, err = readLine(r, raw); err != nil {
			return nil, err
		}
		switch raw[start] {
		case '+', '-', ':':
		case '$', '*':
			n, err := length(raw[start:])
			if err != nil {
				return nil, err
			}
			if raw[start] == '*' {
				left += max(n, 0)
			} else if n >= 0 {
				if raw, err = readBulk(r, raw, n); err != nil {
					return nil, err
				}
			}
		default:
			return nil, fmt.Errorf("%w: a reply that begins with %q", ErrProtocol, raw[start])
		}
	}
	return raw, nil
}

// readHead reads a line of the given type with its number.
func readHead(r *bufio.Reader, raw []byte, kind byte) ([]byte, int, error) {
	start := len(raw)
	raw, err := readLine(r, raw)
	if err != nil {
		return raw, 0, err
	}
	if raw[start] != kind {
		return raw, 0, fmt.Errorf("%w: %q where %q belongs", ErrProtocol, raw[start], kind)
	}
	n, err := length(raw[start:])
	return raw, n, err
}

// readLine appends a line to raw, its CRLF included. Unlike a Reader's, the line may be longer than the buffer.
func readLine(r *bufio.Reader, raw []byte) ([]byte, error) {
	start := len(raw)
	for {
		part, err := r.ReadSlice('\n')
		raw = append(raw, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return raw, err
		}
	}
	if n := len(raw); n-start < 3 || raw[n-2] != '\r' {
		return raw, fmt.Errorf("%w: line %q", ErrProtocol, raw[start:])
	}
	return raw, nil
}

// readBulk appends n bytes and their CRLF to raw.
func readBulk(r *bufio.Reader, raw []byte, n int) ([]byte, error) {
	start := len(raw)
	if need := start + n + 2; need > cap(raw) {
		raw = append(make([]byte, 0, need+64), raw...)
	}
	raw = raw[:start+n+2]
	_, err := io.ReadFull(r, raw[start:])
	return raw, err
}

// length is the number in a line such as "$-1\r\n".
func length(line []byte) (int, error) {
	n, ok := number(line[1 : len(line)-2])
	if !ok || n < -1 || n > maxBulk {
		return 0, fmt.Errorf("%w: length %q", ErrProtocol, line)
	}
	return int(n), nil
}
