package shunt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A certificate that nobody vouches for is named by the error, soon, and nothing reaches the server.
func TestTLSDistrusted(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	at, _ := redistest.TLS(t, s.Addr())
	q := newBench(t, "rediss://"+at, func(q *Queue) { q.EnqueueTimeout = time.Second })
	began := time.Now()
	_, err := q.Receive(t.Context(), q.kind(func(context.Context, int) error { return nil }), 1)
	if took := time.Since(began); took > 5*time.Second+100*time.Millisecond {
		t.Errorf("Receive took %v", took)
	}
	for what, err := range map[string]error{"Receive": err, "Enqueue": q.Enqueue(t.Context(), q.kind(nil).Message(1))} {
		var untrusted *tls.CertificateVerificationError
		if !errors.As(err, &untrusted) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left := keysLeft(t, s, q.name); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A pool of one's own whose TLS configuration trusts the server serves enqueues, waiters, large elements, due times and
// shutdown.
func TestTLSPool(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		t.Parallel()
		redistest.Leaks(t)
		at, certificate := redistest.TLS(t, b.Addr())
		roots := x509.NewCertPool()
		roots.AddCert(certificate)
		pool := &redis.Pool{MaxIdle: 8, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(
				ctx,
				"tcp",
				at,
				redis.DialUseTLS(true),
				redis.DialTLSConfig(&tls.Config{RootCAs: roots}),
				redis.DialConnectTimeout(
					time.Second,
				),
				redis.DialReadTimeout(3*time.Second),
				redis.DialWriteTimeout(3*time.Second),
			)
		}}
		t.Cleanup(func() { pool.Close() })
		tlsRound(t, b, newBench(t, b.URL(), func(q *Queue) { q.Pool = pool }))
	})
}

// tlsRound has messages of every way of enqueue handled by a receiver that starts idle, and ends it.
func tlsRound(t *testing.T, b redistest.Backend, q *bench) {
	seen := newTally()
	shutdown, err := q.Receive(
		t.Context(),
		Define(q.name, func(_ context.Context, s string) error { seen.add(len(s)); return nil }),
		4,
	)
	if err != nil {
		t.Fatal(err)
	}
	var ms []IMessage
	k := Define[string](q.name, nil)
	for i := range 200 {
		ms = append(ms, k.Message(string(make([]byte, i))))
	}
	if err := q.EnqueueAll(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{200, 300 << 10} {
		if err := q.Enqueue(t.Context(), k.Message(string(make([]byte, size))), In(10*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	q.wait(EventAcked, 202, 10*time.Second)
	if seen.distinct() != 202 || seen.extra() > 0 {
		t.Errorf("%d distinct, %d extra", seen.distinct(), seen.extra())
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := keysLeft(t, b, q.name); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// rediss:// to a server that does not speak TLS is named by the error, with the server's address, within the dial's
// time.
func TestTLSPlainServer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // connections are made, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	for name, at := range map[string]string{"plain": redistest.Shared(t).Addr(), "mute": mute.Addr().String()} {
		q := newBench(t, "rediss://"+at, func(q *Queue) { q.EnqueueTimeout = 1500 * time.Millisecond })
		began := time.Now()
		err := q.Enqueue(t.Context(), q.kind(nil).Message(1))
		if err == nil ||
			!strings.Contains(err.Error(), at+" does not answer a TLS handshake: is it a plain redis:// port?") {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%s: Deliver took %v", name, took)
		}
	}
}

// NewPool's rediss:// trusts what the system does, which a process loads once: so it is a process that is given our
// certificate.
func TestTLSByURL(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		t.Skip("what this system trusts is not set by SSL_CERT_FILE")
	}
	s := redistest.Shared(t)
	at, certificate := redistest.TLS(t, s.Addr())
	dir := t.TempDir()
	trusted := filepath.Join(dir, "trusted.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	q := newBench(t, s.URL())
	log := filepath.Join(dir, "log")
	startWorker(
		t,
		orders{URL: "rediss://" + at + "/0", Channel: q.name, Log: log, Workers: 4, Killer: -1},
		"SSL_CERT_FILE="+trusted,
	)
	q.enqueue(0, 100)
	q.enqueue(100, 101, In(10*time.Millisecond))
	redistest.Until(
		t,
		10*time.Second,
		"the process has handled them",
		func() bool { return handled(t, log).distinct() == 101 },
	)
}
