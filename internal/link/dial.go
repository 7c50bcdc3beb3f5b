package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/shuntmq/shunt/internal/resp"
)

// dialTimeout bounds the dial of one connection, the TLS handshake included.
const dialTimeout = time.Second

// dialer makes the connections of NewPool's pools.
type dialer struct {
	connect func(ctx context.Context, network, addr string) (net.Conn, error)
	tls     *tls.Config // nil: without TLS
}

// tlsConfig trusts the certificates that the system trusts, for a server of that name.
func tlsConfig(host string) *tls.Config {
	if host == "" {
		host = "localhost" // the default of redigo
	}
	// Small records at the start of a connection make its first bytes readable sooner, which is for web pages.
	return &tls.Config{ServerName: host, DynamicRecordSizingDisabled: true}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := d.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if d.tls != nil {
		// A *tls.Conn holds a lock of its own for each direction, so one goroutine reads the socket and one writes,
		// as it wants.
		secure := tls.Client(resp.Direct(c), d.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, handshakeError(addr, err)
		}
		c = secure
	}
	if to, ok := ctx.Value(socketKey{}).(*net.Conn); ok {
		*to = c
	}
	return &progress{Conn: c}, nil
}

// errNoHandshake is the error of a server that may not speak TLS.
var errNoHandshake = errors.New("does not answer a TLS handshake")

// handshakeError names the server, and the likely cause where it does not speak TLS. A plain redis-server takes the
// handshake for a command: it answers with an error, waits for more of it, or closes the connection.
func handshakeError(addr string, err error) error {
	var header tls.RecordHeaderError
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded): // of the dial, of which nobody else knows
		return fmt.Errorf("%s %w: is it a plain redis:// port?", addr, errNoHandshake)
	case errors.As(err, &header), errors.As(err, &timeout) && timeout.Timeout(),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%s %w: is it a plain redis:// port? (%w)", addr, errNoHandshake, err)
	}
	return fmt.Errorf("TLS handshake with %s: %w", addr, err)
}

// progress is a connection whose deadlines are for progress, not for a whole reply or command. So a large element on a
// slow line takes its time, and a line on which nothing moves is closed all the same. One goroutine reads, one writes.
// A deadline is set when the socket is read or written, not before. redigo sets one for each reply, and most replies
// are in its buffer already.
type progress struct {
	net.Conn
	read, write deadline // each owned by the goroutine that does it
}

func (p *progress) SetDeadline(t time.Time) error {
	p.read.set(t)
	p.write.set(t)
	return p.Conn.SetDeadline(t)
}

func (p *progress) SetReadDeadline(t time.Time) error  { p.read.set(t); return nil }
func (p *progress) SetWriteDeadline(t time.Time) error { p.write.set(t); return nil }

func (p *progress) Read(b []byte) (int, error) {
	if err := p.Conn.SetReadDeadline(p.read.next()); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func (p *progress) Write(b []byte) (n int, err error) {
	for {
		if err := p.Conn.SetWriteDeadline(p.write.next()); err != nil {
			return n, err
		}
		m, err := p.Conn.Write(b[n:min(n+resp.WriteChunk, len(b))])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// deadline is a limit that begins anew with each step.
type deadline struct {
	at      time.Time     // of the first step
	allowed time.Duration // for each later step; 0: not known yet
}

func (d *deadline) set(t time.Time) { d.at, d.allowed = t, 0 }

func (d *deadline) next() time.Time {
	switch {
	case d.at.IsZero():
		return d.at // no limit
	case d.allowed == 0:
		d.allowed = max(time.Until(d.at), 1)
		return d.at
	}
	return time.Now().Add(d.allowed)
}
