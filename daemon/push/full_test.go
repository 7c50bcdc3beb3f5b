package push

import (
	"net/http"
	"reflect"
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

// Where Redis refuses a right that a change needs, nothing is changed.
func TestHalfTheRights(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	b.Do("ACL", "SETUSER", "shunt", "on", ">secret", "~*", "&*", "+@all")
	s := newSite(t, "redis://shunt:secret@"+b.Addr(), "default")
	s.group("g", "http://127.0.0.1:1", nil)
	had := b.Do("HGETALL", groupsKey+"default")
	for _, lacks := range [][]any{{"resetchannels"}, {"&*", "-publish"}, {"+publish", "-get"}} {
		b.Do("ACL", append([]any{"SETUSER", "shunt"}, lacks...)...)
		s.want(500, "", "POST", "/push/"+s.ns()+"/g/pause", "")
		s.want(500, "", "DELETE", "/push/"+s.ns()+"/g", "")
		s.want(500, "", "POST", "/push/"+s.ns()+"/h",
			`{"queues":["q"],"endpoint":"http://127.0.0.1:1","unsigned":true}`)
		if has := b.Do("HGETALL", groupsKey+"default"); !reflect.DeepEqual(has, had) {
			t.Errorf("with %v: %q", lacks, has)
		}
	}
}
