package v1

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A token that is deleted while a request waits for an outcome learns nothing of it.
func TestTokenDeletedWhileWaitingForAnOutcome(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	other := s.mint(access.Consume)
	s.want(201, "POST", "/q/messages?id=a&retain_ms=60000", "x")
	got := make(chan reply, 1)
	go func() {
		got <- s.do("GET", "/q/messages/id:a/outcome?wait_ms=20000", "", "X-Token", other)
	}()
	s.until("it waits", func() bool { return s.api.Budget.Waiting() == 1 })
	if err := s.access.Delete(t.Context(), DefaultPool, s.ns, other); err != nil {
		t.Fatal(err)
	}
	receipt := s.pull(1, "queues=q")[0]["receipt"]
	s.wantJSON(204, "POST", "/ack", fmt.Sprintf(`{"receipt":%q,"result":"secret"}`, receipt))
	if r := <-got; r.status != 401 || !r.is("invalid-token") || strings.Contains(r.body, "secret") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A stream of events ends within a second or so of its token's end, whatever it has to tell.
func TestTokenDeletedWhileStreaming(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	next, leave := s.events("q")
	defer leave()
	if err := s.access.Delete(t.Context(), DefaultPool, s.ns, s.token); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	s.api.Events[DefaultPool].Take(shunt.Event{Kind: shunt.EventAcked, Channel: s.ns + "/q", Time: time.Now(), ID: "a"})
	if name, data := next(); name != "end" {
		t.Errorf("%s %s", name, data)
	}
}
