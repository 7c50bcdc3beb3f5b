package redistest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redisd"
)

// Server is one test's hold on a real redis-server. Its methods may be called from several goroutines, except those
// that fail the test (all but Addr, URL, Socket, Pid and TryDo): these belong to the test's own goroutine.
type Server struct {
	t      testing.TB
	p      *redisd.Process
	shared bool
}

// Start runs a redis-server for this test alone, on 127.0.0.1 and on a unix socket, and ends it at the test's cleanup.
// Each conf is a line of redis.conf, such as "appendonly yes"; without any, nothing is persisted. It is found in
// $REDIS_SERVER or on the path; when there is none, the test fails.
func Start(t testing.TB, conf ...string) *Server {
	t.Helper()
	watch(t)
	p, err := redisd.Start(conf...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Remove)
	return &Server{t: t, p: p}
}

// Addr returns "127.0.0.1:port".
func (s *Server) Addr() string { return s.p.Addr() }

// URL returns the redis:// URL of database 0.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Socket returns the path of the unix socket.
func (s *Server) Socket() string { return s.p.Socket() }

// Pid returns the process id of the redis-server that was started last.
func (s *Server) Pid() int { return s.p.Pid() }

// Do runs a command on the server's admin connection, and fails the test on an error. Replies are redigo's. Commands of
// several callers take turns, so a blocking one holds up the others.
func (s *Server) Do(cmd string, args ...any) any {
	s.t.Helper()
	v, err := s.TryDo(cmd, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", cmd, err)
	}
	return v
}

// TryDo is Do that returns the error; for a server that does not answer, after 40 s at most.
func (s *Server) TryDo(cmd string, args ...any) (any, error) { return s.p.Do(cmd, args...) }

// Connections returns the number of connected clients without the admin's own. The server notices a closed connection a
// little later than its client: poll.
func (s *Server) Connections() int {
	s.t.Helper()
	var n int
	s.info("clients", "connected_clients", &n)
	return n - 1
}

// CPU returns the processor time that the server's process has used, user and system.
func (s *Server) CPU() time.Duration {
	s.t.Helper()
	var user, sys float64
	s.info("cpu", "used_cpu_user", &user)
	s.info("cpu", "used_cpu_sys", &sys)
	return time.Duration((user + sys) * float64(time.Second))
}

// Memory returns the bytes that the server has allocated.
func (s *Server) Memory() (n int) {
	s.t.Helper()
	s.info("memory", "used_memory", &n)
	return n
}

// info scans one field of INFO into value, a pointer to a number.
func (s *Server) info(section, field string, value any) {
	s.t.Helper()
	text, err := redis.String(s.Do("INFO", section), nil)
	if err == nil {
		_, rest, _ := strings.Cut(text, "\n"+field+":")
		_, err = fmt.Sscan(rest, value)
	}
	if err != nil {
		s.t.Fatalf("INFO %s: %s: %v", section, field, err)
	}
}

// Pool returns a Pool of connections to the server.
func (s *Server) Pool(t testing.TB) *redis.Pool { return Pool(t, s.Addr()) }

// Stop freezes the server with SIGSTOP: connections stay open, and what is sent to it waits in the kernel.
func (s *Server) Stop() {
	s.t.Helper()
	s.signal("SIGSTOP", redisd.SigStop)
}

// Cont lets a stopped server run on; it then executes what came meanwhile.
func (s *Server) Cont() {
	s.t.Helper()
	s.signal("SIGCONT", redisd.SigCont)
}

func (s *Server) signal(name string, sig os.Signal) {
	s.t.Helper()
	s.own(name)
	if sig == nil {
		s.t.Fatalf("redistest: this operating system has no %s", name)
	}
	if err := s.p.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %s: %v", name, err)
	}
}

// Kill ends the server with SIGKILL and waits until it is gone; it may be stopped or dead already.
func (s *Server) Kill() {
	s.t.Helper()
	s.own("Kill")
	s.p.Kill()
}

// Restart starts a killed server again, in the same directory and on the same port, and returns when it has loaded its
// data.
func (s *Server) Restart() {
	s.t.Helper()
	s.own("Restart")
	if err := s.p.Restart(); err != nil {
		s.t.Fatal(err)
	}
}

// Keep copies the server's append-only file aside, for RestartKept.
func (s *Server) Keep() {
	s.t.Helper()
	s.own("Keep")
	if err := s.p.Keep(); err != nil {
		s.t.Fatal(err)
	}
}

// RestartKept is Restart with the data as they were at Keep.
func (s *Server) RestartKept() {
	s.t.Helper()
	s.own("RestartKept")
	if err := s.p.RestartKept(); err != nil {
		s.t.Fatal(err)
	}
}

// own keeps a test from breaking the server of all the others.
func (s *Server) own(what string) {
	s.t.Helper()
	if s.shared {
		s.t.Fatalf("redistest: %s of the shared server: Start one of your own", what)
	}
}

// Pool returns a pool of connections to addr, with a timeout of 5 s for each step; the test's cleanup closes it. It
// keeps idle connections, and tests none of them before their use.
func Pool(t testing.TB, addr string) *redis.Pool {
	p := &redis.Pool{MaxIdle: 64, Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", addr, redis.DialConnectTimeout(5*time.Second), redis.DialReadTimeout(5*time.Second),
			redis.DialWriteTimeout(5*time.Second))
	}}
	t.Cleanup(func() { _ = p.Close() })
	return p
}
