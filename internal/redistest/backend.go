package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"go.uber.org/goleak"

	"github.com/shuntmq/shunt/internal/redisd"
)

// Backend is what a behaviour suite needs of a server, be it real or in memory.
type Backend interface {
	Addr() string                   // "127.0.0.1:port"
	URL() string                    // redis:// URL of database 0
	Do(cmd string, args ...any) any // runs a command; fails the test on an error
}

// Mini returns a miniredis on loopback that the test's cleanup closes.
func Mini(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	watch(t)
	return miniredis.RunT(t)
}

// mini is a Backend in memory.
type mini struct {
	t    testing.TB
	m    *miniredis.Miniredis
	pool *redis.Pool
}

func (b *mini) Addr() string { return b.m.Addr() }

func (b *mini) URL() string { return "redis://" + b.Addr() + "/0" }

func (b *mini) Do(cmd string, args ...any) any {
	b.t.Helper()
	c := b.pool.Get()
	defer c.Close()
	v, err := c.Do(cmd, args...)
	if err != nil {
		b.t.Fatalf("%s: %v", cmd, err)
	}
	return v
}

// Each runs f as the subtests "miniredis", on an empty one, and "redis", on the Shared server.
func Each(t *testing.T, f func(t *testing.T, b Backend)) { each(t, Shared, f) }

// EachOwn is Each on a redis-server of the test's own: for what looks at all channels of a server.
func EachOwn(t *testing.T, f func(t *testing.T, b Backend)) {
	each(t, func(t testing.TB) *Server { return Start(t) }, f)
}

func each(t *testing.T, server func(testing.TB) *Server, f func(t *testing.T, b Backend)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		m := Mini(t)
		f(t, &mini{t: t, m: m, pool: Pool(t, m.Addr())})
	})
	t.Run("redis", func(t *testing.T) { f(t, server(t)) })
}

// What Main owns; shared is the server of the whole test binary.
var (
	mainMu    sync.Mutex
	inMain    bool
	shared    *redisd.Process
	sharedErr error
)

var names atomic.Int64

// Name returns the test's name with a number that no other call returns: a key on the shared server must not be met
// again by another test, nor by the same one under -count.
func Name(t testing.TB) string {
	watch(t)
	return fmt.Sprintf("%s.%d", t.Name(), names.Add(1))
}

// Shared returns the server that all tests of the binary share: started at first use, ended by Main, never flushed, so
// keys need a Name of their own. Kill, Restart, Stop and Cont are refused on it.
func Shared(t testing.TB) *Server {
	t.Helper()
	watch(t)
	mainMu.Lock()
	defer mainMu.Unlock()
	if !inMain {
		t.Fatal("redistest: no one would end the shared server: call redistest.Main in TestMain")
	}
	if shared == nil && sharedErr == nil {
		shared, sharedErr = redisd.Start()
	}
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	return &Server{t: t, p: shared, shared: true}
}

// Tell says what is worth knowing of a run that passes: on standard output and, because go test shows that of a failed
// package only, at the end of the file that REDISTEST_TELLS names.
func Tell(text string) {
	fmt.Print(text)
	if name := os.Getenv("REDISTEST_TELLS"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "redistest:", err)
		}
	}
}

// Main runs the tests, ends the shared server, fails a run that leaves goroutines behind, and
// returns the exit code.
func Main(m *testing.M) int {
	mainMu.Lock()
	inMain = true
	mainMu.Unlock()
	beats.start()
	code := m.Run()
	close(beats.end)

	mainMu.Lock()
	inMain = false
	if shared != nil {
		shared.Remove()
		shared = nil
	}
	mainMu.Unlock()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: the tests left goroutines behind:", err)
			code = 1
		}
	}
	return code
}
