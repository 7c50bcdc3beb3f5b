package redisd

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ended(t *testing.T, p *Process) {
	t.Helper()
	p.Remove()
	if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	if c, err := redis.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("the server answers still")
	}
}

// A server keeps its port over a restart, and what it has written; Remove leaves nothing.
func TestRestart(t *testing.T) {
	t.Parallel()
	p, err := Start("appendonly yes", "appendfsync always")
	if err != nil {
		t.Fatal(err)
	}
	defer ended(t, p)
	if err := p.Restart(); err == nil {
		t.Error("restarted a server that runs")
	}
	if _, err := p.Do("SET", "a", 1); err != nil {
		t.Fatal(err)
	}
	addr, pid := p.Addr(), p.Pid()
	p.Kill()
	if _, err := p.Do("PING"); err == nil {
		t.Error("a killed server answers")
	}
	if err := p.Restart(); err != nil || p.Addr() != addr || p.Pid() == pid {
		t.Fatalf("%v, %s, %d", err, p.Addr(), p.Pid())
	}
	c := p.Conn()
	defer c.Close()
	if v, err := redis.Int(c.Do("GET", "a")); v != 1 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
}

// What was written after Keep is gone after RestartKept, and the rest is there.
func TestRestartKept(t *testing.T) {
	p, err := Start("appendonly yes", "appendfsync always")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Remove()
	do := func(cmd string, args ...any) any {
		t.Helper()
		v, err := p.Do(cmd, args...)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	do("RPUSH", "list", "kept")
	if err := p.Keep(); err != nil {
		t.Fatal(err)
	}
	do("RPUSH", "list", "lost")
	p.Kill()
	if err := p.RestartKept(); err != nil {
		t.Fatal(err)
	}
	if n := do("LLEN", "list"); n != int64(1) {
		t.Errorf("%v elements after RestartKept, want 1", n)
	}
	do("RPUSH", "list", "new")
	p.Kill()
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	if n := do("LLEN", "list"); n != int64(2) {
		t.Errorf("%v elements after Restart, want 2", n)
	}
}

func TestBadConf(t *testing.T) {
	t.Parallel()
	_, err := Start("no-such-directive 1")
	if err == nil || !strings.Contains(err.Error(), "no-such-directive") {
		t.Errorf("got %v, want redis-server's own complaint", err)
	}
}

// The TLS port serves clients that trust the certificate, the plain port all.
func TestStartTLS(t *testing.T) {
	t.Parallel()
	pair, err := SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	p, err := StartTLS(pair)
	if err != nil {
		t.Fatal(err)
	}
	defer ended(t, p)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(PEM(pair))
	c, err := redis.Dial("tcp", p.TLSAddr(), redis.DialUseTLS(true), redis.DialTLSConfig(&tls.Config{RootCAs: roots}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := redis.String(c.Do("PING")); v != "PONG" || err != nil {
		t.Errorf("%s, %v", v, err)
	}
	if c, err := redis.Dial("tcp", p.TLSAddr(), redis.DialUseTLS(true)); err == nil {
		c.Close()
		t.Error("the certificate is trusted by all")
	}
}

func TestSpawn(t *testing.T) {
	t.Parallel()
	if _, err := Spawn(exec.Command(filepath.Join(t.TempDir(), "none"))); err == nil {
		t.Error("started what is not there")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	exited, err := Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-exited:
		if !cmd.ProcessState.Success() {
			t.Error(cmd.ProcessState)
		}
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("it runs on")
	}
}
