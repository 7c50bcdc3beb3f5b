package link

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe is a connection in memory with room for some bytes each way, as sockets have, and with deadlines. It works
// with the clock of testing/synctest.
type pipe struct {
	in, out         *stream
	reading, writes limit
}

// pipeRoom is how many bytes may be under way in one direction: a little more than callers may send for themselves.
const pipeRoom = maxInlineOwed + 2*maxInlineBytes

func newPipe() (client, server *pipe) {
	a, b := newStream(), newStream()
	return &pipe{in: a, out: b}, &pipe{in: b, out: a}
}

// stream is one direction.
type stream struct {
	mu      sync.Mutex
	bytes   []byte
	ended   bool          // the writer is gone: what is under way can still be read
	refused bool          // the reader is gone
	changed chan struct{} // closed at each change
}

func newStream() *stream { return &stream{changed: make(chan struct{})} }

// limit is a deadline that one goroutine sets and meets.
type limit struct{ at time.Time }

func (l limit) timer() (expired <-chan time.Time, stop func() bool) {
	if l.at.IsZero() {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(time.Until(l.at))
	return t.C, t.Stop
}

// do calls try, under the lock, until it is done or the time is over.
func (s *stream) do(l limit, try func() (done bool, err error)) error {
	expired, stop := l.timer()
	defer stop()
	for {
		s.mu.Lock()
		before := len(s.bytes)
		done, err := try()
		if len(s.bytes) != before {
			s.changeLocked()
		}
		changed := s.changed
		s.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-expired:
			return os.ErrDeadlineExceeded
		}
	}
}

func (s *stream) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) end(ended, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.refused = s.ended || ended, s.refused || refused
	s.changeLocked()
}

func (p *pipe) Read(b []byte) (n int, err error) {
	err = p.in.do(p.reading, func() (bool, error) {
		switch s := p.in; {
		case s.refused:
			return false, net.ErrClosed
		case len(s.bytes) > 0:
			n = copy(b, s.bytes)
			s.bytes = s.bytes[n:]
			return true, nil
		case s.ended:
			return false, io.EOF
		}
		return false, nil
	})
	return n, err
}

func (p *pipe) Write(b []byte) (n int, err error) {
	err = p.out.do(p.writes, func() (bool, error) {
		s := p.out
		if s.ended || s.refused {
			return false, net.ErrClosed
		}
		part := b[n:min(len(b), n+pipeRoom-len(s.bytes))]
		s.bytes = append(s.bytes, part...)
		n += len(part)
		return n == len(b), nil
	})
	return n, err
}

// Close lets the other side read what is under way.
func (p *pipe) Close() error {
	p.in.end(false, true)
	p.out.end(true, false)
	return nil
}

func (p *pipe) SetDeadline(t time.Time) error {
	p.reading.at, p.writes.at = t, t
	return nil
}
func (p *pipe) SetReadDeadline(t time.Time) error  { p.reading.at = t; return nil }
func (p *pipe) SetWriteDeadline(t time.Time) error { p.writes.at = t; return nil }
func (p *pipe) LocalAddr() net.Addr                { return &net.UnixAddr{Name: "model", Net: "unix"} }
func (p *pipe) RemoteAddr() net.Addr               { return p.LocalAddr() }
