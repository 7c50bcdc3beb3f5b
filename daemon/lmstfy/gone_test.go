package lmstfy

import (
	"context"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A client that leaves while it waits had no successful request, and got no status.
func TestWhoLeavesHasNoSuccess(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	registry := prometheus.NewRegistry()
	s := newSite(t, func(a *API, _ *Admin) { a.Metrics = NewMetrics(registry) })
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.public.URL+"/api/"+s.ns+"/q?timeout=100&token="+s.token, nil)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if res, err := http.DefaultClient.Do(r); err == nil {
			_ = res.Body.Close()
			t.Error("it has an answer")
		}
	}()
	s.until("it waits", func() bool { return s.api.Waiting() == 1 })
	leave()
	<-gone
	s.until("it is counted", func() bool { return counted(t, registry, "infra_lmstfy_http_http_codes", "consume") })
	if counted(t, registry, "infra_lmstfy_http_latency_milliseconds", "consume") {
		t.Error("the wait of who has left is a latency of successful requests")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "code" && l.GetValue() == "0" {
					t.Error("there is a code 0")
				}
			}
		}
	}
}

// counted says whether a metric has something of an api.
func counted(t *testing.T, registry *prometheus.Registry, name, api string) bool {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "api" && l.GetValue() == api {
					return true
				}
			}
		}
	}
	return false
}
