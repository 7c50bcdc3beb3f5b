package v1

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/internal/redistest"
)

// site is an API of a test, with a namespace of its own. Every answer is held against the document.
type site struct {
	t         testing.TB
	ns, token string
	api       *API
	queue     *shunt.Queue
	access    *access.Store
	redis     *redis.Pool
	server    *httptest.Server
	operators *httptest.Server
	client    *http.Client
	log       *testkit.Log
}

// newSite makes an API on the Redis that tests share.
func newSite(t testing.TB, change ...func(*API)) *site {
	t.Helper()
	s := siteOn(t, redistest.Shared(t).URL(), change...)
	if err := s.queue.Upkeep(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

func siteOn(t testing.TB, url string, change ...func(*API)) *site {
	t.Helper()
	s := &site{t: t, log: new(testkit.Log), client: &http.Client{Transport: &http.Transport{}}}
	s.ns = strings.Map(func(r rune) rune {
		if isName(string(r)) {
			return r
		}
		return '-'
	}, redistest.Name(t))
	s.ns = s.ns[max(0, len(s.ns)-60):]
	pool, err := shunt.NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	if s.redis, err = shunt.NewPool(url); err != nil {
		t.Fatal(err)
	}
	hub := new(Hub)
	s.queue = &shunt.Queue{Pool: pool, Events: hub.Take}
	s.access = &access.Store{Redis: s.redis}
	s.api = &API{Pools: map[string]*shunt.Queue{DefaultPool: s.queue, "second": s.queue}, Access: s.access,
		Events: map[string]*Hub{DefaultPool: hub}, Log: slog.New(slog.NewTextHandler(s.log, nil))}
	for _, f := range change {
		f(s.api)
	}
	if err := s.api.Validate(); err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(s.api.Handler())
	s.operators = httptest.NewServer(s.api.Operators(func(w http.ResponseWriter, r *http.Request) bool {
		if user, _, _ := r.BasicAuth(); user != "ann" {
			w.WriteHeader(http.StatusUnauthorized)
			return false
		}
		return true
	}))
	t.Cleanup(func() {
		s.api.Stop()
		s.client.CloseIdleConnections()
		s.server.Close()
		s.operators.Close()
		if err := s.queue.Close(); err != nil {
			t.Error(err)
		}
		_ = pool.Close()
		_ = s.redis.Close()
	})
	s.token = s.mint(access.Both)
	return s
}

func (s *site) mint(role access.Role) string {
	s.t.Helper()
	token, err := access.Mint()
	if err == nil {
		err = s.access.Create(context.Background(), token,
			access.Token{Pool: DefaultPool, Namespace: s.ns, Role: role})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// reply is an answer.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

func (r reply) json() (m map[string]any) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.body), &m); err != nil {
		r.t.Fatalf("%v: %d %.300s", err, r.status, r.body)
	}
	return m
}

// is says whether the answer is a problem of a name, or has a status.
func (r reply) is(name string) bool {
	return strings.HasPrefix(r.header.Get("Content-Type"), "application/problem+json") &&
		strings.Contains(r.body, `"`+problemPrefix+name+`"`)
}

// do sends a request to a path below /v1/ns, with the token unless the headers have one.
func (s *site) do(method, path, body string, headers ...string) reply {
	s.t.Helper()
	return s.send(s.server, method, "/v1/"+s.ns+path, body, append([]string{"X-Token", s.token}, headers...)...)
}

// json is do with a body of JSON.
func (s *site) json(method, path, body string, headers ...string) reply {
	s.t.Helper()
	return s.do(method, path, body, append([]string{"Content-Type", "application/json"}, headers...)...)
}

func (s *site) send(to *httptest.Server, method, path, body string, headers ...string) reply {
	s.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, to.URL+path, from)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[http.CanonicalHeaderKey(headers[i])] = []string{headers[i+1]}
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	r := reply{s.t, res.StatusCode, res.Header, string(text)}
	described.answer(s.t, req, []byte(body), r)
	if strings.Contains(r.body, s.token) && s.token != "" {
		s.t.Errorf("%s %s: the answer has the token", method, path)
	}
	return r
}

// want is do that must have a status.
func (s *site) want(status int, method, path, body string, headers ...string) reply {
	s.t.Helper()
	r := s.do(method, path, body, headers...)
	if r.status != status {
		s.t.Errorf("%s %s: %d %.400s, want %d", method, path, r.status, r.body, status)
	}
	return r
}

// wantJSON is json that must have a status.
func (s *site) wantJSON(status int, method, path, body string, headers ...string) reply {
	s.t.Helper()
	r := s.json(method, path, body, headers...)
	if r.status != status {
		s.t.Errorf("%s %s %.200s: %d %.400s, want %d", method, path, body, r.status, r.body, status)
	}
	return r
}

// pull takes messages, of which there must be n.
func (s *site) pull(n int, query string) (ms []map[string]any) {
	s.t.Helper()
	r := s.want(200, "GET", "/pull?"+query, "")
	for _, m := range r.json()["messages"].([]any) {
		ms = append(ms, m.(map[string]any))
	}
	if len(ms) != n {
		s.t.Fatalf("%s: %d messages, want %d", query, len(ms), n)
	}
	return ms
}

func (s *site) count(queue string, state shunt.State) int {
	s.t.Helper()
	stats, err := s.queue.Stats(context.Background(), s.ns+"/"+queue)
	if err != nil {
		s.t.Fatal(err)
	}
	return stats[state].Count
}

func (s *site) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not in 20 s: %s", what)
		}
	}
}

func (s *site) raw(text string, half bool) string {
	s.t.Helper()
	return testkit.Raw(s.t, s.server.Listener.Addr(), text, half)
}
