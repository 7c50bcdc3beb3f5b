package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// byPayload answers with the status that the payload names, once; after that 200.
func byPayload(seen func(body string) int) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, body string) {
		if seen(body) > 1 {
			return
		}
		text, retryAfter, _ := strings.Cut(body, " ")
		status, _ := strconv.Atoi(text)
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		if status >= 200 && status != 204 && status != 304 {
			fmt.Fprintf(w, "that is %d", status)
		}
	}
}

// Each status has its verdict: acked at once, retried in time, or dead.
func TestStatuses(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	var e *endpoint
	e = newEndpoint(t, byPayload(func(body string) int { return len(e.of(body)) }))
	s.group("retry", e.URL, nil)
	var e2 *endpoint
	e2 = newEndpoint(t, byPayload(func(body string) int { return len(e2.of(body)) }))
	s.group("reject", e2.URL, map[string]any{"queues": []string{"r"}, "client_errors": "reject", "attempts": 2})
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	cases := []struct {
		queue, payload string
		kind           shunt.EventKind
		least, most    time.Duration // until it is due
	}{
		{"q", "200", shunt.EventAcked, 0, 0}, {"q", "201", shunt.EventAcked, 0, 0},
		{"q", "204", shunt.EventAcked, 0, 0},
		{"q", "299", shunt.EventAcked, 0, 0},
		{"q", "301", shunt.EventRetried, 0, time.Second}, {"q", "302", shunt.EventRetried, 0, time.Second},
		{"q", "304", shunt.EventRetried, 0, time.Second}, {"q", "307", shunt.EventRetried, 0, time.Second},
		{"q", "400", shunt.EventRetried, 0, time.Second}, {"q", "401", shunt.EventRetried, 0, time.Second},
		{"q", "404", shunt.EventRetried, 0, time.Second}, {"q", "408", shunt.EventRetried, 0, time.Second},
		{"q", "422", shunt.EventRetried, 0, time.Second}, {"q", "429", shunt.EventRetried, 0, time.Second},
		{"q", "500", shunt.EventRetried, 0, time.Second}, {"q", "502", shunt.EventRetried, 0, time.Second},
		{"q", "503", shunt.EventRetried, 0, time.Second}, {"q", "999", shunt.EventRetried, 0, time.Second},
		{"q", "500 3600", shunt.EventRetried, 0, time.Second}, // it is for 429 and 503
		{"q", "429 100", shunt.EventRetried, 99 * time.Second, 101 * time.Second},
		{"q", "503 200", shunt.EventRetried, 199 * time.Second, 201 * time.Second},
		{"q", "503 " + in(300*time.Second), shunt.EventRetried, 290 * time.Second, 301 * time.Second},
		{"q", "503 " + in(-time.Hour), shunt.EventRetried, 900 * time.Millisecond, 2 * time.Second},
		{"q", "429 0", shunt.EventRetried, 900 * time.Millisecond, 2 * time.Second},
		{"q", "429 99999999999999999999999", shunt.EventRetried, 3599 * time.Second, 3601 * time.Second},
		{"q", "503 " + in(1000*time.Hour), shunt.EventRetried, 3599 * time.Second, 3601 * time.Second},
		{"q", "429 -5", shunt.EventRetried, 0, time.Second}, {"q", "503 soon", shunt.EventRetried, 0, time.Second},
		{"r", "400", shunt.EventRejected, 0, 0}, {"r", "404", shunt.EventRejected, 0, 0},
		{"r", "408", shunt.EventRetried, 0, time.Second}, {"r", "425", shunt.EventRetried, 0, time.Second},
		{"r", "429", shunt.EventRetried, 0, time.Second}, {"r", "500", shunt.EventRetried, 0, time.Second},
		{"r", "302", shunt.EventRetried, 0, time.Second},
	}
	for _, c := range cases {
		s.publish(c.queue, c.payload, shunt.ID(c.queue+c.payload))
	}
	for _, c := range cases {
		id := c.queue + c.payload
		ev := s.event(c.kind, id)
		wait, most := ev.DueAt.Sub(ev.Time), time.Duration(0)
		if rs := map[string]*endpoint{"q": e, "r": e2}[c.queue].of(c.payload); len(rs) > 0 {
			most = ev.DueAt.Sub(rs[0].at)
		}
		if ev.Attempt != 1 || c.kind == shunt.EventRetried && (most < c.least || wait > c.most+100*time.Millisecond) {
			t.Errorf("%s: attempt %d, due in %v, want %v to %v", id, ev.Attempt, wait, c.least, c.most)
		}
		status, _, _ := strings.Cut(c.payload, " ")
		if c.kind != shunt.EventAcked && !strings.Contains(fmt.Sprint(ev.Err), "answered "+status) {
			t.Errorf("%s: %v", id, ev.Err)
		}
		if c.kind == shunt.EventRetried && c.least == 0 {
			s.event(shunt.EventAcked, id)
		}
	}
	for _, g := range e.all() {
		if g.body == "" {
			t.Error("a redirect was followed")
		}
	}
	if again := e.of("500"); len(again) != 2 || again[0].header.Get("Webhook-Id") != again[1].header.Get("Webhook-Id") {
		t.Errorf("%+v", again)
	}
}

// The last attempt's failure is the message's in dead, with what the endpoint said.
func TestAttemptsAreUsedUp(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		http.Error(w, "no\tdisk", 500)
	})
	s.group("g", e.URL, map[string]any{"attempts": 3, "backoff_ms": 1, "max_backoff_ms": 1})
	s.publish("q", "x", shunt.ID("own"))
	s.publish("q", "y", shunt.ID("once"), shunt.MaxAttempts(1)) // as a job of lmstfy's with one try
	ev := s.event(shunt.EventRejected, "own")
	if ev.Attempt != 3 || !strings.Contains(ev.Err.Error(), `push: the endpoint answered 500: "no\tdisk"`) {
		t.Errorf("%+v", ev)
	}
	if ev := s.event(shunt.EventRejected, "once"); ev.Attempt != 1 {
		t.Errorf("%+v", ev)
	}
	ids := map[string]bool{}
	for i, g := range e.of("x") {
		ids[g.header.Get("Webhook-Id")] = true
		if g.header.Get("Shunt-Attempt") != strconv.Itoa(i+1) || verify(g, secret) != "" {
			t.Errorf("%v", g.header)
		}
	}
	if len(ids) != 1 {
		t.Errorf("webhook-ids: %v", ids)
	}
}

// A URL may have a secret in its path, so no failure has it.
func TestFailuresHaveNoURL(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s, e := shared(t), newEndpoint(t, nil)
	at := e.URL + "/hunter2?token=hunter2"
	e.Close()
	s.group("g", at, nil)
	s.publish("q", "x", shunt.ID("x"))
	ev := s.event(shunt.EventRetried, "x")
	text := s.want(200, "connection refused", "POST", "/push/"+s.ns()+"/g/test", "x")
	if !strings.Contains(ev.Err.Error(), "connection refused") || strings.Contains(ev.Err.Error()+text, "hunter2") {
		t.Error(ev.Err, text)
	}
}

func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, " 120 ": 2 * time.Minute, "007": 7 * time.Second,
		"4294967297": 1 << 32 * time.Second, "18446744073709551616": 1 << 32 * time.Second,
		"Tue, 01 Jan 2030 00:00:10 GMT": 10 * time.Second, "Tuesday, 01-Jan-30 00:00:10 GMT": 10 * time.Second,
		"Tue Jan  1 00:00:10 2030": 10 * time.Second, "Mon, 31 Dec 2029 23:59:50 GMT": -10 * time.Second,
	} {
		if got, ok := retryAfter(text, now); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", " ", "-1", "+1", "1.5", "1s", "soon", "Tue, 01 Jan 2030", "٣"} {
		if got, ok := retryAfter(text, now); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	s := Settings{BackoffMS: 1000, MaxBackoffMS: 5000}
	for attempt, base := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 5, 255: 5} {
		different := map[time.Duration]bool{}
		for range 50 {
			wait := s.backoff(attempt)
			different[wait] = true
			if wait < base*time.Second || wait > base*time.Second*6/5+1 {
				t.Errorf("attempt %d: %v", attempt, wait)
			}
		}
		if len(different) < 10 {
			t.Errorf("attempt %d: no jitter", attempt)
		}
	}
}

// An endpoint that is slow with its headers, or with a body that is needed, is cut off by the timeout.
func TestSlowEndpoint(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	var e *endpoint
	e = newEndpoint(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if len(e.of(body)) > 1 {
			fmt.Fprint(w, "in time")
			return
		}
		if strings.HasPrefix(body, "body") {
			w.WriteHeader(200)
			for r.Context().Err() == nil {
				fmt.Fprint(w, "drip")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(50 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
		}
		<-r.Context().Done()
	})
	s.group("g", e.URL, map[string]any{"timeout_ms": 500, "result": true})
	s.publish("q", "headers", shunt.ID("headers"))
	s.publish("q", "body", shunt.ID("body"), shunt.Retain(time.Minute))
	s.group("patient", e.URL, map[string]any{"queues": []string{"p"}, "timeout_ms": 3_600_000})
	s.publish("p", "body that goes on")
	s.publish("q", "body of no interest")
	for _, id := range []string{"headers", "body"} {
		ev := s.event(shunt.EventRetried, id)
		if !errors.Is(ev.Err, errTimeout) && !strings.Contains(ev.Err.Error(), "timeout") ||
			ev.Took < 400*time.Millisecond ||
			ev.Took > 5*time.Second {
			t.Errorf("%s: %v after %v", id, ev.Err, ev.Took)
		}
		s.event(shunt.EventAcked, id)
	}
	s.empty("q")
	s.empty("p") // its status counts, and the rest is not waited for
	if n := len(e.of("body of no interest")); n != 1 {
		t.Errorf("a body that nobody needs: %d requests", n)
	}
	st, err := s.queue.Status(context.Background(), shunt.ByID(s.ns()+"/q", "body"))
	if err != nil || string(st.Outcome.Result) != "in time" {
		t.Errorf("%+v, %v", st, err)
	}
}

// An answer that breaks off is none, where its body is needed; else its status counts.
func TestEndpointDiesMidAnswer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	var e *endpoint
	e = newEndpoint(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if len(e.of(body)) > 1 {
			fmt.Fprint(w, "whole")
			return
		}
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		switch body {
		case "nothing":
		case "half a status":
			_, _ = b.WriteString("HTTP/1.1 20")
		default:
			_, _ = b.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		}
		_, _ = b.Flush(), c.Close()
	})
	s.group("g", e.URL, map[string]any{"result": true})
	for _, c := range []struct {
		payload string
		once    bool
		opts    []shunt.Option
	}{
		{"nothing", false, []shunt.Option{shunt.ID("nothing")}},
		{"half a status", false, []shunt.Option{shunt.ID("half a status")}},
		{"half a result", false, []shunt.Option{shunt.ID("half a result"), shunt.Retain(time.Minute)}},
		{"half of what nobody needs", true, nil},
	} {
		s.publish("q", c.payload, c.opts...)
		if !c.once {
			s.event(shunt.EventRetried, c.payload)
			s.event(shunt.EventAcked, c.payload)
		}
		s.empty("q")
		if n := len(e.of(c.payload)); n != 2 && !c.once || c.once && n != 1 {
			t.Errorf("%s: %d requests", c.payload, n)
		}
	}
	if ev := s.event(shunt.EventRetried, "half a result"); !strings.Contains(ev.Err.Error(), "broke off") {
		t.Error(ev.Err)
	}
	st, err := s.queue.Status(context.Background(), shunt.ByID(s.ns()+"/q", "half a result"))
	if err != nil || string(st.Outcome.Result) != "whole" {
		t.Errorf("%+v, %v", st, err)
	}
}

// Of an endless answer no more is read than its bound.
func TestHugeAnswers(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	var written atomic.Int64
	var e *endpoint
	e = newEndpoint(t, func(w http.ResponseWriter, r *http.Request, body string) {
		if len(e.of(body)) > 1 {
			return
		}
		switch body {
		case "headers":
			w.Header().Set("X", strings.Repeat("h", 1<<20))
		case "exact":
			fmt.Fprint(w, strings.Repeat("r", 1000))
		default:
			status, _ := strconv.Atoi(body)
			w.WriteHeader(status)
			for chunk := []byte(strings.Repeat("z", 1<<16)); ; {
				n, err := w.Write(chunk)
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		}
	})
	s.group("g", e.URL, map[string]any{"result": true, "max_answer": 1000, "timeout_ms": 10_000})
	s.publish("q", "200", shunt.ID("200"), shunt.Retain(time.Minute))
	s.publish("q", "201")
	s.publish("q", "500", shunt.ID("500"))
	s.publish("q", "headers", shunt.ID("headers"))
	s.publish("q", "exact", shunt.ID("exact"), shunt.Retain(time.Minute))
	s.event(shunt.EventAcked, "200")
	if ev := s.event(shunt.EventRetried, "500"); len(ev.Err.Error()) > 300 {
		t.Errorf("%d bytes of failure", len(ev.Err.Error()))
	}
	s.event(shunt.EventRetried, "headers")
	s.event(shunt.EventAcked, "exact")
	s.empty("q")
	for id, want := range map[string]int{"200": 0, "exact": 1000} {
		st, err := s.queue.Status(context.Background(), shunt.ByID(s.ns()+"/q", id))
		if err != nil || len(st.Outcome.Result) != want {
			t.Errorf("%s: %d bytes, %v", id, len(st.Outcome.Result), err)
		}
	}
	if !strings.Contains(s.log.String(), "a result is not kept") {
		t.Error("the log does not say that a result was dropped")
	}
	if n := written.Load(); n > 64<<20 { // what sockets hold is the endpoint's own affair
		t.Errorf("the endpoint has written %d bytes", n)
	}
	if len(e.of("201")) != 1 {
		t.Error("a large body that nobody needs is no failure")
	}
}

// An answer of 410 stops the group for all, for good, and costs the message nothing.
func TestGoneStopsTheGroup(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := shared(t)
	other := newSite(t, redistest.Shared(t).URL(), s.pool)
	var gone atomic.Bool
	gone.Store(true)
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		if gone.Load() {
			w.WriteHeader(http.StatusGone)
		}
	})
	s.group("g", e.URL, nil)
	until(t, "both run", func() bool { return len(s.receivers("q")) == 2 })
	const n = 50
	for i := range n {
		s.publish("q", fmt.Sprint(i), shunt.ID(fmt.Sprint(i)))
	}
	at := "/push/" + s.ns() + "/g"
	until(t, "it is stopped", func() bool {
		_, text := s.do("GET", at, "")
		return strings.Contains(text,
			`"stopped"`)
	})
	until(t, "no process receives", func() bool { return len(s.receivers("q")) == 0 })
	s.want(200, `"reason":"the endpoint answered 410`, "GET", at, "")
	if log := s.log.String() + other.log.String(); strings.Count(log,
		"stopped, because its endpoint answered 410") != 1 {
		t.Error("the logs do not say once that it was stopped")
	}
	met := len(e.all())
	if met == 0 || met == n {
		t.Errorf("%d requests until it was stopped", met)
	}
	if left := s.count("q", shunt.StatePrepare, shunt.StateDelay); left != n {
		t.Errorf("%d are left of %d", left, n)
	}
	gone.Store(false)
	s.want(200, `"state":"stopped"`, "POST", at+"/pause", "") // pausing does not hide the stop
	s.want(200, `"state":"active"`, "POST", at+"/resume", "")
	s.empty("q")
	until(t, "all are acked at their first attempt", func() bool {
		acked := map[string]bool{}
		for _, e := range append(s.happened(), other.happened()...) {
			if e.Kind == shunt.EventAcked && e.Attempt == 1 {
				acked[e.ID] = true
			}
		}
		return len(acked) == n
	})
}

// receivers are those of a queue that live.
func (s *site) receivers(queue string) (living []shunt.Receiver) {
	s.t.Helper()
	all, err := s.queue.Receivers(context.Background(), s.ns()+"/"+queue)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range all {
		if r.Alive {
			living = append(living, r)
		}
	}
	return living
}
