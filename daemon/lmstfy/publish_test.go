package lmstfy

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// What each parameter may be, on the routes that publish.
func TestPublishParameters(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	for _, c := range []struct {
		query  string
		status int
		text   string
	}{
		{"", 201, "published"},
		{"?delay=", 400, "invalid delay"},
		{"?delay=-1", 400, "invalid delay"},
		{"?delay=1.5", 400, "invalid delay"},
		{"?delay=%2B1", 400, "invalid delay"},
		{"?delay=4294967296", 400, "invalid delay"},
		{"?delay=x", 400, "invalid delay"},
		{"?delay=%ff", 400, "invalid delay"},
		{"?delay=1&ttl=4294967295", 201, "published"},
		{"?delay=4294967295&ttl=0", 201, "published"},
		{"?delay=4294967295&ttl=4294967295", 201, "published"},
		{"?ttl=", 400, "invalid ttl"},
		{"?ttl=-1", 400, "invalid ttl"},
		{"?ttl=4294967296", 400, "invalid ttl"},
		{"?ttl=0", 201, "published"},
		{"?ttl=1", 201, "published"},
		{"?ttl=5&delay=6", 400, "ttl is shorter than delay"},
		{"?ttl=5&delay=5", 201, "published"},
		{"?ttl=5&delay=6&tries=0", 400, "ttl is shorter than delay"},
		{"?tries=", 400, "invalid tries"},
		{"?tries=0", 400, "tries shouldn't be zero"},
		{"?tries=-1", 400, "invalid tries"},
		{"?tries=65536", 400, "invalid tries"},
		{"?tries=65535", 201, "published"},
		{"?tries=2&tries=0", 201, "published"}, // the first one counts
		{"?tries=0&tries=2", 400, "tries shouldn't be zero"},
		{"?ttl=x&delay=x&tries=x", 400, "invalid delay"},
		{"?%zz", 400, "invalid query"},
		{"?a;b=1", 400, "invalid query"},
		{"?unknown=1", 201, "published"},
	} {
		for path, body := range map[string]string{"/q": "body", "/q/bulk": "[1]", "/q/job/unknown": "body"} {
			r := s.do("PUT", path+c.query, body)
			if r.status != c.status || !strings.Contains(r.body, c.text) {
				t.Errorf("%s%s: %d %s", path, c.query, r.status, r.body)
			}
		}
	}
}

func TestPublishBodies(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	mib := strings.Repeat("a", 1<<20)
	for _, c := range []struct {
		name, path, body string
		status           int
		text             string
	}{
		{"empty", "/q", "", 201, ""},
		{"largest", "/q", mib, 201, ""},
		{"too large", "/q", mib + "a", 413, "body too large"},
		{"not UTF-8", "/q", "\xff\x00\xfe", 201, ""},
		{"bulk: nothing", "/q/bulk", "", 400, "request body should be an array of objects"},
		{"bulk: no array", "/q/bulk", "{}", 400, "request body should be an array of objects"},
		{"bulk: cut off", "/q/bulk", "[1,2", 400, "request body should be an array of objects"},
		{"bulk: more", "/q/bulk", "[1] [2]", 400, "request body should be an array of objects"},
		{"bulk: null", "/q/bulk", "null", 400, "no jobs"},
		{"bulk: empty", "/q/bulk", "[]", 400, "no jobs"},
		{"bulk: 64", "/q/bulk", "[1" + strings.Repeat(",1", 63) + "]", 201, ""},
		{"bulk: 65", "/q/bulk", "[1" + strings.Repeat(",1", 64) + "]", 400, "too many jobs"},
		{"bulk: job too large", "/q/bulk", `["` + mib + `"]`, 413, "job too large"},
		{"bulk: deep", "/q/bulk", strings.Repeat("[", 20000), 400, "request body should be an array of objects"},
	} {
		r := s.do("PUT", c.path, c.body)
		if r.status != c.status || !strings.Contains(r.body, c.text) {
			t.Errorf("%s: %d %.200s", c.name, r.status, r.body)
		}
	}
}

// A job as published is what a peek shows.
func TestPublishAndPeek(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	if r := s.do("GET", "/q/peek", ""); r.status != 404 || r.body != `{"error":"the queue is empty"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	body := "\x00\xffbody<>"
	id := s.publish("/q?tries=3&ttl=100", body)
	if len(id) != 26 {
		t.Errorf("id %s", id)
	}
	for _, path := range []string{"/q/peek", "/q/job/" + id} {
		r := s.do("GET", path, "")
		m := r.json(t)
		if r.status != 200 || m["job_id"] != id || m["namespace"] != s.ns || m["queue"] != "q" ||
			m["data"] != base64.StdEncoding.EncodeToString([]byte(body)) || m["ttl"].(float64) < 95 ||
			m["ttl"].(float64) > 100 || m["remain_tries"] != 3.0 || m["attributes"] != nil {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
		if kind := r.header.Get("Content-Type"); kind != "application/json; charset=utf-8" {
			t.Error(kind)
		}
		if _, has := m["elapsed_ms"]; !has || m["msg"] != nil {
			t.Error(r.body)
		}
	}
	if r := s.do("GET", "/q/size", ""); r.body != fmt.Sprintf(`{"namespace":%q,"queue":"q","size":1}`, s.ns) {
		t.Error(r.body)
	}
	for _, path := range []string{"/q/job/unknown", "/q2/job/" + id, "/q/job/" + strings.Repeat("x", 300),
		"/q/job/s" + id, "/q/job/%00"} {
		if r := s.do("GET", path, ""); r.status != 404 || r.body != `{"error":"job not found"}` {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
		if r := s.do("DELETE", path, ""); r.status != 204 || r.body != "" {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	for range 2 {
		if r := s.do("DELETE", "/q/job/"+id, ""); r.status != 204 || r.body != "" {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if r := s.do("GET", "/q/job/"+id, ""); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	long := strings.Repeat("k", 40)
	id := s.publish("/q", "", "Enable-Job-Version", "yEs", "Job-Attr-Colour", "blue", "Job-Attr-Empty", "",
		"Job-Attr-"+long, strings.Repeat("v", 200))
	if len(id) != 27 || id[0] != '1' {
		t.Errorf("id %s", id)
	}
	m := s.do("GET", "/q/peek", "").json(t)
	want := fmt.Sprintf("map[colour:blue %s:%s]", long[:32], strings.Repeat("v", 128))
	if got := fmt.Sprint(m["attributes"]); got != want {
		t.Error(got)
	}
	if m["data"] != "" {
		t.Errorf("an empty body is %q", m["data"])
	}
	s.publish("/plain", "", "Job-Attr-Colour", "blue")
	if m := s.do("GET", "/plain/peek", "").json(t); m["attributes"] != nil {
		t.Error(m)
	}
	many := []string{"Enable-Job-Version", "YES"}
	for i := range 17 {
		many = append(many, fmt.Sprint("Job-Attr-", i), "v")
	}
	if r := s.do("PUT", "/q", "", many...); r.status != 400 || !strings.Contains(r.body, "cannot exceed 16") {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.publish("/q", "", many[:len(many)-2]...)
}

// A bulk keeps its order, and each value's text.
func TestBulk(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	r := s.do("PUT", "/q/bulk?tries=2", ` [ {"a": 1} , "two",3 ] `, "Enable-Job-Version", "YES", "Job-Attr-K", "v")
	ids, _ := r.json(t)["job_ids"].([]any)
	if r.status != http.StatusCreated || len(ids) != 3 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	for i, want := range []string{`{"a": 1}`, `"two"`, `3`} {
		m := s.do("GET", fmt.Sprint("/q/job/", ids[i]), "").json(t)
		if data, _ := base64.StdEncoding.DecodeString(m["data"].(string)); string(data) != want {
			t.Errorf("%d: %s", i, data)
		}
		if fmt.Sprint(m["attributes"]) != "map[k:v]" {
			t.Error(m)
		}
	}
	if m := s.do("GET", "/q/peek", "").json(t); m["job_id"] != ids[0] {
		t.Error(m)
	}
}

// A bulk of 64 is one script, which Redis executes as a whole.
func TestBulkIsAtomic(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	s := newSiteOn(t, b)
	calls := func() (n int) {
		text, _ := redis.String(b.Do("INFO", "commandstats"), nil)
		for _, line := range strings.Split(text, "\n") {
			var calls int
			if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
				_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &calls)
			}
			n += calls
		}
		return n
	}
	bulk := "[1" + strings.Repeat(",1", 63) + "]"
	for range 2 { // the first loads the script, and may write the token's limits
		s.do("PUT", "/q/bulk?ttl=100&tries=3&delay=1", bulk)
	}
	before := calls()
	if r := s.do("PUT", "/q/bulk?ttl=100&tries=3&delay=1", bulk); r.status != 201 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if n := calls() - before; n != 1 {
		t.Errorf("%d scripts", n)
	}
}

// Of a bulk that Redis has no room for nothing stays, however large it is.
func TestBulkIsTakenBack(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "maxmemory-policy noeviction")
	s := newSiteOn(t, b)
	s.publish("/q", "small")
	b.Do("CONFIG", "SET", "maxmemory", b.Memory()+3<<20)
	job := `"` + strings.Repeat("x", 300<<10) + `"`
	r := s.do("PUT", "/q/bulk", "["+job+strings.Repeat(","+job, 19)+"]")
	if r.status != 500 || r.body != `{"error":"internal error"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/size", ""); r.json(t)["size"] != 1.0 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A republish that is refused changes nothing; else the old job is gone.
func TestRepublish(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	old := s.publish("/q", "old")
	if r := s.do("PUT", "/q/job/"+old+"?tries=0", "new"); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/job/"+old, ""); r.status != 200 {
		t.Errorf("a refused republish deleted the job: %d", r.status)
	}
	id := s.publish("/q/job/"+old, "new")
	if r := s.do("GET", "/q/job/"+old, ""); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if m := s.do("GET", "/q/peek", "").json(t); m["job_id"] != id || m["data"] != "bmV3" {
		t.Error(m)
	}
	delayed := s.publish("/q?delay=100", "later")
	if r := s.do("DELETE", "/q", ""); r.status != 204 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/size", ""); r.json(t)["size"] != 0.0 {
		t.Error(r.body)
	}
	if r := s.do("GET", "/q/job/"+delayed, ""); r.status != 200 {
		t.Errorf("destroy deletes what is delayed: %d", r.status)
	}
}
