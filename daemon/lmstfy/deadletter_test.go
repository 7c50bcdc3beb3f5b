package lmstfy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// kill has jobs die that wait in a queue.
func (s *site) kill(queue string, n int) {
	s.t.Helper()
	kind := shunt.Define(s.ns+"/"+queue, func(context.Context, any) error { return nil })
	shutdown, err := s.queue.Receive(context.Background(), rejected{kind}, 1)
	if err != nil {
		s.t.Fatal(err)
	}
	s.until(fmt.Sprint(n, " dead"), func() bool {
		return s.do("GET", "/"+queue+"/deadletter/size", "").json(s.t)["size"] == float64(n)
	})
	if err := shutdown(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// rejected is a message that dies.
type rejected struct{ *shunt.Kind[any] }

func (r rejected) Unmarshal([]byte) (shunt.IMessage, error) { return nil, errors.New("to be dead") }

func (s *site) until(what string, is func() bool) {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not in 10 s: %s", what)
		}
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	empty := fmt.Sprintf(`{"deadletter_head":"","deadletter_size":0,"namespace":%q,"queue":"q"}`, s.ns)
	if r := s.do("GET", "/q/deadletter", ""); r.status != 200 || r.body != empty {
		t.Errorf("%d %s", r.status, r.body)
	}
	var ids []string
	for i := range 5 {
		ids = append(ids, s.publish("/q?tries=4", fmt.Sprint("body", i), "Enable-Job-Version", "YES", "Job-Attr-N",
			fmt.Sprint(i)))
		s.kill("q", i+1) // one by one: those of one millisecond have no order
	}
	for _, c := range []struct {
		method, query string
		status        int
		text          string
	}{
		{"PUT", "?limit=", 400, "invalid limit"},
		{"PUT", "?limit=0", 400, "invalid limit"},
		{"PUT", "?limit=-1", 400, "invalid limit"},
		{"PUT", "?limit=9223372036854775808", 400, "invalid limit"},
		{"PUT", "?limit=1&ttl=", 400, "invalid ttl"},
		{"PUT", "?limit=1&ttl=-1", 400, "invalid ttl"},
		{"PUT", "?limit=1&ttl=x", 400, "invalid ttl"},
		{"DELETE", "?limit=0", 400, "invalid limit"},
		{"DELETE", "?limit=x", 400, "invalid limit"},
	} {
		if r := s.do(c.method, "/q/deadletter"+c.query, ""); r.status != c.status || !strings.Contains(r.body, c.text) {
			t.Errorf("%s %s: %d %s", c.method, c.query, r.status, r.body)
		}
	}
	head := func() (any, any) {
		m := s.do("GET", "/q/deadletter", "").json(t)
		return m["deadletter_size"], m["deadletter_head"]
	}
	if n, id := head(); n != 5.0 || id != ids[0] {
		t.Errorf("%v %v, want 5 %s", n, id, ids[0])
	}
	if m := s.do("GET", "/q/job/"+ids[0], "").json(t); m["job_id"] != ids[0] {
		t.Error(m)
	}
	if r := s.do("DELETE", "/q/deadletter", ""); r.status != 204 || r.body != "" {
		t.Errorf("%d %s", r.status, r.body)
	}
	began := time.Now()
	if r := s.do("PUT", "/q/deadletter?limit=2", ""); r.status != 200 || r.body != `{"count":2,"msg":"respawned"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if n, id := head(); n != 2.0 || id != ids[3] {
		t.Errorf("%v %v, want 2 %s", n, id, ids[3])
	}
	m := s.do("GET", "/q/peek", "").json(t)
	body, _ := base64.StdEncoding.DecodeString(m["data"].(string))
	if ttl, _ := m["ttl"].(float64); m["job_id"] != ids[1] || string(body) != "body1" || m["remain_tries"] != 1.0 ||
		ttl < 86400-math.Ceil(time.Since(began).Seconds()) || ttl > 86400 || fmt.Sprint(m["attributes"]) != "map[n:1]" {
		t.Error(m)
	}
	if r := s.do("DELETE", "/q/job/"+ids[3], ""); r.status != 204 { // an ack ends a dead one, too
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("PUT", "/q/deadletter?limit=9223372036854775807&ttl=9223372036854775807", ""); r.body !=
		`{"count":1,"msg":"respawned"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/deadletter", ""); r.body != empty {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("PUT", "/q/deadletter?limit=5", ""); r.body != `{"count":0,"msg":"respawned"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A dead letter whose job was respawned before is dropped, and not doubled.
func TestRespawnAfterAFault(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	var ids []string
	for i := range 2 {
		ids = append(ids, s.publish("/q", "a"))
		s.kill("q", i+1)
	}
	// as a respawn does that is killed before it deletes
	again := order{tries: 1}
	if err := s.queue.Enqueue(context.Background(), again.message(s.ns+"/q", ids[0], []byte("a"))); err != nil {
		t.Fatal(err)
	}
	if r := s.do("PUT", "/q/deadletter?limit=10", ""); r.body != `{"count":1,"msg":"respawned"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/size", ""); r.json(t)["size"] != 2.0 {
		t.Error(r.body)
	}
}
