package lmstfy

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// However many queues are named, the series stay bounded.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for i := range maxLabels + 1000 {
		c := &call{poolName: DefaultPool, ns: "ns", queue: fmt.Sprint("q", i), valid: true}
		m.published(c, 1)
		c.ns = fmt.Sprint("ns", i)
		m.request("publish", c, 201, time.Millisecond)
		(*Metrics)(nil).published(c, 1)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n > maxLabels+1 {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
	}
}
