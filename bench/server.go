package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// childAttr ends the server with this process, however that ends, where the system can do so.
var childAttr *syscall.SysProcAttr

// setNice gives a process's first thread a niceness, where the system can do so.
var setNice func(pid, niceness int) error

// starting keeps two servers from being given the same free port.
var starting sync.Mutex

// server is a redis-server of our own.
type server struct {
	addr   string     // host:port
	conn   redis.Conn // for one goroutine; over a private socket, so that who answers is this server
	dir    string
	cmd    *exec.Cmd
	log    bytes.Buffer  // to be read once exited is closed
	exited chan struct{} // closed when cmd has ended
}

// startServer returns a server that answers. It keeps nothing on disk or, with aof, an append-only file.
func startServer(aof bool) (*server, error) {
	starting.Lock()
	defer starting.Unlock()
	bin := os.Getenv("REDIS_SERVER")
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("redis-server"); err != nil {
			return nil, errors.New("no redis-server in PATH: install Redis 6.2 or later, or name the program in REDIS_SERVER")
		}
	}
	for tries := 1; ; tries++ {
		s, err := launch(bin, aof)
		if err == nil || tries == 5 || !strings.Contains(err.Error(), "Address already in use") { // somebody else was faster
			return s, err
		}
	}
}

// launch starts one on a port that was free just before.
func launch(bin string, aof bool) (*server, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	free.Close()
	port := free.Addr().(*net.TCPAddr).Port
	s := &server{addr: free.Addr().String(), exited: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	appendonly := map[bool]string{false: "no", true: "yes"}[aof]
	socket := filepath.Join(s.dir, "s")
	s.cmd = exec.Command(bin, "--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--unixsocket", socket,
		"--dir", s.dir, "--save", "", "--appendonly", appendonly, "--appendfsync", "everysec", "--daemonize", "no")
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.SysProcAttr = &s.log, &s.log, childAttr
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(s.dir)
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	go func() { // stop waits for it
		defer close(s.exited)
		_ = s.cmd.Wait() // what it had to say is in the log
	}()

	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 1000 {
		select {
		case <-s.exited:
			s.stop()
			return nil, fmt.Errorf("redis-server ended at once: %v\n%s", s.cmd.ProcessState, s.log.String())
		case <-look.C:
		}
		if s.conn, err = redis.Dial("unix", socket); err == nil {
			return s, nil
		}
	}
	s.stop()
	return nil, fmt.Errorf("redis-server does not answer: %w\n%s", err, s.log.String())
}

// nice has the scheduler of the system let the server go before its clients, or after them.
func (s *server) nice(n int) error {
	if n == 0 {
		return nil
	}
	if setNice == nil {
		return errors.New("-nice is for Linux")
	}
	if err := setNice(s.cmd.Process.Pid, n); err != nil {
		return fmt.Errorf("give redis-server a niceness of %d, for which below 0 one has to be root: %w", n, err)
	}
	return nil
}

// stop ends the very process that was started.
func (s *server) stop() {
	if s.conn != nil {
		s.conn.Close()
	}
	_ = s.cmd.Process.Kill() // an error means that it has ended already
	<-s.exited
	os.RemoveAll(s.dir)
}
