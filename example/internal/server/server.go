// Package server opens the Redis that an example runs on. It is the one that the example names, or one inside the
// process, so that the example needs no setup.
package server

import (
	"fmt"
	"net/url"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// Server is an open Redis. Close ends it.
type Server struct {
	Pool     *redis.Pool
	Embedded bool   // it ends with the process, and all that it holds
	Name     string // for people: without the password

	mini *miniredis.Miniredis
}

// Open makes a pool for the URL; for an empty one it starts an embedded server. A wrong host is told by the first use.
func Open(rawURL string) (*Server, error) {
	s := &Server{Embedded: rawURL == "", Name: "a server inside this process (no -redis, no REDIS_URL)"}
	if s.Embedded {
		var err error
		if s.mini, err = miniredis.Run(); err != nil {
			return nil, fmt.Errorf("start the embedded server: %w", err)
		}
		rawURL = "redis://" + s.mini.Addr()
	} else if u, err := url.Parse(rawURL); err == nil {
		s.Name = u.Redacted()
	}
	var err error
	if s.Pool, err = shunt.NewPool(rawURL); err != nil && s.mini != nil {
		s.mini.Close()
	}
	return s, err
}

// Close closes the pool and ends the embedded server.
func (s *Server) Close() {
	s.Pool.Close()
	if s.mini != nil {
		s.mini.Close()
	}
}
