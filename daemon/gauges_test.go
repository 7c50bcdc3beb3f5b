package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/daemon/lmstfy"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Pools whose Redis hangs do not have others told as down.
func TestGaugesBesideHangingPools(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	hangs := redistest.Start(t)
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) {
		for i := range 30 {
			c.Pools[fmt.Sprint("hangs", i)] = config.Pool{Redis: hangs.URL(), MaxDead: 10, DeadFor: time.Hour}
		}
	})
	hangs.Stop()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&gauges{d: r.Daemon})
	families, err := registry.Gather()
	hangs.Cont()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		if f.GetName() != "shuntd_redis_up" {
			continue
		}
		for _, m := range f.GetMetric() {
			seen++
			pool, up := m.GetLabel()[0].GetValue(), m.GetGauge().GetValue()
			if (up == 1) != (pool == lmstfy.DefaultPool) {
				t.Errorf("pool %s: %v", pool, up)
			}
		}
	}
	if seen != 31 {
		t.Errorf("gauges of %d pools", seen)
	}
}
