package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

const secret = "0123456789-0123456789"

// front is a Front of a handler, and what it logs once each request is over.
func front(t *testing.T, h http.HandlerFunc) (
	*Front, *bytes.Buffer, func(method, target string) *httptest.ResponseRecorder,
) {
	t.Helper()
	var log bytes.Buffer
	on := new(atomic.Bool)
	on.Store(true)
	f := &Front{Name: "api", Handler: h, Log: slog.New(slog.NewTextHandler(&log, nil)), AccessLog: on}
	return f, &log, func(method, target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, target, nil)
		r.RemoteAddr = "192.0.2.7:1234"
		f.ServeHTTP(w, r)
		return w
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	_, _, get := front(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) })
	seen := make(map[string]bool)
	for _, target := range []string{"/", "/livez", "/readyz", "/x"} {
		id := get("GET", target).Header().Get("X-Request-ID")
		if _, err := ulid.ParseStrict(id); err != nil || seen[id] {
			t.Errorf("%s: %q %v", target, id, err)
		}
		seen[id] = true
	}
}

// A panic is a 500 with a line in the log, or a broken connection where an answer had begun.
func TestPanics(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	f, log, _ := front(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
		}
		panic("oh no")
	})
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	s.Start()
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	res, err := http.Get(s.URL + "/early")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 500 || string(body) != `{"error":"internal error"}` || res.Header.Get("X-Request-ID") == "" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if res, err := http.Get(s.URL + "/late"); err == nil {
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil {
			t.Errorf("half an answer looks whole: %s", body)
		}
	}
	s.Close()
	if text := log.String(); strings.Count(text, "oh no") < 2 || !strings.Contains(text, "front_test.go") ||
		strings.Count(text, "oh no") != strings.Count(text, "msg=request") {
		t.Error(text)
	}
}

// The log has what helps, no secret, and nothing without bound.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	f, log, get := front(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("12345")) })
	for _, target := range []string{
		"/api/ns/q?token=" + secret + "&ttr=5", "/token/ns/" + secret, "/token/ns/" + secret + "/limit",
		"/TOKEN/ns/" + secret, "//token/ns/" + secret,
		"/token/ns/pool:" + secret, "/token/ns?description=d&token=" + secret, "/token/ns/" + secret + "/",
		"/api/ns/q?Token=" + secret + "&x=" + secret, "/api/ns/q?%zz=" + secret, "/" + strings.Repeat("x", 5000),
	} {
		get("GET", target)
	}
	text := log.String()
	if strings.Contains(text, secret) {
		t.Error("the log has the token")
	}
	for _, want := range []string{"path=/api/ns/q", "query=\"ttr=5\"", "status=200", "bytes=5", "remote=192.0.2.7 ",
		access.MarkOf(secret), "listener=api"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log has no %s", want)
		}
	}
	if len(text) > 5000 {
		t.Errorf("%d bytes", len(text))
	}
	log.Reset()
	f.AccessLog.Store(false)
	if get("GET", "/"); log.Len() > 0 {
		t.Error(log.String())
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		networks, remote string
		status           int
	}{
		{"", "192.0.2.7:1", 200},
		{"192.0.2.0/24", "192.0.2.7:1", 200},
		{"192.0.2.0/24", "192.0.3.7:1", 403},
		{"192.0.2.0/24", "[::ffff:192.0.2.7]:1", 200},
		{"192.0.2.0/24,fe80::/10", "[fe80::1%eth0]:1", 200},
		{"192.0.2.0/24", "[::1]:1", 403},
		{"192.0.2.0/24", "@", 200}, // a unix socket
		{"192.0.2.0/24", "nonsense", 403},
	} {
		f, _, _ := front(t, func(http.ResponseWriter, *http.Request) {})
		var networks []netip.Prefix
		for text := range strings.SplitSeq(c.networks, ",") {
			if text != "" {
				networks = append(networks, netip.MustParsePrefix(text))
			}
		}
		f.Allow(networks)
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.remote
		w := httptest.NewRecorder()
		if f.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%s of %s: %d", c.remote, c.networks, w.Code)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	f, _, get := front(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	var ready error
	f.Ready = func() error { return ready }
	for _, c := range []struct {
		err    error
		target string
		want   string
	}{
		{nil, "/livez", "200 ok\n"}, {nil, "/readyz", "200 ok\n"},
		{errors.New("no"), "/livez", "200 ok\n"}, {errors.New("no"), "/readyz", "503 not ready\n"},
	} {
		ready = c.err
		if w := get("GET", c.target); fmt.Sprint(w.Code, " ", w.Body) != c.want {
			t.Errorf("%s: %d %s", c.target, w.Code, w.Body)
		}
	}
}
