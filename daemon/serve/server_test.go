package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redisd"
	"github.com/shuntmq/shunt/internal/redistest"
)

// start serves until the test ends.
func start(t *testing.T, s *Server) string {
	t.Helper()
	if s.Listen == "" {
		s.Listen = "127.0.0.1:0"
	}
	if s.Handler == nil {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	}
	s.Name, s.Log = "test", slog.New(slog.DiscardHandler)
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String()
}

func dial(t *testing.T, at, text string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(c)
}

// Slow, half and huge requests end, each by a clear answer or by the end of its connection.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	at := start(t, &Server{MaxHeader: 4096, HeaderTimeout: time.Second, IdleTimeout: time.Second})
	for name, c := range map[string]struct{ text, want string }{
		"nothing":      {"", ""},
		"half a line":  {"GET / HT", ""},
		"half headers": {"GET / HTTP/1.1\r\nHost: x\r\n", ""},
		"huge header":  {"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 20000) + "\r\n\r\n", "HTTP/1.1 431 "},
		"no HTTP":      {"hello\r\n\r\n", "HTTP/1.1 400 "},
		"no host":      {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		"two lengths": {"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
			"HTTP/1.1 400 "},
		"pipelined": {"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\naPUT / HTTP/1.1\r\nHost: x\r\n" +
			"Content-Length: 1\r\n\r\nb", "HTTP/1.1 200 "},
	} {
		answer, err := io.ReadAll(dial(t, at, c.text))
		var reset *net.OpError
		if err != nil && !errors.As(err, &reset) || !strings.HasPrefix(string(answer), c.want) {
			t.Errorf("%s: %.60q %v", name, answer, err)
		}
		if name == "pipelined" && strings.Count(string(answer), "HTTP/1.1 200 ") != 2 {
			t.Errorf("pipelined: %q", answer)
		}
	}
}

// Connections beyond the bound wait for one to end.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	at := start(t, &Server{MaxConnections: 1})
	const get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	second := dial(t, at, get)
	_ = c.Close()
	if answer, err := io.ReadAll(second); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Errorf("%q %v", answer, err)
	}
}

// A connection that was never used does not hold up the end.
func TestUnusedConnection(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := &Server{HeaderTimeout: time.Minute}
	c := dial(t, start(t, s), "")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.fresh)
		s.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the connection was not accepted in 10 s")
		}
	}
	begun := time.Now()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
	if _, err := c.ReadByte(); err == nil {
		t.Error("it is still open")
	}
}

// The end waits for a request whose connection it has closed: that gives back what it took.
func TestEndWaitsForRequests(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	begun, gone, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := &Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		<-gone
		close(ended)
	})}
	dial(t, start(t, s), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	time.AfterFunc(200*time.Millisecond, func() { close(gone) })
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("it runs on")
		<-ended
	}
}

// A certificate is read anew, and a bad one does not replace it.
func TestCertificate(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	dir := t.TempDir()
	c := &Certificate{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	if err := c.Load(); err == nil {
		t.Error("no file, and no error")
	}
	write := func() []byte {
		t.Helper()
		pair, err := redisd.SelfSigned()
		if err != nil {
			t.Fatal(err)
		}
		writePair(t, c, pair)
		if err := c.Load(); err != nil {
			t.Fatal(err)
		}
		return pair.Certificate[0]
	}
	first := write()
	at := start(t, &Server{TLS: c})
	served := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return string(conn.ConnectionState().PeerCertificates[0].Raw)
	}
	if served() != string(first) {
		t.Error("another certificate")
	}
	second := write()
	if served() != string(second) {
		t.Error("the new certificate is not served")
	}
	if err := os.WriteFile(c.CertFile, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(); err == nil || served() != string(second) {
		t.Errorf("a bad file: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("unix sockets of another kind")
	}
	dir, err := os.MkdirTemp("", "s") // a test's own directory may be longer than a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close() // as a killed process leaves it
	start(t, &Server{Listen: "unix:" + path})
	second := &Server{Name: "second", Listen: "unix:" + path, Handler: http.NotFoundHandler(), Log: slog.Default()}
	if err := second.Open(); err == nil {
		t.Error("a socket in use was taken")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") {
		t.Errorf("%q %v", answer, err)
	}
}

func writePair(t *testing.T, c *Certificate, pair tls.Certificate) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for name, text := range map[string][]byte{c.CertFile: redisd.PEM(pair), c.KeyFile: key} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
