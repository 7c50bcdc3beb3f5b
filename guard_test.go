package shunt

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// guarded runs f in a guard on a goroutine of its own, as a handler may end it. It tells what finish was called with,
// and whether guard returned.
func guarded(f func() error) (finished []error, returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		guard("Resolve", f, func(err error) { finished = append(finished, err) })
		returned = true
	}()
	<-done
	return finished, returned
}

func TestGuard(t *testing.T) {
	t.Parallel()
	oh := errors.New("oh")
	for _, c := range []struct {
		name     string
		f        func() error
		returns  bool
		is       error
		panicked bool
		goexit   bool
		text     string
	}{
		{name: "nil", f: func() error { return nil }, returns: true},
		{name: "an error", f: func() error { return oh }, returns: true, is: oh},
		{name: "a panic", f: func() error { panic("oh") }, returns: true, panicked: true,
			text: "Resolve panicked: oh (at guard_test.go:"},
		{name: "a panic with an error", f: func() error { panic(fmt.Errorf("wrapped: %w", oh)) }, returns: true,
			panicked: true, is: oh, text: "Resolve panicked: wrapped: oh (at guard_test.go:"},
		{name: "a panic with nil", f: func() error { panic(nil) }, returns: true, panicked: true,
			text: "Resolve panicked: panic called with nil"},
		{name: "a fault", f: func() error { return []error{}[len(oh.Error())] }, returns: true, panicked: true,
			text: "Resolve panicked: runtime error: index out of range"},
		{name: "Goexit", f: func() error { runtime.Goexit(); return nil }, panicked: true, goexit: true,
			text: "Resolve called runtime.Goexit"},
		{name: "Goexit, then a panic",
			f: func() error { defer func() { panic("oh") }(); runtime.Goexit(); return nil }, panicked: true,
			text: "Resolve panicked: oh (at guard_test.go:"},
		{name: "a panic, then Goexit", f: func() error { defer runtime.Goexit(); panic("oh") }, panicked: true,
			goexit: true, text: "Resolve called runtime.Goexit"},
		{name: "a panic that is recovered",
			f: func() (err error) { defer func() { recover(); err = oh }(); panic("x") }, returns: true, is: oh},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			finished, returned := guarded(c.f)
			if len(finished) != 1 {
				t.Fatalf("finish was called %d times", len(finished))
			}
			err := finished[0]
			if returned != c.returns {
				t.Errorf("returned: %v", returned)
			}
			if c.is == nil && !c.panicked && err != nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want %v", err, c.is)
			}
			var p *PanicError
			if errors.As(err, &p) != c.panicked {
				t.Fatalf("error %v", err)
			}
			if p == nil {
				return
			}
			if p.What != "Resolve" || p.Goexit != c.goexit || c.goexit && p.Value != nil ||
				!strings.Contains(string(p.Stack), "guard_test.go") {
				t.Errorf("%+v", p)
			}
			if !strings.HasPrefix(p.Error(), c.text) {
				t.Errorf("text %q, want %q", p.Error(), c.text)
			}
		})
	}
}
