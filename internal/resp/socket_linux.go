package resp

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// socket reads and writes by system calls that the Go runtime does not know of. The runtime takes the processor away
// from a thread that stays in a system call for 20 µs, and lets another thread go on. A write to a server on the same
// machine takes as long. With few processors the three then wait for each other, which costs a link a tenth of its
// rate. None of these calls can block, because Go's sockets are non-blocking. Where there is nothing to read, or no
// room, the runtime waits as ever. One goroutine reads and one writes.
type socket struct {
	net.Conn
	in, out side
}

// side is one direction of a socket.
type side struct {
	of   net.Conn
	name string
	call uintptr
	all  bool // a write is done when all is written, a read when anything is read
	wait func(try func(fd uintptr) bool) error
	try  func(fd uintptr) bool // attempt, made once

	b   []byte
	n   int // bytes of b that are done
	err error
}

// Direct returns c with these system calls if c is a socket, and c itself otherwise: a *tls.Conn is none.
func Direct(c net.Conn) net.Conn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	s := &socket{Conn: c}
	s.in = side{of: c, name: "read", call: syscall.SYS_READ, wait: raw.Read}
	s.out = side{of: c, name: "write", call: syscall.SYS_WRITE, all: true, wait: raw.Write}
	s.in.try, s.out.try = s.in.attempt, s.out.attempt
	return s
}

func (s *socket) Read(b []byte) (int, error) {
	n, err := s.in.do(b)
	if n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

func (s *socket) Write(b []byte) (int, error) { return s.out.do(b) }

func (s *side) do(b []byte) (int, error) {
	s.b, s.n, s.err = b, 0, nil
	err := s.wait(s.try) // the deadline, or the connection was closed
	s.b = nil
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	if err = cmp.Or(err, s.err); err != nil {
		local := s.of.LocalAddr()
		err = &net.OpError{Op: s.name, Net: local.Network(), Source: local, Addr: s.of.RemoteAddr(), Err: err}
	}
	return s.n, err
}

// attempt does what can be done now, and reports whether the call is complete.
func (s *side) attempt(fd uintptr) bool {
	for s.n < len(s.b) {
		n, _, errno := syscall.RawSyscall(s.call, fd, uintptr(unsafe.Pointer(&s.b[s.n])), uintptr(len(s.b)-s.n))
		switch errno {
		case 0:
			if s.n += int(n); !s.all {
				return true
			}
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			s.err = os.NewSyscallError(s.name, errno)
			return true
		}
	}
	return true
}
