package shuntotel

import (
	"context"
	"sync"
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

// site is an operation on a channel: what the spans of all its runs begin with.
type site struct {
	op      *operation
	channel string // empty: several
}

// start is the name and the options of a site's spans.
type start struct {
	name string
	opts []trace.SpanStartOption
}

// starts remembers them, for the first thousand channels: a message that is not sampled should cost little.
type starts struct {
	mu    sync.RWMutex
	known map[site]start
}

func (ss *starts) of(s site) start {
	ss.mu.RLock()
	st, ok := ss.known[s]
	ss.mu.RUnlock()
	if ok {
		return st
	}
	st.name = s.op.name
	if s.channel != "" {
		st.name += " " + s.channel
	}
	st.opts = []trace.SpanStartOption{trace.WithSpanKind(s.op.kind),
		trace.WithAttributes(s.op.attributes(s.channel)...)}
	ss.mu.Lock()
	if len(ss.known) < 2*maxChannels {
		ss.known[s] = st
	}
	ss.mu.Unlock()
	return st
}

// run is one run of an operation.
type run struct {
	site
	in    *Instrumentation
	span  trace.Span
	began time.Time
}

// begin starts the span of an operation.
func (in *Instrumentation) begin(ctx context.Context, op *operation, channel string,
	more ...trace.SpanStartOption) (context.Context, *run) {
	r := &run{site: site{op, channel}, in: in, began: time.Now()}
	st := in.starts.of(r.site)
	opts := append(make([]trace.SpanStartOption, 0, 5), st.opts...)
	opts = append(append(opts, trace.WithTimestamp(r.began)), more...)
	ctx, r.span = in.tracer.Start(ctx, st.name, opts...)
	return ctx, r
}

// end ends the span, and measures what it took. err is nil where that is no failure. ctx has the span.
func (r *run) end(ctx context.Context, err error, more ...attribute.KeyValue) {
	now := time.Now()
	failure := ""
	if err != nil {
		failure = failureOf(err)
		fail(r.span, err, failure, more...)
	}
	r.span.End(trace.WithTimestamp(now))
	r.in.meters.took(ctx, r.site, now.Sub(r.began), failure)
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
	add(i.Attempt > 0, attemptKey.Int(i.Attempt))
	add(i.Recoveries > 0, recoveriesKey.Int(i.Recoveries))
	add(i.Receiver != "", semconv.MessagingClientID(i.Receiver))
	span.SetAttributes(attrs...)
}
