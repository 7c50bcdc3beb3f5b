package lmstfy

import (
	"strings"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// The reply to a republish is lost, and the new job is done before Redis is asked again: it is not published twice.
func TestRepublishIsDoneOnce(t *testing.T) {
	t.Parallel()
	b := redistest.Shared(t)
	p := redistest.NewProxy(t, b.Addr())
	pool, err := shunt.NewPool(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool, Quiet: true}
	s := newSite(t, func(a *API, _ *Admin) { a.Pools[DefaultPool] = q })
	t.Cleanup(func() {
		_ = q.Close()
		_ = pool.Close()
	})
	warm := s.publish("/q", "")
	s.consume("/q")
	s.publish("/q/job/"+warm, "") // the scripts are known
	s.consume("/q")
	old := s.publish("/q", "old")
	s.consume("/q?ttr=100")
	p.On(redistest.Command("EVALSHA", "the new one"), 1, redistest.Call(func() { p.Refuse(true) }))
	p.On(redistest.Command("EVALSHA", "the new one"), 1, redistest.CutAfter)
	done := make(chan string)
	go func() {
		r := s.do("PUT", "/q/job/"+old, "the new one")
		done <- r.body
	}()
	var ms []*shunt.Leased
	s.until("the new one is there", func() bool {
		var err error
		ms, err = s.queue.Pull(t.Context(), shunt.PullOptions{Channels: []string{s.ns + "/q"}})
		return err == nil && len(ms) == 1
	})
	if string(ms[0].Payload) != "the new one" {
		t.Error(string(ms[0].Payload))
	}
	if err := ms[0].Ack(t.Context()); err != nil {
		t.Error(err)
	}
	p.Refuse(false)
	body := <-done
	if r := s.do("GET", "/q/size", ""); r.json(t)["size"] != 0.0 {
		t.Errorf("answered %s: it is there again", body)
	}
	id := strings.Split(body, `"`)[3]
	if r := s.do("GET", "/q/job/"+id, ""); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
	for range 2 {
		if r := s.do("DELETE", "/q/job/"+id, ""); r.status != 204 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}
