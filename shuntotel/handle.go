package shuntotel

import (
	"context"
	"fmt"
	"sync"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// handler has each handling make a span that links to the enqueue.
func (in *Instrumentation) handler(next shunt.Handler) shunt.Handler {
	return func(ctx context.Context, m shunt.IMessage) error {
		info, ok := shunt.FromContext(ctx)
		if !ok {
			return next(ctx, m)
		}
		sent := in.extract(ctx, info.Headers)
		if ctx.Value(batchKey{}) != nil {
			return next(context.WithValue(sent, memberKey{}, new(member)), m) // the batch has the span
		}
		return in.handle(sent, &info, func(ctx context.Context) error { return next(ctx, m) })
	}
}

// handle runs the handler of one message within its span. ctx has the context of the enqueue.
func (in *Instrumentation) handle(ctx context.Context, info *shunt.Info, next func(context.Context) error) error {
	ctx, run := in.beginHandling(ctx, info)
	err := errNoReturn
	defer func() { run.endHandling(ctx, err) }()
	err = next(ctx)
	return err
}

// beginHandling starts the span of one message's handling. ctx has the context of the enqueue, which becomes its
// parent, or else a link alone. Without an SDK that context is handed on.
func (in *Instrumentation) beginHandling(ctx context.Context, info *shunt.Info) (context.Context, *run) {
	opts := make([]trace.SpanStartOption, 0, 2)
	if sent := trace.SpanContextFromContext(ctx); sent.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: sent}))
	}
	if !in.oneTrace {
		opts = append(opts, trace.WithNewRoot())
	}
	channel := clean(info.Channel)
	ctx, run := in.begin(ctx, &handling, channel, opts...)
	describe(run.span, info)
	in.meters.taken(ctx, channel, 1)
	return ctx, run
}

// endHandling ends it, with what the handler has returned. A snooze is no failure.
func (r *run) endHandling(ctx context.Context, err error) {
	verdict := verdictOf(ctx, err)
	r.span.SetAttributes(verdictKey.String(verdict))
	if verdict == "snooze" {
		err = nil
	}
	r.end(ctx, because(ctx, err))
}

// because is a handler's error with the cause for which its context had ended, as shunt writes it.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil {
		return nil
	}
	switch cause {
	case shunt.ErrTimeout, shunt.ErrDeadline, shunt.ErrLeaseLost, shunt.ErrShutdown, shunt.ErrCancelled:
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Pulled begins a span of handling messages that Pull has returned, and links it to their enqueues. The context is for
// the handling, and for [shunt.Leased.Then]. end ends the span with the handling's error; its later calls do nothing.
// Call it when the messages are settled, or about to be.
//
//	ctx, end := in.Pulled(ctx, m)
//	err := ship(ctx, m.Payload)
//	end(err)
//	if err != nil {
//		return m.Fail(ctx, err)
//	}
//	return m.Ack(ctx)
//
// The span is a child of the one in ctx. Where ctx has none it begins a trace; or, of one message with OneTrace, it is
// a child of the enqueue's. The baggage of one message is put into the context, in place of what ctx had; that of
// several is not.
func (in *Instrumentation) Pulled(ctx context.Context, ms ...*shunt.Leased) (_ context.Context, end func(error)) {
	if ctx == nil {
		ctx = context.Background()
	}
	infos := make([]shunt.Info, 0, len(ms))
	for _, m := range ms {
		if m != nil {
			infos = append(infos, m.Info)
		}
	}
	var r *run
	switch around := trace.SpanContextFromContext(ctx); {
	case len(infos) == 0:
		return ctx, func(error) {}
	case len(infos) > 1:
		ctx, r = in.beginBatch(ctx, infos)
	case around.IsValid():
		sent := in.extract(ctx, infos[0].Headers)
		ctx, r = in.beginBatch(trace.ContextWithSpan(sent, trace.SpanFromContext(ctx)), infos)
	default:
		ctx, r = in.beginHandling(in.extract(ctx, infos[0].Headers), &infos[0])
	}
	var once sync.Once
	return ctx, func(err error) {
		once.Do(func() {
			if len(infos) == 1 {
				r.endHandling(ctx, err)
				return
			}
			if verdictOf(ctx, err) == "snooze" {
				err = nil
			}
			r.end(ctx, err)
		})
	}
}

// beginBatch starts the one span of several messages, a child of the one in ctx.
func (in *Instrumentation) beginBatch(ctx context.Context, infos []shunt.Info) (context.Context, *run) {
	channels := make([]string, len(infos))
	counts := make(map[string]int, 1)
	for i := range infos {
		channels[i] = clean(infos[i].Channel)
		counts[channels[i]]++
	}
	ctx, run := in.begin(ctx, &handling, common(channels), trace.WithLinks(in.links(infos)...))
	if len(infos) == 1 {
		describe(run.span, &infos[0])
	} else {
		run.span.SetAttributes(semconv.MessagingBatchMessageCount(len(infos)))
	}
	for channel, n := range counts {
		in.meters.taken(ctx, channel, n)
	}
	return ctx, run
}

// links are those to the enqueues of the messages that came with a context.
func (in *Instrumentation) links(infos []shunt.Info) []trace.Link {
	links := make([]trace.Link, 0, len(infos))
	for i := range infos {
		sent := trace.SpanContextFromContext(in.extract(context.Background(), infos[i].Headers))
		if !sent.IsValid() {
			continue
		}
		l := trace.Link{SpanContext: sent}
		if len(infos) > 1 && infos[i].Serial != "" {
			l.Attributes = append(l.Attributes, semconv.MessagingMessageID(infos[i].Serial))
		}
		links = append(links, l)
	}
	return links
}
