package shuntotel

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/shuntmq/shunt"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.enqueue(1, shunt.ID("one"))
	err := r.Enqueue(t.Context(), r.kind().Message(2), shunt.ID("one"))
	if !errors.Is(err, shunt.ErrDuplicate) {
		t.Fatal(err)
	}
	spans := r.enqueues(2)
	es, err := r.List(t.Context(), r.name, shunt.StatePrepare, 0, 0)
	if err != nil || len(es) != 1 {
		t.Fatalf("%v, %v", es, err)
	}
	want := map[string]string{"messaging.system": "shunt", "messaging.operation.name": "enqueue",
		"messaging.operation.type": "send", "messaging.destination.name": r.name,
		"messaging.message.id": es[0].Serial, "messaging.shunt.message.id": "one"}
	if got := attrsOf(spans[0]); !maps.Equal(got, want) {
		t.Errorf("%v: want %v", got, want)
	}
	if h := es[0].Headers; len(h) != 1 || h["traceparent"] != header(spans[0]) {
		t.Errorf("headers %v: want %s", h, header(spans[0]))
	}
	if s := spans[1]; s.Status().Code != codes.Error || attrsOf(s)["error.type"] != "duplicate" {
		t.Errorf("%v %v", s.Status(), attrsOf(s))
	}
	got := r.metrics()
	for name, n := range map[string]int{
		"messaging.client.sent.messages " + r.name: 1, "messaging.client.sent.messages " + r.name + " duplicate": 1,
		"messaging.client.operation.duration " + r.name: 1, "messaging.client.operation.duration " + r.name +
			" duplicate": 1} {
		if got[name] != n {
			t.Errorf("%s is %d: want %d", name, got[name], n)
		}
	}
}

// Many messages have one span, and each its context. What failed is counted by channel and failure.
func TestEnqueueAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(q *shunt.Queue, _ *Options) { q.MaxSize = 1000 })
	other := r.name + ".other"
	ms := []shunt.IMessage{shunt.Raw(r.name, nil), shunt.Raw(other, nil), shunt.Raw(other, make([]byte, 1000)),
		shunt.Raw(r.name, nil)}
	var several *shunt.EnqueueError
	if err := r.EnqueueAll(t.Context(), ms); !errors.As(err, &several) || len(several.Failed) != 1 {
		t.Fatal(err)
	}
	s := r.must("enqueue", 1)[0]
	if a := attrsOf(s); a["messaging.batch.message_count"] != "4" || a["error.type"] != "too-large" ||
		a["messaging.destination.name"] != "" {
		t.Errorf("%v", a)
	}
	if err := r.EnqueueAll(t.Context(), ms[3:]); err != nil {
		t.Fatal(err)
	}
	if a := attrsOf(r.enqueues(1)[0]); a["messaging.destination.name"] != r.name ||
		a["messaging.batch.message_count"] != "" {
		t.Errorf("%v", a)
	}
	got := r.metrics()
	for name, n := range map[string]int{r.name: 3, other: 1, other + " too-large": 1} {
		if got["messaging.client.sent.messages "+name] != n {
			t.Errorf("%s is counted %d times: want %d", name, got["messaging.client.sent.messages "+name], n)
		}
	}
	es, err := r.List(t.Context(), other, shunt.StatePrepare, 0, 0)
	if err != nil || len(es) != 1 || es[0].Headers["traceparent"] != header(s) {
		t.Errorf("%v, %v", es, err)
	}
}

// faulty is a message whose Channel panics.
type faulty struct{ shunt.IMessage }

func (faulty) Channel() string { panic("no channel") }

// Faults of an enqueue are told as they are without instruments.
func TestFaultyEnqueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	var none *shunt.Kind[int]
	for want, m := range map[string]shunt.IMessage{
		"the message is nil": nil, "message is nil": none, "Channel panicked: no channel": faulty{},
		"message is nil ": shunt.With(nil),
	} {
		if err := r.Enqueue(t.Context(), m); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: want %s", err, want)
		}
	}
	if err := r.EnqueueAll(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for _, s := range r.must("enqueue", 4) {
		if s.Status().Code != codes.Error {
			t.Errorf("%v", s.Status())
		}
	}
	panics := newRig(t, func(q *shunt.Queue, _ *Options) {
		q.WrapEnqueue = func(shunt.EnqueueHandler) shunt.EnqueueHandler {
			return func(context.Context, []shunt.IMessage) error { panic("no pen") }
		}
	})
	err := panics.Enqueue(t.Context(), panics.kind().Message(1))
	if err == nil || !strings.Contains(err.Error(), "no pen") {
		t.Error(err)
	}
	if a := attrsOf(panics.enqueues(1)[0]); a["error.type"] != "no-return" {
		t.Errorf("%v", a)
	}
}

// Middleware that was set before runs within the spans, and CarryHeaders keeps what is not the propagator's.
func TestChains(t *testing.T) {
	t.Parallel()
	met := make(chan string, 2)
	r := newRig(t, func(q *shunt.Queue, _ *Options) {
		q.CarryHeaders = []string{"traceparent", "tenant", "tracestate"}
		q.Wrap = func(next shunt.Handler) shunt.Handler {
			return func(ctx context.Context, m shunt.IMessage) error {
				met <- spanOf(ctx)
				return next(ctx, m)
			}
		}
		q.WrapEnqueue = func(next shunt.EnqueueHandler) shunt.EnqueueHandler {
			return func(ctx context.Context, ms []shunt.IMessage) error {
				met <- spanOf(ctx)
				return next(ctx, ms)
			}
		}
	})
	if len(r.CarryHeaders) != 1 || r.CarryHeaders[0] != "tenant" {
		t.Errorf("%v", r.CarryHeaders)
	}
	r.receive(func(context.Context, int) error { return nil })
	r.enqueue(1)
	r.wait(shunt.EventAcked, 1)
	for _, s := range []sdktrace.ReadOnlySpan{r.enqueues(1)[0], r.handles(1)[0]} {
		select {
		case got := <-met:
			if got != s.SpanContext().SpanID().String() {
				t.Errorf("middleware met span %s: want that of %s", got, s.Name())
			}
		default:
			t.Errorf("middleware was not called within %s", s.Name())
		}
	}
	for what, mend := range map[string]func(*shunt.Queue){
		"Wrap": func(q *shunt.Queue) { q.Wrap = func(shunt.Handler) shunt.Handler { return nil } },
		"WrapEnqueue": func(q *shunt.Queue) {
			q.WrapEnqueue = func(shunt.EnqueueHandler) shunt.EnqueueHandler { return nil }
		},
	} {
		r := newRig(t, func(q *shunt.Queue, _ *Options) { mend(q) })
		err := r.Enqueue(t.Context(), r.kind().Message(1))
		if what == "Wrap" {
			_, err = r.Receive(t.Context(), r.kind(), 1)
		}
		if err == nil || !strings.Contains(err.Error(), "Queue."+what+" gave no") {
			t.Errorf("%v", err)
		}
	}
}

// A delayed message has its enqueue's context, too.
func TestDelayed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.receive(func(context.Context, int) error { return nil })
	r.enqueue(1, shunt.In(20*time.Millisecond))
	r.wait(shunt.EventAcked, 1)
	if !linked(r.handles(1)[0], r.enqueues(1)[0]) {
		t.Errorf("%v", r.handles(1)[0].Links())
	}
}
