package v1

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Over HTTP/2 a deadline of writing ends a stream also where nothing is written. A quiet one goes on all the same.
func TestQuietEventsOverHTTP2(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.server.Close()
	s.server = httptest.NewUnstartedServer(s.api.Handler())
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	s.client = s.server.Client()
	next, leave := s.events("q")
	defer leave()
	time.Sleep(eventWrite + time.Second)
	s.api.Events[DefaultPool].Take(shunt.Event{Kind: shunt.EventAcked, Channel: s.ns + "/q", Time: time.Now(), ID: "a"})
	if name, _ := next(); name != "acked" {
		t.Errorf("after a quiet time the stream brought %q", name)
	}
}
