package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redisd"
)

// setNice gives a process's first thread a niceness, where the system can do so.
var setNice func(pid, niceness int) error

// server is a redis-server of our own.
type server struct {
	addr    string     // host:port
	tls     string     // host:port of its TLS port; empty: it has none
	conn    redis.Conn // for one goroutine; over a private socket, so that only this server can answer
	process *redisd.Process
}

// startServer returns a server that answers. It keeps nothing on disk or, with aof, an append-only file.
func startServer(aof bool) (*server, error) { return started(redisd.Start(configured(aof)...)) }

// startTLSServer is startServer of one that serves TLS, too.
func startTLSServer(aof bool) (*server, error) {
	pair, err := trustedPair()
	if err != nil {
		return nil, err
	}
	s, err := started(redisd.StartTLS(pair, configured(aof)...))
	if err == nil {
		s.tls = s.process.TLSAddr()
	}
	return s, err
}

// trustedPair is the certificate of all servers with TLS: this process trusts it as it trusts the system's.
var trustedPair = sync.OnceValues(func() (tls.Certificate, error) {
	pair, err := redisd.SelfSigned()
	if err == nil {
		err = redisd.Trust(pair)
	}
	return pair, err
})

func configured(aof bool) []string {
	if aof {
		return []string{"appendonly yes", "appendfsync everysec"}
	}
	return nil
}

func started(p *redisd.Process, err error) (*server, error) {
	if err != nil {
		return nil, err
	}
	return &server{addr: p.Addr(), conn: p.Conn(), process: p}, nil
}

// nice has the scheduler of the system let the server go before its clients, or after them.
func (s *server) nice(n int) error {
	if n == 0 {
		return nil
	}
	if setNice == nil {
		return errors.New("-nice is for Linux")
	}
	if err := setNice(s.process.Pid(), n); err != nil {
		return fmt.Errorf("give redis-server a niceness of %d, for which below 0 one has to be root: %w", n, err)
	}
	return nil
}

// stop ends the very process that was started.
func (s *server) stop() {
	s.conn.Close()
	s.process.Remove()
}
