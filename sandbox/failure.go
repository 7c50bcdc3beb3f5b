package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"unicode/utf8"
)

// The kinds of failure that a message has by its child's fault. errors.Is finds them in what middleware of Queue.Wrap
// gets, and in an Event's Err. Each counts as an attempt.
var (
	// ErrStart says that the command could not be started, or that the Pool's configuration is invalid.
	ErrStart = errors.New("sandbox: the command could not be started")
	// ErrExit says that a child ended before its verdict, or that an Exec child had an exit status that is none.
	ErrExit = errors.New("sandbox: the child ended before its verdict")
	// ErrAnswer says that a child's answer is no verdict on its message.
	ErrAnswer = errors.New("sandbox: the child's answer is no verdict")
	// ErrOutput says that a child wrote more than MaxOutput or MaxStderr.
	ErrOutput = errors.New("sandbox: the child wrote too much")
)

// failure is a fault of a child, with what its standard error said last.
type failure struct {
	kind   error // one of the errors above, or the cause of an ended context
	text   string
	stderr string
}

func (f *failure) Error() string {
	if f.stderr == "" {
		return "sandbox: " + f.text
	}
	return "sandbox: " + f.text + ":\n" + f.stderr
}

func (f *failure) Unwrap() error { return f.kind }

// startError says what a person can do about a command that does not start.
func startError(command string, err error) error {
	var do string
	switch text := err.Error(); {
	case errors.Is(err, exec.ErrNotFound):
		do = "it is not in PATH: install it where this process runs, or give its path"
	case errors.Is(err, fs.ErrNotExist):
		do = "there is no such file, or no interpreter that its first line names: look where this process runs"
	case errors.Is(err, fs.ErrPermission):
		do = "it may not be executed: chmod +x it, or put its interpreter before it in Command"
	case strings.Contains(text, "exec format error"):
		do = "it is no program of this system: put #! and its interpreter into its first line, or before it in Command"
	case strings.Contains(text, "argument list too long"):
		do = "the environment is too long: look at the message's headers"
	default:
		return &failure{kind: ErrStart, text: fmt.Sprintf("start %q: %v", command, err)}
	}
	return &failure{kind: ErrStart, text: fmt.Sprintf("start %q: %s (%v)", command, do, err)}
}

// short is a child's output as an error shows it: quoted, and cut.
func short(b []byte) string {
	most := 120
	if len(b) <= most {
		return fmt.Sprintf("%q", b)
	}
	for most > 120-utf8.UTFMax && !utf8.RuneStart(b[most]) { // not within a character
		most--
	}
	return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
}

// failed makes a failure of a process that is gone and joined.
func (p *process) failed(kind error, format string, args ...any) error {
	lines, flooded := p.stderr.text()
	if flooded && kind == ErrExit {
		kind, args = ErrOutput, []any{p.conf.name, p.conf.stderr}
		format = "%s wrote more than %d bytes to standard error: raise Pool.MaxStderr, or have it write less"
	}
	return &failure{kind: kind, text: fmt.Sprintf(format, args...), stderr: lines}
}

// status is how the process ended, for a failure's text.
func (p *process) status() string {
	s := p.cmd.ProcessState.String()
	if strings.HasPrefix(s, "signal: killed") {
		s += ", by somebody, or by the kernel for want of memory"
	}
	if p.conf.memory > 0 {
		s += fmt.Sprintf("; its memory was limited to %d MB", p.conf.memory>>20)
	}
	return s
}
