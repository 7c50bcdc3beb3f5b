package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// wantURL ends the errors of a URL that is not understood.
const wantURL = "want redis://[[user]:password@]host[:port][/db], the same with rediss, " +
	"or unix:///path/to/socket[?db=n]"

// NewPool is shunt.NewPool.
func NewPool(rawURL string) (*redis.Pool, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		if strings.Contains(rawURL, "@") { // the error may quote a part of the password
			err = errors.New("it cannot be read: in a password each of : / ? # [ ] @ % is to be escaped, as %2F for /")
		}
		return nil, fmt.Errorf("shunt: redis URL: %w", withoutURL(err))
	}
	db, err := database(u)
	if err != nil {
		return nil, fmt.Errorf("shunt: redis URL %s: %w: %s", u.Redacted(), err, wantURL)
	}
	d := &dialer{connect: (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext}
	options := []redis.DialOption{redis.DialDatabase(db)}
	if p, ok := u.User.Password(); ok {
		options = append(options, redis.DialUsername(u.User.Username()), redis.DialPassword(p))
	} else if p := u.User.Username(); p != "" { // one word is a password, as for redis-cli
		options = append(options, redis.DialPassword(p))
	}
	network, address := "tcp", net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), cmp.Or(u.Port(), "6379"))
	switch u.Scheme {
	case "unix":
		network, address = "unix", u.Path
	case "rediss":
		d.tls = tlsConfig(u.Hostname())
	}
	return d.pool(network, address, options...), nil
}

// PoolOver is a pool like NewPool's on connections that dial makes, be it in memory.
func PoolOver(dial func(ctx context.Context) (net.Conn, error)) *redis.Pool {
	d := &dialer{connect: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	return d.pool("tcp", "")
}

func (d *dialer) pool(network, address string, options ...redis.DialOption) *redis.Pool {
	options = append(options, redis.DialReadTimeout(3*time.Second), redis.DialWriteTimeout(3*time.Second),
		redis.DialContextFunc(d.dial))
	return &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, network, address, options...)
		},
		MaxIdle: 8, IdleTimeout: time.Minute,
		TestOnBorrowContext: func(ctx context.Context, _ redis.Conn, _ time.Time) error {
			if ctx.Value(socketKey{}) != nil { // the socket of an idle connection is not known any more
				return errors.New("a link wants a connection of its own")
			}
			return nil
		},
	}
}

// database checks what a URL says beside its address, and gives the database that it names, 0 by default.
func database(u *url.URL) (int, error) {
	inPath := ""
	switch u.Scheme {
	case "redis", "rediss":
		inPath = strings.TrimPrefix(u.Path, "/")
		if u.Opaque != "" || strings.Trim(inPath, "0123456789") != "" {
			return 0, errors.New("the path is not /db")
		}
	case "unix":
		if u.Path == "" || u.Host != "" {
			return 0, errors.New("the path of the socket is missing, or has less than three slashes before it")
		}
	default:
		return 0, errors.New("the scheme is not redis, rediss or unix")
	}
	user := u.User.Username()
	if p, ok := u.User.Password(); ok && p == "" && user != "" && user != "default" { // redigo would not log in
		return 0, fmt.Errorf("the password of user %q is empty: a user with nopass takes any", user)
	}
	if u.Fragment != "" {
		return 0, errors.New("there is a # in it: write %23 where it is part of the password")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return 0, err
	}
	given := inPath
	for option, values := range query {
		switch {
		case option != "db":
			return 0, fmt.Errorf("there is no option %q: set it as a field of the Pool or the Queue", option)
		case len(values) > 1 || inPath != "" && inPath != values[0]:
			return 0, errors.New("the database is named twice")
		}
		given = values[0]
	}
	if given == "" && !query.Has("db") {
		return 0, nil
	}
	db, err := strconv.ParseUint(given, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("the database %q is no number", given)
	}
	return int(db), nil
}

// withoutURL is a parser's error without the URL in it, which may have a password.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}
