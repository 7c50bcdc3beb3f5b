package v1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A Redis that cannot write to its disk refuses each write. shuntd tells its client that nothing was done.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "dbfilename taken")
	s := siteOn(t, b.URL(), func(a *API) { a.Pools[DefaultPool].EnqueueTimeout = 300 * time.Millisecond })
	s.want(201, "POST", "/q/messages", "x")
	refuseWrites(t, b)
	r := s.want(503, "POST", "/q/messages", "y")
	if !r.is("redis-unavailable") || r.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", r.header, r.body)
	}
}

// refuseWrites has the server fail to save, after which it answers MISCONF to writes. A directory stands where its file
// would be.
func refuseWrites(t *testing.T, b *redistest.Server) {
	t.Helper()
	dir, err := redis.Strings(b.TryDo("CONFIG", "GET", "dir"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir[1], "taken", "by"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.Do("CONFIG", "SET", "save", "3600 1")
	b.Do("BGSAVE")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := b.TryDo("SET", "x", "y"); err != nil && strings.HasPrefix(err.Error(), "MISCONF") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the server takes writes on")
		}
	}
}

// shuntd answers redis-full, whichever command the full Redis has refused.
func TestRecurringOnAFullRedis(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "maxmemory-policy noeviction")
	s := siteOn(t, b.URL(), func(a *API) {
		a.Recurring = &Recurring{Pools: a.Pools, Redis: map[string]*redis.Pool{DefaultPool: b.Pool(t)}}
	})
	s.want(200, "GET", "/q/recurring", "")
	b.Do("CONFIG", "SET", "maxmemory", "1")
	r := s.wantJSON(503, "PUT", "/q/recurring/nightly", `{"every_ms":60000,"payload":"x"}`)
	if !r.is("redis-full") {
		t.Errorf("%s", r.body)
	}
}
