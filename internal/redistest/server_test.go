package redistest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

func dial(t *testing.T, network, addr string, more ...redis.DialOption) redis.Conn {
	t.Helper()
	c, err := redis.Dial(network, addr, append([]redis.DialOption{redis.DialReadTimeout(5 * time.Second)}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestServerSurvivesKill(t *testing.T) {
	t.Parallel()
	Leaks(t)
	s := Start(t, "appendonly yes", "appendfsync always")
	c := dial(t, "tcp", s.Addr())
	if _, err := c.Do("RPUSH", "l", "a", "b"); err != nil {
		t.Fatal(err)
	}
	addr, pid := s.Addr(), s.Pid()
	s.Kill()
	s.Kill() // again is harmless
	if _, err := c.Do("PING"); err == nil {
		t.Error("a connection outlived its server")
	}
	if _, err := s.TryDo("PING"); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart()
	if n, _ := redis.Int(s.Do("LLEN", "l"), nil); n != 2 {
		t.Errorf("%d elements after the restart, want 2", n)
	}
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("restart: %s pid %d, then %s pid %d", addr, pid, s.Addr(), s.Pid())
	}
}

func TestServerStopsAndContinues(t *testing.T) {
	t.Parallel()
	Leaks(t)
	s := Start(t)
	c := dial(t, "tcp", s.Addr(), redis.DialReadTimeout(50*time.Millisecond))
	s.Stop()
	if _, err := c.Do("LPUSH", "l", "late"); err == nil {
		t.Fatal("a stopped server answered")
	}
	s.Cont()
	Until(t, 5*time.Second, "the old command runs late", func() bool { return s.Do("LLEN", "l") == int64(1) })
	s.Stop() // and the cleanup ends a stopped server
}

func TestServerConfAndCounts(t *testing.T) {
	t.Parallel()
	Leaks(t)
	s := Start(t, "maxmemory 5mb")
	v, err := redis.Strings(s.Do("CONFIG", "GET", "maxmemory"), nil)
	if err != nil || len(v) != 2 || v[1] != "5242880" {
		t.Fatalf("maxmemory %v, %v", v, err)
	}
	if n := s.Connections(); n != 0 {
		t.Errorf("%d connections of no client", n)
	}
	p := s.Pool(t)
	c := p.Get()
	if _, err := c.Do("PING"); err != nil {
		t.Fatal(err)
	}
	dial(t, "unix", s.Socket())
	Until(t, 5*time.Second, "two clients", func() bool { return s.Connections() == 2 })
	if s.CPU() <= 0 {
		t.Error("a server that used no CPU")
	}
	// The admin's connection outlives what a test does to clients and passwords.
	s.Do("CONFIG", "SET", "requirepass", "secret")
	s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	other := dial(t, "tcp", s.Addr(), redis.DialPassword("secret"))
	if _, err := other.Do("CLIENT", "KILL", "TYPE", "normal"); err != nil {
		t.Fatal(err)
	}
	s.Do("PING")
	_ = c.Close()
}

func TestEach(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, b Backend) {
		t.Parallel()
		Leaks(t)
		key := Name(t)
		b.Do("RPUSH", key, "x")
		c, err := redis.DialURL(b.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if v, err := redis.String(c.Do("LPOP", key)); v != "x" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		p := Pool(t, b.Addr()).Get()
		defer p.Close()
		if _, err := p.Do("PING"); err != nil {
			t.Error(err)
		}
	})
}

func TestTell(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tells")
	t.Setenv("REDISTEST_TELLS", name)
	Tell("one\n")
	Tell("two\n")
	if text, err := os.ReadFile(name); string(text) != "one\ntwo\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// complaints is a testing.TB that keeps its failures to itself.
type complaints struct {
	testing.TB
	cleanups []func()
	errors   int
}

func (c *complaints) Helper()               {}
func (c *complaints) Cleanup(f func())      { c.cleanups = append(c.cleanups, f) }
func (c *complaints) Errorf(string, ...any) { c.errors++ }

func TestLeaksFails(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	defer close(end)
	c := &complaints{TB: t}
	done := make(chan struct{})
	go func() { // on a goroutine of its own, which may bear the label
		defer close(done)
		leaks(c, 50*time.Millisecond)
		go func() { <-end }()
		c.cleanups[0]()
	}()
	<-done
	if c.errors != 1 {
		t.Errorf("%d failures for a goroutine left behind", c.errors)
	}
}
