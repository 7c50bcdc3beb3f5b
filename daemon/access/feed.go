package access

import (
	"context"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"
)

// A view is proved at most pingEvery + pingTimeout after the last ping's sending, or it is not believed: together
// 850 ms, less than maxAge.
const (
	pingEvery   = 250 * time.Millisecond
	pingTimeout = 600 * time.Millisecond
	dialEvery   = 500 * time.Millisecond // while Redis is away
)

// Run hears the hints of other processes until ctx ends, and returns its cause. It holds one connection. While Redis is
// away it dials twice a second.
func (s *Store) Run(ctx context.Context) error {
	for {
		_ = s.feed(ctx) // whatever it was, tokens are asked of Redis meanwhile, and those errors are seen
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(dialEvery):
		}
	}
}

// feed is one subscription. Pings prove that it is alive.
func (s *Store) feed(ctx context.Context) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	hints := redis.PubSubConn{Conn: c}
	defer s.mirror.hearing(false)
	g, ctx := errgroup.WithContext(ctx)
	begun := time.Now()
	if err := hints.Subscribe(hintsChannel); err != nil {
		_ = c.Close()
		return err
	}
	g.Go(func() error {
		for {
			switch m := hints.ReceiveWithTimeout(pingEvery + pingTimeout).(type) {
			case error:
				return m
			case redis.Subscription:
				s.mirror.hearing(true)
			case redis.Message:
				s.mirror.drop(string(m.Data))
			case redis.Pong:
				if ns, err := strconv.ParseInt(m.Data, 10, 64); err == nil {
					s.mirror.proved(begun.Add(time.Duration(ns)))
				}
			}
		}
	})
	g.Go(func() error {
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		defer c.Close() // ends the receiving, too
		for {
			if err := hints.Ping(strconv.FormatInt(int64(time.Since(begun)), 10)); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	return g.Wait()
}

// dial makes a connection of the feed's own: one of the pool would be read while it is closed.
func (s *Store) dial(ctx context.Context) (redis.Conn, error) {
	if s.Redis.DialContext != nil {
		return s.Redis.DialContext(ctx)
	}
	return s.Redis.Dial()
}
