package push

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"
)

// A hint has a change seen at once. Without it, whoever has lost the hints, the look at the version sees it: at most
// every lookEvery with its jitter, 750 ms.
const (
	lookEvery   = 600 * time.Millisecond
	lookJitter  = 150 * time.Millisecond
	lookTimeout = 3 * time.Second
	readEvery   = 30 * time.Second // what was changed by hand is in no version
	pingEvery   = time.Second
	pingTimeout = 3 * time.Second
	dialEvery   = 500 * time.Millisecond // while Redis is away
)

// hear calls heard for each hint, and once it hears, until ctx ends. It holds one connection.
func (s *store) hear(ctx context.Context, heard func()) {
	for {
		_ = s.subscription(ctx, heard) // whatever it was, the looks see changes meanwhile, and tell errors
		again := time.NewTimer(dialEvery)
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-again.C:
		}
	}
}

func (s *store) subscription(ctx context.Context, heard func()) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	hints := redis.PubSubConn{Conn: c}
	g, ctx := errgroup.WithContext(ctx)
	if err := hints.Subscribe(hintsChannel); err != nil {
		_ = c.Close()
		return err
	}
	g.Go(func() error {
		for {
			switch m := hints.ReceiveWithTimeout(pingEvery + pingTimeout).(type) {
			case error:
				return m
			case redis.Subscription, redis.Message:
				heard()
			}
		}
	})
	g.Go(func() error {
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		defer c.Close() // ends the receiving, too
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := hints.Ping(""); err != nil {
				return err
			}
		}
	})
	return g.Wait()
}

// dial makes a connection of the feed's own: one of the pool would be read while it is closed.
func (s *store) dial(ctx context.Context) (redis.Conn, error) {
	if s.redis.DialContext != nil {
		return s.redis.DialContext(ctx)
	}
	return s.redis.Dial()
}
