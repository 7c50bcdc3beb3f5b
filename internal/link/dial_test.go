package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redisd"
	"github.com/shuntmq/shunt/internal/redistest"
)

func needTrust(t *testing.T) {
	t.Helper()
	if !redisd.CanTrust {
		t.Skip("this system's trusted certificates are not set by SSL_CERT_FILE")
	}
}

// A link over TLS is as good as another.
func TestLinkOverTLS(t *testing.T) {
	needTrust(t)
	for name, test := range map[string]func(*testing.T){
		"Pipelining": TestPipelining, "MoreThanInflight": TestMoreThanInflight, "Cut": TestCut,
		"Refusals": TestRefusals,
		"Scripts":  TestScripts, "BlackHole": TestBlackHole, "Close": TestCloseWithCallsInFlight,
		"Old":    TestOldConnectionsOfThePool,
		"Waiter": TestWaiter, "Mute": TestForgetMute, "Socket": TestLinkGetsItsSocket,
	} {
		t.Run(name, test)
	}
}

// rediss:// is spoken to in the fast way, on the TLS connection; large elements pass both ways.
func TestOverTLSIsFast(t *testing.T) {
	needTrust(t)
	b := shared(t)
	l := b.link(patience)
	ctx := b.within(patience)
	for _, size := range []int{1, 16 << 10, 300 << 10, 5 << 20} {
		element := bytes.Repeat([]byte("0123456789abcdef")[:min(size, 16)], max(1, size/16))
		c := NewCall()
		c.Add("RPUSH", b.key)
		c.AddElements(element)
		c.Add("RPOP", b.key)
		if err := l.Do(ctx, c); err != nil {
			t.Fatal(err)
		}
		if r := c.Replies[1]; r.Err != nil || !bytes.Equal(r.Bulk, element) {
			t.Errorf("%d bytes came back as %d, %v", len(element), len(r.Bulk), r.Err)
		}
	}
	l.sending.Lock()
	c := l.conn
	l.sending.Unlock()
	w, ok := c.wire.(direct)
	if !ok || !c.buffered {
		t.Fatalf("the link speaks by %T", c.wire)
	}
	if _, ok := w.Net().(*tls.Conn); !ok {
		t.Errorf("the link speaks on a %T", w.Net())
	}
}

// A certificate that the system does not trust, or of another name, is an error of its own, with the server's address.
func TestOverTLSDistrusted(t *testing.T) {
	needTrust(t)
	b := shared(t)
	own := redistest.TLSWith(t, b.Addr(), trusted)
	other, _ := redistest.TLS(t, b.Addr())
	_, port, _ := net.SplitHostPort(own)
	for name, c := range map[string]struct {
		at string
		as any
	}{
		"authority": {other, new(x509.UnknownAuthorityError)},
		"name":      {"localhost:" + port, new(x509.HostnameError)},
	} {
		_, err := dialOnce(b.within(patience), t, "rediss://"+c.at)
		var verification *tls.CertificateVerificationError
		if !errors.As(err, &verification) || !errors.As(err, c.as) ||
			!strings.Contains(err.Error(), "TLS handshake with "+c.at) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// dialOnce is the first dial of a pool by a node.
func dialOnce(ctx context.Context, t *testing.T, url string) (took time.Duration, err error) {
	t.Helper()
	pool, err := NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	began := time.Now()
	c, err := NewNode(pool, Settings{DialTimeout: time.Second, MaxBackoff: time.Second}).Dial(ctx)
	if err == nil {
		c.Close()
	}
	return time.Since(began), err
}

// A server that does not speak TLS is named within the dial's time, whether it answers, keeps mute or hangs up.
func TestOverTLSPlainServer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	servers := map[string]string{"plain redis": redistest.Shared(t).Addr()}
	for name, serve := range map[string]func(net.Conn){
		"mute":     func(c net.Conn) { c.Read(make([]byte, 1)); <-t.Context().Done() },
		"answers":  func(c net.Conn) { c.Write([]byte("-ERR unknown command\r\n")); c.Read(make([]byte, 1<<10)) },
		"hangs up": func(c net.Conn) {},
	} {
		servers[name] = listen(t, serve)
	}
	for name, at := range servers {
		t.Run(name, func(t *testing.T) {
			took, err := dialOnce(t.Context(), t, "rediss://"+at)
			if err == nil ||
				!strings.Contains(err.Error(), at+" does not answer a TLS handshake: is it a plain redis:// port?") {
				t.Error(err)
			}
			if took > dialTimeout+time.Second/2 {
				t.Errorf("took %v", took)
			}
		})
	}
	// A dial that its caller ends says nothing about the server.
	ctx, cancel := context.WithCancel(t.Context())
	mute := listen(t, func(c net.Conn) { c.Read(make([]byte, 1)); cancel(); <-t.Context().Done() })
	if _, err := dialOnce(ctx, t, "rediss://"+mute); !errors.Is(err, context.Canceled) ||
		strings.Contains(err.Error(), "plain") || strings.Contains(err.Error(), "TLS") {
		t.Error(err)
	}
}

// listen serves each connection until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-ended })
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
	return l.Addr().String()
}
