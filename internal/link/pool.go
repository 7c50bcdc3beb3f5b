package link

import (
	"context"
	"errors"
	"fmt"
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
	d := &dialer{}
	options := []redis.DialOption{
		redis.DialReadTimeout(3 * time.Second), redis.DialWriteTimeout(3 * time.Second), redis.DialContextFunc(d.dial),
	}
	var dial func(ctx context.Context) (redis.Conn, error)
	switch u.Scheme {
	case "redis", "rediss":
		if u.Opaque != "" || strings.Trim(u.Path, "/0123456789") != "" {
			return nil, fmt.Errorf("shunt: redis URL: the path of %s is not /DB: "+
				"want %s://[[user]:password@]host[:port][/db]", u.Redacted(), u.Scheme)
		}
		address := rawURL
		if u.Scheme == "rediss" {
			d.tls = tlsConfig(u.Hostname())
			plain := *u
			plain.Scheme = "redis" // the dialer does TLS, and redigo must not do it once more
			address = plain.String()
		}
		dial = func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, address, options...) }
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
		return nil, fmt.Errorf("shunt: redis URL: the scheme of %q is not redis, rediss or unix: "+
			"want redis://[[user]:password@]host[:port][/db]", u.Redacted())
	}
	return &redis.Pool{
		DialContext: dial, MaxIdle: 8, IdleTimeout: time.Minute,
		TestOnBorrowContext: func(ctx context.Context, _ redis.Conn, _ time.Time) error {
			if ctx.Value(socketKey{}) != nil { // the socket of an idle connection is not known any more
				return errors.New("a link wants a connection of its own")
			}
			return nil
		},
	}, nil
}
