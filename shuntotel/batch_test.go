package shuntotel

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

// gather starts a receiver of batches of n.
func (r *rig) gather(ctx context.Context, n int, handle func(context.Context, []shunt.IMessage) []error) {
	r.t.Helper()
	b := shunt.Batch{MaxSize: n, MaxWait: time.Minute, Handle: handle}
	if _, err := r.in.ReceiveBatch(ctx, r.Queue, r.kind(), 1, b); err != nil {
		r.t.Fatal(err)
	}
}

// A batch has one span, which links to all enqueues; what follows its messages is its child.
func TestBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ctx, start := r.tracer.Start(t.Context(), "start")
	start.End()
	next := shunt.Define(r.name+".next", func(context.Context, int) error { return nil })
	r.gather(ctx, 3, func(ctx context.Context, ms []shunt.IMessage) []error {
		if !trace.SpanFromContext(ctx).IsRecording() {
			t.Error("want the batch's span in the context")
		}
		if err := shunt.Then(shunt.MemberContext(ctx, 1), next.Message(1)); err != nil {
			t.Error(err)
		}
		own, span := r.tracer.Start(shunt.MemberContext(ctx, 1), "own")
		defer span.End()
		if err := shunt.Then(own, next.Message(2)); err != nil {
			t.Error(err)
		}
		return nil
	})
	for i := range 3 {
		r.enqueue(i)
	}
	r.wait(shunt.EventAcked, 3)
	s, sent := r.handles(1)[0], r.enqueues(3)
	if a := attrsOf(s); a["messaging.batch.message_count"] != "3" || a["messaging.operation.type"] != "process" ||
		a["messaging.message.id"] != "" || s.Parent().IsValid() || s.Status().Code != codes.Unset {
		t.Errorf("%v, parent %v, %v", a, s.Parent(), s.Status())
	}
	links := make(map[string]string)
	for _, l := range s.Links() {
		links[l.SpanContext.SpanID().String()] = texts(l.Attributes)["messaging.message.id"]
	}
	for _, e := range sent {
		if id := attrsOf(e)["messaging.message.id"]; id == "" || links[e.SpanContext().SpanID().String()] != id {
			t.Errorf("%v: want message %s", links, id)
		}
	}
	follow := r.must("enqueue "+next.Channel(), 2)
	if !childOf(follow[0], s) || !childOf(follow[1], r.must("own", 1)[0]) {
		t.Errorf("parents %v, %v", follow[0].Parent(), follow[1].Parent())
	}
	if m := r.metrics(); m["messaging.client.consumed.messages "+r.name] != 3 ||
		m["messaging.process.duration "+r.name] != 1 {
		t.Errorf("%v", m)
	}
}

// The failures of a batch's messages are recorded on its span.
func TestBatchFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle  func(ms []shunt.IMessage) []error
		failure string
		failed  string
		events  int
	}{
		"some": {func(ms []shunt.IMessage) []error {
			vs := make([]error, len(ms))
			vs[3], vs[5], vs[7] = shunt.Reject(errors.New("oops")), errors.New("oh"), shunt.Snooze(time.Hour)
			return vs
		}, "*errors.errorString", "2", 2},
		"all": {func(ms []shunt.IMessage) []error {
			vs := make([]error, len(ms))
			for i := range vs {
				vs[i] = fmt.Errorf("oops %d", i)
			}
			return vs
		}, "*errors.errorString", "20", maxExceptions},
		"snoozed": {func(ms []shunt.IMessage) []error {
			vs := make([]error, len(ms))
			vs[0] = shunt.Snooze(time.Hour)
			return vs
		}, "", "", 0},
		"panics":   {func([]shunt.IMessage) []error { panic("oops") }, "no-return", "", 1},
		"too few":  {func([]shunt.IMessage) []error { return make([]error, 1) }, "*errors.errorString", "", 1},
		"too many": {func([]shunt.IMessage) []error { return make([]error, 21) }, "*errors.errorString", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, patient)
			done := make(chan struct{})
			r.gather(t.Context(), 20, func(_ context.Context, ms []shunt.IMessage) []error {
				defer close(done)
				return c.handle(ms)
			})
			var ms []shunt.IMessage
			for i := range 20 {
				ms = append(ms, r.kind().Message(i))
			}
			if err := r.EnqueueAll(t.Context(), ms); err != nil {
				t.Fatal(err)
			}
			<-done
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			s := r.handles(1)[0]
			a := attrsOf(s)
			if a["error.type"] != c.failure || a["messaging.shunt.batch.failed_count"] != c.failed ||
				len(s.Events()) != c.events || len(s.Links()) != 20 ||
				(s.Status().Code == codes.Error) != (c.failure != "") {
				t.Errorf("%v, %d events, %v, %d links", a, len(s.Events()), s.Status(), len(s.Links()))
			}
		})
	}
}

// ReceiveBatch says what is wrong as the Queue's does; and the Queue's own gives each message a span.
func TestBatchWithout(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, err := r.in.ReceiveBatch(t.Context(), r.Queue, r.kind(), 1, shunt.Batch{}); err == nil {
		t.Error("want an error")
	}
	ack := func(context.Context, []shunt.IMessage) []error { return nil }
	b := shunt.Batch{MaxSize: 2, MaxWait: time.Minute, Handle: ack}
	if _, err := r.ReceiveBatch(t.Context(), r.kind(), 1, b); err != nil {
		t.Fatal(err)
	}
	r.enqueue(1)
	r.enqueue(2)
	r.wait(shunt.EventAcked, 2)
	r.handles(2)
}

// pulled pulls n messages and gives f what Pulled returns for them.
func (r *rig) pulled(n int, f func(ctx context.Context, end func(error), ms []*shunt.Leased)) {
	r.t.Helper()
	ms, err := r.Pull(r.t.Context(), shunt.PullOptions{Channels: []string{r.name}, Max: n, Wait: patience})
	if err != nil || len(ms) != n {
		r.t.Fatalf("%d messages, %v", len(ms), err)
	}
	ctx, end := r.in.Pulled(r.t.Context(), ms...)
	f(ctx, end, ms)
}

func TestPulled(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.enqueue(1)
	sent := r.enqueues(1)[0]
	r.pulled(1, func(ctx context.Context, end func(error), ms []*shunt.Leased) {
		if err := ms[0].Then(ctx, shunt.Raw(r.name+".next", nil)); err != nil {
			t.Fatal(err)
		}
		end(errors.New("oops"))
		end(nil)
		if err := ms[0].Fail(ctx, shunt.RetryAfter(0, errors.New("oops"))); err != nil {
			t.Fatal(err)
		}
	})
	s := r.handles(1)[0]
	if a := attrsOf(s); !linked(s, sent) || s.Parent().IsValid() || a["messaging.shunt.message.attempt"] != "1" ||
		a["error.type"] != "*errors.errorString" || a["messaging.shunt.verdict"] != "fail" ||
		a["messaging.message.id"] == "" || s.SpanKind() != trace.SpanKindConsumer {
		t.Errorf("%v, %v", a, s.Links())
	}
	if follow := r.must("enqueue "+r.name+".next", 1)[0]; !childOf(follow, s) {
		t.Errorf("%v", follow.Parent())
	}
	took := "messaging.process.duration " + r.name
	if m := r.metrics(); m["messaging.client.consumed.messages "+r.name] != 1 || m[took] != 0 ||
		m[took+" *errors.errorString"] != 1 {
		t.Errorf("%v", m)
	}
	r.pulled(1, func(_ context.Context, end func(error), ms []*shunt.Leased) { end(nil) })
	a := attrsOf(r.handles(2)[1])
	if a["messaging.shunt.message.attempt"] != "2" || a["messaging.shunt.verdict"] != "ack" {
		t.Errorf("%v", a)
	}
}

// Within a span of the caller's, the handling is its child; several messages have one span.
func TestPulledWithin(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *shunt.Queue, o *Options) { o.OneTrace = true })
	for i := range 4 {
		r.enqueue(i)
	}
	sent := r.enqueues(4)
	ms, err := r.Pull(t.Context(), shunt.PullOptions{Channels: []string{r.name}, Max: 4})
	if err != nil || len(ms) != 4 {
		t.Fatalf("%d messages, %v", len(ms), err)
	}
	within, job := r.tracer.Start(t.Context(), "job")
	for _, c := range []struct {
		ctx    context.Context
		ms     []*shunt.Leased
		parent sdktrace.ReadOnlySpan
		to     []sdktrace.ReadOnlySpan
	}{
		{t.Context(), ms[:1], sent[0], sent[:1]},
		{t.Context(), ms[:3], nil, sent[:3]},
		{within, ms[1:2], job.(sdktrace.ReadOnlySpan), sent[1:2]},
		{within, ms[2:], job.(sdktrace.ReadOnlySpan), sent[2:]},
	} {
		_, end := r.in.Pulled(c.ctx, c.ms...)
		end(nil)
		ended := r.spans.Ended()
		s := ended[len(ended)-1]
		if !linked(s, c.to...) || c.parent == nil && s.Parent().IsValid() || c.parent != nil && !childOf(s, c.parent) {
			t.Errorf("%d messages: parent %v, links %v", len(c.ms), s.Parent(), s.Links())
		}
	}
	job.End()
	//lint:ignore SA1012 what a careless caller gives
	ctx, end := r.in.Pulled(nil, nil, nil)
	end(nil)
	if ctx == nil {
		t.Error("want a context")
	}
}
