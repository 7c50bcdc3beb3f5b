package shuntprom

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a Queue with a Collector that counts its Events.
type bench struct {
	*shunt.Queue
	c       *Collector
	t       testing.TB
	channel string

	mu   sync.Mutex
	seen map[shunt.EventKind]int
}

func newBench(t testing.TB, url string, o Options) *bench {
	t.Helper()
	pool, err := shunt.NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	return benchOf(t, pool, o)
}

func benchOf(t testing.TB, pool *redis.Pool, o Options) *bench {
	t.Helper()
	b := &bench{t: t, channel: redistest.Name(t), seen: make(map[shunt.EventKind]int)}
	b.Queue = &shunt.Queue{Pool: pool, ReplyTimeout: time.Second,
		Backoff: func(int) time.Duration { return time.Hour }}
	var err error
	o.Quiet = true
	if b.c, err = New(b.Queue, o); err != nil {
		t.Fatal(err)
	}
	b.Events = func(e shunt.Event) {
		b.c.Event(e)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen[e.Kind]++
	}
	t.Cleanup(func() {
		b.Close()
		pool.Close()
	})
	return b
}

// until waits for so many Events of a kind.
func (b *bench) until(kind shunt.EventKind, n int) {
	b.t.Helper()
	redistest.Until(b.t, 10*time.Second, fmt.Sprint(n, " events ", kind), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.seen[kind] >= n
	})
}

func (b *bench) enqueue(channel string, opts ...shunt.Option) {
	b.t.Helper()
	if err := b.Enqueue(b.t.Context(), shunt.Raw(channel, []byte("x")), opts...); err != nil {
		b.t.Fatal(err)
	}
}

// samples are what a registry gives: the values of counters and gauges, and the counts of histograms, by
// name{label="value",…}.
type samples map[string]float64

func scrape(t testing.TB, c prometheus.Collector) samples {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	return gather(t, r)
}

func gather(t testing.TB, r prometheus.Gatherer) samples {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(samples)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.Gauge != nil:
				all[name] = m.Gauge.GetValue()
			case m.Counter != nil:
				all[name] = m.Counter.GetValue()
			case m.Histogram != nil:
				all[name] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return all
}

// of is the sample of a channel: a name, and one more label with its value or none.
func (s samples) of(name, channel string, label ...string) (float64, bool) {
	labels := []string{fmt.Sprintf("channel=%q", channel)}
	if len(label) == 2 {
		labels = append(labels, fmt.Sprintf("%s=%q", label[0], label[1]))
	}
	slices.Sort(labels)
	n, is := s["shunt_"+name+"{"+strings.Join(labels, ",")+"}"]
	return n, is
}

func (s samples) want(t testing.TB, n float64, name, channel string, label ...string) {
	t.Helper()
	if got, is := s.of(name, channel, label...); !is || got != n {
		t.Errorf("%s of %s %v is %v (there: %v), want %v", name, channel, label, got, is, n)
	}
}

func (s samples) names() []string { return slices.Sorted(maps.Keys(s)) }
