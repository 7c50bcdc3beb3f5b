package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

// Protocol is how a child gets its messages and gives its verdicts. The package comment has both in full.
type Protocol int

const (
	// Lines is a process that handles one message after another: a line of JSON in, a line of JSON out.
	Lines Protocol = iota
	// Exec is a process for each message: the payload in, the result out, and the exit status as the verdict.
	Exec
)

// Pool runs a command as child processes that handle messages. Its exported fields are its configuration. A zero field
// means the default, and all are read once, by the first message. It is not copied once used. Its methods may be called
// by many goroutines at once.
type Pool struct {
	// Command is the program and its arguments, without a shell. A program without a slash is looked for in PATH. One
	// with a slash is relative to Dir. Required.
	Command []string
	// Protocol is Lines by default.
	Protocol Protocol
	// Children is how many processes handle messages at once: 1 to 10,000, default one for each core. Each handles one
	// message at a time, so it should be the number of workers that Receive gets. Other messages wait for a child, and
	// their timeouts run meanwhile. A Lines child is started when a message finds no idle one. Each child costs this
	// process a thread and three pipes.
	Children int
	// Dir is the working directory of the children; empty means that of this process.
	Dir string
	// Env is their environment, as KEY=value; nil means that of this process.
	Env []string
	// MaxMessages is after how many messages a Lines child is replaced: default 10,000; negative: never. Its standard
	// input ends, and its successor may run while it ends.
	MaxMessages int
	// Timeout bounds one handling, with the wait for a child: zero means Queue.Timeout; negative: no bound.
	Timeout time.Duration
	// Grace is how long a child may go on after SIGTERM, before SIGKILL: up to 10 min, default 500 ms. It should be
	// less than Queue.Grace, or the message gets its verdict without the last lines of standard error.
	Grace time.Duration
	// MaxMemory bounds the private memory of each process, in bytes: 1 MB or more; zero means no bound. It is the
	// RLIMIT_DATA that each process of a child's group has for itself. Linux only: elsewhere Validate refuses it.
	MaxMemory int64
	// MaxOutput bounds a line of answer, or the standard output of Exec, in bytes: 1 KB to 64 MB, default 2 MB.
	MaxOutput int
	// MaxStderr bounds what a child writes to standard error for one message, in bytes: 1 KB or more, default 1 MB. As
	// it may come after the answer, a child that wrote less before may write up to twice as much.
	MaxStderr int
	// Stderr gets what children write to standard error, with one Write for each line, or for each 4 KB of a longer
	// one. Two Writes are never at once. A Write that blocks holds all children up, and an error of it is ignored. The
	// default is nil: the last lines are in the failure of a message, and the rest is dropped.
	Stderr io.Writer

	mu     sync.Mutex
	state  *state // nil before the first message
	closed bool
	done   chan struct{} // closed when Close has done its work
	err    error         // of Close
}

// settings is the configuration of a Pool with its defaults. It is not written to.
type settings struct {
	command, env                   []string
	dir, name                      string // name is how errors call the command
	children, output, stderr, most int
	grace                          time.Duration
	memory                         int64
	log                            io.Writer // nil: none; to be used by a logger alone
}

func (p *Pool) settings() settings {
	s := settings{
		command: append([]string(nil), p.Command...), env: append([]string(nil), p.Env...), dir: p.Dir,
		children: cmp.Or(p.Children, runtime.GOMAXPROCS(0)),
		output:   cmp.Or(p.MaxOutput, 2<<20),
		stderr:   cmp.Or(p.MaxStderr, 1<<20),
		most:     cmp.Or(p.MaxMessages, 10000),
		grace:    cmp.Or(p.Grace, 500*time.Millisecond),
		memory:   p.MaxMemory, log: p.Stderr,
	}
	if p.Env == nil {
		s.env = os.Environ()
	}
	if len(s.command) > 0 {
		s.name = filepath.Base(s.command[0])
	}
	return s
}

// Validate returns an error for each field that is out of its bounds and for a command that is not there, joined; nil
// if all is well. It starts nothing. A program that calls it before Receive fails at its start rather than at its first
// message.
func (p *Pool) Validate() error {
	err := p.check()
	if len(p.Command) > 0 && p.Command[0] != "" {
		err = errors.Join(err, look(p.Dir, p.Command[0]))
	}
	return err
}

// check is Validate without what may change.
func (p *Pool) check() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("sandbox: Pool."+format, args...))
		}
	}
	check(len(p.Command) > 0 && p.Command[0] != "", "Command is empty: want a program, such as {\"./handler.py\"}")
	check(p.Protocol == Lines || p.Protocol == Exec, "Protocol is %d: want Lines or Exec", p.Protocol)
	check(p.Children >= 0 && p.Children <= 10000, "Children is %d: want 1 to 10,000, or 0 for the number of cores",
		p.Children)
	check(p.Grace >= 0 && p.Grace <= 10*time.Minute, "Grace is %v: want up to 10m, or 0 for 500ms", p.Grace)
	check(p.MaxMemory == 0 || p.MaxMemory >= 1<<20, "MaxMemory is %d: want 1 MB or more, or 0 for no bound",
		p.MaxMemory)
	check(p.MaxMemory == 0 || canLimit, "MaxMemory is set: only Linux has it; want 0 on %s", runtime.GOOS)
	check(p.MaxOutput == 0 || p.MaxOutput >= 1<<10 && p.MaxOutput <= 64<<20,
		"MaxOutput is %d: want 1 KB to 64 MB, or 0 for 2 MB", p.MaxOutput)
	check(p.MaxStderr == 0 || p.MaxStderr >= 1<<10, "MaxStderr is %d: want 1 KB or more, or 0 for 1 MB", p.MaxStderr)
	for _, e := range p.Env {
		check(strings.Contains(e, "="), "Env has %.40q: want KEY=value", e)
	}
	return errors.Join(errs...)
}

// look finds the directory and the program, as exec.Cmd does. Either may come while the Pool is at work.
func look(dir, program string) error {
	if dir != "" {
		if at, err := os.Stat(dir); err != nil || !at.IsDir() {
			return &failure{kind: ErrStart, text: fmt.Sprintf("Pool.Dir is %q: want a directory that exists", dir)}
		}
	}
	if dir != "" && filepath.Base(program) != program && !filepath.IsAbs(program) {
		program = filepath.Join(dir, program)
		if !filepath.IsAbs(program) {
			program = "." + string(filepath.Separator) + program
		}
	}
	if _, err := exec.LookPath(program); err != nil {
		return startError(program, err)
	}
	return nil
}

// Message is the prototype for Receive on a channel: its messages are handled by the children. It takes messages of
// every type and of any payload, whoever has enqueued them. A program that enqueues uses shunt.Raw, or any type of its
// own. What is wrong with the Pool's configuration is the failure of each message; Validate tells it before.
func (p *Pool) Message(channel string) shunt.IMessage { return &message{pool: p, channel: channel} }

// open starts what all messages need, once.
func (p *Pool) open() (*state, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if p.state == nil {
		p.state = newState(p.settings(), p.Protocol, p.check())
	}
	return p.state, nil
}

// Close ends all children, and returns when they are gone. It is called after the shutdown of the receivers. It takes
// no new messages: those that come are snoozed for a second. Messages in the hands of children are waited for until ctx
// ends. Then their children are ended by SIGTERM, and by SIGKILL after Grace. These messages are snoozed too, and Close
// returns an error that says how many they were. An idle child is told by the end of its standard input, has Grace to
// end, and is ended by signals after that.
//
// A second call waits for the first, and returns the same. From within a handler of the Pool, Close waits for that
// handler until ctx ends.
func (p *Pool) Close(ctx context.Context) error {
	if ctx == nil {
		return errors.New("sandbox: the context is nil: want one, such as context.Background()")
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		<-p.done
		return p.err
	}
	p.closed, p.done = true, make(chan struct{})
	s := p.state
	p.mu.Unlock()
	if s != nil {
		p.err = s.close(ctx)
	}
	close(p.done)
	return p.err
}
