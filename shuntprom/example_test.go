package shuntprom_test

import (
	"log"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/shuntprom"
)

func Example() {
	pool, err := shunt.NewPool("redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool}
	metrics, err := shuntprom.New(q, shuntprom.Options{})
	if err != nil {
		log.Fatal(err)
	}
	lines := shunt.LogEvents(slog.Default())
	q.Events = func(e shunt.Event) { metrics.Event(e); lines(e) } // before the first use of q
	prometheus.MustRegister(metrics)
	http.Handle("/metrics", promhttp.Handler())
}

// An exporter beside programs that cannot be changed. It exports some channels alone.
func ExampleOptions() {
	pool, err := shunt.NewPool("redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool}
	metrics, err := shuntprom.New(q, shuntprom.Options{
		Fleet:    true,
		Channels: shuntprom.Only("mail", "invoices"),
	})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
}

// Two Redis in one program have a label each.
func ExampleCollector() {
	for name, url := range map[string]string{"a": "redis://a:6379", "b": "redis://b:6379"} {
		pool, err := shunt.NewPool(url)
		if err != nil {
			log.Fatal(err)
		}
		q := &shunt.Queue{Pool: pool}
		metrics, err := shuntprom.New(q, shuntprom.Options{})
		if err != nil {
			log.Fatal(err)
		}
		q.Events = metrics.Event
		labels := prometheus.Labels{"redis": name}
		prometheus.WrapRegistererWith(labels, prometheus.DefaultRegisterer).MustRegister(metrics)
	}
}
