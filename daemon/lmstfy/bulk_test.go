package lmstfy

import (
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Of a bulk that fails because Redis goes away within it, what was published is cancelled once Redis is back.
func TestBulkIsTakenBackWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
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
	p.On(redistest.Command("", "the last one"), 1, redistest.Call(func() {
		p.Refuse(true)
		time.AfterFunc(redisTimeout+time.Second, func() { p.Refuse(false) })
	}))
	p.On(redistest.Command("", "the last one"), 1, redistest.CutBefore)
	first := `"` + strings.Repeat("a", 1000<<10) + `"` // more than 1 MB together
	if r := s.do("PUT", "/q/bulk", "["+first+`,"`+strings.Repeat("b", 500<<10)+`the last one"]`); r.status != 500 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/size", ""); r.json(t)["size"] != 0.0 {
		t.Errorf("of a bulk that has failed: %s\n%s", r.body, s.log)
	}
}
