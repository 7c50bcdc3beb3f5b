package shuntotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

func spanOf(ctx context.Context) string { return trace.SpanContextFromContext(ctx).SpanID().String() }

// bad is an error whose methods panic.
type bad struct{}

func (*bad) Error() string { panic("no text") }

func gives(err error) func(context.Context) error { return func(context.Context) error { return err } }

// What a handler returns is the end of its span.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle  func(context.Context) error
		event   shunt.EventKind
		verdict string
		failure string // empty: the span is no error
		text    string
	}{
		"ack":  {gives(nil), shunt.EventAcked, "ack", "", ""},
		"fail": {gives(errors.New("oops")), shunt.EventRetried, "fail", "*errors.errorString", "oops"},
		"wrapped": {gives(fmt.Errorf("so: %w", &reflect.ValueError{})), shunt.EventRetried, "fail",
			"*reflect.ValueError", "so: "},
		"retry after": {gives(shunt.RetryAfter(time.Hour, &reflect.ValueError{})), shunt.EventRetried, "fail",
			"*reflect.ValueError", ""},
		"reject": {gives(shunt.Reject(errors.New("no"))), shunt.EventRejected, "reject", "*errors.errorString", "no"},
		"snooze": {gives(shunt.Snooze(time.Hour)), shunt.EventSnoozed, "snooze", "", ""},
		"panic":  {func(context.Context) error { panic("oops") }, shunt.EventRetried, "fail", "panic", "oops"},
		"goexit": {func(context.Context) error { runtime.Goexit(); return nil }, shunt.EventRetried, "fail",
			"no-return", "not returned"},
		"no text": {gives((*bad)(nil)), shunt.EventRetried, "fail", "*shuntotel.bad", "panicked"},
		"no utf-8": {gives(errors.New("\xff" + strings.Repeat("x", 5000))), shunt.EventRetried, "fail",
			"*errors.errorString", "\uFFFDxxx"},
		"timeout": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, shunt.EventRetried, "fail",
			"timeout", "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, patient)
			r.receive(func(ctx context.Context, _ int) error { return c.handle(ctx) })
			timeout := time.Duration(0)
			if name == "timeout" {
				timeout = 20 * time.Millisecond
			}
			r.enqueue(1, shunt.Timeout(timeout))
			r.wait(c.event, 1)
			s := r.handles(1)[0]
			a := attrsOf(s)
			if a["messaging.shunt.verdict"] != c.verdict || a["error.type"] != c.failure {
				t.Errorf("%v", a)
			}
			if st := s.Status(); (st.Code == codes.Error) != (c.failure != "") ||
				!strings.Contains(st.Description, c.text) || len(st.Description) > 2*maxText {
				t.Errorf("%+v", st)
			}
			if n := len(s.Events()); (n == 1) != (c.failure != "") {
				t.Errorf("%d events", n)
			} else if n == 1 {
				stack := texts(s.Events()[0].Attributes)["exception.stacktrace"]
				if strings.Contains(stack, "handle_test.go") != (c.failure == "panic") {
					t.Errorf("stack %q", stack)
				}
			}
			point := "messaging.process.duration " + r.name
			if c.failure != "" {
				point += " " + c.failure
			}
			if m := r.metrics(); m[point] != 1 || m["messaging.client.consumed.messages "+r.name] != 1 {
				t.Errorf("%v", m)
			}
		})
	}
}

// A span has what the handler could learn of its message, as UTF-8, and nothing of what is not known.
func TestDescription(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	in := newInstrumentation(Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	for _, info := range []shunt.Info{{Channel: "orders", Attempt: 1}, {Channel: "orders", Serial: "S", ID: "a\xff",
		Type: "b\xff", Attempt: 3, Recoveries: 2, Receiver: "R", Failure: "busy"}} {
		_ = in.handle(t.Context(), &info, func(context.Context) error { return nil })
	}
	for i, want := range []map[string]string{{}, {"messaging.message.id": "S", "messaging.client.id": "R",
		"messaging.shunt.message.id": "a\uFFFD", "messaging.shunt.message.type": "b\uFFFD",
		"messaging.shunt.message.attempt": "3", "messaging.shunt.message.recoveries": "2"}} {
		maps.Copy(want, map[string]string{"messaging.system": "shunt", "messaging.operation.name": "handle",
			"messaging.operation.type": "process", "messaging.destination.name": "orders",
			"messaging.shunt.verdict": "ack", "messaging.shunt.message.attempt": fmt.Sprint(2*i + 1)})
		if got := attrsOf(spans.Ended()[i]); !maps.Equal(got, want) {
			t.Errorf("%v: want %v", got, want)
		}
	}
}

// Each attempt links to the enqueue, with the headers that it was enqueued with, through dead and back.
func TestRetriesAndDead(t *testing.T) {
	t.Parallel()
	headers := make(chan map[string]string, 10)
	r := newRig(t, nil)
	r.receive(func(ctx context.Context, _ int) error {
		info, _ := shunt.FromContext(ctx)
		headers <- info.Headers
		return errors.New("oops")
	})
	r.enqueue(1, shunt.MaxAttempts(2), shunt.Header("tenant", "7"))
	r.wait(shunt.EventRejected, 1)
	dead, err := r.List(t.Context(), r.name, shunt.StateDead, 0, 0)
	if err != nil || len(dead) != 1 {
		t.Fatalf("%v, %v", dead, err)
	}
	if n, err := r.RetryDead(t.Context(), r.name, dead...); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	r.wait(shunt.EventRejected, 1)
	spans := r.handles(4)
	for i, s := range spans {
		h := <-headers
		if len(h) != 2 || h["tenant"] != "7" || h["traceparent"] != header(r.enqueues(1)[0]) {
			t.Errorf("attempt %d has headers %v", i+1, h)
		}
		if a := attrsOf(s); !linked(s, r.enqueues(1)[0]) || a["messaging.shunt.message.attempt"] != fmt.Sprint(i%2+1) ||
			s.Parent().IsValid() || a["messaging.client.id"] == "" {
			t.Errorf("attempt %d: %v, %v", i+1, a, s.Links())
		}
	}
}

// What a handler enqueues is a child of its span, by Then and by Enqueue, and its handling links to that. The span of
// the program's start, in which Receive was called, is nobody's parent.
func TestFollowups(t *testing.T) {
	t.Parallel()
	for _, oneTrace := range []bool{false, true} {
		r := newRig(t, func(_ *shunt.Queue, o *Options) { o.OneTrace = oneTrace })
		ctx, start := r.tracer.Start(t.Context(), "start")
		r.handled = func(ctx context.Context, n int) error {
			switch n {
			case 1:
				return shunt.Then(ctx, r.kind().Message(2))
			case 2:
				return r.Enqueue(ctx, r.kind().Message(3))
			}
			return nil
		}
		if _, err := r.Receive(ctx, r.kind(), 1); err != nil {
			t.Fatal(err)
		}
		start.End()
		r.enqueue(1)
		r.wait(shunt.EventAcked, 3)
		sent, got := r.enqueues(3), r.handles(3)
		for i := range sent {
			if !linked(got[i], sent[i]) || childOf(got[i], sent[i]) != oneTrace {
				t.Errorf("handling %d: parent %v, links %v", i+1, got[i].Parent(), got[i].Links())
			}
			if i > 0 && !childOf(sent[i], got[i-1]) {
				t.Errorf("follow-up %d: parent %v", i+1, sent[i].Parent())
			}
		}
	}
}

// What came without a context begins a trace, also where Receive was called within one.
func TestNoContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *shunt.Queue, o *Options) { o.OneTrace = true })
	ctx, start := r.tracer.Start(t.Context(), "start")
	defer start.End()
	r.handled = func(context.Context, int) error { return nil }
	if _, err := r.Receive(ctx, r.kind(), 1); err != nil {
		t.Fatal(err)
	}
	plain := &shunt.Queue{Pool: r.Pool}
	defer plain.Close()
	if err := plain.Enqueue(ctx, r.kind().Message(1)); err != nil {
		t.Fatal(err)
	}
	r.wait(shunt.EventAcked, 1)
	if s := r.handles(1)[0]; s.Parent().IsValid() || len(s.Links()) != 0 {
		t.Errorf("parent %v, links %v", s.Parent(), s.Links())
	}
}

// An unsampled span costs the message its header, and nothing beside it.
func TestUnsampled(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *shunt.Queue, o *Options) {
		o.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	})
	r.receive(func(ctx context.Context, _ int) error {
		if trace.SpanFromContext(ctx).IsRecording() || !trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("want a span that does not record")
		}
		return shunt.Reject(errors.New("oops"))
	})
	r.enqueue(1)
	r.wait(shunt.EventRejected, 1)
	es, err := r.List(t.Context(), r.name, shunt.StateDead, 0, 0)
	if err != nil || len(es) != 1 || len(es[0].Headers) != 1 ||
		!strings.HasSuffix(es[0].Headers["traceparent"], "-00") {
		t.Errorf("%v, %v", es, err)
	}
}

// What does not record costs few allocations.
func TestUnsampledAllocations(t *testing.T) {
	in := newInstrumentation(Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
	})
	enqueue := in.enqueuer(func(context.Context, []shunt.IMessage) error { return nil })
	m := shunt.Define[int]("orders", nil).Message(1)
	ms, ctx := []shunt.IMessage{m}, context.Background()
	if n := testing.AllocsPerRun(100, func() { _ = enqueue(ctx, ms) }); n > 30 {
		t.Errorf("%v allocations an enqueue", n)
	}
	if ms[0] != m {
		t.Error("the enqueue wrote to the caller's slice: headers would grow where middleware tries again")
	}
	info := &shunt.Info{Channel: "orders", Serial: "1", Type: "a", ID: "b", Attempt: 1}
	handle := func() error { return in.handle(ctx, info, func(context.Context) error { return nil }) }
	if n := testing.AllocsPerRun(100, func() { _ = handle() }); n > 20 {
		t.Errorf("%v allocations a handling", n)
	}
}
