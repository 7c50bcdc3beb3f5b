package v1

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

// exampleOf is a path of a route.
func (s *site) exampleOf(rt *route) string {
	return strings.NewReplacer("{ns}", s.ns, "{queue}", "q", "{ref}", "id:none", "{name}", "none").Replace(rt.pattern)
}

// bodies that routes take, by name.
var bodyOf = map[string]string{
	"pull": `{"queues":["q"]}`, "settle": `[{"verdict":"ack","receipt":"RECEIPT"}]`, "ack": `{"receipt":"RECEIPT"}`,
	"fail": `{"receipt":"RECEIPT"}`, "release": `{"receipt":"RECEIPT"}`,
	"extend":       `{"receipt":"RECEIPT","lease_ms":10}`,
	"publishBatch": `[{}]`, "postpone": `{"delay_ms":1}`, "purge": `{"states":["dead"]}`,
	"putRecurring": `{"every_ms":60000,"payload":"x"}`,
}

// Which token opens which route, however it is given.
func TestTokens(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	receipt := s.one("")
	s.api.Stop() // streams end at once, and pulls are 503 or not
	tokens := []struct {
		name, token string
		problem     string // of routes that want a token; "": it is valid
		role        access.Role
	}{
		{"none", "", "no-token", ""},
		{"only a pool", "default:", "no-token", ""},
		{"unknown", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "invalid-token", ""},
		{"said to be of another pool", "second:" + s.token, "invalid-token", ""},
		{"of no pool", "third:" + s.token, "no-pool", ""},
		{"its mark", access.MarkOf(s.token), "invalid-token", ""},
		{"with its pool", "default:" + s.token, "", access.Both},
		{"publish", s.mint(access.Publish), "", access.Publish},
		{"consume", s.mint(access.Consume), "", access.Consume},
		{"admin", s.mint(access.Admin), "", access.Admin},
	}
	for _, k := range tokens {
		for i := range routes {
			rt := &routes[i]
			if rt.role == operators {
				continue
			}
			path, body := s.exampleOf(rt), strings.ReplaceAll(bodyOf[rt.name], "RECEIPT", receipt)
			if rt.name == "pullByGet" {
				path += "?queues=q"
			}
			mark := map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]
			for how, r := range map[string]func() reply{
				"header": func() reply {
					return s.send(s.server, rt.method, path, body, "X-Token", k.token, "Content-Type", asJSON)
				},
				"bearer": func() reply {
					return s.send(s.server, rt.method, path, body, "Authorization", "bearer "+k.token, "Content-Type",
						asJSON)
				},
				"query": func() reply {
					return s.send(s.server, rt.method, path+mark+"token="+k.token, body, "Content-Type", asJSON)
				},
			} {
				got, want := r(), k.problem
				if want == "" && rt.role != "" && rt.role != anyRole && !k.role.May(rt.role) {
					want = "forbidden"
				}
				if rt.role == "" {
					want = ""
				}
				if want != "" && !got.is(want) || want == "" && (got.status == 401 || got.status == 403) {
					t.Errorf("%s with a token %s (%s): %d %s, want %s", rt.name, k.name, how, got.status, got.body,
						want)
				}
				if got.status == 401 && got.header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s: %v", rt.name, got.header)
				}
			}
		}
	}
	if log := s.log.String(); strings.Contains(log, s.token) {
		t.Error("the log has the token")
	}
}

// A token of another namespace opens nothing here.
func TestOtherNamespace(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s, other := newSite(t), newSite(t)
	if r := s.do("GET", "/q/stats", "", "X-Token", other.token); !r.is("invalid-token") {
		t.Errorf("%d %s", r.status, r.body)
	}
	receipt := other.one("")
	if r := s.json("POST", "/ack", `{"receipt":"`+receipt+`"}`); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
	m := other.want(201, "POST", "/q/messages", "x").json()
	if r := s.do("GET", "/q/messages/"+strings.NewReplacer("{", "%7B", "}", "%7D", "/",
		"%2F").Replace(m["ref"].(string)),
		""); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Requests beyond a token's limit are 429; those that came to nothing do not count.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	token := s.mint(access.Both)
	if err := s.access.SetLimit(context.Background(), DefaultPool, s.ns, token,
		access.Limit{Read: 2, Write: 2, Interval: 1000}); err != nil {
		t.Fatal(err)
	}
	do := func(method, path, body string) reply {
		return s.json(method, path, body, "X-Token", token)
	}
	for range 3 {
		if r := do("POST", "/q/messages:batch", "[{}"); r.status != 400 {
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := do("GET", "/pull?queues=q", ""); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	for i := range 3 {
		r := do("POST", "/q/messages", "x")
		if want := map[bool]int{true: 201, false: 429}[i < 2]; r.status != want {
			t.Errorf("%d: %d %s", i, r.status, r.body)
		}
		if i == 2 && (r.header.Get("Retry-After") == "" || !r.is("rate-limited")) {
			t.Errorf("%v %s", r.header, r.body)
		}
	}
	for i := range 3 {
		r := do("GET", "/pull?queues=q", "")
		if want := map[bool]int{true: 200, false: 429}[i < 2]; r.status != want {
			t.Errorf("%d: %d %s", i, r.status, r.body)
		}
	}
}

// What follows a verdict, and a recurring message that is enqueued at once, count as requests to publish.
func TestRateLimitOfOtherWays(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.wantJSON(204, "PUT", "/q/recurring/r", `{"every_ms":3600000,"payload":"x"}`)
	for name, request := range map[string]func(do func(path, body string) reply) int{
		"ack": func(do func(path, body string) reply) int {
			return do("/ack", fmt.Sprintf(`{"receipt":%q,"then":[{"queue":"next","payload":"x"}]}`, s.one(""))).status
		},
		"settle": func(do func(path, body string) reply) int {
			r := do("/settle", fmt.Sprintf(`[{"receipt":%q,"verdict":"release"},
				{"receipt":%q,"verdict":"ack","then":[{"queue":"next","payload":"x"}]}]`, s.one(""), s.one("")))
			if r.status == 200 {
				return 204
			}
			return r.status
		},
		"enqueue": func(do func(path, body string) reply) int { return do("/q/recurring/r/enqueue", "").status },
	} {
		token := s.mint(access.Both)
		if err := s.access.SetLimit(t.Context(), DefaultPool, s.ns, token,
			access.Limit{Write: 2, Interval: 1000}); err != nil {
			t.Fatal(err)
		}
		do := func(path, body string) reply { return s.json("POST", path, body, "X-Token", token) }
		for range 3 { // these come to nothing, or publish nothing
			do("/ack", `{"receipt":"none","then":[{"queue":"next","payload":"x"}]}`)
			settled := s.one("")
			do("/ack", fmt.Sprintf(`{"receipt":%q}`, settled))
			do("/settle", fmt.Sprintf(`[{"receipt":%q,"verdict":"release"},
				{"receipt":%q,"verdict":"ack","then":[{"queue":"next"}]}]`, s.one(""), settled))
			do("/q/recurring/none/enqueue", "")
		}
		for i, want := range []int{204, 204, 429} {
			if got := request(do); got != want {
				t.Errorf("%s %d: %d, want %d", name, i, got, want)
			}
		}
	}
}

// Operators need no token, and no page of another site acts with their password.
func TestOperators(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	const ann = "Basic YW5uOng="
	path := "/v1/" + s.ns + "/q/messages"
	for _, c := range []struct {
		path    string
		headers []string
		status  int
	}{
		{path, []string{"Authorization", ann}, 201},
		{path + "?pool=second", []string{"Authorization", ann}, 201},
		{path + "?pool=third", []string{"Authorization", ann}, 404},
		{path, nil, 401},
		{path, []string{"X-Token", s.token}, 401},
		{path, []string{"Authorization", ann, "Sec-Fetch-Site", "cross-site"}, 403},
		{path, []string{"Authorization", ann, "Sec-Fetch-Site", "same-site"}, 403},
		{path, []string{"Authorization", ann, "Sec-Fetch-Site", "same-origin"}, 201},
		{path, []string{"Authorization", ann, "Origin", "http://example.org"}, 403},
		{path, []string{"Authorization", ann, "Origin", s.operators.URL}, 201},
	} {
		if r := s.send(s.operators, "POST", c.path, "x", c.headers...); r.status != c.status {
			t.Errorf("%s %v: %d %s", c.path, c.headers, r.status, r.body)
		}
	}
	pull := "/v1/" + s.ns + "/pull?queues=q"
	if r := s.send(s.operators, "GET", pull, "", "Authorization", ann); r.status != 405 ||
		r.header.Get("Allow") != "POST" {
		t.Errorf("GET %s: %d %s", pull, r.status, r.body)
	}
	if r := s.send(s.operators, "POST", pull, "", "Authorization", ann); r.status != 200 {
		t.Errorf("POST %s: %d %s", pull, r.status, r.body)
	}
}
