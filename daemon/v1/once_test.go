package v1

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A request that is sent again under its key gets the same answer, whatever has become of the message.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	publish := func(status int, query, body string) reply {
		t.Helper()
		return s.want(status, "POST", "/q/messages?"+query, body, "Idempotency-Key", "k")
	}
	first := publish(201, "id=a", "x")
	if first.header.Get("Idempotency-Replayed") != "" {
		t.Error("it says that it was done before")
	}
	for i, end := range []func(){
		func() {},
		func() {
			s.wantJSON(204, "POST", "/ack", fmt.Sprintf(`{"receipt":%q}`, s.pull(1, "queues=q")[0]["receipt"]))
		},
		func() {
			s.want(201, "POST", "/q/messages?id=a", "another one of that id")
			s.want(204, "DELETE", "/q/messages/id:a", "")
		},
	} {
		end()
		r := publish(201, "id=a", "x")
		if r.body != first.body || r.header.Get("Idempotency-Replayed") != "true" ||
			r.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("%d: %s, first %s", i, r.body, first.body)
		}
	}
	if n := s.count("q", shunt.StatePrepare); n != 0 {
		t.Errorf("%d wait", n)
	}
	for _, other := range [][2]string{{"id=a", "y"}, {"id=b", "x"}, {"", "x"}, {"id=a&delay_ms=5", "x"}} {
		if r := publish(422, other[0], other[1]); !r.is("idempotency-key-reused") {
			t.Errorf("%s", r.body)
		}
	}
	s.want(201, "POST", "/other/messages", "y", "Idempotency-Key", "k") // a key is of one queue
	if r := s.do("POST", "/q/messages", "x", "Idempotency-Key", strings.Repeat("k", 256)); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("POST", "/q/messages", "x", "Idempotency-Key", "ü"); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A refusal is not noted: once the id is free, the same request publishes.
func TestIdempotencyKeyRefused(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.want(201, "POST", "/q/messages?id=a", "x")
	s.want(409, "POST", "/q/messages?id=a", "y", "Idempotency-Key", "k")
	s.want(204, "DELETE", "/q/messages/id:a", "")
	s.want(201, "POST", "/q/messages?id=a", "y", "Idempotency-Key", "k")
}

func TestIdempotencyKeyOfABatch(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.want(201, "POST", "/q/messages?id=taken", "x")
	body := `[{"id":"a"},{"id":"taken"},{"payload":"z","delay_ms":60000}]`
	first := s.wantJSON(207, "POST", "/q/messages:batch", body, "Idempotency-Key", "k")
	again := s.wantJSON(207, "POST", "/q/messages:batch", body, "Idempotency-Key", "k")
	for i := range 3 {
		a := first.json()["messages"].([]any)[i].(map[string]any)
		b := again.json()["messages"].([]any)[i].(map[string]any)
		if a["serial"] != b["serial"] || a["ref"] != b["ref"] || (a["problem"] == nil) != (b["problem"] == nil) {
			t.Errorf("%v, then %v", a, b)
		}
	}
	if s.count("q", shunt.StatePrepare) != 2 || s.count("q", shunt.StateDelay) != 1 {
		t.Error("it was done twice")
	}
	s.wantJSON(422, "POST", "/q/messages:batch", `[{"id":"a"}]`, "Idempotency-Key", "k")
}

// Many at once publish one message, and are told of the same.
func TestIdempotencyKeyRace(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	bodies := make([]string, 20)
	var all sync.WaitGroup
	for i := range bodies {
		all.Go(func() { bodies[i] = s.want(201, "POST", "/q/messages", "x", "Idempotency-Key", "k").body })
	}
	all.Wait()
	for _, b := range bodies {
		if b != bodies[0] {
			t.Errorf("%s and %s", b, bodies[0])
		}
	}
	if n := s.count("q", shunt.StatePrepare); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// The reply of Redis is lost and the process that asked is gone: another process, asked again, doubles nothing.
func TestIdempotencyKeyAfterADeath(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Shared(t)
	p := redistest.NewProxy(t, b.Addr())
	s := newSite(t)
	first := siteOn(t, p.URL())
	first.ns, first.token = s.ns, s.token
	first.want(201, "POST", "/q/messages", "warm", "Idempotency-Key", "warm")
	p.On(redistest.Command("EVALSHA", ".once."), 1, redistest.Call(func() { p.Refuse(true) }))
	p.On(redistest.Command("EVALSHA", ".once."), 1, redistest.CutAfter)
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // it is never answered, as by a killed process
		defer close(done)
		req := httptest.NewRequestWithContext(ctx, "POST", "/v1/"+s.ns+"/q/messages", strings.NewReader("x"))
		req.Header.Set("X-Token", s.token)
		req.Header.Set("Idempotency-Key", "k")
		first.api.Handler().ServeHTTP(httptest.NewRecorder(), req)
	}()
	s.until("Redis has executed it", func() bool { return s.count("q", shunt.StatePrepare) == 2 })
	r := s.want(201, "POST", "/q/messages", "x", "Idempotency-Key", "k")
	if r.header.Get("Idempotency-Replayed") != "true" || s.count("q", shunt.StatePrepare) != 2 {
		t.Errorf("%v, %d wait", r.header, s.count("q", shunt.StatePrepare))
	}
	p.Refuse(false)
	leave()
	<-done
}
