package redistest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redisd"
)

// Child is a process of a test's own, on whose life the test decides. Its methods may be called from any goroutine.
type Child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed once it has been waited for
	at    time.Time     // of that; read once ended is closed
	said  tail
}

// Run starts a program with more environment than the test's own. The test's cleanup kills it; so does the end of the
// test's process, where the system can do that, and a well-behaved child goes when its standard input ends.
func Run(t testing.TB, env []string, path string, args ...string) *Child {
	t.Helper()
	c := &Child{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.said, &c.said
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	exited, err := redisd.Spawn(c.cmd)
	if err != nil {
		t.Fatalf("redistest: start %s: %v", path, err)
	}
	go func() {
		defer close(c.ended)
		<-exited
		c.at = time.Now()
	}()
	t.Cleanup(c.Kill)
	return c
}

// Tell writes a line to the child's standard input.
func (c *Child) Tell(line string) error {
	_, err := fmt.Fprintln(c.stdin, line)
	return err
}

// Ended is closed when the child is gone.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Gone says whether it is.
func (c *Child) Gone() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// EndedAt is when the child ended, for one that is gone.
func (c *Child) EndedAt() time.Time {
	<-c.ended
	return c.at
}

// Code is the exit code of a child that is gone, -1 if a signal ended it.
func (c *Child) Code() int {
	<-c.ended
	return c.cmd.ProcessState.ExitCode()
}

// Said is the end of what the child has written to its standard output and error.
func (c *Child) Said() string { return c.said.String() }

// Kill ends the child with SIGKILL, also a stopped one, and waits until it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended already
	<-c.ended
	_ = c.stdin.Close()
}

// Stop freezes the child with SIGSTOP, Cont lets it go on.
func (c *Child) Stop() error { return c.signal("SIGSTOP", redisd.SigStop) }
func (c *Child) Cont() error { return c.signal("SIGCONT", redisd.SigCont) }

// Term asks the child to end with SIGTERM.
func (c *Child) Term() error { return c.signal("SIGTERM", syscall.SIGTERM) }

func (c *Child) signal(name string, sig os.Signal) error {
	if sig == nil {
		return fmt.Errorf("redistest: this operating system has no %s", name)
	}
	return c.cmd.Process.Signal(sig)
}

// tail keeps the last bytes written to it.
type tail struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b.Write(b)
	if over := t.b.Len() - 64<<10; over > 0 {
		t.b.Next(over)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}
