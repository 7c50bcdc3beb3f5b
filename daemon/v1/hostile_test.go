package v1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Whatever a parameter, a header, a path or a body is, the answer is none of the server's faults.
func TestJunk(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	junk := []string{"", " ", "-1", "+1", "0x10", "1e3", "1_000", "\x00", "\xff\xfe", "١", "99999999999999999999",
		"1,2",
		"1;2", "a\r\nb", "../..", "'", "null", "{", "[", `{"a":`, strings.Repeat("9", 5000), "\u202e", "%", "{}",
		"[]", `""`,
		`{"receipt":"\ud800"}`, "id:..", "serial:", "{a}.b.c"}
	for i := range routes {
		rt := &routes[i]
		if rt.name == "events" {
			continue // it has no end
		}
		for _, j := range junk {
			q := make(url.Values)
			for _, name := range []string{"id", "delay_ms", "at", "queues", "wait_ms", "state", "limit", j} {
				q.Set(name, j)
			}
			path := s.exampleOf(rt)
			odd := strings.NewReplacer("{ns}", s.ns, "{queue}", "q", "{ref}", url.PathEscape(j), "{name}",
				url.PathEscape(j)).Replace(rt.pattern)
			odder := strings.NewReplacer("{ns}", url.PathEscape(j), "{queue}", url.PathEscape(j), "{ref}",
				url.PathEscape(j),
				"{name}", url.PathEscape(j)).Replace(rt.pattern)
			headers := []string{"X-Token", s.token, "Content-Type", asJSON}
			if !strings.ContainsAny(j, "\x00\r\n") { // net/http sends no such header
				headers = append(headers, "Shunt-Id", j, "Shunt-Receipt", j, "Idempotency-Key", j, "Accept", j)
			}
			for _, to := range []string{path + "?" + q.Encode(), odd, odder, path} {
				for _, body := range []string{"", j} {
					r := s.send(s.server, rt.method, to, body, headers...)
					if r.status >= 500 || r.status == 0 {
						t.Errorf("%s %.80s with %.20q: %d %s", rt.method, to, j, r.status, r.body)
					}
				}
			}
		}
	}
	if log := s.log.String(); log != "" {
		t.Errorf("%.2000s", log)
	}
}

// Another method is 405, with those that there are; another path is 404, and nothing is redirected.
func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	methods := make(map[string][]string)
	for _, rt := range routes {
		methods[rt.pattern] = append(methods[rt.pattern], rt.method)
	}
	for i := range routes {
		rt := &routes[i]
		if rt.role == operators {
			continue
		}
		for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "X"} {
			if slices.Contains(methods[rt.pattern], m) {
				continue
			}
			r := s.send(s.server, m, s.exampleOf(rt), "", "X-Token", s.token)
			want := slices.Sorted(slices.Values(methods[rt.pattern]))
			if r.status != 405 || r.header.Get("Allow") != strings.Join(want, ", ") {
				t.Errorf("%s %s: %d %v", m, rt.pattern, r.status, r.header)
			}
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/", "/v2", "/v1/x", "/v1//q/stats", "/v1/x/q/stats/",
		"/v1/x/q/../stats", "/v1/x/q/messages/a/b", "/V1/x/q/stats", "/v1/x/q/messages/", "/v1/x/q/messages//peek",
		"/v1/x/q/messages/a/peek/x/y/z", "/v1/x%2Fq/stats", "//v1/x/q/stats"} {
		r := s.raw("GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false)
		if !strings.HasPrefix(r, "HTTP/1.1 404 ") || !strings.Contains(r, "no-route") {
			t.Errorf("%s: %.200s", path, r)
		}
	}
}

// Bodies that do not come, or come in an odd way, publish nothing or what they say.
func TestOddBodies(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	l := s.api.Budget.Limits()
	l.BodyTimeout = time.Second
	if err := s.api.Budget.SetLimits(l); err != nil {
		t.Fatal(err)
	}
	head := func(method, path, more string) string {
		return fmt.Sprintf("%s /v1/%s%s HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\n%s\r\n", method, s.ns, path, s.token,
			more)
	}
	const end = "Connection: close\r\n"
	for _, c := range []struct {
		name, text string
		half       bool
		want       string
		published  int
	}{
		{"slow", head("POST", "/q/messages", "Content-Length: 10\r\n") + "12345", false, "HTTP/1.1 400 ", 0},
		{"half", head("POST", "/q/messages", "Content-Length: 10\r\n") + "12345", true, "HTTP/1.1 400 ", 0},
		{"half batch", head("POST", "/q/messages:batch", "Content-Length: 10\r\n") + "[{}]", true, "HTTP/1.1 400 ", 0},
		{"half chunk", head("POST", "/q/messages", "Transfer-Encoding: chunked\r\n") + "5\r\n123", true,
			"HTTP/1.1 400 ", 0},
		{"no chunk", head("POST", "/q/messages", "Transfer-Encoding: chunked\r\n") + "zz\r\n", true, "HTTP/1.1 400 ",
			0},
		{"huge", head("POST", "/q/messages", "Content-Length: 99999999999\r\n"+end) + strings.Repeat("x", 1<<20+1),
			true,
			"HTTP/1.1 413 ", 0},
		{"negative", head("POST", "/q/messages", "Content-Length: -1\r\n"), false, "HTTP/1.1 400 ", 0},
		{"chunks", head("POST", "/q/messages", "Transfer-Encoding: chunked\r\n"+end) + "3\r\nabc\r\n0\r\n\r\n", false,
			"HTTP/1.1 201 ", 1},
		{"expecting", head("POST", "/q/messages", "Content-Length: 3\r\nExpect: 100-continue\r\n"+end) + "abc", false,
			"HTTP/1.1 100 Continue", 1},
		{"expecting, refused", head("POST", "/q/messages?x=0", "Content-Length: 3\r\nExpect: 100-continue\r\n"+end),
			false,
			"HTTP/1.1 400 ", 0},
		{"a slow pull", head("GET", "/pull?queues=none", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 400 ", 0},
		{"a slow ack", head("POST", "/ack", "Content-Length: 30\r\n") + "a", false, "HTTP/1.1 400 ", 0},
		{"a slow status", head("GET", "/q/stats", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 400 ", 0},
		{"a slow nothing", head("GET", "/q/nothing", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 404 ", 0},
		{"a slow method", head("PUT", "/q/stats", "Content-Length: 3\r\n") + "a", false, "HTTP/1.1 405 ", 0},
		{"pipelined", head("POST", "/q/messages", "Content-Length: 1\r\n") + "a" +
			head("POST", "/q/messages", "Content-Length: 1\r\n"+end) + "b", false, "HTTP/1.1 201 ", 2},
		{"a header twice", head("POST", "/q/messages", "Shunt-Id: a\r\nShunt-Id: b\r\n"+end), false, "HTTP/1.1 400 ",
			0},
		{"a key twice", head("POST", "/q/messages", "Idempotency-Key: a\r\nIdempotency-Key: b\r\n"+end), false,
			"HTTP/1.1 400 ", 0},
		{"huge headers", head("POST", "/q/messages", "Shunt-Header-A: "+strings.Repeat("x", 20000)+"\r\n"+end), false,
			"HTTP/1.1 400 ", 0},
		{"many headers", head("POST", "/q/messages", manyHeaders(101)+end), false, "HTTP/1.1 400 ", 0},
		{"headers", head("POST", "/q/messages", manyHeaders(100)+end), false, "HTTP/1.1 201 ", 1},
	} {
		before := s.count("q", shunt.StatePrepare)
		if got := s.raw(c.text, c.half); !strings.HasPrefix(got, c.want) || strings.Contains(got, "HTTP/1.1 5") {
			t.Errorf("%s: %.300s", c.name, got)
		}
		if n := s.count("q", shunt.StatePrepare) - before; n != c.published {
			t.Errorf("%s: %v published, want %v", c.name, n, c.published)
		}
	}
	s.until("no bytes are held", func() bool { return s.api.Budget.Bodies() == 0 })
	if log := s.log.String(); log != "" {
		t.Error(log)
	}
}

func manyHeaders(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("Shunt-Header-H%d: x\r\n", i)
	}
	return text
}

// All bodies together are bounded, by what has come of them.
func TestMaxBodies(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	l := s.api.Budget.Limits()
	l.MaxBodies = 2 << 20
	if err := s.api.Budget.SetLimits(l); err != nil {
		t.Fatal(err)
	}
	var held []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", s.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		if _, err := fmt.Fprintf(c,
			"POST /v1/%s/q/messages HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\nContent-Length: 1000000"+
				"\r\n\r\n%s", s.ns, s.token, strings.Repeat("x", 500_000)); err != nil {
			t.Fatal(err)
		}
	}
	s.until("1.5 MB have come", func() bool { return s.api.Budget.Bodies() == 1_500_000 })
	if r := s.do("POST", "/q/messages", strings.Repeat("x", 900_000)); !r.is("busy") ||
		r.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.want(201, "POST", "/q/messages", strings.Repeat("x", 100_000))
	for _, c := range held {
		_ = c.Close()
	}
	s.until("nothing is held", func() bool { return s.api.Budget.Bodies() == 0 })
}

// An answer counts among the bodies until its client has read it. While these are too many, nobody gets messages.
func TestUnreadAnswer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	const size = 15 << 20 // more than a socket keeps
	err := s.queue.Enqueue(context.Background(), shunt.With(shunt.Raw(s.ns+"/q", []byte(strings.Repeat("x", size))),
		shunt.ID("large")))
	l := s.api.Budget.Limits()
	l.MaxBodies = 2 << 20
	if err = errors.Join(err, s.api.Budget.SetLimits(l)); err != nil {
		t.Fatal(err)
	}
	s.want(201, "POST", "/small/messages", "x")
	const messages = "/q/messages"
	for _, path := range []string{messages, messages + "/id:large/peek", "/pull?queues=q"} {
		c, err := net.Dial("tcp", s.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(c, "GET /v1/%s%s HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\n\r\n", s.ns, path, s.token)
		if err != nil {
			t.Fatal(err)
		}
		s.until(path+" is answered", func() bool { return s.api.Budget.Bodies() >= size })
		for _, other := range []string{"/pull?queues=small", "/small/messages", messages + "/id:large/peek"} {
			if r := s.do("GET", other, ""); !r.is("busy") || r.header.Get("Retry-After") != "1" {
				t.Errorf("%s beside %s: %d %.100s", other, path, r.status, r.body)
			}
		}
		s.want(200, "GET", "/small/stats", "")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		s.until(path+" is over", func() bool { return s.api.Budget.Bodies() == 0 })
		s.want(200, "GET", "/small/messages", "")
	}
	s.until("what nobody has read is given back", func() bool { return s.count("q", shunt.StatePrepare) == 1 })
}

// Pulls that wait hold nothing, and are answered, however much others hold meanwhile.
func TestWaitsBesideUnreadAnswers(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	got := make(chan reply, 1)
	go func() {
		got <- s.json("POST", "/pull", `{"queues":["q"],"wait_ms":20000}`+strings.Repeat(" ", 100_000))
	}()
	s.until("it waits", func() bool { return s.api.Budget.Waiting() == 1 })
	if n := s.api.Budget.Bodies(); n != 0 {
		t.Errorf("%d bytes are held of a request that waits", n)
	}
	held := int(s.api.Budget.Limits().MaxBodies)
	s.api.Budget.Hold(held)
	if r := s.do("GET", "/pull?queues=q", ""); !r.is("busy") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if err := s.queue.Enqueue(t.Context(), shunt.Raw(s.ns+"/q", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	if r := <-got; !strings.Contains(r.body, `"payload":"x"`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.api.Budget.Return(held)
}

// What a broken Redis makes of each route: 503 with Retry-After, and without a detail.
func TestRedisGone(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	s := siteOn(t, b.URL())
	a := &API{Pools: s.api.Pools, Open: true, Log: s.api.Log, Events: s.api.Events}
	asking := &API{Pools: s.api.Pools, Access: &access.Store{Redis: b.Pool(t)}, Log: s.api.Log}
	receipt := s.one("")
	b.Kill()
	var all sync.WaitGroup // each takes as long as it may wait for Redis
	for i := range routes {
		rt := &routes[i]
		if rt.role == "" || rt.name == "events" || rt.role == operators {
			continue
		}
		path := s.exampleOf(rt)
		if rt.name == "pullByGet" {
			path += "?queues=q"
		}
		for _, h := range []*API{a, asking} {
			all.Go(func() {
				req := httptest.NewRequest(rt.method, path, strings.NewReader(strings.ReplaceAll(bodyOf[rt.name],
					"RECEIPT",
					receipt)))
				req.Header.Set("Content-Type", asJSON)
				req.Header.Set("X-Token", s.token)
				w := httptest.NewRecorder()
				h.Handler().ServeHTTP(w, req)
				batch := rt.name == "settle" && w.Code == 200
				if w.Code != 503 && !(batch && h == a) || w.Code == 503 && w.Header().Get("Retry-After") == "" ||
					strings.Contains(w.Body.String(), "127.0.0.1") {
					t.Errorf("%s: %d %s", rt.name, w.Code, w.Body)
				}
				if batch && !strings.Contains(w.Body.String(), `"status":503`) {
					t.Errorf("%s: %s", rt.name, w.Body)
				}
			})
		}
	}
	all.Wait()
}

// FuzzRequest sends what no client would.
func FuzzRequest(f *testing.F) {
	for i := range routes {
		for _, body := range []string{"", bodyOf[routes[i].name]} {
			f.Add(routes[i].method, strings.NewReplacer("{ns}", "ns", "{queue}", "q", "{ref}", "id:a", "{name}", "n").
				Replace(routes[i].pattern), "queues=q&delay_ms=5&state=dead", body, "a.b.c", asJSON)
		}
	}
	f.Add("POST", "/v1/ns/ack", "", "", "01JD0PT1VXY2Z3A4B5C6D7E8F9-25-30000.01JD0PT1VX0000000000000000.ns%2Fq", "*/*")
	m := redistest.Mini(f)
	pool, err := shunt.NewPool("redis://" + m.Addr())
	if err != nil {
		f.Fatal(err)
	}
	log := new(testkit.Log)
	a := &API{Pools: map[string]*shunt.Queue{DefaultPool: {Pool: pool, Quiet: true}}, Open: true,
		Log: slog.New(slog.NewTextHandler(log, nil))}
	a.pull = func(context.Context, *shunt.Queue, shunt.PullOptions) ([]*shunt.Leased, error) { return nil, nil }
	a.Stop() // nothing waits
	h := a.Handler()
	f.Cleanup(func() { _ = a.Pools[DefaultPool].Close(); _ = pool.Close() })
	f.Fuzz(func(t *testing.T, method, path, query, body, header, accept string) {
		u, err := url.ParseRequestURI("/" + strings.TrimPrefix(path, "/"))
		if err != nil {
			return
		}
		u.RawQuery = query
		req := httptest.NewRequest("GET", "/", io.NopCloser(strings.NewReader(body)))
		req.Method, req.URL = method, u
		req.Header["Content-Type"], req.Header["Accept"] = []string{asJSON}, []string{accept}
		req.Header["Shunt-Receipt"], req.Header["Idempotency-Key"] = []string{header}, []string{header}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		switch {
		case w.Code == 503 && strings.Contains(w.Body.String(), problemPrefix+"stopping"):
		case w.Code >= 500:
			t.Errorf("%s %s?%s %q: %d %s %s", method, path, query, body, w.Code, w.Body, log.String())
		case w.Code >= 400 && w.Header().Get("Content-Type") != "application/problem+json":
			t.Errorf("%s %s?%s: %d %s", method, path, query, w.Code, w.Body)
		}
	})
}
