package link

import (
	"context"
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
	options := []redis.DialOption{
		redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(3 * time.Second), redis.DialWriteTimeout(3 * time.Second),
		redis.DialKeepAlive(30 * time.Second), redis.DialClientName("shunt"),
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
