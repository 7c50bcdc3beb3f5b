package link

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
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
	return &redis.Pool{DialContext: dial, MaxIdle: 8, IdleTimeout: time.Minute}, nil
}

// progress is a connection whose deadlines are for progress, not for a whole reply or command: a large element on a slow line takes
// its time, a line on which nothing moves is given up all the same. One goroutine reads, one writes.
type progress struct {
	net.Conn
	read, write time.Duration // what the last deadline allowed; 0: for ever
}

const progressChunk = 64 << 10 // bytes that a write may take its whole time for

func (p *progress) SetDeadline(t time.Time) error {
	p.read, p.write = allowed(t), allowed(t)
	return p.Conn.SetDeadline(t)
}

func (p *progress) SetReadDeadline(t time.Time) error {
	p.read = allowed(t)
	return p.Conn.SetReadDeadline(t)
}

func (p *progress) SetWriteDeadline(t time.Time) error {
	p.write = allowed(t)
	return p.Conn.SetWriteDeadline(t)
}

func allowed(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Until(t)
}

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 && p.read > 0 {
		p.Conn.SetReadDeadline(time.Now().Add(p.read))
	}
	return n, err
}

func (p *progress) Write(b []byte) (n int, err error) {
	for {
		m, err := p.Conn.Write(b[n:min(n+progressChunk, len(b))])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
		if p.write > 0 {
			p.Conn.SetWriteDeadline(time.Now().Add(p.write))
		}
	}
}
