// Package server opens the Redis that an example runs on. It is the one that the example names, or one that comes with
// the example, so that it needs no setup.
package server

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redisd"
)

// Server is an open Redis. Close ends it.
type Server struct {
	Pool     *redis.Pool
	Embedded bool   // it ends with the process, and all that it holds
	Name     string // for people: without the password

	end func()
}

// Open makes a pool for the URL; for an empty one it starts an embedded server. A wrong host is told by the first use.
func Open(rawURL string) (*Server, error) {
	s := &Server{Embedded: rawURL == "", Name: "a server inside this process (no -redis, no REDIS_URL)", end: func() {}}
	if s.Embedded {
		m, err := miniredis.Run()
		if err != nil {
			return nil, fmt.Errorf("start the embedded server: %w", err)
		}
		rawURL, s.end = "redis://"+m.Addr(), age(m)
	} else if u, err := url.Parse(rawURL); err == nil {
		s.Name = u.Redacted()
	}
	return s.connect(rawURL)
}

// OpenOwn is Open, but where there is a redis-server in PATH, or named by REDIS_SERVER, it stands in for the embedded
// server. Close ends its process and removes its directory.
func OpenOwn(rawURL string) (*Server, error) {
	if _, err := exec.LookPath(cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server")); rawURL != "" || err != nil {
		return Open(rawURL)
	}
	p, err := redisd.Start("appendonly yes")
	if err != nil {
		return nil, err
	}
	s := &Server{Embedded: true, Name: "a redis-server of its own at " + p.Addr(), end: p.Remove}
	return s.connect("redis://" + p.Addr())
}

func (s *Server) connect(rawURL string) (_ *Server, err error) {
	if s.Pool, err = shunt.NewPool(rawURL); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// age has keys expire: a miniredis does so only when it is told that time has passed. It returns what ends both.
func age(m *miniredis.Miniredis) (end func()) {
	const every = 250 * time.Millisecond
	tick, over := time.NewTicker(every), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-tick.C:
				m.FastForward(every)
			case <-over:
				return
			}
		}
	})
	return func() {
		tick.Stop()
		close(over)
		wg.Wait()
		m.Close()
	}
}

// Close closes the pool and ends the embedded server.
func (s *Server) Close() {
	s.Pool.Close()
	s.end()
}
