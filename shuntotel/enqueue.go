package shuntotel

import (
	"context"
	"errors"
	"slices"

	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// enqueuer has each enqueue make a span, and puts its context into the headers of the messages.
func (in *Instrumentation) enqueuer(next shunt.EnqueueHandler) shunt.EnqueueHandler {
	return func(ctx context.Context, ms []shunt.IMessage) (err error) {
		if ctx == nil || len(ms) == 0 {
			return next(ctx, ms) // shunt says so
		}
		channels := channelsOf(ms)
		ctx, run := in.begin(parentOf(ctx), &enqueueing, common(channels))
		err = errNoReturn
		var ref shunt.Ref
		defer func() {
			if len(ms) > 1 {
				run.span.SetAttributes(semconv.MessagingBatchMessageCount(len(ms)))
			} else {
				describe(run.span, &shunt.Info{Serial: ref.Serial, ID: ref.ID})
			}
			run.end(ctx, err)
			in.count(ctx, channels, err)
		}()
		opts := in.inject(ctx)
		if len(ms) == 1 && run.span.IsRecording() {
			opts = append(opts, shunt.RefTo(&ref))
		}
		sent := ms
		if len(opts) > 0 {
			sent = slices.Clone(ms)
			for i, m := range sent {
				sent[i] = shunt.With(m, opts...)
			}
		}
		err = next(ctx, sent)
		return err
	}
}

// parentOf has the span of a batch in ctx, where ctx is that of one of its messages.
func parentOf(ctx context.Context) context.Context {
	m, _ := ctx.Value(memberKey{}).(*member)
	if m == nil || !m.batch.IsValid() {
		return ctx
	}
	if now := trace.SpanContextFromContext(ctx); now.IsValid() && !now.IsRemote() {
		return ctx // the handler has a span of its own there
	}
	return trace.ContextWithSpanContext(ctx, m.batch)
}

// count counts messages by channel and failure.
func (in *Instrumentation) count(ctx context.Context, channels []string, err error) {
	if !in.meters.sent.Enabled(ctx) {
		return
	}
	if len(channels) == 1 && err == nil {
		in.meters.enqueued(ctx, channels[0], 1, "")
		return
	}
	var several *shunt.EnqueueError
	errors.As(err, &several)
	counts := make(map[label]int)
	for i, channel := range channels {
		of := err
		if several != nil {
			if of = several.Failed[i]; of == nil {
				of = several.Unknown[i]
			}
		}
		l := label{site: site{channel: channel}}
		if of != nil {
			l.failure = failureOf(of)
		}
		counts[l]++
	}
	for l, n := range counts {
		in.meters.enqueued(ctx, l.channel, n, l.failure)
	}
}

func channelsOf(ms []shunt.IMessage) []string {
	channels := make([]string, len(ms))
	for i, m := range ms {
		channels[i] = channelOf(m)
	}
	return channels
}

// channelOf is a message's channel. Its method may panic, which shunt reports when it asks; here that is no channel.
func channelOf(m shunt.IMessage) (channel string) {
	defer func() {
		if recover() != nil {
			channel = ""
		}
	}()
	return clean(m.Channel())
}

// common is the channel that all messages have; empty: they have several.
func common(channels []string) string {
	for _, c := range channels {
		if c != channels[0] {
			return ""
		}
	}
	return channels[0]
}
