package v1

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A message is found by its id, its serial and its ref, whatever they have in them.
func TestRefs(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	for _, id := range []string{"a", "a/b", "..", "%2e", "a//b", "ü", "{x}.any.-.y", "serial:1", " ",
		strings.Repeat("x", 255)} {
		m := s.want(201, "POST", "/q/messages?id="+url.QueryEscape(id), "x").json()
		for _, name := range []string{"id:" + id, "serial:" + m["serial"].(string), m["ref"].(string)} {
			r := s.want(200, "GET", "/q/messages/"+url.PathEscape(name), "")
			if r.status == 200 && (r.json()["id"] != id || r.json()["serial"] != m["serial"]) {
				t.Errorf("%s: %s", name, r.body)
			}
		}
	}
	for _, name := range []string{"a", "id:", "serial:x", "serial:", "{x/q}.any.-.y", "{" + s.ns + "/q}", "id:" +
		strings.Repeat("x", 256), "{" + s.ns + "/q}.any.x"} {
		for _, path := range []string{"", "/peek", "/outcome"} {
			r := s.do("GET", "/q/messages/"+url.PathEscape(name)+path, "")
			if !r.is("invalid-request") || !strings.Contains(r.body, `"ref"`) {
				t.Errorf("%.30s: %d %s", name, r.status, r.body)
			}
		}
	}
	for _, path := range []string{"/q/messages/id:none", "/q/messages/id:none/peek", "/q/messages/id:none/outcome",
		"/q/messages/serial:01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		if r := s.do("GET", path, ""); r.status != 404 || !r.is("no-message") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

// What operators do to one message, and what stands in the way.
func TestAlter(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	publish := func(query string) { s.want(201, "POST", "/q/messages?id=a&"+query, "x") }
	state := func(want string) {
		t.Helper()
		if r := s.do("GET", "/q/messages/id:a", ""); r.status != 200 || r.json()["state"] != want {
			t.Errorf("%d %s, want %s", r.status, r.body, want)
		}
	}
	publish("delay_ms=60000")
	s.wantJSON(204, "POST", "/q/messages/id:a/postpone", `{"delay_ms":120000}`)
	s.wantJSON(204, "POST", "/q/messages/id:a/postpone", `{"at":"2100-01-02T03:04:05Z"}`)
	state("delay")
	s.want(204, "POST", "/q/messages/id:a/promote", "")
	s.until("it waits", func() bool { return s.count("q", shunt.StatePrepare) == 1 })
	if r := s.json("POST", "/q/messages/id:a/postpone", `{"delay_ms":120000}`); !r.is("waiting") {
		t.Errorf("%d %s", r.status, r.body)
	}
	receipt := s.pull(1, "queues=q")[0]["receipt"]
	for _, path := range []string{"postpone", "promote", "retry"} {
		if r := s.json("POST", "/q/messages/id:a/"+path,
			map[string]string{"postpone": `{"delay_ms":1}`}[path]); !r.is("running") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := s.do("DELETE", "/q/messages/id:a", ""); r.status != 409 || !r.is("running") {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.wantJSON(204, "POST", "/fail", fmt.Sprintf(`{"receipt":%q,"reject":true,"reason":"why"}`, receipt))
	state("dead")
	if r := s.want(200, "GET", "/q/messages/id:a/peek", "").json(); r["failure"] != "why" || r["died_at"] == nil {
		t.Errorf("%v", r)
	}
	s.want(204, "POST", "/q/messages/id:a/retry", "")
	state("prepare")
	if r := s.want(200, "POST", "/q/messages/id:a/cancel", "").json(); r["state"] != "prepare" {
		t.Errorf("%v", r)
	}
	for _, path := range []string{"cancel", "promote", "retry"} {
		s.want(404, "POST", "/q/messages/id:a/"+path, "")
	}
	for _, body := range []string{``, `{}`, `{"delay_ms":1,"at":"2100-01-02T03:04:05Z"}`, `{"delay_ms":"1"}`,
		`{"at":5}`,
		`{"delay":1}`, `[]`} {
		s.wantJSON(400, "POST", "/q/messages/id:a/postpone", body)
	}
	for _, body := range []string{``, `{"states":[]}`, `{"states":["doing"]}`, `{"states":["leased"]}`,
		`{"states":[1]}`} {
		s.wantJSON(400, "POST", "/q/purge", body)
	}
}

// A wait has the outcome when the message is over, with its result.
func TestWait(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.want(201, "POST", "/q/messages?id=a", "x")
	if r := s.want(202, "GET", "/q/messages/id:a/outcome", ""); r.json()["over"] != false {
		t.Errorf("%s", r.body)
	}
	s.want(202, "GET", "/q/messages/id:a/outcome?wait_ms=20", "")
	got := make(chan reply, 1)
	go func() { got <- s.do("GET", "/q/messages/id:a/outcome?wait_ms=20000", "") }()
	s.until("it waits", func() bool { return s.api.Budget.Waiting() == 1 })
	receipt := s.pull(1, "queues=q")[0]["receipt"]
	s.wantJSON(204, "POST", "/ack", fmt.Sprintf(`{"receipt":%q,"result":"r"}`, receipt))
	if r := <-got; r.status != 200 || r.json()["outcome"].(map[string]any)["result"] != "r" {
		t.Errorf("%d %s", r.status, r.body)
	}
	serial := s.want(201, "POST", "/q/messages", "x").json()["serial"].(string)
	if r := s.do("GET", "/q/messages/serial:"+serial+"/outcome?wait_ms=5", ""); r.status != 409 || !r.is("no-id") {
		t.Errorf("%d %s", r.status, r.body)
	}
	// one whose id is kept taken, and nothing else
	s.want(201, "POST", "/q2/messages?id=u&unique_ms=60000", "x")
	s.wantJSON(204, "POST", "/ack", fmt.Sprintf(`{"receipt":%q}`, s.pull(1, "queues=q2")[0]["receipt"]))
	if r := s.do("GET", "/q2/messages/id:u/outcome?wait_ms=5", ""); r.status != 410 || !r.is("outcome-not-kept") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A list comes in pages, of each state.
func TestList(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	for i := range 25 {
		s.want(201, "POST", fmt.Sprintf("/q/messages?id=m%d", i), "x")
	}
	seen, offset := make(map[string]bool), 0
	for pages := 0; ; pages++ {
		r := s.want(200, "GET", fmt.Sprintf("/q/messages?limit=10&offset=%d", offset), "").json()
		for _, m := range r["messages"].([]any) {
			seen[m.(map[string]any)["id"].(string)] = true
		}
		next, more := r["next_offset"].(float64)
		if !more {
			break
		}
		if offset = int(next); pages > 5 {
			t.Fatal("it does not end")
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d seen", len(seen))
	}
	s.pull(5, "queues=q&max=5&lease_ms=60000")
	r := s.want(200, "GET", "/q/messages?state=leased&limit=2&offset=1", "").json()
	if ms := r["messages"].([]any); len(ms) != 2 || r["next_offset"] != 3.0 ||
		ms[0].(map[string]any)["lease_ends_at"] == nil {
		t.Errorf("%v", r)
	}
	for _, state := range shunt.States {
		s.want(200, "GET", "/q/messages?state="+string(state), "")
		s.want(200, "GET", "/none/messages?offset=1000000000&state="+string(state), "")
	}
	for _, query := range []string{"state=x", "state=", "offset=-1", "offset=1000000001", "limit=0", "limit=101",
		"limit=x",
		"x=1"} {
		s.want(400, "GET", "/q/messages?"+query, "")
	}
	// large ones make a page short, and no answer huge
	big := strings.Repeat("x", 1<<20)
	for range 15 {
		s.want(201, "POST", "/big/messages", big)
	}
	if r := s.do("GET", "/big/messages?limit=100", ""); len(r.body) > 12<<20 || r.json()["next_offset"] == nil {
		t.Errorf("%d bytes", len(r.body))
	}
	s.pull(4, "queues=big&max=4&lease_ms=600000")
	size, next := 0, "0"
	for pages := 1; ; pages++ {
		r := s.want(200, "GET", "/big/messages?state=leased&limit=100&offset="+next, "").json()
		ms := r["messages"].([]any)
		if size += len(ms); len(ms) > 1 {
			t.Errorf("a page of %d, which are 1 MiB each", len(ms))
		}
		at, more := r["next_offset"].(float64)
		if next = fmt.Sprint(at); !more || pages > 10 {
			break
		}
	}
	if size != 4 {
		t.Errorf("%d of 4 are leased", size)
	}
}

func TestStatsAndQueues(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.want(201, "POST", "/b/messages?delay_ms=60000", "x")
	s.want(201, "POST", "/a/messages", "x")
	st := s.want(200, "GET", "/b/stats", "").json()["states"].(map[string]any)
	if d := st["delay"].(map[string]any); d["count"] != 1.0 || d["next_due_in_ms"].(float64) < 50000 || len(st) != 7 {
		t.Errorf("%v", st)
	}
	s.until("both are listed", func() bool { return strings.Contains(s.do("GET", "/queues", "").body, `["a","b"]`) })
	if r := s.want(200, "GET", "/queues?limit=1", "").json(); fmt.Sprint(r["queues"]) != "[a]" ||
		r["next_after"] != "a" {
		t.Errorf("%v", r)
	}
	if r := s.want(200, "GET", "/queues?limit=1&after=a", "").json(); fmt.Sprint(r["queues"]) != "[b]" ||
		r["next_after"] != nil {
		t.Errorf("%v", r)
	}
	s.want(404, "GET", "/../namespaces", "")
	if r := s.send(s.server, "GET", "/v1/namespaces", ""); !r.is("no-route") {
		t.Errorf("for operators alone: %d %s", r.status, r.body)
	}
	r := s.send(s.operators, "GET", "/v1/namespaces?limit=1000", "", "Authorization", "Basic YW5uOng=")
	if r.status != 200 || !strings.Contains(r.body, s.ns) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// Recurring messages are added, run, changed and removed, by whichever process.
func TestRecurring(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	ctx, stop := context.WithCancel(context.Background())
	s.api.Recurring = &Recurring{Pools: map[string]*shunt.Queue{DefaultPool: s.queue},
		Redis: map[string]*redis.Pool{DefaultPool: s.redis}}
	ended := make(chan error, 1)
	go func() { ended <- s.api.Recurring.Run(ctx) }()
	defer func() { stop(); <-ended }()
	s.wantJSON(204, "PUT", "/q/recurring/a%20b",
		`{"every_ms":100,"payload":"tick","headers":{"k":"v"},"missed":"skip"}`)
	if m := s.pull(1, "queues=q&wait_ms=10000")[0]; m["payload"] != "tick" ||
		m["headers"].(map[string]any)["k"] != "v" {
		t.Errorf("%v", m)
	}
	s.want(204, "POST", "/q/recurring/a%20b/pause", "")
	e := s.want(200, "GET", "/q/recurring", "").json()["recurring"].([]any)[0].(map[string]any)
	if e["name"] != "a b" || e["paused"] != true || e["spec"] != "@every 100ms" || e["missed"] != "skip" ||
		e["next_at"] != nil {
		t.Errorf("%v", e)
	}
	s.want(204, "POST", "/q/recurring/a%20b/enqueue", "")
	s.want(204, "POST", "/q/recurring/a%20b/resume", "")
	s.wantJSON(204, "PUT", "/q/recurring/a%20b",
		`{"cron":"30 2 * * *","zone":"Europe/Berlin","missed":5,"id":"x","retain_ms":5,"payload_base64":"AP8="}`)
	e = s.want(200, "GET", "/q/recurring", "").json()["recurring"].([]any)[0].(map[string]any)
	if e["spec"] != "30 2 * * * Europe/Berlin" || e["payload_base64"] != "AP8=" || e["next_at"] == nil {
		t.Errorf("%v", e)
	}
	s.want(204, "POST", "/q/recurring/a%20b/enqueue", "")
	if r := s.do("POST", "/q/recurring/a%20b/enqueue", ""); !r.is("duplicate") {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.want(204, "DELETE", "/q/recurring/a%20b", "")
	for _, what := range []string{"/pause", "/resume", "/enqueue"} {
		if r := s.do("POST", "/q/recurring/a%20b"+what, ""); !r.is("no-recurring-message") {
			t.Errorf("%s: %d %s", what, r.status, r.body)
		}
	}
	s.want(404, "DELETE", "/q/recurring/a%20b", "")
	for _, body := range []string{``, `{}`, `{"cron":"x"}`, `{"cron":"* * * * *","every_ms":100}`, `{"every_ms":99}`,
		`{"every_ms":100,"zone":"UTC"}`, `{"cron":"* * * * *","zone":"Nowhere/Else"}`, `{"every_ms":100,"missed":0}`,
		`{"every_ms":100,"missed":1001}`, `{"every_ms":100,"missed":"all"}`, `{"every_ms":100,"delay_ms":5}`,
		`{"every_ms":100,"at":"2100-01-02T03:04:05Z"}`, `{"every_ms":100,"deadline":"2100-01-02T03:04:05Z"}`} {
		s.wantJSON(400, "PUT", "/q/recurring/x", body)
	}
	s.wantJSON(400, "PUT", "/q/recurring/%07", `{"every_ms":100}`)
	s.wantJSON(400, "PUT", "/q/recurring/"+strings.Repeat("x", 201), `{"every_ms":100}`)
}

// Channels that Redis refuses keep no other one from being run.
func TestRecurringBesideForeignKeys(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	s := siteOn(t, b.URL())
	r := &Recurring{Pools: map[string]*shunt.Queue{DefaultPool: s.queue},
		Redis: map[string]*redis.Pool{DefaultPool: s.redis}}
	s.api.Recurring = r // it does not run
	const good = 20
	for i := range good {
		s.wantJSON(204, "PUT", fmt.Sprintf("/bad%d/recurring/a", i), `{"every_ms":100}`)
		s.wantJSON(204, "PUT", fmt.Sprintf("/good%d/recurring/a", i), `{"every_ms":100}`)
		b.Do("SET", store.KeysOf(fmt.Sprint(s.ns, "/bad", i)).Recur, "x")
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for i := range good {
		s.pull(1, fmt.Sprintf("queues=good%d&wait_ms=10000", i))
	}
	stop()
	<-ended
}

// A process that was not asked runs what another one has added.
func TestRecurringElsewhere(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := siteOn(t, redistest.Start(t).URL()) // others run all that they find on the one that tests share
	r := &Recurring{Pools: map[string]*shunt.Queue{DefaultPool: s.queue},
		Redis: map[string]*redis.Pool{DefaultPool: s.redis}}
	s.api.Recurring = r // it does not run
	s.wantJSON(204, "PUT", "/q/recurring/a", `{"every_ms":100}`)
	s.pull(0, "queues=q&wait_ms=300")
	other := &Recurring{Pools: r.Pools, Redis: r.Redis}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- other.Run(ctx) }()
	s.pull(1, fmt.Sprintf("queues=q&wait_ms=%d", (10*time.Second).Milliseconds()))
	s.want(204, "DELETE", "/q/recurring/a", "")
	stop()
	<-ended
}
