package redistest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redisd"
)

// TLS starts a port of loopback that speaks TLS 1.2 or later and passes what it hears on to the server at addr, as a
// redis-server's tls-port would: a redis-server may be built without TLS. Its certificate, for 127.0.0.1, is signed by
// itself, so only clients that were given it trust it. The test's cleanup closes the port and its connections.
func TLS(t testing.TB, addr string) (at string, certificate *x509.Certificate) {
	t.Helper()
	pair, err := redisd.SelfSigned()
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	return TLSWith(t, addr, pair), pair.Leaf
}

// TLSWith is TLS with a certificate of the caller's.
func TLSWith(t testing.TB, addr string, pair tls.Certificate) (at string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatalf("redistest: TLS: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		work.Wait()
	})
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			work.Go(func() { passOn(ctx, client.(*tls.Conn), addr) })
		}
	})
	return l.Addr().String()
}

// passOn joins a client and the server at addr until either goes or ctx ends.
func passOn(ctx context.Context, client *tls.Conn, addr string) {
	defer client.Close()
	if client.HandshakeContext(ctx) != nil {
		return // the client does not trust us, and knows why
	}
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return // the client sees its connection end
	}
	defer server.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	var work sync.WaitGroup
	for _, way := range [][2]net.Conn{{server, client}, {client, server}} {
		work.Go(func() {
			defer end()
			_, _ = io.Copy(way[0], way[1])
		})
	}
	<-ctx.Done()
	_ = client.Close()
	_ = server.Close()
	work.Wait()
}
