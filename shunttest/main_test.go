package shunttest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// recorder is a testing.TB whose failures are read instead of reported.
type recorder struct {
	testing.TB
	text     strings.Builder
	failed   bool
	ended    bool // by Fatalf or FailNow
	cleanups []func()
}

// record runs f as a test would be, its cleanups too.
func record(t *testing.T, f func(tb testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		f(r)
	}()
	<-done
	return r
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool     { return r.failed }

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(&r.text, format+"\n", args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) FailNow() {
	r.failed, r.ended = true, true
	runtime.Goexit()
}

// wants asks for every part of the failure's text.
func (r *recorder) wants(t *testing.T, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(r.text.String(), p) {
			t.Errorf("the failure does not say %q:\n%s", p, &r.text)
		}
	}
}
