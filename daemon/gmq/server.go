package gmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/serve"
	"github.com/shuntmq/shunt/daemon/topics"
)

// Limits bound what clients may cost. Zero fields are the defaults.
type Limits struct {
	MaxConnections int           // open at once: default 20,000; further ones wait
	MaxCalls       int           // pushes and acks of a connection at once: default 64; further ones wait to be read
	MaxPops        int           // of a connection at once: default 64; beyond: an error
	WriteTimeout   time.Duration // for an answer: default 10 s
	IdleTimeout    time.Duration // of a connection without requests: default 10 min
}

// Validate says all that is wrong with the limits.
func (l *Limits) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("gmq: Limits."+format, args...))
		}
	}
	for _, n := range []int64{int64(l.MaxConnections), int64(l.MaxCalls), int64(l.MaxPops),
		int64(l.WriteTimeout), int64(l.IdleTimeout)} {
		check(n >= 0, "one is %d: want a positive number, or 0 for the default", n)
	}
	return errors.Join(errs...)
}

func (l *Limits) setDefaults() {
	l.MaxConnections = cmp.Or(l.MaxConnections, 20_000)
	l.MaxCalls, l.MaxPops = cmp.Or(l.MaxCalls, 64), cmp.Or(l.MaxPops, 64)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 10*time.Second)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, 10*time.Minute)
}

// Server is the listener. Its exported fields are its configuration, and are not changed once Open was called.
type Server struct {
	Listen string         // host:port, unix:/path or systemd:gmq
	Topics *topics.Topics // required
	Limits Limits
	// Budget bounds a job's bytes, those of all requests that are read or handled, and pops at once; beyond them is an
	// error. Its BodyTimeout is for a request to come, once it has begun. All interfaces share it; nil: one of its own.
	Budget  *budget.Budget
	Metrics *Metrics     // nil: none
	Log     *slog.Logger // nil: slog.Default()

	networks serve.Networks
	listener net.Listener
	life     context.Context // of what a client's leaving does not end; ended when the grace is over
	end      context.CancelFunc

	mu       sync.Mutex
	stopping bool
	conns    map[*conn]struct{}
	serving  sync.WaitGroup // Serve's connections
}

// Allow sets from where clients may connect; without any network, from everywhere. Connections of others are closed.
// Those that are open stay.
func (s *Server) Allow(networks []netip.Prefix) { s.networks.Set(networks) }

// Open listens. Connections wait until Serve.
func (s *Server) Open() error {
	if s.Topics == nil {
		return errors.New("gmq: Server.Topics is nil")
	}
	if err := s.Limits.Validate(); err != nil {
		return err
	}
	s.Limits.setDefaults()
	s.Log = cmp.Or(s.Log, slog.Default())
	s.Budget = cmp.Or(s.Budget, new(budget.Budget))
	s.conns = make(map[*conn]struct{})
	s.life, s.end = context.WithCancel(context.Background())
	var err error
	s.listener, err = serve.Listen("gmq", s.Listen, s.Limits.MaxConnections)
	return err
}

// Addr is where it listens, after Open.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// maxRequest bounds a request: its job may be twice as long in JSON, and has names beside.
func (s *Server) maxRequest() int { return 2*int(s.Budget.Limits().MaxBody) + 64<<10 }

// Close ends a Server that was opened and not served.
func (s *Server) Close() error {
	s.end()
	return s.listener.Close()
}

// Serve takes connections until Shutdown, and returns nil then, once the listener is closed.
func (s *Server) Serve() error {
	const longest = time.Second
	wait := 5 * time.Millisecond
	for {
		c, err := s.listener.Accept()
		switch {
		case err == nil:
			wait = 5 * time.Millisecond
			s.take(c)
		case s.stops():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("gmq: %w", err)
		default: // there are too many files open, or the like
			s.Log.Warn("gmq: a connection could not be taken", "error", err)
			select {
			case <-time.After(wait):
			case <-s.life.Done():
			}
			wait = min(2*wait, longest)
		}
	}
}

func (s *Server) stops() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// take serves a connection, if it may come.
func (s *Server) take(nc net.Conn) {
	if remote := nc.RemoteAddr().String(); !s.networks.Allows(remote) {
		s.Metrics.refuse()
		s.Log.Debug("gmq: a connection from a network that is not allowed", "remote", remote)
		_ = nc.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = nc.Close()
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	s.serving.Go(func() {
		s.Metrics.connected(1)
		c.serve()
		s.Metrics.connected(-1)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// Shutdown takes no more connections and no more requests. Pops are answered at once that there is no job. Requests
// that run are answered, and their connections closed. Where ctx ends first, all are closed, and the error is ctx's.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	_ = s.listener.Close()
	for c := range s.conns {
		c.stop()
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.serving.Wait()
	}()
	defer func() {
		s.end()
		<-ended
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.broken()
	}
	s.mu.Unlock()
	return fmt.Errorf("gmq: shut down: %w", context.Cause(ctx))
}
