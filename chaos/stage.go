package main

import (
	"github.com/shuntmq/shunt/internal/trial"

	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// stage is the testing.TB of a run that is no test.
type stage struct {
	testing.TB // nil: what is not here, nobody calls
	name       string

	mu       sync.Mutex
	cleanups []func()
	errors   []string
	log      []string
}

func (s *stage) Helper()      {}
func (s *stage) Name() string { return s.name }
func (s *stage) Failed() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.errors) > 0 }
func (s *stage) FailNow()     { runtime.Goexit() }

func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *stage) Log(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (s *stage) Logf(format string, args ...any) { s.Log(fmt.Sprintf(format, args...)) }

func (s *stage) Error(args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors = append(s.errors, s.name+": "+fmt.Sprint(args...))
}
func (s *stage) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }
func (s *stage) Fatal(args ...any)                 { s.Error(args...); s.FailNow() }
func (s *stage) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// cleanup does what Cleanup was given, the last first; one of them may give it more.
func (s *stage) cleanup() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		f := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		f()
	}
}

// play runs one round, cleans up after it, and takes its verdict in. What the round complains of besides is a breach
// too.
func (r *result) play(f func(*stage) *trial.Verdict) *trial.Verdict {
	s, v, began := &stage{name: r.Row}, &trial.Verdict{}, time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer s.cleanup()
		if found := f(s); found != nil {
			v = found
		}
	}()
	<-done
	if len(s.errors) > 0 {
		v.Complain("run", strings.Join(append(s.errors, s.log...), "\n"))
	}
	r.add(v, time.Since(began))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Said = append(r.Said, s.log...)
	return v
}
