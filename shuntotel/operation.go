package shuntotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// Attributes that the conventions have no name for.
const (
	attemptKey    = attribute.Key("messaging.shunt.message.attempt")
	recoveriesKey = attribute.Key("messaging.shunt.message.recoveries")
	typeKey       = attribute.Key("messaging.shunt.message.type")
	idKey         = attribute.Key("messaging.shunt.message.id")
	verdictKey    = attribute.Key("messaging.shunt.verdict")
	failedKey     = attribute.Key("messaging.shunt.batch.failed_count")
)

// operation is a sort of span.
type operation struct {
	name  string // a word of shunt's
	kind  trace.SpanKind
	typed attribute.KeyValue
}

var (
	enqueueing = operation{"enqueue", trace.SpanKindProducer, semconv.MessagingOperationTypeSend}
	handling   = operation{"handle", trace.SpanKindConsumer, semconv.MessagingOperationTypeProcess}
)

// attributes are those of every span and metric of the operation. channel is empty where there are several.
func (op *operation) attributes(channel string) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 5)
	attrs = append(attrs, semconv.MessagingSystemKey.String("shunt"), semconv.MessagingOperationName(op.name), op.typed)
	if channel != "" {
		attrs = append(attrs, semconv.MessagingDestinationName(channel))
	}
	return attrs
}

// run is one run of an operation.
type run struct {
	in      *Instrumentation
	op      *operation
	channel string
	span    trace.Span
	began   time.Time
}

// begin starts the span of an operation.
func (in *Instrumentation) begin(ctx context.Context, op *operation, channel string,
	opts ...trace.SpanStartOption) (context.Context, *run) {
	name := op.name
	if channel != "" {
		name += " " + channel
	}
	r := &run{in: in, op: op, channel: channel, began: time.Now()}
	opts = append(opts, trace.WithSpanKind(op.kind), trace.WithTimestamp(r.began),
		trace.WithAttributes(op.attributes(channel)...))
	ctx, r.span = in.tracer.Start(ctx, name, opts...)
	return ctx, r
}

// end ends the span, and measures what it took. err is nil where that is no failure. ctx has the span.
func (r *run) end(ctx context.Context, err error, more ...attribute.KeyValue) (failure string) {
	now := time.Now()
	if err != nil {
		failure = failureOf(err)
		fail(r.span, err, failure, more...)
	}
	r.span.End(trace.WithTimestamp(now))
	r.in.meters.took(ctx, r.op, r.channel, now.Sub(r.began), failure)
	return failure
}

// describe gives the span of one message what is known of it.
func describe(span trace.Span, i *shunt.Info) {
	if !span.IsRecording() {
		return
	}
	attrs := make([]attribute.KeyValue, 0, 6)
	add := func(set bool, a attribute.KeyValue) {
		if set {
			attrs = append(attrs, a)
		}
	}
	add(i.Serial != "", semconv.MessagingMessageID(i.Serial))
	add(i.ID != "", idKey.String(clean(i.ID)))
	add(i.Type != "", typeKey.String(clean(i.Type)))
	add(true, attemptKey.Int(i.Attempt))
	add(i.Recoveries > 0, recoveriesKey.Int(i.Recoveries))
	add(i.Receiver != "", semconv.MessagingClientID(i.Receiver))
	span.SetAttributes(attrs...)
}
