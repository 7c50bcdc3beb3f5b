package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// What the operating system can do; each stays nil where it cannot.
var (
	childAttr        *syscall.SysProcAttr
	sigStop, sigCont os.Signal
)

// readyWithin bounds the wait for a server, the loading of its append-only file included.
const readyWithin = 30 * time.Second

// adminUser keeps the admin connection working whatever a test does to the default user's password and rights.
const adminUser = "redistest"

// process is a redis-server and what outlives its restarts: directory, port, admin connection.
type process struct {
	bin, dir string
	conf     []string
	admin    *redis.Pool

	mu     sync.Mutex // guards what follows
	port   int
	cmd    *exec.Cmd
	exited chan struct{} // closed once cmd has been waited for
}

// launchNew makes a process in a directory of its own and returns it ready.
func launchNew(conf []string) (*process, error) {
	bin := os.Getenv("REDIS_SERVER")
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("redis-server"); err != nil {
			return nil, errors.New("redistest: no redis-server: install Redis 6.2 or later (apt install redis-server, " +
				"brew install redis), or name the program in REDIS_SERVER")
		}
	}
	// Not t.TempDir: it holds the test's name, and a unix socket's path may have about 100 bytes only.
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		return nil, fmt.Errorf("redistest: directory for redis-server: %w", err)
	}
	p := &process{bin: bin, dir: dir, conf: conf}
	// One connection at most, so that Connections knows how many of its own to leave out; tested before each use, because
	// tests restart servers and kill clients. The socket is private: who answers there is this process and no other.
	p.admin = &redis.Pool{
		MaxIdle: 1, MaxActive: 1, Wait: true,
		Dial: func() (redis.Conn, error) {
			return redis.Dial("unix", p.socket(), redis.DialUsername(adminUser), redis.DialPassword("any"),
				redis.DialConnectTimeout(5*time.Second), redis.DialReadTimeout(20*time.Second),
				redis.DialWriteTimeout(20*time.Second))
		},
		TestOnBorrow: func(c redis.Conn, _ time.Time) error {
			_, err := c.Do("PING")
			return err
		},
	}
	for range 5 { // another program may take the free port before redis-server does
		if p.port, err = freePort(); err != nil {
			break
		}
		if err = p.launch(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		p.remove()
		return nil, err
	}
	return p, nil
}

var errPortTaken = errors.New("redistest: port taken")

// launch starts redis-server on p.port and returns when it serves; the caller holds p.mu or is alone.
func (p *process) launch() error {
	file := filepath.Join(p.dir, "redis.conf")
	lines := append([]string{
		"bind 127.0.0.1", fmt.Sprint("port ", p.port), "unixsocket " + p.socket(), "dir " + p.dir,
		`save ""`, "appendonly no", "daemonize no", "tcp-backlog 511",
		"user " + adminUser + " on nopass ~* &* +@all",
	}, p.conf...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("redistest: configure redis-server: %w", err)
	}
	logName := filepath.Join(p.dir, "log")
	log, err := os.Create(logName)
	if err != nil {
		return fmt.Errorf("redistest: log of redis-server: %w", err)
	}
	defer log.Close()

	cmd, exited, started := exec.Command(p.bin, file), make(chan struct{}), make(chan error, 1)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, childAttr
	// remove waits for this goroutine. It keeps its thread, because the kernel's death signal follows the thread that
	// started the child, not the process. A shared server outlives the test that starts it, and so must shed its labels.
	go func() {
		defer close(exited)
		pprof.SetGoroutineLabels(context.Background())
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its end is the news, not its status: tests kill it
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("redistest: start %s: %w", p.bin, err)
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
			return fmt.Errorf("redistest: redis-server ended at its start:\n%s", text)
		case <-bound.C:
			p.kill()
			text, _ := os.ReadFile(logName)
			return fmt.Errorf("redistest: redis-server not ready after %v (last: %v):\n%s", readyWithin, err, text)
		case <-poll.C:
			// LOADING is an error too, so a PONG means that the data are there.
			if _, err = p.do("PING"); err == nil {
				return nil
			}
		}
	}
}

func (p *process) relaunch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
	default:
		return errors.New("redistest: restart of a server that runs: Kill it first")
	}
	// The port must stay the same; whoever borrowed it for an outgoing connection gives it back soon.
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err := p.launch(); !errors.Is(err, errPortTaken) || time.Since(began) > readyWithin {
			return err
		}
	}
}

func (p *process) do(cmd string, args ...any) (any, error) {
	c := p.admin.Get()
	defer c.Close()
	return c.Do(cmd, args...)
}

// signal sends sig to the very process that was started.
func (p *process) signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// kill ends the process, also a stopped one, and waits for it.
func (p *process) kill() {
	if sigCont != nil {
		_ = p.signal(sigCont)
	}
	_ = p.signal(os.Kill) // an error means that it has ended already
	<-p.exited
}

// remove ends the process and deletes its directory.
func (p *process) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.kill()
	}
	_ = p.admin.Close()
	_ = os.RemoveAll(p.dir)
}

func (p *process) socket() string { return filepath.Join(p.dir, "s") }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("redistest: free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
