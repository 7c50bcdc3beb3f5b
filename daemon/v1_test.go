package daemon

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Both interfaces see the same messages, tokens and bounds; operators need no token on their listener.
func TestOwnInterface(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(),
		func(c *config.Config) { c.Admin.Accounts = map[string]string{"ann": "pw"} })
	ann := []string{"Authorization", "Basic YW5uOnB3"}
	until(t, "the hints of others are heard", r.Daemon.access.Hears)
	r.want(201, userToken, "POST", r.admin+"/token/ns?description=d&token="+userToken, "", ann...)
	bearer := []string{"Authorization", "Bearer " + userToken}
	r.want(200, `"openapi": "3.1.0"`, "GET", r.api+"/v1/openapi.json", "")
	r.want(201, `"id":"a"`, "POST", r.api+"/v1/ns/q/messages?id=a&retain_ms=60000", "hello", bearer...)
	r.want(401, "urn:shunt:problem:no-token", "GET", r.api+"/v1/ns/pull?queues=q", "")
	r.want(200, "aGVsbG8=", "GET", r.api+"/api/ns/q?timeout=5&token="+userToken, "")
	r.want(204, "", "DELETE", r.api+"/api/ns/q/job/a", "", "X-Token", userToken)
	r.want(200, `"kind":"acked"`, "GET", r.api+"/v1/ns/q/messages/id:a/outcome?wait_ms=5000", "", bearer...)
	r.want(201, "published", "PUT", r.api+"/api/ns/q?tries=3", "there", "X-Token", userToken)
	got := r.want(200, `"payload":"there"`, "GET", r.api+"/v1/ns/pull?queues=q", "", bearer...)
	var out struct{ Messages []struct{ Receipt string } }
	if err := json.Unmarshal([]byte(got), &out); err != nil || len(out.Messages) != 1 {
		t.Fatalf("%s %v", got, err)
	}
	r.want(204, "", "POST", r.api+"/v1/ns/ack", fmt.Sprintf(`{"receipt":%q}`, out.Messages[0].Receipt),
		append(bearer, "Content-Type", "application/json")...)
	r.want(200, `{"namespaces":["ns"]}`, "GET", r.admin+"/v1/namespaces", "", ann...)
	r.want(401, "", "GET", r.admin+"/v1/namespaces", "")
	r.want(401, "", "GET", r.admin+"/v1/ns/q/stats", "", bearer...)
	r.want(200, `"prepare":{"count":0}`, "GET", r.admin+"/v1/ns/q/stats", "", ann...)
	metrics := r.want(200, `shuntd_v1_requests_total{operation="publish",status="201"} 1`, "GET", r.admin+"/metrics",
		"")
	if !strings.Contains(metrics, `shuntd_v1_messages_total{what="settled"} 1`) {
		t.Error("no settled messages are counted")
	}
	r.stop()
	if log := r.log.String(); strings.Contains(log, userToken) || strings.Contains(log, "level=ERROR") ||
		strings.Contains(log, out.Messages[0].Receipt) || !strings.Contains(log, "queues=q") {
		t.Error(log)
	}
}

// At the end pulls are answered and streams end; recurring messages run until then.
func TestStopOwnInterface(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) { c.Admin.Open = true })
	r.want(204, "", "PUT", r.api+"/v1/ns/tick/recurring/a", `{"every_ms":100}`, "Content-Type", "application/json")
	r.want(200, `"receipt"`, "GET", r.api+"/v1/ns/pull?queues=tick&wait_ms=10000", "")
	res, err := r.client.Get(r.api + "/v1/ns/tick/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && lines.Text() != "event: enqueued" {
	}
	answers := make(chan string, 1)
	go func() {
		_, text := r.do("GET", r.api+"/v1/ns/pull?queues=none&wait_ms=100000", "")
		answers <- text
	}()
	until(t, "both wait", func() bool { return r.Daemon.api.Waiting() == 2 })
	begun := time.Now()
	r.stop()
	rest, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(rest), "event: end") && lines.Text() != "event: end" {
		t.Errorf("%s %v", rest, err)
	}
	if text := <-answers; text != "{\"messages\":[]}\n" || time.Since(begun) > 5*time.Second {
		t.Errorf("%s after %v", text, time.Since(begun))
	}
}

// The queue's troubles are in the log, in bounded numbers, and what happens to every message is not.
func TestEventLog(t *testing.T) {
	b := new(testkit.Log)
	l := newEventLog("p", slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	now := time.Now()
	for i := range 50 {
		l.take(shunt.Event{Kind: shunt.EventAcked, Channel: "c", Time: now})
		l.take(shunt.Event{Kind: shunt.EventRejected, Channel: "c", Time: now, Serial: fmt.Sprint(i),
			Err: http.ErrBodyNotAllowed})
	}
	l.take(shunt.Event{Kind: shunt.EventRejected, Channel: "c", Time: now.Add(eventWindow),
		Err: http.ErrBodyNotAllowed})
	text := b.String()
	if n := strings.Count(text, "shunt: rejected"); n != eventLines+1 || strings.Contains(text, "acked") ||
		!strings.Contains(text, "lines=40") || !strings.Contains(text, "pool=p") {
		t.Errorf("%d lines: %s", n, text)
	}
	for i := range 3 * maxWindows {
		l.take(shunt.Event{Kind: shunt.EventAcked, Channel: fmt.Sprint(i), Time: now})
	}
	if len(l.windows) > maxWindows {
		t.Errorf("%d windows", len(l.windows))
	}
}
