// Package redisd runs private redis-server processes: for tests, by way of package redistest, and for the benchmark.
package redisd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// readyWithin bounds the wait for a server, the loading of its append-only file included.
const readyWithin = 30 * time.Second

// adminUser keeps the admin connection working whatever a test does to the default user's password and rights.
const adminUser = "redisd"

// Process is a redis-server and what outlives its restarts: directory, ports, admin connection. Its methods may be
// called from several goroutines.
type Process struct {
	bin, dir string
	conf     []string
	tls      bool
	admin    *redis.Pool

	mu      sync.Mutex // guards what follows
	port    int
	tlsPort int // 0: it has none
	cmd     *exec.Cmd
	exited  <-chan struct{} // closed once cmd has been waited for
}

// Start runs a redis-server on a free port of 127.0.0.1 and on a unix socket, in a directory of its own, and returns
// it ready. The program is the one that REDIS_SERVER names, else the one in PATH. Each conf is a line of redis.conf,
// such as "appendonly yes"; without any, nothing is persisted. The caller ends it with Remove; where the system can
// do that, it ends with this process.
func Start(conf ...string) (*Process, error) { return start(nil, conf) }

// StartTLS is Start of a server that serves TLS with the certificate on a port of its own, too. It asks clients for
// none.
func StartTLS(pair tls.Certificate, conf ...string) (*Process, error) { return start(&pair, conf) }

func start(pair *tls.Certificate, conf []string) (*Process, error) {
	bin := os.Getenv("REDIS_SERVER")
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("redis-server"); err != nil {
			return nil, errors.New("redisd: no redis-server: install Redis 6.2 or later (apt install redis-server, " +
				"brew install redis), or name the program in REDIS_SERVER")
		}
	}
	// A short name: a unix socket's path may have about 100 bytes only.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		return nil, fmt.Errorf("redisd: directory for redis-server: %w", err)
	}
	p := &Process{bin: bin, dir: dir, conf: conf}
	// One connection at most, so that its user knows how many of them to leave out of a count; tested before each
	// use, because tests restart servers and kill clients. The socket is private, so only this process can answer
	// there.
	p.admin = &redis.Pool{
		MaxIdle: 1, MaxActive: 1, Wait: true,
		Dial: func() (redis.Conn, error) {
			return redis.Dial("unix", p.Socket(), redis.DialUsername(adminUser), redis.DialPassword("any"),
				redis.DialConnectTimeout(5*time.Second), redis.DialReadTimeout(20*time.Second),
				redis.DialWriteTimeout(20*time.Second))
		},
		TestOnBorrow: func(c redis.Conn, _ time.Time) error {
			_, err := c.Do("PING")
			return err
		},
	}
	if pair != nil {
		p.tls, err = true, writePair(dir, *pair)
	}
	if err == nil {
		err = p.launchOnFreePort()
	}
	if err != nil {
		p.Remove()
		return nil, err
	}
	return p, nil
}

// launchOnFreePort tries again when another program takes the free port before redis-server does.
func (p *Process) launchOnFreePort() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 5 {
		if p.port, err = freePort(); err == nil && p.tls {
			p.tlsPort, err = freePort()
		}
		if err == nil {
			err = p.launchLocked()
		}
		if !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

var errPortTaken = errors.New("redisd: port taken")

// launchLocked starts redis-server on the process's ports and returns when it serves.
func (p *Process) launchLocked() error {
	file := filepath.Join(p.dir, "redis.conf")
	lines := []string{
		"bind 127.0.0.1", fmt.Sprint("port ", p.port), "unixsocket " + p.Socket(), "dir " + p.dir,
		`save ""`, "appendonly no", "daemonize no", "tcp-backlog 511",
		"user " + adminUser + " on nopass ~* &* +@all",
	}
	if p.tls {
		lines = append(lines, fmt.Sprint("tls-port ", p.tlsPort), "tls-auth-clients no",
			"tls-cert-file "+filepath.Join(p.dir, certificateFile), "tls-key-file "+filepath.Join(p.dir, keyFile))
	}
	lines = append(lines, p.conf...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("redisd: configure redis-server: %w", err)
	}
	logName := filepath.Join(p.dir, "log")
	log, err := os.Create(logName)
	if err != nil {
		return fmt.Errorf("redisd: log of redis-server: %w", err)
	}
	defer log.Close()

	cmd := exec.Command(p.bin, file)
	cmd.Stdout, cmd.Stderr = log, log
	exited, err := Spawn(cmd)
	if err != nil {
		return fmt.Errorf("redisd: start %s: %w", p.bin, err)
	}
	p.cmd, p.exited = cmd, exited

	poll, bound := time.NewTicker(2*time.Millisecond), time.NewTimer(readyWithin)
	defer poll.Stop()
	defer bound.Stop()
	for {
		select {
		case <-exited:
			text, _ := os.ReadFile(logName)
			if strings.Contains(string(text), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("redisd: redis-server ended at its start:\n%s", text)
		case <-bound.C:
			p.killLocked()
			text, _ := os.ReadFile(logName)
			return fmt.Errorf("redisd: redis-server not ready after %v (last: %v):\n%s", readyWithin, err, text)
		case <-poll.C:
			// LOADING is an error too, so a PONG means that the data are there.
			if _, err = p.Do("PING"); err == nil {
				return nil
			}
		}
	}
}

// Keep copies the append-only file aside. The server may write to it meanwhile: then the copy ends somewhere in
// between. A later Keep takes the copy's place.
func (p *Process) Keep() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := filepath.Join(p.dir, keptName)
	if err := os.RemoveAll(kept); err != nil {
		return fmt.Errorf("redisd: keep the append-only file: %w", err)
	}
	if err := os.CopyFS(kept, os.DirFS(filepath.Join(p.dir, appendName))); err != nil {
		return fmt.Errorf("redisd: keep the append-only file: %w", err)
	}
	return nil
}

// RestartKept is Restart with the append-only file that Keep has copied: all that was written since is gone.
func (p *Process) RestartKept() error {
	p.mu.Lock()
	current := filepath.Join(p.dir, appendName)
	err := os.RemoveAll(current)
	if err == nil {
		err = os.CopyFS(current, os.DirFS(filepath.Join(p.dir, keptName)))
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("redisd: restore the append-only file: %w", err)
	}
	return p.Restart()
}

// The directories of the append-only files: redis-server's own, from version 7 on, and Keep's.
const (
	appendName = "appendonlydir"
	keptName   = "kept"
)

// Restart starts a killed server again, in the same directory and on the same ports, and returns when it has loaded
// its data.
func (p *Process) Restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
	default:
		return errors.New("redisd: restart of a server that runs: Kill it first")
	}
	// The port must stay the same; an outgoing connection that has borrowed it gives it back soon.
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err := p.launchLocked(); !errors.Is(err, errPortTaken) || time.Since(began) > readyWithin {
			return err
		}
	}
}

// Addr returns "127.0.0.1:port".
func (p *Process) Addr() string { return fmt.Sprint("127.0.0.1:", p.port) }

// TLSAddr returns the address of the TLS port of a server that StartTLS has started.
func (p *Process) TLSAddr() string { return fmt.Sprint("127.0.0.1:", p.tlsPort) }

// Socket returns the path of the unix socket.
func (p *Process) Socket() string { return filepath.Join(p.dir, "s") }

// Pid returns the process id of the redis-server that was started last.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Do runs a command on the admin connection. Commands of several callers take turns.
func (p *Process) Do(cmd string, args ...any) (any, error) {
	c := p.admin.Get()
	defer c.Close()
	return c.Do(cmd, args...)
}

// Conn is the admin connection itself, for one goroutine; until it is closed, Do waits for it.
func (p *Process) Conn() redis.Conn { return p.admin.Get() }

// Signal sends a signal to the very process that was started.
func (p *Process) Signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(sig)
}

// Kill ends the process, also a stopped one, and waits for it.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killLocked()
}

func (p *Process) killLocked() {
	if SigCont != nil {
		_ = p.cmd.Process.Signal(SigCont)
	}
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.exited
}

// Remove ends the process and deletes its directory.
func (p *Process) Remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.killLocked()
	}
	_ = p.admin.Close()
	_ = os.RemoveAll(p.dir)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("redisd: free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
