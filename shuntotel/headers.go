package shuntotel

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// Bounds of what travels. W3C allows 8,192 bytes of baggage and asks for 512 of tracestate; shunt takes keys of 255.
const (
	maxKey   = 255
	maxValue = 8 << 10
	maxSize  = 16 << 10 // of all headers that one enqueue adds
)

// received is a message's headers, for a propagator to read.
type received map[string]string

func (h received) Get(key string) string {
	if v := h[key]; len(v) <= maxValue {
		return v
	}
	return ""
}

func (h received) Set(string, string) {} // the map is shunt's

func (h received) Keys() []string {
	keys := make([]string, 0, len(h))
	for k := range h {
		keys = append(keys, k)
	}
	return keys
}

// added is the headers that a propagator writes.
type added struct {
	keys, values []string
	size         int
}

func (h *added) Get(key string) string {
	if i := slices.Index(h.keys, key); i >= 0 {
		return h.values[i]
	}
	return ""
}

// Set leaves out what shunt would refuse: a trace is not worth a message.
func (h *added) Set(key, value string) {
	i := slices.Index(h.keys, key)
	n := len(key) + len(value)
	if i >= 0 {
		n -= len(key) + len(h.values[i])
	}
	if key == "" || value == "" || len(key) > maxKey || len(value) > maxValue || h.size+n > maxSize {
		return
	}
	h.size += n
	if i >= 0 {
		h.values[i] = value
		return
	}
	h.keys, h.values = append(h.keys, key), append(h.values, value)
}

func (h *added) Keys() []string { return slices.Clone(h.keys) }

// inject gives the options that put ctx into a message's headers.
func (in *Instrumentation) inject(ctx context.Context) []shunt.Option {
	var h added
	in.propagator.Inject(ctx, &h)
	opts := make([]shunt.Option, 0, len(h.keys)+1)
	for i, k := range h.keys {
		opts = append(opts, shunt.Header(k, h.values[i]))
	}
	return opts
}

// extract gives ctx with what travelled in a message's headers, in place of the span that ctx had.
func (in *Instrumentation) extract(ctx context.Context, headers map[string]string) context.Context {
	ctx = withoutSpan(ctx)
	if len(headers) == 0 {
		return ctx
	}
	return in.propagator.Extract(ctx, received(headers))
}

// withoutSpan hides the span of ctx: that of the program's start, perhaps, in which Receive was called.
func withoutSpan(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

// quietBaggage is propagation.Baggage that ignores what is malformed. That one tells OpenTelemetry's error handler,
// which logs: a line for each message, where a producer is hostile.
type quietBaggage struct{ propagation.Baggage }

func (quietBaggage) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	b, err := baggage.Parse(carrier.Get("baggage"))
	if err != nil || b.Len() == 0 {
		return ctx
	}
	return baggage.ContextWithBaggage(ctx, b)
}
