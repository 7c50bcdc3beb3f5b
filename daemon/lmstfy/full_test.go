package lmstfy

import (
	"testing"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Consumers drain a full Redis, also those whose tokens have a limit; else it would stay full.
func TestFullRedisIsDrainedWithinLimits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "maxmemory-policy noeviction")
	s := newSiteOn(t, b)
	l := access.Limit{Read: 2, Write: 2, Interval: 3600}
	if err := s.access.SetLimit(t.Context(), DefaultPool, s.ns, s.token, l); err != nil {
		t.Fatal(err)
	}
	s.publish("/q?ttl=0", "a")
	s.publish("/q?ttl=0", "b")
	b.Do("CONFIG", "SET", "maxmemory", "1")
	for range 2 {
		if r := s.do("GET", "/q?ttr=60", ""); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if r := s.do("GET", "/q?ttr=60", ""); r.status != 429 {
		t.Errorf("beyond the limit: %d %s", r.status, r.body)
	}
}
