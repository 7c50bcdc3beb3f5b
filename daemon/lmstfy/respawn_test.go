package lmstfy

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A dead letter whose id is another job's by now stays dead at a respawn, as with RetryAllDead.
func TestRespawnKeepsWhatHasATakenID(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	add := func(text string) {
		t.Helper()
		if err := s.queue.Enqueue(t.Context(), shunt.Raw(s.ns+"/q", []byte(text)), shunt.ID("order-7")); err != nil {
			t.Fatal(err)
		}
	}
	add("first")
	s.kill("q", 1)
	add("second") // as a client of /v1 may: the id was free
	if r := s.do("PUT", "/q/deadletter?limit=10", ""); r.status != 200 || r.json(t)["count"] != 0.0 {
		t.Errorf("%d %s", r.status, r.body)
	}
	want := fmt.Sprintf(`{"deadletter_head":"order-7","deadletter_size":1,"namespace":%q,"queue":"q"}`, s.ns)
	if r := s.do("GET", "/q/deadletter", ""); r.body != want {
		t.Errorf("the first one is gone: %s", r.body)
	}
	if r := s.do("GET", "/q", ""); r.json(t)["data"] != base64.StdEncoding.EncodeToString([]byte("second")) {
		t.Error(r.body)
	}
}

// A respawn passes over those that stay, and goes on with those that died later.
func TestRespawnPassesOverWhatStays(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	add := func(id string) {
		t.Helper()
		if err := s.queue.Enqueue(t.Context(), shunt.Raw(s.ns+"/q", []byte(id)), shunt.ID(id)); err != nil {
			t.Fatal(err)
		}
	}
	const n = 4
	for i := range n {
		add(fmt.Sprint(i))
		s.kill("q", i+1) // one by one: those of one millisecond have no order
	}
	for i := range n / 2 {
		other := shunt.Raw(s.ns+"/q", []byte("other"))
		if err := s.queue.Enqueue(t.Context(), other, shunt.ID(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for _, count := range []float64{1, 1, 0} {
		if r := s.do("PUT", "/q/deadletter", ""); r.status != 200 || r.json(t)["count"] != count {
			t.Errorf("%d %s, want %v", r.status, r.body, count)
		}
	}
	if r := s.do("GET", "/q/deadletter/size", ""); r.json(t)["size"] != n/2.0 {
		t.Error(r.body)
	}
}
