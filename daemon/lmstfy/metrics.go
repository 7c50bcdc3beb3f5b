package lmstfy

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxLabels bounds the queues that have series of their own. Who has a token can name any number of queues.
const maxLabels = 10_000

// other stands for all queues beyond maxLabels.
const other = "other"

// Metrics are lmstfy's, under its names. Namespaces and queues are labels only where the token was valid. A nil Metrics
// counts nothing. Its methods may be called by many goroutines at once.
type Metrics struct {
	latency   *prometheus.HistogramVec
	codes     *prometheus.CounterVec
	limits    *prometheus.CounterVec
	publishes *prometheus.CounterVec
	consumes  *prometheus.CounterVec
	byQueueIn *prometheus.CounterVec
	byQueue   *prometheus.CounterVec
	multi     *prometheus.CounterVec
	respawns  *prometheus.CounterVec
	elapsed   *prometheus.HistogramVec
	acked     *prometheus.HistogramVec

	mu    sync.Mutex
	known map[[3]string]struct{} // pool, namespace, queue
}

// NewMetrics registers the metrics; names that are registered already are a panic, as of MustRegister.
func NewMetrics(to prometheus.Registerer) *Metrics {
	const redis, web = "lmstfy_redis", "lmstfy_http"
	counter := func(subsystem, name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "infra", Subsystem: subsystem, Name: name, Help: help,
		}, labels)
	}
	histogram := func(subsystem, name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "infra", Subsystem: subsystem, Name: name, Help: help, Buckets: buckets,
		}, labels)
	}
	m := &Metrics{
		latency: histogram(web, "latency_milliseconds", "Latency of successful requests.",
			prometheus.ExponentialBuckets(15, 2.5, 9), "pool", "namespace", "api"),
		codes: counter(web, "http_codes", "Answers by status.", "pool", "namespace", "api", "code"),
		limits: counter(web, "rate_limit", "Requests beyond the limit of their token.", "pool", "namespace", "token",
			"action"),
		publishes: counter(redis, "publish_jobs", "Jobs published.", "pool"),
		consumes:  counter(redis, "consume_jobs", "Jobs delivered.", "pool"),
		byQueueIn: counter(redis, "publish_queue_jobs", "Jobs published, by queue.", "pool", "namespace", "queue"),
		byQueue:   counter(redis, "consume_queue_jobs", "Jobs delivered, by queue.", "pool", "namespace", "queue"),
		multi: counter(
			redis,
			"consume_multi_jobs",
			"Jobs delivered to requests that named several queues.",
			"pool",
		),
		respawns: counter(redis, "deadletter_respawn_jobs", "Dead letters respawned.", "pool"),
		acked: histogram(redis, "job_ack_elapsed_ms", "Age of jobs at their ack, by their ids.",
			prometheus.ExponentialBuckets(15, 3.5, 7), "pool", "namespace", "queue"),
		elapsed: histogram(redis, "job_elapsed_ms", "Age of jobs at their delivery.",
			prometheus.ExponentialBuckets(15, 3.5, 7), "pool", "namespace", "queue"),
		known: make(map[[3]string]struct{}),
	}
	to.MustRegister(m.latency, m.codes, m.limits, m.publishes, m.consumes, m.byQueueIn, m.byQueue, m.multi, m.respawns,
		m.elapsed, m.acked)
	return m
}

// labels are the queue's, or those of all others.
func (m *Metrics) labels(c *call, queue string) []string {
	key := [3]string{c.poolName, c.ns, queue}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.known[key]; !ok {
		if len(m.known) >= maxLabels {
			return []string{c.poolName, other, other}
		}
		m.known[key] = struct{}{}
	}
	return key[:]
}

func (m *Metrics) request(api string, c *call, status int, took time.Duration) {
	if m == nil {
		return
	}
	ns := ""
	if c.valid {
		ns = m.labels(c, "")[1]
	}
	if status < 300 {
		m.latency.WithLabelValues(c.poolName, ns, api).Observe(float64(took) / float64(time.Millisecond))
	}
	m.codes.WithLabelValues(c.poolName, ns, api, strconv.Itoa(status)).Inc()
}

func (m *Metrics) limited(c *call, action string) {
	if m != nil {
		m.limits.WithLabelValues(c.poolName, c.ns, c.token.Mark, action).Inc()
	}
}

func (m *Metrics) published(c *call, n int) {
	if m != nil {
		m.publishes.WithLabelValues(c.poolName).Add(float64(n))
		m.byQueueIn.WithLabelValues(m.labels(c, c.queue)...).Add(float64(n))
	}
}

func (m *Metrics) consumed(c *call, jobs []jobJSON) {
	if m == nil {
		return
	}
	m.consumes.WithLabelValues(c.poolName).Add(float64(len(jobs)))
	if strings.Contains(c.queue, ",") {
		m.multi.WithLabelValues(c.poolName).Add(float64(len(jobs)))
	}
	for i := range jobs {
		labels := m.labels(c, jobs[i].Queue)
		m.byQueue.WithLabelValues(labels...).Inc()
		m.elapsed.WithLabelValues(labels...).Observe(float64(jobs[i].ElapsedMS))
	}
}

// ended counts an ack. Of an id without a time nothing is known.
func (m *Metrics) ended(c *call, id string) {
	if m == nil {
		return
	}
	if ms := elapsed(id, time.Time{}, time.Now()); ms > 0 {
		m.acked.WithLabelValues(m.labels(c, c.queue)...).Observe(float64(ms))
	}
}

func (m *Metrics) respawned(c *call, n int) {
	if m != nil {
		m.respawns.WithLabelValues(c.poolName).Add(float64(n))
	}
}
