package gmq

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what is served. A nil Metrics counts nothing.
type Metrics struct {
	requests    *prometheus.CounterVec
	connections prometheus.Gauge
	refused     prometheus.Counter
	released    prometheus.Counter
}

// NewMetrics registers the metrics; names that are registered already are a panic, as of MustRegister.
func NewMetrics(to prometheus.Registerer) *Metrics {
	name := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "shuntd", Subsystem: "gmq", Name: name, Help: help}
	}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts(name("requests_total", "Requests by their outcome.")),
			[]string{"method", "outcome"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts(name("connections", "Open connections."))),
		refused: prometheus.NewCounter(prometheus.CounterOpts(name("refused_total",
			"Connections from networks that are not allowed."))),
		released: prometheus.NewCounter(prometheus.CounterOpts(name("released_total",
			"Jobs that were popped and could not be handed over."))),
	}
	to.MustRegister(m.requests, m.connections, m.refused, m.released)
	return m
}

// Outcomes of a request.
const (
	good   = "ok"
	empty  = "empty"  // a pop without a job
	wrong  = "wrong"  // the client's fault
	failed = "failed" // that of Redis, or of the server
)

func (m *Metrics) request(method, outcome string) {
	if m != nil {
		m.requests.WithLabelValues(method, outcome).Inc()
	}
}

func (m *Metrics) connected(n float64) {
	if m != nil {
		m.connections.Add(n)
	}
}

func (m *Metrics) refuse() {
	if m != nil {
		m.refused.Inc()
	}
}

func (m *Metrics) release() {
	if m != nil {
		m.released.Inc()
	}
}
