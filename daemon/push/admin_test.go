package push

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

// Each wrong field is told by its name, also several at once, and nothing is made of it.
func TestBadInput(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int, text string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
	}
	cases := []struct{ field, value, text string }{
		{"queues", `[]`, "queues: there are 0"}, {"queues", `["a","a"]`, "is there twice"},
		{"queues", `["a/b"]`, "want letters"}, {"queues", `["_a"]`, "no _ at the beginning"},
		{"queues", `[""]`, "queues"},
		{"queues", `["` + long(200) + `"]`, "too long"}, {"queues", many(65, `"a"`), "there are 65"},
		{"queues", `"a"`, "queues: it is a string"}, {"queues", `[1]`, "queues"},
		{"queues", `null`, "queues: there are 0"},
		{"endpoint", `""`, "it is missing"}, {"endpoint", `"example.org/hook"`, "endpoint: its scheme"},
		{"endpoint", `"ftp://example.org"`, `its scheme is "ftp"`}, {"endpoint", `"http://"`, "it has no host"},
		{"endpoint", `"https:example.org"`, "it has no host"},
		{"endpoint", `"http://ann:hunter2@example.org"`, "it has a user"},
		{"endpoint", `"http://example.org/#x"`, "fragment"}, {"endpoint", `"http://example.org:x/"`, "it is no URL"},
		{"endpoint", `"http://[::1"`, "it is no URL"}, {"endpoint", `"http://example.org/` + long(2100) + `"`, "2048"},
		{"endpoint", `"http://10.0.0.1/"`, "the address 10.0.0.1 is not public"},
		{"endpoint", `7`, "endpoint: it is a number"},
		{"endpoint", `"http://[::ffff:169.254.169.254]/latest/meta-data"`, "169.254.169.254 is not public"},
		{"endpoint", `"\u0000http://example.org"`, "it is no URL"},
		{"endpoint", `"http://exa mple.org"`, "it is no URL"},
		{"workers", `0`, "workers: 0: want 1 to 1000"}, {"workers", `1001`, "workers"}, {"workers", `-1`, "workers"},
		{"workers", `1.5`, "workers: it is a number 1.5: want a int"}, {"workers", `"4"`, "workers"},
		{"workers", `1e99`, "workers"}, {"timeout_ms", `99`, "timeout_ms: 99: want 100 to"},
		{"timeout_ms", `3600001`, "timeout_ms"},
		{"timeout_ms", `9223372036854775808`, "timeout_ms"}, {"attempts", `0`, "attempts: 0: want 1 to 255"},
		{"attempts", `256`, "attempts"}, {"backoff_ms", `0`, "backoff_ms: 0"},
		{"backoff_ms", `3600001`, "less than backoff_ms"},
		{"max_backoff_ms", `604800001`, "max_backoff_ms"}, {"max_retry_after_ms", `999`, "max_retry_after_ms: 999"},
		{"content_type", `""`, "content_type"}, {"content_type", `"json"`, "content_type"},
		{"content_type", `"text/plain\r\nx: y"`, "content_type"},
		{"content_type", `"text/` + long(255) + `"`, "content_type"},
		{"format", `"xml"`, "format: \"xml\": want"}, {"client_errors", `"ignore"`, "client_errors"},
		{"result", `"yes"`, "result: it is a string: want a bool"}, {"max_answer", `0`, "max_answer: 0"},
		{"max_answer", `1048577`, "max_answer"}, {"allow", `["10.0.0.0/33"]`, "allow: \"10.0.0.0/33\""},
		{"allow", `["example.org"]`, "allow"}, {"allow", many(65, `"10.0.0.1"`), "allow: there are 65"},
		{"allow", `["fe80::1%eth0"]`, "allow"}, {"allow", `["::ffff:10.0.0.0/104"]`, "allow"},
		{"secrets", `[]`, "secrets: there is none"}, {"secrets", `["hunter2"]`, "secrets: number 0: want"},
		{"secrets", `["whsec_aHVudGVyMg=="]`, "secrets: number 0: want"}, {"secrets", `[null]`, "secrets: number 0"},
		{"secrets", `["` + secret + `","` + secret + `"]`, "secrets: number 1 is there twice"},
		{"secrets", many(9, `"`+secret+`"`), "secrets: there are 9"},
		{"secrets", `"` + secret + `"`, "secrets: it is a string"},
		{"unsigned", `true`, "unsigned: there are secrets"}, {"worker", `4`, `unknown field "worker"`},
		{"state", `"paused"`, `unknown field "state"`},
	}
	at := "/push/" + s.ns() + "/g"
	with := func(field, value string) string {
		all := map[string]json.RawMessage{"queues": json.RawMessage(`["q"]`),
			"endpoint": json.RawMessage(`"https://example.org/hook"`), "secrets": json.RawMessage(`["` + secret + `"]`)}
		all[field] = json.RawMessage(value)
		body, err := json.Marshal(all)
		if err != nil {
			t.Fatal(field, value, err)
		}
		return string(body)
	}
	s.want(201, "", "POST", "/push/"+s.ns()+"/there", with("workers", "1"))
	before := s.want(200, "", "GET", "/push/"+s.ns()+"/there", "")
	for _, c := range cases {
		for _, r := range [][2]string{{"POST", at}, {"PATCH", "/push/" + s.ns() + "/there"}} {
			if c.value == "null" && r[0] == "PATCH" {
				continue // as if it were not given
			}
			status, text := s.do(r[0], r[1], with(c.field, c.value))
			if status != 400 || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.text) {
				t.Errorf("%s %s %.60s: %d %s", r[0], c.field, c.value, status, text)
			}
			if strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") ||
				strings.Contains(text, secret) {
				t.Errorf("%s %.60s: the answer has a secret: %s", c.field, c.value, text)
			}
		}
	}
	_, text := s.do("POST", at, `{"workers":0,"attempts":300,"timeout_ms":1}`)
	for _, part := range []string{"queues: ", "endpoint: ", "workers: ", "attempts: ", "timeout_ms: ", "secrets: "} {
		if !strings.Contains(text, part) {
			t.Errorf("not told: %s in %s", part, text)
		}
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"POST", at, "", 400, "the body is empty"}, {"POST", at, "{", 400, "unexpected EOF"},
		{"POST", at, "[]", 400, "it is a array"}, {"POST", at, "{} {}", 400, "more than one"},
		{"POST", at, `{"queues":["` + long(70<<10) + `"]}`, 413, "body too large"},
		{"PATCH", at, strings.Repeat(" ", 70<<10), 413, "body too large"},
		{"GET", at, "", 404, "there is no such group"}, {"PATCH", at, "{}", 404, "there is no such group"},
		{"DELETE", at, "", 404, "there is no such group"}, {"POST", at + "/pause", "", 404, "no such group"},
		{"POST", at + "/resume", "", 404, "no such group"}, {"POST", at + "/test", "", 404, "no such group"},
		{"POST", "/push/" + s.ns() + "/there", with("workers", "1"), 409, "the group exists already"},
		{"POST", "/push/n.s/g", with("workers", "1"), 400, "the namespace's name is wrong"},
		{"POST", "/push/" + long(65) + "/g", with("workers", "1"), 400, "the namespace's name is wrong"},
		{"POST", "/push/ns/g%2Fh", with("workers", "1"), 400, "the group's name is wrong"},
		{"POST", "/push/ns/" + long(65), with("workers", "1"), 400, "the group's name is wrong"},
		{"GET", at + "?pool=none", "", 404, "there is no such pool"},
		{"GET", "/push?pool=none", "", 404, "no such pool"},
		{"POST", "/push/" + s.ns() + "/there/test", strings.Repeat("x", 2<<20), 413, "body too large"},
	} {
		s.want(c.status, c.text, c.method, c.path, c.body)
	}
	if after := s.want(200, "", "GET", "/push/"+s.ns()+"/there", ""); after != before {
		t.Errorf("%s was %s", after, before)
	}
	if text := s.want(200, "", "GET", "/push", ""); strings.Count(text, `"group":`) != 1 {
		t.Error(text)
	}
}

func TestDefaultsAndViews(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	at := "/push/" + s.ns() + "/g"
	text := s.want(201, "", "POST", at, `{"queues":["a","b"],"endpoint":"https://example.org/hook","unsigned":true}`)
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	delete(v, "created_at")
	delete(v, "changed_at")
	want := map[string]any{"pool": s.pool, "namespace": s.ns(), "group": "g", "queues": []any{"a", "b"},
		"endpoint": "https://example.org/hook", "workers": 4.0, "timeout_ms": 30000.0, "attempts": 25.0,
		"backoff_ms": 10000.0, "max_backoff_ms": 3600000.0, "max_retry_after_ms": 3600000.0,
		"content_type": "application/json", "format": "payload", "client_errors": "retry", "result": false,
		"max_answer": 65536.0, "allow": []any{}, "secrets": []any{}, "unsigned": true, "state": "active"}
	if fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", v, want)
	}
	s.want(200, `"workers":7`, "PATCH", at, `{"workers":7}`)
	s.want(200, `"queues":["a","b"]`, "GET", at, "")
	s.want(200, `"state":"paused"`, "POST", at+"/pause", "")
	s.want(200, `"state":"paused"`, "PATCH", at, `{"workers":8}`)
	s.want(200, `"groups":[]`, "GET", "/push?namespace=other", "")
	s.want(200, `"workers":8`, "GET", "/push?namespace="+s.ns(), "")
	s.want(204, "", "DELETE", at, "")
	s.want(404, "no such group", "GET", at, "")
	s.want(200, `"groups":[]`, "GET", "/push", "")
}

// lmstfy's routes have its bodies and statuses, and the groups that they make post as its pushers did.
func TestOldRoutes(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s, e := shared(t), newEndpoint(t, nil)
	at := "/pusher/" + s.ns() + "/g"
	for _, c := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"GET", "/pushers", "", 200, `{"pushers":{}}`}, {"GET", "/pusher/" + s.ns(), "", 200, `{"pushers":{}}`},
		{"GET", at, "", 404, `{"error":"pusher was not found"}`},
		{"PUT", at, `{"workers":2}`, 404, `{"error":"the pusher was not found"}`},
		{"DELETE", at, "", 500, `{"error":"the meta key was not found"}`},
		{"POST", at, ``, 400, `"error"`}, {"POST", at, `{}`, 400, "workers: 0: want 1 to 16; timeout: 0"},
		{"POST", at, `{"queues":["q"],"endpoint":"` + e.URL + `","workers":17,"timeout":3}`, 400, "workers: 17"},
		{"POST", at, `{"queues":["q"],"endpoint":"` + e.URL + `","workers":2,"timeout":3601}`, 400, "timeout: 3601"},
		{"POST", at, `{"queues":[],"endpoint":"` + e.URL + `","workers":2,"timeout":3}`, 400, "queues: "},
		{"POST", at, `{"queues":["q"],"endpoint":"x","workers":2,"timeout":3}`, 400, "endpoint: "},
		{"POST", "/pusher/n.s/g", `{}`, 400, "the namespace's name"},
		{"POST", at, `{"queues":["q","p"],"endpoint":"` + e.URL + `","workers":2,"timeout":3}`, 201,
			`{"status":"created"}`},
		{"POST", at, `{"queues":["q"],"endpoint":"` + e.URL + `","workers":2,"timeout":3}`, 500,
			`{"error":"the meta key has already exists"}`},
		{"GET", "/pushers", "", 200, `{"pushers":{"` + s.pool + `":{"` + s.ns() + `":["g"]}}}`},
		{"GET", "/pusher/" + s.ns(), "", 200,
			`{"pushers":{"g":{"queues":["q","p"],"endpoint":"` + e.URL + `","workers":2,"timeout":3}}}`},
		{"PUT", at, `{"workers":99}`, 400, "workers: 99"}, {"PUT", at, `{"workers":5}`, 200, `{"status":"ok"}`},
		{"GET", at, "", 200, `{"pusher":{"queues":["q","p"],"endpoint":"` + e.URL + `","workers":5,"timeout":3}}`},
		{"GET", "/push/" + s.ns() + "/g", "", 200, `"backoff_ms":3000,"max_backoff_ms":3000`},
	} {
		s.want(c.status, c.text, c.method, c.path, c.body)
	}
	s.publish("q", "\x00body")
	until(t, "it is posted", func() bool { return len(e.all()) == 1 })
	g := e.all()[0]
	var job struct {
		Namespace, Queue, ID string
		TTL, ElapsedMS       *int64
		Body                 []byte
	}
	if err := json.Unmarshal([]byte(strings.Replace(g.body, "elapsed_ms", "ElapsedMS", 1)), &job); err != nil ||
		job.Namespace != s.ns() || job.Queue != "q" || len(job.ID) != 27 || string(job.Body) != "\x00body" ||
		job.TTL == nil ||
		job.ElapsedMS == nil || g.header.Get("Content-Type") != "application/json" ||
		g.header["Webhook-Signature"] != nil {
		t.Errorf("%s %v %v", g.body, g.header, err)
	}
	s.want(200, `{"status":"deleted"}`, "DELETE", at, "")
	s.want(404, "", "GET", at, "")
}

// A web page of another site cannot have a browser make a group.
func TestCrossSite(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	for _, h := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		r := httptest.NewRequest("POST", "/push/ns/g?pool="+s.pool, strings.NewReader(`{}`))
		r.Header.Set(h[0], h[1])
		r.SetPathValue("ns", "ns")
		r.SetPathValue("group", "g")
		w := httptest.NewRecorder()
		s.push.Routes()["POST /push/{ns}/{group}"].ServeHTTP(w, r)
		if w.Code != 403 || !strings.Contains(w.Body.String(), `"error"`) {
			t.Errorf("%v: %d %s", h, w.Code, w.Body)
		}
	}
}
