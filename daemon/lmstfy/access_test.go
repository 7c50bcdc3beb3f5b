package lmstfy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

// publicRoutes are all routes of the API: method, path below /api/ns, and what a role of the token needs.
var publicRoutes = []struct {
	method, path string
	role         access.Role
}{
	{"PUT", "/q", access.Publish},
	{"PUT", "/q/bulk", access.Publish},
	{"PUT", "/q/job/id", access.Both},
	{"GET", "/q", access.Consume},
	{"DELETE", "/q/job/id", access.Consume},
	{"GET", "/q/peek", anyRole},
	{"GET", "/q/job/id", anyRole},
	{"DELETE", "/q", access.Both},
	{"GET", "/q/deadletter", anyRole},
	{"PUT", "/q/deadletter", access.Both},
	{"DELETE", "/q/deadletter", access.Both},
	{"GET", "/q/size", ""},
	{"GET", "/q/deadletter/size", ""},
}

// Which token opens which route.
func TestTokens(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.api.pull = nothingToPull
	tokens := []struct {
		name, token string
		status      int // of routes that want a token; 0: it is valid
		text        string
		role        access.Role
	}{
		{"none", "", 401, "token not found", ""},
		{"only a pool", "default:", 401, "token not found", ""},
		{"unknown", "01ARZ3NDEKTSV4RRFFQ69G5FAV", 401, "invalid token", ""},
		{"of a longer namespace", s.mint(DefaultPool, s.ns+"2", access.Both), 401, "invalid token", ""},
		{"of another namespace", s.mint(DefaultPool, "x-"+s.ns, access.Both), 401, "invalid token", ""},
		{"of another pool, without it", strings.TrimPrefix(s.mint("second", s.ns, access.Both), "second:"), 401,
			"invalid token", ""},
		{"of another pool", s.mint("second", s.ns, access.Both), 0, "", access.Both},
		{"of this pool, said to be of another", "second:" + s.token, 401, "invalid token", ""},
		{"with its pool", "default:" + s.token, 0, "", access.Both},
		{"of no pool", "third:" + s.token, 404, "pool not found", ""},
		{"too long", strings.Repeat("x", 10000), 401, "invalid token", ""},
		{"its mark", access.MarkOf(s.token), 401, "invalid token", ""},
		{"publish", s.mint(DefaultPool, s.ns, access.Publish), 0, "", access.Publish},
		{"consume", s.mint(DefaultPool, s.ns, access.Consume), 0, "", access.Consume},
		{"admin", s.mint(DefaultPool, s.ns, access.Admin), 0, "", access.Admin},
	}
	for _, k := range tokens {
		for _, r := range publicRoutes {
			want := k.status
			switch {
			case k.status == 404:
			case r.role == "":
				want = 0
			case want == 0 && r.role != anyRole && !k.role.May(r.role):
				want = 403
			}
			body := "[1]"
			for _, byQuery := range []bool{false, true} {
				path, headers := "/api/"+s.ns+r.path, []string{"X-Token", k.token}
				if byQuery {
					path, headers = path+"?token="+k.token, nil
				}
				got := s.send(s.public.URL, r.method, path, body, headers...)
				good := got.status == want
				if want == 0 {
					good = got.status < 300 || got.status == 404 && !strings.Contains(got.body, "pool")
				}
				if !good || want == k.status && want != 0 && got.body != fmt.Sprintf(`{"error":%q}`, k.text) {
					t.Errorf("%s, %s %s: %d %.100s", k.name, r.method, r.path, got.status, got.body)
				}
				if bare := strings.TrimPrefix(k.token, "second:"); len(bare) > 19 && strings.Contains(got.body, bare) {
					t.Errorf("%s: the answer has the token", k.name)
				}
			}
		}
	}
	if strings.Contains(s.log.String(), s.token) {
		t.Error("the log has the token")
	}
}

// Names are checked before all else, paths that mean another one are none.
func TestNamesAndPaths(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.api.pull = nothingToPull
	const long, ns, queue = "namespace or queue name too long", "namespace name contains forbidden characters",
		"queue name contains forbidden characters"
	for _, c := range []struct {
		method, path string
		status       int
		text         string
	}{
		{"PUT", "/api/" + strings.Repeat("n", 256) + "/q", 400, long},
		{"PUT", "/api/n/" + strings.Repeat("q", 256), 400, long},
		{"PUT", "/api/n/" + strings.Repeat("q", 199), 400, long}, // shunt's own bound: 200 together
		{"GET", "/api/n/" + strings.Repeat("q", 199), 400, long},
		{"PUT", "/api/n.a/q", 400, ns},
		{"PUT", "/api/n%2Fa/q", 400, ns},
		{"PUT", "/api/%7Bn%7D/q", 400, ns},
		{"PUT", "/api/n%00/q", 400, ns},
		{"PUT", "/api/n%C3%A4/q", 400, ns},
		{"PUT", "/api/n%ff/q", 400, ns},
		{"PUT", "/api/n%20/q", 400, ns},
		{"PUT", "/api/n/q%0a", 400, queue},
		{"PUT", "/api/n/_q", 400, queue},
		{"PUT", "/api/n/a,b", 400, queue},
		{"PUT", "/api/n/a,b?delay=x", 400, queue},
		{"GET", "/api/n/a%2Fb", 400, queue},
		{"GET", "/api/n/a.b", 400, queue},
		{"GET", "/api/n/_q", 401, "token not found"}, // a consume may
		{"GET", "/api/n/a,b", 401, "token not found"},
		{"PUT", "/api/n.a/q?token=third:x", 400, ns},
		{"GET", "/", 404, "api not found"},
		{"GET", "/api", 404, "api not found"},
		{"GET", "/api/n", 404, "api not found"},
		{"POST", "/api/n/q", 404, "api not found"},
		{"PATCH", "/api/n/q/job/x", 404, "api not found"},
		{"OPTIONS", "/api/n/q", 404, "api not found"},
		{"GET", "/api/n/q/bulk", 404, "api not found"},
		{"GET", "/api/n/q/job/", 404, "api not found"},
		{"GET", "/api/n/q/job/a/b", 404, "api not found"},
		{"GET", "//api/n/q", 404, "api not found"},
		{"GET", "/api//n/q", 404, "api not found"},
		{"GET", "/api/n/../q", 404, "api not found"},
		{"GET", "/api/n/%2e%2e/size", 404, "api not found"},
		{"GET", "/api/n/./size", 404, "api not found"},
		{"GET", "/API/n/q/size", 404, "api not found"},
		{"GET", "/api/n/q/size//", 404, "api not found"},
		{"GET", "/nothing/", 404, "api not found"},
	} {
		r := s.send(s.public.URL, c.method, c.path, "")
		if r.status != c.status || r.body != fmt.Sprintf(`{"error":%q}`, c.text) {
			t.Errorf("%s %.40s: %d %.100s", c.method, c.path, r.status, r.body)
		}
	}
	if r := s.send(s.public.URL, "HEAD", "/api/n/q/size", ""); r.status != 404 {
		t.Errorf("HEAD: %d", r.status)
	}
	for method, status := range map[string]int{"GET": 301, "PUT": 307, "DELETE": 307} {
		r := s.send(s.public.URL, method, "/api/n/q/?token=x", "")
		if r.status != status || r.header.Get("Location") != "/api/n/q?token=x" {
			t.Errorf("%s: %d %s", method, r.status, r.header)
		}
	}
}

// A limit counts requests that came to something, and says when to come again.
func TestThrottle(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.api.pull = nothingToPull
	limit := "/token/" + s.ns + "/" + s.token + "/limit"
	if r := s.send(s.private.URL, "POST", limit, `{"read":1,"write":2,"interval":1000}`); r.status != 201 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	for range 3 {
		if r := s.do("PUT", "/q?tries=0", ""); r.status != 400 { // refunded
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := s.do("GET", "/q", ""); r.status != 404 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	s.publish("/q", "1")
	s.do("PUT", "/q/bulk", "[1,2,3]")
	for _, path := range []string{"/q", "/q/bulk"} {
		r := s.do("PUT", path, "[1]")
		want := `{"msg":"token(` + access.MarkOf(s.token) + `) produce reach the limit rate, please retry later"}`
		if r.status != 429 || r.body != want || r.header.Get("Retry-After") == "" {
			t.Errorf("%d %s %s", r.status, r.body, r.header)
		}
	}
	if r := s.do("PUT", "/q/job/x", ""); r.status != 201 {
		t.Errorf("a republish is not throttled: %d %s", r.status, r.body)
	}
	if r := s.send(s.private.URL, "DELETE", limit, ""); r.status != 200 || r.body != `{"msg":"success"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.publish("/q", "4")
}
