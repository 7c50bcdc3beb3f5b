package delayq

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what is served. A nil Metrics counts nothing.
type Metrics struct {
	requests *prometheus.CounterVec
	released prometheus.Counter
}

// NewMetrics registers the metrics; names that are registered already are a panic, as of MustRegister.
func NewMetrics(to prometheus.Registerer) *Metrics {
	name := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "shuntd", Subsystem: "delayq", Name: name, Help: help}
	}
	m := &Metrics{
		requests: prometheus.NewCounterVec(name("requests_total", "Requests by their code."), []string{"path", "code"}),
		released: prometheus.NewCounter(name("released_total", "Jobs that were popped and could not be handed over.")),
	}
	to.MustRegister(m.requests, m.released)
	return m
}

func (m *Metrics) request(path, code string) {
	if m != nil {
		m.requests.WithLabelValues(path, code).Inc()
	}
}

func (m *Metrics) release() {
	if m != nil {
		m.released.Inc()
	}
}
