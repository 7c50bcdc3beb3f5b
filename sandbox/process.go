package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// linger is how long the pipes of an ended process are read on. What it wrote is in them, and is read at once. Only a
// process that has left the group can hold them open.
const linger = 100 * time.Millisecond

// process is a child, its process group and its pipes. Two goroutines are its own: one waits for its end, and one reads
// its standard error. Both end when it ends; join waits for them.
type process struct {
	conf   *settings
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	errors *os.File // the reading end of standard error
	stderr *tail

	work sync.WaitGroup
	gone chan struct{} // closed: it is waited for, its group is killed, and cmd.ProcessState is set

	mu     sync.Mutex
	reaped bool // its pid may be another's: no signal any more
}

// start starts the command, on the thread of the forker. env is added to the environment.
func start(conf *settings, log *logger, env []string) (*process, error) {
	p := &process{conf: conf, cmd: exec.Command(conf.command[0], conf.command[1:]...), gone: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = conf.dir, append(conf.env[:len(conf.env):len(conf.env)], env...)
	p.cmd.SysProcAttr = groupAttr()
	p.stderr = &tail{most: conf.stderr, log: log}
	var theirs [3]*os.File
	var errs [3]error
	theirs[0], p.stdin, errs[0] = os.Pipe()
	p.stdout, theirs[1], errs[1] = os.Pipe()
	p.errors, theirs[2], errs[2] = os.Pipe()
	err := errors.Join(errs[:]...)
	if err == nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
		err = p.cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close() // the child has them; a nil file is an error of no interest
	}
	if err != nil {
		p.closePipes()
		return nil, startError(conf.command[0], err)
	}
	limited := limitMemory(p.cmd.Process.Pid, conf.memory)
	p.work.Go(p.wait)
	p.work.Go(p.readErrors)
	if limited != nil {
		p.kill()
		p.join()
		return nil, fmt.Errorf("sandbox: limit the memory of %s: %w", conf.name, limited)
	}
	return p, nil
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.errors} {
		_ = f.Close()
	}
}

// wait owns the process's end.
func (p *process) wait() {
	p.reap()
	end := time.Now().Add(linger)
	_, _, _ = p.stdin.SetWriteDeadline(end), p.stdout.SetReadDeadline(end), p.errors.SetReadDeadline(end)
	close(p.gone)
}

// readErrors owns the reading end of standard error.
func (p *process) readErrors() {
	if p.stderr.fill(p.errors) != nil {
		p.kill()
	}
	_, _ = io.Copy(io.Discard, p.errors) // until its end, so that the child can write on
	p.stderr.end()
}

// join waits until the process is gone and all of its output but stdout is read. Then it closes the pipes.
func (p *process) join() {
	p.work.Wait()
	p.closePipes()
}

// stop ends the process: SIGTERM to its group, SIGKILL after the grace. It returns when the process is gone.
func (p *process) stop() {
	p.terminate()
	p.killLate()
}

// killLate kills the process if it is not gone after the grace. It returns when the process is gone.
func (p *process) killLate() {
	late := time.NewTimer(p.conf.grace)
	defer late.Stop()
	select {
	case <-p.gone:
	case <-late.C:
		p.kill()
		<-p.gone
	}
}

// dismiss ends a process that has nothing to do: its standard input ends, and signals follow after the grace. It
// returns when the process is gone.
func (p *process) dismiss() {
	_ = p.stdin.Close()
	late := time.NewTimer(p.conf.grace)
	defer late.Stop()
	select {
	case <-p.gone:
	case <-late.C:
		p.stop()
	}
	p.join()
}

// isGone says whether the process has ended.
func (p *process) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// signalled calls f unless the pid may be another process's by now.
func (p *process) signalled(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		f()
	}
}
