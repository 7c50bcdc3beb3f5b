package shuntotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// batchKey marks the context of a receiver whose batches have spans; its messages have none then.
type batchKey struct{}

// memberKey is the context key of a batch's message.
type memberKey struct{}

// member is a batch's message. The goroutine that calls Batch.Handle sets batch before it calls the user's.
type member struct{ batch trace.SpanContext }

// maxExceptions bounds how many failures of one batch are events of its span.
const maxExceptions = 10

// ReceiveBatch is q.ReceiveBatch with one span for each call of b.Handle, which links to the enqueues of all its
// messages; q is the Queue that was given to Instrument. A batch in which a message has failed has failed. What Handle
// enqueues by [shunt.Then] with [shunt.MemberContext] is a child of the span.
//
// With q.ReceiveBatch itself each message has a span of its own, which includes the wait for its batch. A provider's
// default is to keep 128 links of a span: raise SpanLimits.LinkCountLimit for larger batches.
func (in *Instrumentation) ReceiveBatch(ctx context.Context, q *shunt.Queue, prototype shunt.IMessage, workers int,
	b shunt.Batch) (shunt.Shutdown, error) {
	if ctx == nil || b.Handle == nil {
		return q.ReceiveBatch(ctx, prototype, workers, b) // which says so
	}
	handle := b.Handle
	b.Handle = func(ctx context.Context, ms []shunt.IMessage) (verdicts []error) {
		infos := make([]shunt.Info, len(ms))
		for i := range ms {
			infos[i], _ = shunt.FromContext(shunt.MemberContext(ctx, i))
		}
		ctx, run := in.beginBatch(withoutSpan(ctx), infos)
		for i := range ms {
			if m, ok := shunt.MemberContext(ctx, i).Value(memberKey{}).(*member); ok {
				m.batch = run.span.SpanContext()
			}
		}
		returned := false
		defer func() {
			if !returned {
				run.end(ctx, errNoReturn)
				return
			}
			run.endBatch(ctx, infos, verdicts)
		}()
		verdicts = handle(context.WithValue(ctx, batchKey{}, nil), ms)
		returned = true
		return verdicts
	}
	return q.ReceiveBatch(context.WithValue(ctx, batchKey{}, true), prototype, workers, b)
}

// endBatch ends the span of a batch. The first failure is the batch's; the next ones are events beside it.
func (r *run) endBatch(ctx context.Context, infos []shunt.Info, verdicts []error) {
	if verdicts != nil && len(verdicts) != len(infos) {
		r.end(ctx, fmt.Errorf("shuntotel: Batch.Handle returned %d verdicts on %d messages", len(verdicts), len(infos)))
		return
	}
	var first error
	var of []attribute.KeyValue
	failed := 0
	for i, err := range verdicts {
		if err == nil || verdictOf(ctx, err) == "snooze" {
			continue
		}
		id := []attribute.KeyValue{semconv.MessagingMessageID(infos[i].Serial)}
		switch failed++; {
		case failed == 1:
			first, of = err, id
		case failed <= maxExceptions && r.span.IsRecording():
			r.span.AddEvent(semconv.ExceptionEventName,
				trace.WithAttributes(exception(err, failureOf(err), textOf(err), id)...))
		}
	}
	if failed > 0 {
		r.span.SetAttributes(failedKey.Int(failed))
	}
	r.end(ctx, because(ctx, first), of...)
}
