package lmstfy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestAdminTokens(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	ns := s.ns + "-made"
	for _, c := range []struct {
		path, form string
		status     int
		text       string
	}{
		{"/token/" + ns, "", 400, "invalid description"},
		{"/token/" + ns + "?description=", "", 400, "invalid description"},
		{"/token/" + ns + "?description=" + strings.Repeat("d", 1025), "", 400, "invalid description"},
		{"/token/" + ns + "?description=d&token=short", "", 400, "the user token was too short"},
		{"/token/" + ns + "?description=d&token=" + strings.Repeat("t", 1025), "", 400, "the user token was too long"},
		{"/token/" + strings.Repeat("n", 256) + "?description=d", "", 400, "the namespace name was too long"},
		{"/token/n.s?description=d", "", 400, "namespace name contains forbidden characters"},
		{"/token/n%2Fs?description=d", "", 400, "namespace name contains forbidden characters"},
		{"/token/" + ns + "?description=d&pool=third", "", 400, "the pool was not exists"},
		{"/token/" + ns + "?description=d&token=third:abcdefghijklmnopqrst", "", 400, "the pool was not exists"},
		{"/token/" + ns + "?description=d&role=root", "", 400, "invalid role"},
		{"/token/" + ns + "?description=%zz", "", 400, "invalid query"},
		{"/token/" + ns, "description=%zz", 400, "invalid form"},
		{"/token/" + ns, "description=" + strings.Repeat("d", 1<<17), 400, "invalid form"},
		{"/token/" + ns, "description=by+form", 201, `"token": "`},
		{"/token/" + ns + "?description=d&token=abcdefghijklmnopqrst", "", 201, `{
    "token": "abcdefghijklmnopqrst"
}`},
		{"/token/" + ns + "?description=d&token=abcdefghijklmnopqrst", "", 400, "the token has already existed"},
		{"/token/" + ns + "?description=d&pool=second", "", 201, `"token": "second:`},
		{"/token/" + ns + "?description=d&token=second:abcdefghijklmnopqrst", "", 201, `"second:abcdefghijklmnopqrst"`},
		{"/token/" + ns + "?description=d&token=a:b:cdefghijklmnopqrst", "", 201, `"a:b:cdefghijklmnopqrst"`},
		{"/token/" + ns + "?description=d&role=publish", "", 201, `"token": "`},
	} {
		r := s.send(s.private.URL, "POST", c.path, c.form, "Content-Type", "application/x-www-form-urlencoded")
		if r.status != c.status || !strings.Contains(r.body, c.text) {
			t.Errorf("%.80s: %d %s", c.path, r.status, r.body)
		}
	}
	r := s.send(s.private.URL, "GET", "/token/"+ns+"?pool=second", "")
	mark := access.MarkOf("abcdefghijklmnopqrst")
	if r.status != 200 || !strings.Contains(r.body, fmt.Sprintf("        %q: \"d\"", "second:"+mark)) ||
		strings.Contains(r.body, "abcdefghijklmnopqrst") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.send(s.private.URL, "GET", "/token/"+ns+"?pool=third", ""); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, token := range []string{"second:" + mark, "abcdefghijklmnopqrst", "unknown"} {
		if r := s.send(s.private.URL, "DELETE", "/token/"+ns+"/"+token, ""); r.status != 204 || r.body != "" {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if r := s.send(s.private.URL, "DELETE", "/token/"+ns+"/third:x", ""); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
	r = s.send(s.private.URL, "GET", "/token/"+ns, "")
	if strings.Contains(r.body, mark) || len(r.json(t)["tokens"].(map[string]any)) != 3 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if strings.Contains(s.log.String(), "abcdefghijklmnopqrst") {
		t.Error("the log has a token")
	}
}

func TestAdminLimits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	at := "/token/" + s.ns + "/" + s.token + "/limit"
	mark := access.MarkOf(s.token)
	for _, c := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"GET", at, "", 404, "null"},
		{"POST", at, "", 400, `"error"`},
		{"POST", at, "[]", 400, `"error"`},
		{"POST", at, `{"read":"1"}`, 400, `"error"`},
		{"POST", at, `{"read":1e30}`, 400, `"error"`},
		{"POST", at, strings.Repeat(" ", 1<<17), 400, `"error"`},
		{"POST", at, `{"interval":1}`, 400, `{"limiter":{"read":0,"write":0,"interval":1}}`},
		{"POST", at, `{"read":1}`, 400, `{"error":"interval should be \u003e 0"}`},
		{"POST", at, `{"read":1,"interval":-1}`, 400, `{"error":"interval should be \u003e 0"}`},
		{"POST", at, `{"read":1,"write":2,"interval":3}`, 201, `{"limiter":{"read":1,"write":2,"interval":3}}`},
		{"POST", at, `{"read":1,"write":2,"interval":3}`, 500,
			`{"error":"throttler token(` + mark + `) has already exists"}`},
		{"GET", at, "", 200, `{"read":1,"write":2,"interval":3}`},
		{"PUT", at, `{"write":5,"interval":6}`, 200, `{"limiter":{"read":0,"write":5,"interval":6}}`},
		{"GET", at, "", 200, `{"read":0,"write":5,"interval":6}`},
		{"GET", "/limits?force_update=true", "", 200, `{"limiter":{"read":0,"write":5,"interval":6},"namespace":"` +
			s.ns + `","token":"` + mark + `"}`},
		{"DELETE", at, "", 200, `{"msg":"success"}`},
		{"DELETE", at, "", 200, `{"msg":"success"}`},
		{"GET", "/token/" + s.ns + "/third:x/limit", "", 400, "the pool was not exists"},
		{"PUT", "/token/n.s/x/limit", `{"write":5,"interval":6}`, 400, "forbidden"},
	} {
		r := s.send(s.private.URL, c.method, c.path, c.body)
		if r.status != c.status || !strings.Contains(r.body, c.text) {
			t.Errorf("%s %s %.40s: %d %s", c.method, c.path, c.body, r.status, r.body)
		}
		if strings.Contains(r.body, s.token) {
			t.Error("the answer has the token")
		}
	}
}

func TestAdminRest(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(_ *API, a *Admin) {
		a.Accounts = map[string]string{"ann": "secret", "ben": "other"}
		a.Build = Build{Version: "1.2.3"}
	})
	s.publish("/q1", "")
	s.publish("/q2", "")
	if r := s.send(s.private.URL, "GET", "/info", ""); !strings.Contains(r.body, "    \""+s.ns+"\": [") ||
		strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
		t.Errorf("%d %s %s", r.status, r.body, r.header)
	}
	for _, c := range []struct {
		method, path string
		status       int
		text         string
	}{
		{"GET", "/info?pool=third", 200, ""},
		{"GET", "/pools", 200, "[\n    \"default\",\n    \"second\"\n]"},
		{"GET", "/version", 200,
			"{\n    \"version\": \"1.2.3\",\n    \"build_commit\": \"\",\n    \"build_date\": \"\"\n}"},
		{"GET", "/accesslog", 200, `{"status":"disabled"}`},
		{"POST", "/accesslog?status=enable", 401, ""},
		{"POST", "/token/x?description=d", 401, ""},
		{"GET", "/token/x", 401, ""},
		{"DELETE", "/token/x/y", 401, ""},
		{"GET", "/token/x/y/limit", 401, ""},
		{"GET", "/limits", 401, ""},
		{"GET", "/nothing", 404, "404 page not found\n"},
		{"PUT", "/pools", 404, "404 page not found\n"},
		{"GET", "/../pools", 404, "404 page not found\n"},
		{"GET", "/debug/pprof/cmdline", 404, "Unknown profile\n"},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "goroutine"},
		{"GET", "/debug/pprof/", 200, "goroutine"},
		{"GET", "/debug/pprof", 307, "<a href=\"/debug/pprof/\">Temporary Redirect</a>.\n\n"},
	} {
		r := s.send(s.private.URL, c.method, c.path, "")
		if r.status != c.status || (r.body != c.text && c.text != "goroutine") {
			t.Errorf("%s %s: %d %q", c.method, c.path, r.status, r.body)
		}
		if want := `Basic realm="Authorization Required"`; c.status == 401 && r.header.Get("WWW-Authenticate") != want {
			t.Error(r.header)
		}
	}
	as := func(user, method, path string) reply {
		return s.send(strings.Replace(s.private.URL, "http://", "http://"+user+"@", 1), method, path, "")
	}
	for _, user := range []string{"ann:other", "ann:", ":secret", "ann:secret2", "cid:secret"} {
		if r := as(user, "GET", "/limits"); r.status != 401 {
			t.Errorf("%s: %d", user, r.status)
		}
	}
	for _, c := range [][3]string{
		{"POST", "/accesslog?status=enable", `{"status":"enabled"}`}, {"GET", "/accesslog", `{"status":"enabled"}`},
		{"POST", "/accesslog?status=x", `{"error":"invalid status"}`},
		{"POST", "/accesslog?status=disable", `{"status":"disabled"}`},
	} {
		if r := as("ben:other", c[0], c[1]); r.body != c[2] {
			t.Errorf("%s: %d %s", c, r.status, r.body)
		}
	}
}
