package daemon

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

const userToken = "0123456789-0123456789"

// Both listeners serve; what an operator asks is answered; the end is clean.
func TestServe(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	pid := filepath.Join(t.TempDir(), "pid")
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) { c.PIDFile = pid })
	if text, err := os.ReadFile(pid); err != nil || string(text) != fmt.Sprintln(os.Getpid()) {
		t.Errorf("%s %v", text, err)
	}
	until(t, "the hints of others are heard", r.Daemon.access.Hears)
	r.want(201, userToken, "POST", r.admin+"/token/ns?description=d&token="+userToken, "")
	id := r.want(201, "published", "PUT", r.api+"/api/ns/q", "hello", "X-Token", userToken)
	r.want(200, "aGVsbG8=", "GET", r.api+"/api/ns/q?timeout=5&token="+userToken, "")
	r.want(200, `"size":0`, "GET", r.api+"/api/ns/q/size", "")
	r.want(401, "invalid token", "GET", r.api+"/api/ns2/q", "", "X-Token", userToken)
	for _, at := range []string{r.api, r.admin} {
		r.want(200, "ok", "GET", at+"/livez", "")
		r.want(200, "ok", "GET", at+"/readyz", "")
		r.want(404, "not found", "GET", at+"/nothing", "")
	}
	r.want(200, `"version": "test"`, "GET", r.admin+"/version", "")
	metrics := r.want(200, "shuntd_waiting_requests 0", "GET", r.admin+"/metrics", "")
	for _, want := range []string{
		`infra_lmstfy_redis_publish_queue_jobs{namespace="ns",pool="default",queue="q"} 1`,
		`infra_lmstfy_redis_consume_jobs{pool="default"} 1`,
		`infra_lmstfy_redis_queue_sizes{namespace="ns",pool="default",queue="q"} 0`,
		`infra_lmstfy_http_http_codes{api="publish",code="201",namespace="ns",pool="default"} 1`,
		`infra_lmstfy_http_http_codes{api="consume",code="401",namespace="",pool="default"} 1`,
		`shuntd_redis_up{pool="default"} 1`, "infra_lmstfy_redis_used_mem_bytes", "go_goroutines",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}
	r.stop()
	if _, err := os.Stat(pid); err == nil {
		t.Error("the pid file is still there")
	}
	log := r.log.String()
	if !strings.Contains(log, "path=/api/ns/q") || strings.Contains(log, userToken) ||
		strings.Contains(log, "level=ERROR") {
		t.Error(log)
	}
	_ = id
}

// At the end waiting requests are answered, however short the grace.
func TestStop(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	pid := filepath.Join(t.TempDir(), "pid")
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) {
		c.Admin.Open, c.Grace, c.PIDFile = true, 0, pid
	})
	if err := os.WriteFile(pid, []byte("1\n"), 0o600); err != nil { // of a newer process
		t.Fatal(err)
	}
	type answer struct {
		status int
		text   string
	}
	const n = 60
	answers := make(chan answer, n)
	for range n {
		go func() {
			status, text := r.do("GET", r.api+"/api/ns/q?timeout=100", "")
			answers <- answer{status, text}
		}()
	}
	until(t, "all wait", func() bool { return r.Daemon.api.Waiting() == n })
	begun := time.Now()
	stopped := make(chan struct{})
	go func() { defer close(stopped); r.stop() }()
	for range n {
		if a := <-answers; a.status != 404 || !strings.Contains(a.text, "no job available") {
			t.Errorf("%+v", a)
		}
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("they were answered after %v", took)
	}
	<-stopped
	if _, err := os.Stat(pid); err != nil {
		t.Error(err)
	}
}

// A job that comes while the server stops is delivered, or waits as if nobody had taken it.
func TestStopLosesNothing(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	r := serving(t, b.URL(), func(c *config.Config) { c.Admin.Open = true })
	const n = 30
	answers := make(chan string, n)
	for range n {
		go func() {
			_, text := r.do("GET", r.api+"/api/ns/q?timeout=100&ttr=1000", "")
			answers <- text
		}()
	}
	until(t, "all wait", func() bool { return r.Daemon.api.Waiting() == n })
	pool := b.Pool(t)
	q := &shunt.Queue{Pool: pool, Quiet: true}
	t.Cleanup(func() { _ = q.Close() })
	stopped := make(chan struct{})
	for i := range n {
		if i == n/2 {
			go func() { defer close(stopped); r.stop() }()
		}
		if err := q.Enqueue(context.Background(), shunt.Raw("ns/q", []byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	<-stopped
	delivered := 0
	for range n {
		if strings.Contains(<-answers, "new job") {
			delivered++
		}
	}
	left, err := q.List(context.Background(), "ns/q", shunt.StatePrepare, 0, 0)
	if err != nil || delivered+len(left) != n {
		t.Errorf("%d delivered and %d left of %d, %v", delivered, len(left), n, err)
	}
	for _, e := range left {
		if e.Attempts != 0 {
			t.Errorf("an attempt was counted: %+v", e)
		}
	}
}

// What a slow reader has not got when the grace is over is put back.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	r := serving(t, b.URL(), func(c *config.Config) { c.Admin.Open, c.Grace = true, 300*time.Millisecond })
	pool := b.Pool(t)
	q := &shunt.Queue{Pool: pool, Quiet: true}
	t.Cleanup(func() { _ = q.Close() })
	const n = 2
	payload := bytes.Repeat([]byte("x"), 6<<20) // more than two sockets keep, of which one is small
	for range n {
		err := q.Enqueue(context.Background(), shunt.Raw("ns/q", payload))
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.api, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		path := [...]string{"/api/ns/q?ttr=600", "/v1/ns/pull?queues=q&lease_ms=600000"}[i]
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all are taken", func() bool {
		stats, err := q.Stats(context.Background(), "ns/q")
		return err == nil && stats[shunt.StateLeased].Count == n
	})
	r.stop()
	stats, err := q.Stats(context.Background(), "ns/q")
	if err != nil || stats[shunt.StatePrepare].Count != n {
		t.Errorf("%+v, %v: want all %d back", stats, err, n)
	}
}

// A reload takes in what it can, and says what it cannot.
func TestReload(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) { c.Admin.Open = true })
	if err := new(Daemon).Reload(r.Config); err == nil {
		t.Error("reloaded before it runs")
	}
	r.want(201, "", "PUT", r.api+"/api/ns/q", "four")
	r.want(200, "", "GET", r.admin+"/limits", "")
	c := r.Config
	c.Limits.MaxBody, c.Log.Access, c.Grace = 3, false, time.Second
	c.Admin.Accounts = map[string]string{"ann": "secret"}
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	r.want(413, "body too large", "PUT", r.api+"/api/ns/q", "four")
	r.want(401, "", "GET", r.admin+"/limits", "")
	if log := r.log.String(); !strings.Contains(log, "keys=grace") || strings.Contains(log, "secret") {
		t.Error(log)
	}
	c.Limits.MaxBody = 0
	if err := r.Reload(c); err == nil {
		t.Error("a wrong configuration was taken in")
	}
	c.Limits.MaxBody, c.API.Allow = 4, []string{"192.0.2.0/24"}
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	r.want(403, "not allowed", "PUT", r.api+"/api/ns/q", "four")
}

// While Redis is away requests fail in time, and it serves again when Redis is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "appendonly yes", "appendfsync always")
	r := serving(t, b.URL())
	r.want(201, userToken, "POST", r.admin+"/token/ns?description=d&token="+userToken, "")
	r.want(201, "published", "PUT", r.api+"/api/ns/q", "hello", "X-Token", userToken)
	b.Kill()
	until(t, "it is not ready", func() bool { status, _ := r.do("GET", r.api+"/readyz", ""); return status == 503 })
	r.want(200, "ok", "GET", r.api+"/livez", "")
	until(t, "tokens cannot be checked", func() bool {
		status, _ := r.do("GET", r.api+"/api/ns/q/peek", "", "X-Token", userToken)
		return status == 500
	})
	b.Restart()
	until(t, "it is ready", func() bool { status, _ := r.do("GET", r.api+"/readyz", ""); return status == 200 })
	until(t, "it serves", func() bool {
		status, _ := r.do("GET", r.api+"/api/ns/q/size", "", "X-Token", userToken)
		return status == 200
	})
	r.want(200, "aGVsbG8=", "GET", r.api+"/api/ns/q?timeout=5", "", "X-Token", userToken)
}

// A webhook from the admin listener to the endpoint: made by an operator, published to through the API, and gone with
// its password from neither answer nor log.
func TestPush(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	got := make(chan string, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Shunt-Channel") + " " + string(body)
	}))
	t.Cleanup(endpoint.Close)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) {
		c.Admin.Open, c.Admin.Accounts = true, map[string]string{"ann": "pass"}
	})
	ann := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:pass"))}
	body := fmt.Sprintf(`{"queues":["q"],"endpoint":"%s","secrets":["%s"]}`, endpoint.URL, secret)
	for _, path := range []string{"/push", "/push/ns/g", "/pushers", "/pusher/ns", "/pusher/ns/g"} {
		r.want(401, "", "GET", r.admin+path, "")
		if status, _ := r.do("GET", r.api+path, ""); status != 404 {
			t.Errorf("%s on the API: %d", path, status)
		}
	}
	r.want(401, "", "POST", r.admin+"/push/ns/g", body)
	r.want(400, "is not public", "POST", r.admin+"/push/ns/g", body, ann...)
	c := r.Config
	c.Push.Allow = []string{"127.0.0.0/8"}
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	r.want(201, `"state":"active"`, "POST", r.admin+"/push/ns/g", body, ann...)
	r.want(201, "published", "PUT", r.api+"/api/ns/q", "hello")
	select {
	case text := <-got:
		if text != "ns/q hello" {
			t.Error(text)
		}
	case <-time.After(10 * time.Second):
		t.Error("the endpoint got nothing in 10 s")
	}
	until(t, "it is counted", func() bool {
		_, text := r.do("GET", r.admin+"/metrics", "")
		return strings.Contains(text,
			`shuntd_push_requests_total{code="200",group="g",namespace="ns",pool="default"} 1`)
	})
	r.stop()
	if log := r.log.String(); strings.Contains(log, secret[6:]) || strings.Contains(log, "need a restart") {
		t.Error(log)
	}
}
