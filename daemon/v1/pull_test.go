package v1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Queues are asked in order; a message has what was published with it.
func TestPull(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.pull(0, "queues=a,b")
	s.want(201, "POST", "/b/messages?id=x&header.K=v&type=T", "low")
	s.want(201, "POST", "/a/messages", "\xff\x00")
	s.want(201, "POST", "/a/messages", "a<b>")
	ms := s.pull(3, "queues=a,b&max=10&lease_ms=60000")
	if ms[0]["payload_base64"] != "/wA=" || ms[0]["queue"] != "a" || ms[1]["payload"] != "a<b>" ||
		ms[2]["payload"] != "low" || ms[2]["id"] != "x" || ms[2]["type"] != "T" || ms[2]["attempt"] != 1.0 ||
		fmt.Sprint(ms[2]["headers"]) != "map[K:v]" || ms[2]["lease_ends_at"] == "" || ms[0]["payload"] != nil {
		t.Errorf("%v", ms)
	}
	r := s.wantJSON(200, "POST", "/pull", `{"queues":["b"],"max":5,"wait_ms":1}`)
	if r.body != "{\"messages\":[]}\n" {
		t.Errorf("%q", r.body)
	}
}

// One message is the body, as it is, where Accept asks for no JSON.
func TestPullRaw(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	if r := s.do("GET", "/pull?queues=q", "", "Accept", "*/*;q=0.1, application/octet-stream"); r.status != 200 {
		t.Errorf("JSON is welcome, too: %d %s", r.status, r.body)
	}
	if r := s.do("GET", "/pull?queues=q", "", "Accept", "image/*"); r.status != 204 || r.body != "" {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.want(201, "POST", "/q/messages?id=a%20%C3%BC&header.Trace=50%25&header.o%20dd=x", "\x00\xff", "Content-Type",
		"image/png")
	r := s.do("GET", "/pull?queues=q", "", "Accept", "image/*")
	for name, want := range map[string]string{"Content-Type": "image/png", "Shunt-Id": "a%20%C3%BC", "Shunt-Queue": "q",
		"Shunt-Attempt": "1", "Shunt-Header-Trace": "50%25", "Content-Length": "2", "Cache-Control": "no-store"} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if r.body != "\x00\xff" || r.status != 200 {
		t.Errorf("%d %q", r.status, r.body)
	}
	if r := s.do("POST", "/ack", "", "Shunt-Receipt", r.header.Get("Shunt-Receipt")); r.status != 204 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/pull?queues=q&max=2", "", "Accept", "image/*"); !r.is("not-acceptable") {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.want(201, "POST", "/q/messages", "x")
	if r := s.do("GET", "/pull?queues=q", "", "Accept", "text/plain"); r.header.Get("Content-Type") != octets {
		t.Errorf("%v", r.header)
	}
}

func TestPullFaults(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	for query, fault := range map[string]string{"": "queues", "queues=": "queues", "queues=a,": "item 1",
		"queues=_a": "not _ first", "queues=a,b,a": "twice", "queues=a/b": "letters", "queues=a&max=0": "max",
		"queues=a&max=1001": "max", "queues=a&max=x": "max", "queues=a&lease_ms=9": "lease_ms",
		"queues=a&x=1":                "no such",
		"queues=a&lease_ms=604800001": "lease_ms", "queues=a&wait_ms=-1": "wait_ms",
		"queues=a&wait_ms=86400001":    "wait_ms",
		"queues=a&wait_ms=1&wait_ms=2": "more than once", "queues=%ff": "UTF-8", "queues=a;b": "no query",
		"queues=" + strings.Repeat("a", 200): "199 characters", "queues=" + strings.Repeat("a,", 64) + "b": "65"} {
		if r := s.do("GET", "/pull?"+query, ""); !r.is("invalid-request") || !strings.Contains(r.body, fault) {
			t.Errorf("%.50s: %d %s", query, r.status, r.body)
		}
	}
	for body, fault := range map[string]string{`{}`: "missing", `{"queues":[]}`: "0 items", `{"queues":"a"}`: "array",
		`{"queues":[1]}`: "want text", `{"queues":["a"],"max":"1"}`: "/max", `{"queues":["a"],"Max":1}`: "/Max",
		`{"queues":["a"],"queues":["b"]}`: "twice", `[]`: "object", `7`: "object", `{"queues":["a"]`: "not JSON"} {
		if r := s.json("POST", "/pull", body); !r.is("invalid-request") || !strings.Contains(r.body, fault) {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	if r := s.json("GET", "/pull?queues=a", `{"queues":["a"]}`); r.status != 400 {
		t.Errorf("a GET with a body: %d %s", r.status, r.body)
	}
}

// A pull waits for a first message; a stop answers it, and further ones are refused.
func TestPullWaits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	got := make(chan reply, 1)
	go func() { got <- s.do("GET", "/pull?queues=q&wait_ms=20000", "") }()
	s.until("it waits", func() bool { return s.api.Budget.Waiting() == 1 })
	s.want(201, "POST", "/q/messages", "x")
	if r := <-got; !strings.Contains(r.body, `"payload":"x"`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	go func() { got <- s.do("GET", "/pull?queues=q&wait_ms=20000", "") }()
	s.until("it waits", func() bool { return s.api.Budget.Waiting() == 1 })
	s.api.Stop()
	if r := <-got; r.status != 200 || r.body != "{\"messages\":[]}\n" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/pull?queues=q", ""); !r.is("stopping") || r.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.want(201, "POST", "/q/messages", "x") // all other routes go on
}

// Requests that wait are bounded, of all kinds together.
func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	l := s.api.Budget.Limits()
	l.MaxWaiting = 1
	if err := s.api.Budget.SetLimits(l); err != nil {
		t.Fatal(err)
	}
	s.want(201, "POST", "/q/messages?id=a&delay_ms=60000", "")
	got := make(chan reply, 1)
	go func() { got <- s.do("GET", "/pull?queues=q&wait_ms=20000", "") }()
	s.until("it waits", func() bool { return s.api.Budget.Waiting() == 1 })
	for _, path := range []string{"/pull?queues=q&wait_ms=20000", "/q/messages/id:a/outcome?wait_ms=20000",
		"/q/events"} {
		if r := s.do("GET", path, ""); !r.is("busy") || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	s.api.Stop()
	<-got
}

// What a client that has left cannot get is released, and costs no attempt.
func TestPullAbandoned(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	ctx, leave := context.WithCancel(context.Background())
	pulled := s.api.pull
	s.api.pull = func(ctx context.Context, q *shunt.Queue, o shunt.PullOptions) ([]*shunt.Leased, error) {
		ms, err := pulled(ctx, q, o)
		if len(ms) > 0 {
			leave()
			<-ctx.Done() // the server has seen it
		}
		return ms, err
	}
	s.want(201, "POST", "/q/messages", "x")
	req, _ := http.NewRequestWithContext(ctx, "GET", s.server.URL+"/v1/"+s.ns+"/pull?queues=q&lease_ms=60000", nil)
	req.Header.Set("X-Token", s.token)
	if res, err := s.client.Do(req); err == nil {
		res.Body.Close()
		t.Error("it was answered")
	}
	s.until("it is back", func() bool { return s.count("q", shunt.StatePrepare) == 1 })
	s.api.pull = pulled
	if m := s.pull(1, "queues=q")[0]; m["attempt"] != 1.0 {
		t.Errorf("%v", m)
	}
}

// broken is a connection that takes no answer.
type broken struct{ *httptest.ResponseRecorder }

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

// What cannot be written is released.
func TestPullNotWritten(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	for _, accept := range []string{asJSON, "text/plain"} {
		s.want(201, "POST", "/q/messages", "x")
		req := httptest.NewRequest("GET", "/v1/"+s.ns+"/pull?queues=q&lease_ms=60000", nil)
		req.Header.Set("X-Token", s.token)
		req.Header.Set("Accept", accept)
		s.api.Handler().ServeHTTP(broken{httptest.NewRecorder()}, req)
		if m := s.pull(1, "queues=q")[0]; m["attempt"] != 1.0 {
			t.Errorf("%v", m)
		} else {
			s.wantJSON(204, "POST", "/ack", fmt.Sprintf(`{"receipt":%q}`, m["receipt"]))
		}
	}
}

// A token that is deleted while its request waits gets nothing, and its message is released.
func TestTokenDeletedWhileWaiting(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	token := s.mint("consume")
	got := make(chan reply, 1)
	go func() { got <- s.do("GET", "/pull?queues=q&wait_ms=20000&lease_ms=60000", "", "X-Token", token) }()
	s.until("it waits", func() bool { return s.api.Budget.Waiting() == 1 })
	if err := s.access.Delete(context.Background(), DefaultPool, s.ns, token); err != nil {
		t.Fatal(err)
	}
	s.want(201, "POST", "/q/messages", "x")
	if r := <-got; r.status != 401 {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.pull(1, "queues=q")
}

// events reads some server-sent events.
func (s *site) events(queue string) (next func() (name, data string), leave func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", s.server.URL+"/v1/"+s.ns+"/"+queue+"/events", nil)
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != eventStream {
		s.t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	lines := bufio.NewScanner(res.Body)
	return func() (name, data string) {
			for lines.Scan() {
				if text, is := strings.CutPrefix(lines.Text(), "event: "); is {
					name = text
				} else if text, is := strings.CutPrefix(lines.Text(), "data: "); is {
					return name, text
				}
			}
			return "", ""
		}, func() {
			cancel()
			res.Body.Close()
		}
}

// The life of a channel is told as it happens.
func TestEvents(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	next, leave := s.events("q")
	defer leave()
	s.want(201, "POST", "/other/messages?id=b", "x")
	s.want(201, "POST", "/q/messages?id=a", "x")
	if name, data := next(); name != "enqueued" || !strings.Contains(data, `"id":"a"`) ||
		!strings.Contains(data, `"queue":"q"`) {
		t.Errorf("%s %s", name, data)
	}
	m := s.pull(1, "queues=q")[0]
	s.wantJSON(204, "POST", "/fail", fmt.Sprintf(`{"receipt":%q,"reason":"why","after_ms":60000}`, m["receipt"]))
	if name, data := next(); name != "retried" || !strings.Contains(data, "why") {
		t.Errorf("%s %s", name, data)
	}
	s.api.Stop()
	if name, data := next(); name != "end" || !strings.Contains(data, "stops") {
		t.Errorf("%s %s", name, data)
	}
}

// A reader that is too slow is cut off and told, and leaves nothing behind.
func TestSlowReaderIsCutOff(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	hub := s.api.Events[DefaultPool]
	next, leave := s.events("q")
	defer leave()
	for range 100 * hubBuffer { // more than what buffers on the way take while nobody reads
		hub.Take(shunt.Event{Kind: shunt.EventAcked, Channel: s.ns + "/q", Time: time.Now(), ID: strings.Repeat("x",
			200)})
	}
	n := 0
	for name, _ := next(); name != "cut-off"; name, _ = next() {
		if n++; name == "" {
			t.Fatalf("it ended after %d without a word", n)
		}
	}
	s.until("nobody reads", func() bool {
		hub.mu.RLock()
		defer hub.mu.RUnlock()
		return len(hub.readers) == 0 && s.api.Budget.Waiting() == 0
	})
}

// A panic is a 500 that says nothing of it, and a line in the log.
func TestPanic(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.api.pull = func(context.Context, *shunt.Queue, shunt.PullOptions) ([]*shunt.Leased, error) { panic("a secret") }
	if r := s.do("GET", "/pull?queues=q", ""); !r.is("internal") || r.status != 500 || strings.Contains(r.body,
		"secret") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if log := s.log.String(); !strings.Contains(log, "a secret") || !strings.Contains(log, "pull_test.go") {
		t.Error(log)
	}
}

// A message that is there waits for no further ones while Redis is away: its lease runs.
func TestPullOfSomeWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	pool, err := shunt.NewPool(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool, Quiet: true}
	s := siteOn(t, redistest.Shared(t).URL(), func(a *API) {
		a.Pools[DefaultPool] = q
		a.pull = func(ctx context.Context, q *shunt.Queue, o shunt.PullOptions) ([]*shunt.Leased, error) {
			ms, err := q.Pull(ctx, o)
			if len(ms) > 0 {
				p.Refuse(true)
				p.CutAll()
				time.AfterFunc(4*time.Second, func() { p.Refuse(false) })
			}
			return ms, err
		}
	})
	t.Cleanup(func() {
		_ = q.Close()
		_ = pool.Close()
	})
	s.want(201, "POST", "/q/messages", "x")
	m := s.pull(1, "queues=q&max=2&lease_ms=2000")[0]
	text, _ := m["lease_ends_at"].(string)
	if ends, err := time.Parse(time.RFC3339Nano, text); err != nil || time.Now().After(ends) {
		t.Errorf("its lease has ended %v ago: %v", time.Since(ends), err)
	}
}
