package daemon

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt"
)

const (
	gaugesEvery   = 5 * time.Second // what was read is given again until then, whoever asks
	gaugesTimeout = 5 * time.Second
	maxGauged     = 1000 // queues of a pool; those beyond are only counted
)

func describe(subsystem, name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("infra", subsystem, name), help, labels, nil)
}

// Gauges under lmstfy's names, and shuntd's own.
var (
	queueSizes  = describe("lmstfy_redis", "queue_sizes", "Ready jobs.", "pool", "namespace", "queue")
	deadSizes   = describe("lmstfy_redis", "deadletter_sizes", "Dead letters.", "pool", "namespace", "queue")
	timerSizes  = describe("lmstfy_redis", "timer_sizes", "Delayed jobs and jobs that are being handled.", "pool")
	maxMemory   = describe("lmstfy_redis", "max_mem_bytes", "Redis' maxmemory; 0: none.", "pool")
	usedMemory  = describe("lmstfy_redis", "used_mem_bytes", "Redis' memory.", "pool")
	connections = describe("lmstfy_redis", "connections", "Redis' clients.", "pool")
	blocked     = describe("lmstfy_redis", "blocking_connections", "Redis' clients that wait.", "pool")
	totalKeys   = describe("lmstfy_redis", "total_keys", "Redis' keys.", "pool")
	expiring    = describe("lmstfy_redis", "total_ttl_keys", "Redis' keys that expire.", "pool")

	up = prometheus.NewDesc("shuntd_redis_up", "Whether Redis has answered.", []string{"pool"}, nil)

	messages = prometheus.NewDesc("shuntd_messages", "Messages by state.", []string{"pool", "channel", "state"}, nil)
	ungauged = prometheus.NewDesc("shuntd_channels_ungauged", "Channels without series of their own.",
		[]string{"pool"}, nil)
	hears   = prometheus.NewDesc("shuntd_token_hints", "Whether changes of tokens by others are heard.", nil, nil)
	waiting = prometheus.NewDesc("shuntd_waiting_requests", "Requests that wait for a job.", nil, nil)
)

// gauges reads what Redis has when Prometheus asks.
type gauges struct {
	d *Daemon

	mu   sync.Mutex
	at   time.Time
	last []prometheus.Metric
}

// Describe tells nothing beforehand: which queues there are changes.
func (g *gauges) Describe(chan<- *prometheus.Desc) {}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	for _, m := range g.read() {
		to <- m
	}
	heard := 0.0
	if g.d.access.Hears() {
		heard = 1
	}
	to <- prometheus.MustNewConstMetric(hears, prometheus.GaugeValue, heard)
	to <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(g.d.api.Waiting()))
}

func (g *gauges) read() []prometheus.Metric {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.at) < gaugesEvery {
		return g.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup // at once: one that hangs must not take the time of others
	g.last = nil
	for _, p := range g.d.pools {
		all.Go(func() {
			some := p.gauges(ctx)
			mu.Lock()
			defer mu.Unlock()
			g.last = append(g.last, some...)
		})
	}
	all.Wait()
	g.at = time.Now()
	return g.last
}

func (p *pool) gauges(ctx context.Context) (ms []prometheus.Metric) {
	add := func(d *prometheus.Desc, n float64, labels ...string) {
		labels = append([]string{p.name}, labels...)
		ms = append(ms, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...))
	}
	info, err := p.info(ctx)
	if err != nil {
		add(up, 0)
		return ms
	}
	add(up, 1)
	for d, name := range map[*prometheus.Desc]string{maxMemory: "maxmemory", usedMemory: "used_memory",
		connections: "connected_clients", blocked: "blocked_clients"} {
		if n, err := strconv.ParseFloat(info[name], 64); err == nil {
			add(d, n)
		}
	}
	keys, ttl := keyspace(info)
	add(totalKeys, keys)
	add(expiring, ttl)
	channels, err := p.queue.Channels(ctx)
	if err != nil {
		return ms
	}
	add(ungauged, float64(max(0, len(channels)-maxGauged)))
	channels = channels[:min(len(channels), maxGauged)]
	stats := make([]shunt.Stats, len(channels))
	var g errgroup.Group
	g.SetLimit(8)
	for i, name := range channels {
		g.Go(func() (err error) {
			stats[i], err = p.queue.Stats(ctx, name)
			return err
		})
	}
	_ = g.Wait() // those that could not be read have no series
	timers := 0
	for i, name := range channels {
		if stats[i] == nil {
			continue
		}
		for _, s := range shunt.States {
			add(messages, float64(stats[i][s].Count), name, string(s))
		}
		of := stats[i]
		timers += of[shunt.StateDelay].Count + of[shunt.StateDoing].Count + of[shunt.StateLeased].Count
		if ns, queue, ok := strings.Cut(name, "/"); ok {
			add(queueSizes, float64(stats[i][shunt.StatePrepare].Count), ns, queue)
			add(deadSizes, float64(stats[i][shunt.StateDead].Count), ns, queue)
		}
	}
	add(timerSizes, float64(timers))
	return ms
}

// keyspace counts the keys of all databases.
func keyspace(info map[string]string) (keys, expiring float64) {
	for name, value := range info {
		if !strings.HasPrefix(name, "db") {
			continue
		}
		for part := range strings.SplitSeq(value, ",") {
			what, n, _ := strings.Cut(part, "=")
			count, err := strconv.ParseFloat(n, 64)
			switch {
			case err != nil:
			case what == "keys":
				keys += count
			case what == "expires":
				expiring += count
			}
		}
	}
	return keys, expiring
}
