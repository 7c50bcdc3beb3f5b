package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Server is one listener with its bounds. Its exported fields are its configuration.
type Server struct {
	Name    string       // in the log, and of the socket that systemd may give
	Listen  string       // host:port, unix:/path or systemd:NAME
	Handler http.Handler // required
	TLS     *Certificate // nil: none
	Log     *slog.Logger // required

	MaxHeader      int           // bytes; 0: net/http's
	MaxConnections int           // 0: no bound
	HeaderTimeout  time.Duration // 0: none
	IdleTimeout    time.Duration // 0: that of the headers

	listener net.Listener
	server   *http.Server

	mu      sync.Mutex
	fresh   map[net.Conn]struct{} // connections on which nothing has come yet
	over    bool                  // no further request is handled
	running sync.WaitGroup        // requests that are handled; added to under mu until over
}

// freshFor is how long the end waits for what may be on its way on a fresh connection. Clients dial some that they
// never use, and net/http alone would wait 5 s for each.
const freshFor = 300 * time.Millisecond

// lastFor is how long the end waits for requests whose connections it has closed. They give back what they took, which
// may take 10 s where Redis does not answer.
const lastFor = 12 * time.Second

// Open listens. Requests wait until Serve.
func (s *Server) Open() error {
	l, err := Listen(s.Name, s.Listen, s.MaxConnections)
	if err != nil {
		return err
	}
	s.listener = l
	s.server = &http.Server{
		Handler: http.HandlerFunc(s.handle), MaxHeaderBytes: s.MaxHeader,
		ReadHeaderTimeout: s.HeaderTimeout, IdleTimeout: s.IdleTimeout,
		ErrorLog:  slog.NewLogLogger(s.Log.With("listener", s.Name).Handler(), slog.LevelDebug),
		ConnState: s.track,
	}
	s.fresh = make(map[net.Conn]struct{})
	if s.TLS != nil {
		s.server.TLSConfig = &tls.Config{GetCertificate: s.TLS.get, MinVersion: tls.VersionTLS12}
	}
	return nil
}

// Addr is where it listens, after Open.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers requests until Shutdown or Close, and returns nil then.
func (s *Server) Serve() error {
	var err error
	if s.TLS != nil {
		err = s.server.ServeTLS(s.listener, "", "")
	} else {
		err = s.server.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %s: %w", s.Name, err)
}

// handle counts a request while it is handled.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	over := s.over
	if !over {
		s.running.Add(1)
	}
	s.mu.Unlock()
	if over {
		panic(http.ErrAbortHandler) // its connection is closed
	}
	defer s.running.Done()
	s.Handler.ServeHTTP(w, r)
}

// Shutdown takes no more connections and waits for requests that run. Where ctx ends first, their connections are
// closed, and the error is ctx's. It returns once they have ended, or some seconds later.
func (s *Server) Shutdown(ctx context.Context) error {
	end := time.AfterFunc(freshFor, s.closeFresh)
	defer end.Stop()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("serve: shut down %s: %w", s.Name, err), s.server.Close(), s.last())
	}
	return err
}

// last waits for the requests whose connections were closed.
func (s *Server) last() error {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.running.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(lastFor):
		return fmt.Errorf("serve: requests of %s ran on for %v after that", s.Name, lastFor)
	}
}

func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.fresh[c] = struct{}{}
	} else {
		delete(s.fresh, c)
	}
}

func (s *Server) closeFresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.fresh {
		_ = c.Close()
	}
}

// Close ends a Server that was opened and not served.
func (s *Server) Close() error { return s.listener.Close() }

// Listen opens a listener of a name on host:port, unix:/path or systemd:NAME. While most connections are open, further
// ones wait in the kernel; 0 is no bound.
func Listen(name, at string, most int) (net.Listener, error) {
	l, err := listen(at)
	if err != nil {
		return nil, fmt.Errorf("serve: listen for %s on %s: %w", name, at, err)
	}
	if most > 0 {
		l = &bounded{Listener: l, free: make(chan struct{}, most), closed: make(chan struct{})}
	}
	return l, nil
}

func listen(at string) (net.Listener, error) {
	if name, ok := strings.CutPrefix(at, "systemd:"); ok {
		return inherited(name)
	}
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return nil, errors.New("another process listens there")
		}
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(path) // of a process that was killed
		}
		return net.Listen("unix", path)
	}
	return net.Listen("tcp", at)
}

// bounded accepts a connection only while fewer than so many are open. Others wait in the kernel.
type bounded struct {
	net.Listener
	free   chan struct{} // has one for each open connection
	once   sync.Once
	closed chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.free <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &counted{Conn: c, of: b}, nil
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type counted struct {
	net.Conn
	of   *bounded
	once sync.Once
}

func (c *counted) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.of.free })
	return err
}

// CloseWrite closes the sending half, so that the other side can read to the end. net/http and gmq look for it.
func (c *counted) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
