package shuntotel

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envURL) != "" {
		os.Exit(receive())
	}
	os.Exit(redistest.Main(m))
}

// patience bounds every wait.
const patience = 10 * time.Second

// rig is a Queue with instruments that a test reads.
type rig struct {
	*shunt.Queue
	t       *testing.T
	in      *Instrumentation
	name    string // of its channel
	spans   *tracetest.SpanRecorder
	tracer  trace.Tracer
	reader  *metric.ManualReader
	events  chan shunt.Event
	handled func(ctx context.Context, n int) error
}

// newRig instruments a Queue on the shared server. mend changes the Options before; the Queue's fields, too.
func newRig(t *testing.T, mend func(*shunt.Queue, *Options)) *rig {
	t.Helper()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	pool, err := shunt.NewPool(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, name: redistest.Name(t), spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader(),
		events: make(chan shunt.Event, 1000)}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	r.tracer = tracers.Tracer("test")
	r.Queue = &shunt.Queue{Pool: pool, Events: func(e shunt.Event) { r.events <- e },
		Backoff: func(int) time.Duration { return 0 }}
	o := Options{TracerProvider: tracers, MeterProvider: metric.NewMeterProvider(metric.WithReader(r.reader))}
	if mend != nil {
		mend(r.Queue, &o)
	}
	r.in = Instrument(r.Queue, o)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		_ = pool.Close()
	})
	return r
}

// patient lets what has failed wait for an hour.
func patient(q *shunt.Queue, _ *Options) { q.Backoff = func(int) time.Duration { return time.Hour } }

// kind is the type of the rig's messages.
func (r *rig) kind() *shunt.Kind[int] {
	return shunt.Define(r.name, func(ctx context.Context, n int) error { return r.handled(ctx, n) })
}

// receive starts a receiver whose handler is f.
func (r *rig) receive(f func(ctx context.Context, n int) error) {
	r.t.Helper()
	r.handled = f
	if _, err := r.Receive(r.t.Context(), r.kind(), 1); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) enqueue(n int, opts ...shunt.Option) {
	r.t.Helper()
	if err := r.Enqueue(r.t.Context(), r.kind().Message(n), opts...); err != nil {
		r.t.Fatal(err)
	}
}

// wait waits for the nth Event of a kind from now on, and returns it.
func (r *rig) wait(kind shunt.EventKind, n int) shunt.Event {
	r.t.Helper()
	late := time.After(patience)
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind {
				if n--; n == 0 {
					return e
				}
			}
		case <-late:
			r.t.Fatalf("no %s", kind)
		}
	}
}

// ended are the spans of a name that have ended, in the order of their starts.
func (r *rig) ended(name string) (ss []sdktrace.ReadOnlySpan) {
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			ss = append(ss, s)
		}
	}
	slices.SortStableFunc(ss, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return ss
}

// enqueues and handles are the spans of the rig's channel, of which there must be n.
func (r *rig) enqueues(n int) []sdktrace.ReadOnlySpan {
	r.t.Helper()
	return r.must("enqueue "+r.name, n)
}
func (r *rig) handles(n int) []sdktrace.ReadOnlySpan {
	r.t.Helper()
	return r.must("handle "+r.name, n)
}

func (r *rig) must(name string, n int) []sdktrace.ReadOnlySpan {
	r.t.Helper()
	ss := r.ended(name)
	if len(ss) != n {
		r.t.Fatalf("%d spans %q: want %d", len(ss), name, n)
	}
	return ss
}

// attrsOf are a span's attributes, as text.
func attrsOf(s sdktrace.ReadOnlySpan) map[string]string { return texts(s.Attributes()) }

func texts(kvs []attribute.KeyValue) map[string]string {
	m := make(map[string]string)
	for _, kv := range kvs {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// linked says whether a span links to those, and to no others.
func linked(s sdktrace.ReadOnlySpan, to ...sdktrace.ReadOnlySpan) bool {
	return slices.EqualFunc(s.Links(), to, func(l sdktrace.Link, to sdktrace.ReadOnlySpan) bool {
		return l.SpanContext.TraceID() == to.SpanContext().TraceID() &&
			l.SpanContext.SpanID() == to.SpanContext().SpanID()
	})
}

// header is the traceparent of a sampled span.
func header(s sdktrace.ReadOnlySpan) string {
	return "00-" + s.SpanContext().TraceID().String() + "-" + s.SpanContext().SpanID().String() + "-01"
}

func childOf(s, parent sdktrace.ReadOnlySpan) bool {
	return s.Parent().SpanID() == parent.SpanContext().SpanID() &&
		s.SpanContext().TraceID() == parent.SpanContext().TraceID()
}

// metrics are what was measured: points by their metric, channel and error.type, as "name channel failure".
func (r *rig) metrics() map[string]int {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(r.t.Context(), &all); err != nil {
		r.t.Fatal(err)
	}
	counts := make(map[string]int)
	add := func(name string, set attribute.Set, n int) {
		attrs := texts(set.ToSlice())
		for _, key := range []string{"messaging.destination.name", "error.type"} {
			if v := attrs[key]; v != "" {
				name += " " + v
			}
		}
		if attrs["messaging.system"] != "shunt" || attrs["messaging.operation.name"] == "" {
			r.t.Errorf("%s has %v", name, attrs)
		}
		counts[name] += n
	}
	for _, sm := range all.ScopeMetrics {
		for _, m := range sm.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, int(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(m.Name, p.Attributes, int(p.Count))
					if m.Unit != "s" || len(p.Bounds) != 14 || p.Sum <= 0 {
						r.t.Errorf("%s: unit %s, %d bounds, sum %v", m.Name, m.Unit, len(p.Bounds), p.Sum)
					}
				}
			}
		}
	}
	return counts
}
