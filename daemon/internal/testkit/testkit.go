// Package testkit is what the tests of the interfaces share.
package testkit

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Log is a log to be read. Its methods may be called by many goroutines at once.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Raw sends text to a server on a connection of its own, and returns all that comes back within 20 s. It closes its
// side early if half is set.
func Raw(t testing.TB, server net.Addr, text string, half bool) string {
	t.Helper()
	c, err := net.Dial("tcp", server.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if half {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	answer, _ := io.ReadAll(c) // a reset is an answer, too
	return string(answer)
}
