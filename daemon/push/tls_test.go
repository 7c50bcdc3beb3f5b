package push

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// An HTTPS endpoint is reached with a certificate that verifies, by HTTP/2 where it has that, on few connections.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprint("HTTP ", proto), func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			e := unstarted(nil)
			var dials atomic.Int64
			e.Config.ConnState = func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					dials.Add(1)
				}
			}
			e.EnableHTTP2 = proto == 2
			e.StartTLS()
			t.Cleanup(e.Close)
			roots := x509.NewCertPool()
			roots.AddCert(e.Certificate())
			s := shared(t, func(p *Pusher) { p.RootCAs = roots })
			s.group("g", e.URL, map[string]any{"workers": 3})
			const n = 200
			for i := range n {
				s.publish("q", fmt.Sprint(i))
			}
			s.empty("q")
			all := e.all()
			if len(all) != n || all[0].proto != proto {
				t.Errorf("%d requests, HTTP/%d", len(all), all[0].proto)
			}
			if d := dials.Load(); d > 2*3 { // net/http may dial one that it then has no use for
				t.Errorf("%d connections for %d requests", d, n)
			}
		})
	}
}

func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	e := unstarted(nil)
	e.StartTLS()
	t.Cleanup(e.Close)
	roots := x509.NewCertPool()
	roots.AddCert(e.Certificate())
	unknown, known := shared(t), shared(t, func(p *Pusher) { p.RootCAs = roots })
	unknown.group("g", e.URL, nil)
	unknown.publish("q", "x", shunt.ID("x"))
	if ev := unknown.event(shunt.EventRetried, "x"); !strings.Contains(ev.Err.Error(), "certificate") {
		t.Error(ev.Err)
	}
	other := strings.Replace(e.URL, "127.0.0.1", "localhost", 1) // httptest's certificate is for 127.0.0.1
	known.group("g", other, nil)
	known.want(200, "certificate is valid for", "POST", "/push/"+known.ns()+"/g/test", "x")
	if len(e.all()) > 0 {
		t.Error("it was posted to without a verified certificate")
	}
}
