package lmstfy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Whatever a parameter, a header or a body is, the answer is none of the server's faults, and has no token.
func TestJunk(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.api.pull = nothingToPull
	junk := []string{
		"",
		" ",
		"-1",
		"+1",
		"0x10",
		"1e3",
		"1_000",
		"\x00",
		"\xff\xfe",
		"١",
		"99999999999999999999",
		"1,2",
		"1;2",
		"a\r\nb",
		"../..",
		"'",
		"null",
		strings.Repeat("9", 5000),
	}
	for _, r := range publicRoutes {
		for _, j := range junk {
			q := make(url.Values)
			for _, name := range []string{"delay", "ttl", "tries", "ttr", "timeout", "count", "limit", "token", j} {
				q.Set(name, j)
			}
			for _, body := range []string{"", j, `[{"a":` + j} {
				got := s.do(
					r.method,
					r.path+"?"+q.Encode(),
					body,
					"Enable-Job-Version",
					"yes",
					"Job-Attr-A",
					"\x80\xff",
					"Content-Type",
					"multipart/form-data",
				)
				if got.status >= 500 || got.status == 0 || strings.Contains(got.body, s.token) {
					t.Errorf("%s %s with %.20q: %d %s", r.method, r.path, j, got.status, got.body)
				}
			}
			path := "/api/" + url.PathEscape(j) + strings.ReplaceAll(r.path, "q", url.PathEscape(j))
			if got := s.send(s.public.URL, r.method, path, "", "X-Token", s.token); got.status >= 500 {
				t.Errorf("%s %.80s: %d %s", r.method, path, got.status, got.body)
			}
			if strings.ContainsAny(j, "\x00\r\n") { // net/http sends no such header
				continue
			}
			got := s.send(s.public.URL, r.method, "/api/"+s.ns+r.path, "", "X-Token", j)
			if r.role != "" && got.status != 401 && !strings.Contains(j, ":") {
				t.Errorf("%s %s with token %.20q: %d", r.method, r.path, j, got.status)
			}
		}
	}
	if log := s.log.String(); strings.Contains(log, "panic") || strings.Contains(log, s.token) {
		t.Error(log)
	}
}

func (s *site) raw(text string, half bool) string {
	s.t.Helper()
	return testkit.Raw(s.t, s.public.Listener.Addr(), text, half)
}

// Bodies that do not come, or come in an odd way, publish nothing or what they say.
func TestOddBodies(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(a *API, _ *Admin) { a.Limits.BodyTimeout = time.Second })
	head := func(method, path, more string) string {
		return fmt.Sprintf(
			"%s /api/%s%s HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\n%s\r\n",
			method,
			s.ns,
			path,
			s.token,
			more,
		)
	}
	const end = "Connection: close\r\n"
	for _, c := range []struct {
		name, text string
		half       bool
		want       string
		published  float64
	}{
		{"slow", head("PUT", "/q", "Content-Length: 10\r\n") + "12345", false, "HTTP/1.1 400 ", 0},
		{"half", head("PUT", "/q", "Content-Length: 10\r\n") + "12345", true, "HTTP/1.1 400 ", 0},
		{"half bulk", head("PUT", "/q/bulk", "Content-Length: 10\r\n") + "[1]", true, "HTTP/1.1 400 ", 0},
		{"half chunk", head("PUT", "/q", "Transfer-Encoding: chunked\r\n") + "5\r\n123", true, "HTTP/1.1 400 ", 0},
		{"no chunk", head("PUT", "/q", "Transfer-Encoding: chunked\r\n") + "zz\r\n", true, "HTTP/1.1 400 ", 0},
		{"huge", head("PUT", "/q", "Content-Length: 99999999999\r\n"+end) + strings.Repeat("x", 1<<20+1), true,
			"HTTP/1.1 413 ", 0},
		{"negative", head("PUT", "/q", "Content-Length: -1\r\n"), false, "HTTP/1.1 400 ", 0},
		{"two ways", head("PUT", "/q", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"+end) + "0\r\n\r\n", false,
			"HTTP/1.1 ", 1}, // net/http takes the chunks; they are whole
		{"chunks", head("PUT", "/q", "Transfer-Encoding: chunked\r\n"+end) + "3\r\nabc\r\n0\r\n\r\n", false,
			"HTTP/1.1 201 ", 1},
		{"expecting", head("PUT", "/q", "Content-Length: 3\r\nExpect: 100-continue\r\n"+end) + "abc", false,
			"HTTP/1.1 100 Continue", 1},
		{"expecting, refused", head("PUT", "/q?tries=0", "Content-Length: 3\r\nExpect: 100-continue\r\n"+end), false,
			"HTTP/1.1 400 ", 0},
		{"no length", head("PUT", "/q", end), false, "HTTP/1.1 201 ", 1},
		{"a get with a body", head("GET", "/q/size", "Content-Length: 3\r\n"+end) + "abc", false, "HTTP/1.1 200 ", 0},
		{"a slow get", head("GET", "/q", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 400 ", 0},
		{"a slow ack", head("DELETE", "/q/job/x", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 204 ", 0},
		{"a slow peek", head("GET", "/q/size", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 200 ", 0},
		{"a slow nothing", head("GET", "/q/nothing", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 404 ", 0},
		{"pipelined", head("PUT", "/q", "Content-Length: 1\r\n") + "a" +
			head("PUT", "/q", "Content-Length: 1\r\n"+end) + "b", false, "HTTP/1.1 201 ", 2},
		{"two tokens", head("PUT", "/q", "X-Token: x\r\n"+end), false, "HTTP/1.1 201 ", 1}, // the first counts
	} {
		s.api.pull = nothingToPull
		before := s.do("GET", "/q/size", "").json(t)["size"].(float64)
		if got := s.raw(c.text, c.half); !strings.HasPrefix(got, c.want) || strings.Contains(got, "HTTP/1.1 5") {
			t.Errorf("%s: %.200s", c.name, got)
		}
		if n := s.do("GET", "/q/size", "").json(t)["size"].(float64) - before; n != c.published {
			t.Errorf("%s: %v published, want %v", c.name, n, c.published)
		}
	}
	if log := s.log.String(); log != "" {
		t.Error(log)
	}
}

// An answer counts among the bodies until its client has read it. While these are too many, nobody gets jobs.
func TestUnreadAnswer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(a *API, _ *Admin) { a.Limits.MaxBodies = 2 << 20 })
	const size = 15 << 20 // more than a socket keeps
	err := s.queue.Enqueue(t.Context(), shunt.With(shunt.Raw(s.ns+"/q", make([]byte, size)), shunt.ID("large")))
	if err != nil {
		t.Fatal(err)
	}
	s.publish("/small", "x")
	for _, path := range []string{"/q/peek", "/q/job/large", "/q"} {
		c, err := net.Dial("tcp", s.public.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(c, "GET /api/%s%s HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\n\r\n", s.ns, path, s.token)
		if err != nil {
			t.Fatal(err)
		}
		s.until(path+" is answered", func() bool { return s.api.Budget.Bodies() >= size })
		for _, other := range []string{"/small", "/small/peek", "/q/job/large"} {
			if r := s.do("GET", other, ""); r.status != 503 || r.header.Get("Retry-After") != "1" {
				t.Errorf("%s beside %s: %d %.100s", other, path, r.status, r.body)
			}
		}
		if r := s.do("GET", "/small/size", ""); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		s.until(path+" is over", func() bool { return s.api.Budget.Bodies() == 0 })
		if r := s.do("GET", "/small/peek", ""); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	s.until("what nobody has read is given back", func() bool {
		return s.do("GET", "/q/size", "").json(t)["size"].(float64) == 1
	})
}

// A request that waits holds nothing of its body.
func TestWaitHoldsNothing(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	got := make(chan reply, 1)
	go func() { got <- s.do("GET", "/q?timeout=100", strings.Repeat("x", 50_000)) }()
	s.until("it waits", func() bool { return s.api.Waiting() == 1 })
	if n := s.api.Budget.Bodies(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
	s.publish("/q", "x")
	if r := <-got; r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// All bodies together are bounded, by what has come of them.
func TestMaxBodies(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(a *API, _ *Admin) { a.Limits.MaxBodies = 2 << 20 })
	var held []net.Conn
	for range 3 { // each says that it has 1 MiB, and has sent 500 KB; of a fourth one not all has room
		c, err := net.Dial("tcp", s.public.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		if _, err := fmt.Fprintf(c,
			"PUT /api/%s/q HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\nContent-Length: 1000000\r\n\r\n%s",
			s.ns, s.token, strings.Repeat("x", 500_000)); err != nil {
			t.Fatal(err)
		}
	}
	s.until("1.5 MB have come", func() bool { return s.api.Budget.Bodies() == 1_500_000 })
	if r := s.do("PUT", "/q", strings.Repeat("x", 900_000)); r.status != 503 || r.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.publish("/q", strings.Repeat("x", 100_000))
	for _, c := range held {
		_ = c.Close()
	}
	s.until("nothing is held", func() bool { return s.api.Budget.Bodies() == 0 })
	s.publish("/q", strings.Repeat("x", 1_000_000))
	if r := s.do("PUT", "/q/bulk", `["`+strings.Repeat("x", 1_100_000)); r.status != 413 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Admin routes, too, answer whatever comes.
func TestAdminJunk(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"} {
		for _, path := range []string{"/token/%00", "/token/%ff/%ff", "/token/a/b/limit", "/token/a/%2F",
			"/token/a/b/limit/c", "/token//", "/token/a/third:b", "/token/a/:", "/token/a/%25", "/limits/",
			"/info?pool=%ff", "/accesslog", "/",
			"/token/a?description=%00&token=" + strings.Repeat("%ff", 30)} {
			for _, body := range []string{"", "{", "\xff",
				`{"read":9223372036854775807,"write":-1,"interval":9223372036854775807}`} {
				if r := s.send(s.private.URL, method, path, body); r.status >= 500 || r.status == 0 {
					t.Errorf("%s %s %q: %d %s", method, path, body, r.status, r.body)
				}
			}
		}
	}
}

// What a broken Redis makes of each route: 500 as lmstfy has it, without a detail.
func TestRedisGone(t *testing.T) {
	redistest.Leaks(t)
	b := redistest.Start(t)
	s := newSite(t)
	store := &access.Store{Redis: b.Pool(t)}
	a := &API{Pools: s.api.Pools, Access: store, Log: s.api.Log, pull: nothingToPull}
	h := a.Handler()
	b.Kill()
	for _, r := range publicRoutes {
		if r.role == "" {
			continue
		}
		req := httptest.NewRequest(r.method, "/api/"+s.ns+r.path, strings.NewReader("[1]"))
		req.Header.Set("X-Token", s.token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != http.StatusInternalServerError || w.Body.String() != `{"error":"internal error"}` {
			t.Errorf("%s %s: %d %s", r.method, r.path, w.Code, w.Body)
		}
	}
}
