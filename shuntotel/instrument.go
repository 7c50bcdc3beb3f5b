package shuntotel

import (
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// scope names this module to OpenTelemetry.
const scope = "github.com/shuntmq/shunt/shuntotel"

// Options says where spans and metrics go. The zero value is ready to use.
type Options struct {
	// TracerProvider makes the spans. The default is otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. The default is otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// Propagator writes contexts into headers, and reads them. The default is propagation.TraceContext, which is W3C's,
	// whatever otel.GetTextMapPropagator has.
	Propagator propagation.TextMapPropagator
	// Baggage has the W3C baggage of an enqueue's context travel, too: a handler finds it by baggage.FromContext. It is
	// off because messages keep it for as long as they live, and whoever reads Redis reads it.
	Baggage bool
	// OneTrace makes the span of a handling a child of its enqueue's, beside the link. So a chain of messages is one
	// trace, and the enqueue's sampling holds for all of it. It is off, as the conventions advise: a trace whose
	// messages wait for days is hard to look at, and a chain without an end never ends. It has no effect on batches.
	OneTrace bool
}

// Instrumentation traces and measures the messages of a Queue. Its methods may be called by many goroutines at once.
type Instrumentation struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	oneTrace   bool
	meters     *meters
	starts     starts
}

// Instrument has q trace and measure its messages. Call it once a Queue, before the Queue is used, and after Wrap,
// WrapEnqueue and CarryHeaders were set: what is set later replaces it. Middleware that is set already runs within the
// spans. The propagator's headers are taken out of CarryHeaders, since the context of a follow-up is its own. Events
// stays as it is.
//
// Instrument asks Redis nothing and starts no goroutine. The result is for batches and for messages that are pulled.
func Instrument(q *shunt.Queue, o Options) *Instrumentation {
	in := newInstrumentation(o)
	wrap, wrapEnqueue := q.Wrap, q.WrapEnqueue
	q.Wrap = func(next shunt.Handler) shunt.Handler {
		if wrap != nil {
			next = wrap(next)
		}
		if next == nil {
			return nil // shunt says so
		}
		return in.handler(next)
	}
	q.WrapEnqueue = func(next shunt.EnqueueHandler) shunt.EnqueueHandler {
		if wrapEnqueue != nil {
			next = wrapEnqueue(next)
		}
		if next == nil {
			return nil
		}
		return in.enqueuer(next)
	}
	fields := in.propagator.Fields()
	q.CarryHeaders = slices.DeleteFunc(slices.Clone(q.CarryHeaders), func(name string) bool {
		return slices.Contains(fields, name)
	})
	return in
}

func newInstrumentation(o Options) *Instrumentation {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.Propagator == nil {
		o.Propagator = propagation.TraceContext{}
	}
	if o.Baggage {
		o.Propagator = propagation.NewCompositeTextMapPropagator(o.Propagator, quietBaggage{})
	}
	return &Instrumentation{
		tracer:     o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: o.Propagator,
		oneTrace:   o.OneTrace,
		meters:     newMeters(o.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))),
		starts:     starts{known: make(map[site]start)},
	}
}
