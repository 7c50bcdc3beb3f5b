package lmstfy

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/internal/redistest"
)

// site is both listeners of a test, on the shared server.
type site struct {
	t       *testing.T
	api     *API
	access  *access.Store
	queue   *shunt.Queue
	public  *httptest.Server
	private *httptest.Server
	ns      string // of the test's own
	token   string // for ns, of role both
	log     *testkit.Log
}

func newSite(t *testing.T, change ...func(*API, *Admin)) *site {
	t.Helper()
	return newSiteOn(t, redistest.Shared(t), change...)
}

func newSiteOn(t *testing.T, b *redistest.Server, change ...func(*API, *Admin)) *site {
	t.Helper()
	s := &site{t: t, ns: strings.ReplaceAll(redistest.Name(t), "/", "-"), log: new(testkit.Log)}
	s.ns = strings.Map(func(r rune) rune {
		if isName(string(r)) {
			return r
		}
		return '-'
	}, s.ns)
	s.ns = s.ns[max(0, len(s.ns)-60):]
	pool, err := shunt.NewPool(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	s.queue = &shunt.Queue{Pool: pool, Quiet: true}
	s.access = &access.Store{Redis: b.Pool(t)}
	pools := map[string]*shunt.Queue{DefaultPool: s.queue, "second": s.queue}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.api = &API{Pools: pools, Access: s.access, Log: log, Metrics: NewMetrics(prometheus.NewRegistry())}
	admin := &Admin{Pools: pools, Access: s.access, Log: log, AccessLog: new(atomic.Bool)}
	for _, f := range change {
		f(s.api, admin)
	}
	for _, err := range []error{s.api.Validate(), admin.Validate()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.public, s.private = httptest.NewServer(s.api.Handler()), httptest.NewServer(admin.Handler())
	t.Cleanup(func() {
		s.api.Stop()
		s.public.Close()
		s.private.Close()
		http.DefaultClient.CloseIdleConnections()
		if err := s.queue.Close(); err != nil {
			t.Error(err)
		}
		_ = pool.Close()
	})
	s.token = s.mint(DefaultPool, s.ns, access.Both)
	return s
}

func (s *site) mint(pool, ns string, role access.Role) string {
	s.t.Helper()
	token, err := access.Mint()
	if err != nil {
		s.t.Fatal(err)
	}
	t := access.Token{Pool: pool, Namespace: ns, Description: "test", Role: role}
	if err := s.access.Create(context.Background(), token, t); err != nil {
		s.t.Fatal(err)
	}
	return qualified(pool, token)
}

// reply is an answer as read.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) json(t *testing.T) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		t.Fatalf("%q: %v", r.body, err)
	}
	return m
}

// do sends a request with the site's token; path is below /api/ns, headers are pairs.
func (s *site) do(method, path, body string, headers ...string) reply {
	s.t.Helper()
	return s.send(s.public.URL, method, "/api/"+s.ns+path, body, append([]string{"X-Token", s.token}, headers...)...)
}

func (s *site) send(base, method, path, body string, headers ...string) reply {
	s.t.Helper()
	r, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(text)}
}

// publish publishes a job, and returns its id.
func (s *site) publish(path, body string, headers ...string) string {
	s.t.Helper()
	r := s.do("PUT", path, body, headers...)
	if r.status != 201 {
		s.t.Fatalf("publish %s: %d %s", path, r.status, r.body)
	}
	id, _ := r.json(s.t)["job_id"].(string)
	return id
}
