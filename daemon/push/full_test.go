package push

import (
	"net/http"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/internal/redistest"
)

// On a full Redis, too, a 410 stops a group, and somebody can pause and resume it: none of that takes room.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "maxmemory-policy noeviction")
	s := newSite(t, b.URL(), "default")
	met, full := make(chan struct{}, 100), make(chan struct{})
	e := newEndpoint(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
		met <- struct{}{}
		<-full
		w.WriteHeader(http.StatusGone)
	})
	s.group("g", e.URL, nil)
	s.publish("q", "a")
	<-met
	b.Do("CONFIG", "SET", "maxmemory", "1")
	close(full)
	at := "/push/" + s.ns() + "/g"
	until(t, "the group is stopped", func() bool {
		_, body := s.do("GET", at, "")
		return strings.Contains(body, `"state":"stopped"`) || strings.Contains(s.log.String(), "could not be stopped")
	})
	if log := s.log.String(); strings.Contains(log, "could not be stopped") {
		t.Error(log)
	}
	s.want(200, `"state":"active"`, "POST", at+"/resume", "")
	s.want(200, `"state":"paused"`, "POST", at+"/pause", "")
	s.want(500, "", "POST", "/push/"+s.ns()+"/other", `{"queues":["q"],"endpoint":"`+e.URL+`","unsigned":true}`)
}
