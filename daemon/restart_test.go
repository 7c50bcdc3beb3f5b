package daemon

import (
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/daemon/lmstfy"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Connections that a restart of Redis has ended fail no request once it is back, and do not hold up GET /readyz.
func TestIdleConnectionsAfterARestart(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "appendonly yes", "appendfsync always")
	r := serving(t, b.URL())
	token, at := "0123456789-0123456789", access.Token{Pool: lmstfy.DefaultPool, Namespace: "ns", Role: access.Both}
	l := access.Limit{Write: 1000, Interval: 3600}
	if err := r.access.Create(t.Context(), token, at); err != nil {
		t.Fatal(err)
	}
	if err := r.access.SetLimit(t.Context(), at.Pool, at.Namespace, token, l); err != nil {
		t.Fatal(err)
	}
	own := r.pools[lmstfy.DefaultPool].own
	var busy []redis.Conn
	for range 20 { // as many requests at once have left them
		c := own.Get()
		if _, err := c.Do("PING"); err != nil {
			t.Fatal(err)
		}
		busy = append(busy, c)
	}
	var all sync.WaitGroup
	for _, c := range busy {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
	b.Kill()
	time.Sleep(1100 * time.Millisecond) // a restart takes as long
	b.Restart()
	back := time.Now()
	for range 5 {
		r.want(201, "published", "PUT", r.api+"/api/ns/q", "x", "X-Token", token)
	}
	until(t, "it is ready", func() bool { status, _ := r.do("GET", r.api+"/readyz", ""); return status == 200 })
	if took := time.Since(back); took > 5*time.Second {
		t.Errorf("it was ready %v after Redis", took)
	}
}
