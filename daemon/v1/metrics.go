package v1

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count requests by operation and status, and messages. A nil Metrics counts nothing. Its methods may be called
// by many goroutines at once.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	messages *prometheus.CounterVec
}

// NewMetrics registers the metrics; names that are registered already are a panic, as of MustRegister.
func NewMetrics(to prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shuntd_v1_requests_total",
			Help: "Requests by operation and status."}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "shuntd_v1_request_seconds",
			Help: "How long requests took, with their waits.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9)},
			[]string{"operation"}),
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shuntd_v1_messages_total",
			Help: "Messages that were published, pulled or settled."}, []string{"what"}),
	}
	to.MustRegister(m.requests, m.seconds, m.messages)
	return m
}

func (m *Metrics) request(name string, status int, took time.Duration) {
	if m != nil {
		m.requests.WithLabelValues(name, strconv.Itoa(status)).Inc()
		m.seconds.WithLabelValues(name).Observe(took.Seconds())
	}
}

func (m *Metrics) add(what string, n int) {
	if m != nil && n > 0 {
		m.messages.WithLabelValues(what).Add(float64(n))
	}
}

func (m *Metrics) published(n int) { m.add("published", n) }
func (m *Metrics) pulled(n int)    { m.add("pulled", n) }
func (m *Metrics) settled(n int)   { m.add("settled", n) }
