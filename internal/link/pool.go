package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/resp"
)

// NewPool is shunt.NewPool.
func NewPool(rawURL string) (*redis.Pool, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("shunt: redis URL: %w", err)
	}
	options := []redis.DialOption{
		redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(3 * time.Second), redis.DialWriteTimeout(3 * time.Second),
		redis.DialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{Timeout: time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			if to, ok := ctx.Value(socketKey{}).(*net.Conn); ok && u.Scheme != "rediss" { // TLS comes on top of it
				*to = c
			}
			return &progress{Conn: c}, nil
		}),
	}
	dial := func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, rawURL, options...) }
	switch u.Scheme {
	case "redis", "rediss":
		if u.Opaque != "" || strings.Trim(u.Path, "/0123456789") != "" {
			return nil, fmt.Errorf("shunt: redis URL: the path of %s is not /DB: want %s://[[user]:password@]host[:port][/db]", u.Redacted(), u.Scheme)
		}
	case "unix":
		db := 0
		if s := u.Query().Get("db"); s != "" {
			if _, err := fmt.Sscanf(s, "%d", &db); err != nil {
				return nil, fmt.Errorf("shunt: redis URL: db=%s of %s is no number", s, u.Redacted())
			}
		}
		options = append(options, redis.DialDatabase(db))
		if p, ok := u.User.Password(); ok {
			options = append(options, redis.DialUsername(u.User.Username()), redis.DialPassword(p))
		}
		dial = func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "unix", u.Path, options...)
		}
	default:
		return nil, fmt.Errorf("shunt: redis URL: the scheme of %q is not redis, rediss or unix: want redis://[[user]:password@]host[:port][/db]", u.Redacted())
	}
	return &redis.Pool{
		DialContext: dial, MaxIdle: 8, IdleTimeout: time.Minute,
		TestOnBorrowContext: func(ctx context.Context, _ redis.Conn, _ time.Time) error {
			if ctx.Value(socketKey{}) != nil {
				return errors.New("a link wants a connection of its own") // the socket of an old one is not known any more
			}
			return nil
		},
	}, nil
}

// progress is a connection whose deadlines are for progress, not for a whole reply or command: a large element on a
// slow line takes its time, a line on which nothing moves is given up all the same. One goroutine reads, one writes.
// A deadline is set when the socket is read or written, not before, because redigo sets one for each reply, and most
// of these are in its buffer already.
type progress struct {
	net.Conn
	read, write deadline // each its goroutine's
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

// deadline is one that begins anew with each step.
type deadline struct {
	at      time.Time     // of the first step
	allowed time.Duration // for each one after it; 0: not known yet
}

func (d *deadline) set(t time.Time) { d.at, d.allowed = t, 0 }

func (d *deadline) next() time.Time {
	switch {
	case d.at.IsZero():
		return d.at // for ever
	case d.allowed == 0:
		d.allowed = max(time.Until(d.at), 1)
		return d.at
	}
	return time.Now().Add(d.allowed)
}
