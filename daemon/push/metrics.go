package push

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts requests. A nil one counts none.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	mu sync.Mutex // guards runner.gone, and what a request adds
}

var groupLabels = []string{"pool", "namespace", "group"}

// NewMetrics are metrics in a registry.
func NewMetrics(to prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shuntd_push_requests_total",
			Help: "Requests to endpoints by the status of their answer; none: there was no answer."},
			append([]string{"code"}, groupLabels...)),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "shuntd_push_request_seconds",
			Help:    "Time of requests that were answered.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}, groupLabels),
	}
	to.MustRegister(m.requests, m.seconds)
	return m
}

// posted counts a request, unless its group was deleted meanwhile.
func (m *Metrics) posted(r *runner, a *answer, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.gone {
		return
	}
	k := r.key
	code := "none"
	if err == nil {
		code = strconv.Itoa(a.status)
		m.seconds.WithLabelValues(k.Pool, k.Namespace, k.Name).Observe(a.took.Seconds())
	}
	m.requests.WithLabelValues(code, k.Pool, k.Namespace, k.Name).Inc()
}

// forget drops the series of a group that was deleted.
func (m *Metrics) forget(r *runner) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.gone = true
	k := r.key
	of := prometheus.Labels{"pool": k.Pool, "namespace": k.Namespace, "group": k.Name}
	m.requests.DeletePartialMatch(of)
	m.seconds.DeletePartialMatch(of)
}
