package shuntotel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/messagingconv"
)

// Bounds of what is remembered. A daemon's clients may name any number of channels.
const (
	maxChannels = 1000
	maxSets     = 4000
)

// buckets are those that the conventions ask for, in seconds.
var buckets = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5,
	10)

// meters are the metrics, with their sets of attributes.
type meters struct {
	sent      messagingconv.ClientSentMessages
	operation messagingconv.ClientOperationDuration
	consumed  messagingconv.ClientConsumedMessages
	process   messagingconv.ProcessDuration

	mu       sync.RWMutex // guards what follows
	channels map[string]struct{}
	sets     map[label]attribute.Set
}

// label is what a set of attributes is made of.
type label struct {
	site
	failure string
}

// newMeters makes the metrics. One that a provider refuses measures nothing, and OpenTelemetry's error handler is told.
func newMeters(m metric.Meter) *meters {
	ms := &meters{channels: make(map[string]struct{}), sets: make(map[label]attribute.Set)}
	var errs [4]error
	ms.sent, errs[0] = messagingconv.NewClientSentMessages(m)
	ms.operation, errs[1] = messagingconv.NewClientOperationDuration(m, buckets)
	ms.consumed, errs[2] = messagingconv.NewClientConsumedMessages(m)
	ms.process, errs[3] = messagingconv.NewProcessDuration(m, buckets)
	for _, err := range errs {
		if err != nil {
			otel.Handle(err)
		}
	}
	return ms
}

// enqueued counts messages of one channel that were sent, or could not be.
func (ms *meters) enqueued(ctx context.Context, channel string, n int, failure string) {
	if ms.sent.Enabled(ctx) {
		ms.sent.AddSet(ctx, int64(n), ms.set(label{site{&enqueueing, channel}, failure}))
	}
}

// taken counts messages that came to a handler.
func (ms *meters) taken(ctx context.Context, channel string, n int) {
	if ms.consumed.Enabled(ctx) {
		ms.consumed.AddSet(ctx, int64(n), ms.set(label{site{&handling, channel}, ""}))
	}
}

// took measures an operation.
func (ms *meters) took(ctx context.Context, s site, d time.Duration, failure string) {
	of, record := ms.operation.Inst(), ms.operation.RecordSet
	if s.op == &handling {
		of, record = ms.process.Inst(), ms.process.RecordSet
	}
	if of.Enabled(ctx) {
		record(ctx, d.Seconds(), ms.set(label{s, failure}))
	}
}

// set is a label's set. The channels after the first thousand are without a name.
func (ms *meters) set(l label) attribute.Set {
	ms.mu.RLock()
	s, ok := ms.sets[l]
	ms.mu.RUnlock()
	if ok {
		return s
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if _, known := ms.channels[l.channel]; !known && len(ms.channels) < maxChannels {
		ms.channels[l.channel] = struct{}{}
	} else if !known {
		l.channel = ""
	}
	if s, ok = ms.sets[l]; ok {
		return s
	}
	attrs := l.op.attributes(l.channel)
	if l.failure != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(l.failure))
	}
	if len(ms.sets) >= maxSets {
		clear(ms.sets)
	}
	s = attribute.NewSet(attrs...)
	ms.sets[l] = s
	return s
}
