package shunt

import (
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

// guard runs what a user wrote: a panic and a runtime.Goexit become errors with their stack. On Goexit the
// goroutine ends when guard's deferred call returns, so finish is called with the verdict in either case.
func guard(what string, f func() error, finish func(error)) {
	returned := false
	var err error
	defer func() {
		if returned {
			finish(err)
			return
		}
		finish(panicked(what, recover()))
	}()
	err = f()
	returned = true
}

// panicked is the error of a call that did not return; without a panic's value it was runtime.Goexit.
func panicked(what string, value any) *PanicError {
	return &PanicError{What: what, Value: value, Goexit: value == nil, Stack: debug.Stack(), at: panickedAt()}
}

// panickedAt is the line that panicked, as seen from a deferred func that recovers.
func panickedAt() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for panics := false; ; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panics = true
		case panics && !strings.HasPrefix(f.Function, "runtime."):
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// PanicError is the error of a user's method that panicked or called runtime.Goexit. Its text has the line that
// panicked; LogEvents writes Stack, too.
type PanicError struct {
	What   string // the method, or "the handler"
	Value  any    // of the panic
	Goexit bool
	Stack  []byte

	at string // file and line
}

func (p *PanicError) Error() string {
	if p.Goexit {
		return fmt.Sprintf("%s called runtime.Goexit", p.What)
	}
	if p.at == "" {
		return fmt.Sprintf("%s panicked: %v", p.What, p.Value)
	}
	return fmt.Sprintf("%s panicked: %v (at %s)", p.What, p.Value, p.at)
}

// Unwrap gives the panic's value where it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
