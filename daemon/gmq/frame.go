package gmq

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/shuntmq/shunt/daemon/budget"
)

const (
	readAt = 4096       // bytes, at least, that a read has room for
	small  = 4 * readAt // bytes of a buffer that a connection keeps, and that are not counted
)

var (
	errNoObject = errors.New("want a JSON object")
	errTooLong  = errors.New("request too long")
)

// frames cuts what a connection brings into JSON objects, without parsing them. One goroutine uses it.
type frames struct {
	from   io.Reader
	most   func() int // bytes of an object
	budget *budget.Budget
	// begun is called before each read, and says whether a part of an object is there; its error ends the reading.
	begun func(part bool) error

	buf   []byte // buf[at:] was not given yet
	at    int
	seen  int // bytes of buf[at:] that were looked at
	taken int // bytes of the budget: of buf, where it is not small
	depth int // of brackets, behind what was seen
	text  bool
	slash bool // the byte before was a backslash, in a text

	since time.Time // when a part of an object was there first
}

// next is the next object, which is the caller's. Its bytes are counted in the budget until the caller returns them.
// io.EOF: all is over, maybe within an object.
func (f *frames) next() ([]byte, error) {
	for {
		n, err := f.look()
		if err != nil {
			return nil, err
		}
		if n > 0 {
			return f.cut(n)
		}
		if err := f.read(); err != nil {
			return nil, err
		}
	}
}

// look goes on through what is there. n is the length of the object, 0 where it has not ended.
func (f *frames) look() (n int, err error) {
	if f.seen == 0 {
		f.at = len(f.buf) - len(bytes.TrimLeft(f.buf[f.at:], " \t\r\n"))
		if f.at == len(f.buf) {
			return 0, nil
		}
		if f.buf[f.at] != '{' {
			return 0, errNoObject
		}
	}
	for i, b := range f.buf[f.at+f.seen:] {
		switch {
		case f.slash:
			f.slash = false
		case f.text:
			f.text, f.slash = b != '"', b == '\\'
		case b == '"':
			f.text = true
		case b == '{' || b == '[':
			f.depth++
		case b == '}' || b == ']':
			if f.depth--; f.depth == 0 {
				n = f.seen + i + 1
				f.seen = 0
				if n > f.most() {
					return 0, errTooLong
				}
				return n, nil
			}
		}
	}
	if f.seen = len(f.buf) - f.at; f.seen > f.most() {
		return 0, errTooLong
	}
	return 0, nil
}

// cut copies an object out of the buffer. A large buffer of which the object is half or more it hands over, and copies
// what is behind: so the bytes of a large object are not counted twice.
func (f *frames) cut(n int) ([]byte, error) {
	f.since = time.Time{}
	object, rest := f.buf[f.at:f.at+n], f.buf[f.at+n:]
	if cap(f.buf) <= small || n < cap(f.buf)/2 {
		if !f.budget.Take(n) {
			return nil, budget.ErrFull
		}
		f.at += n
		return bytes.Clone(object), nil
	}
	left := 0
	if len(rest) > small {
		left = len(rest)
	}
	f.budget.Return(f.taken - n - left)
	f.taken = left
	f.buf, f.at = append(make([]byte, 0, len(rest)), rest...), 0
	return object, nil
}

// shrink forgets a buffer of which all was given, if it is large.
func (f *frames) shrink() {
	f.buf, f.at = f.buf[:0], 0
	if cap(f.buf) > small {
		f.buf = nil
		f.budget.Return(f.taken)
		f.taken = 0
	}
}

func (f *frames) read() error {
	switch {
	case f.at == len(f.buf):
		f.shrink()
	case f.at > 0: // what is left goes to the front
		f.buf = append(f.buf[:0], f.buf[f.at:]...)
		f.at = 0
	}
	if free := cap(f.buf) - len(f.buf); free < readAt {
		size := max(3*cap(f.buf)/2, len(f.buf)+2*readAt) // so that a request may have two thirds of all
		if size > small {
			if !f.budget.Take(size - f.taken) {
				return budget.ErrFull
			}
			f.taken = size
		}
		f.buf = append(make([]byte, 0, size), f.buf...)
	}
	if err := f.begun(f.seen > 0); err != nil {
		return err
	}
	n, err := f.from.Read(f.buf[len(f.buf):cap(f.buf)])
	f.buf = f.buf[:len(f.buf)+n]
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// close takes in that nothing more is read.
func (f *frames) close() {
	f.buf = nil
	f.budget.Return(f.taken)
	f.taken = 0
}
