package shuntotel

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	foreign = "00-" + traceID + "-" + spanID + "-01"
)

// A producer without this module sets the header by itself, in any language. What is malformed is no link, and no more.
func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	parent := func(text string) map[string]string { return map[string]string{"traceparent": text} }
	both := func(state string) map[string]string {
		return map[string]string{"traceparent": foreign, "tracestate": state}
	}
	huge := "" // and well-formed
	for i := range 32 {
		huge += fmt.Sprintf("k%d=%s,", i, strings.Repeat("x", 256))
	}
	for name, c := range map[string]struct {
		headers map[string]string
		links   bool
		state   string
	}{
		"none":               {nil, false, ""},
		"good":               {parent(foreign), true, ""},
		"unsampled":          {parent(foreign[:53] + "00"), true, ""},
		"tracestate":         {both("a=1"), true, "a=1"},
		"bad tracestate":     {both("=,,="), true, ""},
		"huge tracestate":    {both(huge[:len(huge)-1]), true, ""},
		"tracestate alone":   {map[string]string{"tracestate": "a=1"}, false, ""},
		"newer version":      {parent("01" + foreign[2:] + "-what-follows"), true, ""},
		"forbidden version":  {parent("ff" + foreign[2:]), false, ""},
		"empty":              {parent(""), false, ""},
		"text":               {parent("\x00\xff%s{}"), false, ""},
		"short":              {parent(foreign[:54]), false, ""},
		"long":               {parent(foreign + "-00"), false, ""},
		"huge":               {parent(foreign + strings.Repeat("-00", 5000)), false, ""},
		"huge newer version": {parent("01" + foreign[2:] + strings.Repeat("-00", 5000)), false, ""},
		"upper case":         {parent(strings.ToUpper(foreign)), false, ""},
		"no trace":           {parent("00-" + strings.Repeat("0", 32) + foreign[35:]), false, ""},
		"no span":            {parent(foreign[:36] + strings.Repeat("0", 16) + "-01"), false, ""},
		"two commas":         {parent(foreign + "," + foreign), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.receive(func(context.Context, int) error { return nil })
			plain := &shunt.Queue{Pool: r.Pool}
			defer plain.Close()
			var opts []shunt.Option
			for k, v := range c.headers {
				opts = append(opts, shunt.Header(k, v))
			}
			if err := plain.Enqueue(t.Context(), r.kind().Message(1), opts...); err != nil {
				t.Fatal(err)
			}
			r.wait(shunt.EventAcked, 1)
			links := r.handles(1)[0].Links()
			if len(links) > 1 || (len(links) == 1) != c.links {
				t.Fatalf("%v", links)
			}
			if !c.links {
				return
			}
			if sc := links[0].SpanContext; sc.TraceID().String() != traceID || sc.SpanID().String() != spanID ||
				!sc.IsRemote() || sc.TraceState().String() != c.state {
				t.Errorf("%v", sc)
			}
		})
	}
}

// A payload that was pushed without shunt has a span, too.
func TestBarePayload(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.receive(func(context.Context, int) error { return nil })
	conn := r.Pool.Get()
	defer conn.Close()
	if _, err := conn.Do("LPUSH", "{"+r.name+"}.prepare", "7"); err != nil {
		t.Fatal(err)
	}
	r.wait(shunt.EventAcked, 1)
	if s := r.handles(1)[0]; len(s.Links()) != 0 || attrsOf(s)["messaging.message.id"] != "" {
		t.Errorf("%v %v", s.Links(), attrsOf(s))
	}
}

func bag(t *testing.T, text string) baggage.Baggage {
	b, err := baggage.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Baggage travels on request, along a chain.
func TestBaggage(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		r := newRig(t, func(_ *shunt.Queue, o *Options) { o.Baggage = on })
		met := make(chan string, 2)
		r.receive(func(ctx context.Context, n int) error {
			met <- baggage.FromContext(ctx).String()
			if n == 1 {
				return shunt.Then(ctx, r.kind().Message(2))
			}
			return nil
		})
		ctx := baggage.ContextWithBaggage(t.Context(), bag(t, "tenant=7"))
		if err := r.Enqueue(ctx, r.kind().Message(1)); err != nil {
			t.Fatal(err)
		}
		r.wait(shunt.EventAcked, 2)
		for range 2 {
			if got, want := <-met, map[bool]string{true: "tenant=7"}[on]; got != want {
				t.Errorf("baggage %q: want %q", got, want)
			}
		}
	}
}

// Malformed baggage is ignored, and nobody is told a line for each message.
func TestHostileBaggage(t *testing.T) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { t.Errorf("told: %v", err) }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	in := newInstrumentation(Options{Baggage: true})
	for _, text := range []string{"=", "a", strings.Repeat("a=1,", 3000), "a=\xff", "a=1,,",
		"a=" + strings.Repeat("x", 9000), strings.Repeat("k=v;p,", 100)} {
		ctx := in.extract(context.Background(), map[string]string{"baggage": text, "traceparent": foreign})
		if !trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("%.20q hides the trace", text)
		}
		if n := len(baggage.FromContext(ctx).String()); n > maxValue {
			t.Errorf("%.20q: %d bytes", text, n)
		}
	}
}

// wild is a propagator that writes what shunt refuses.
type wild struct{ propagation.TraceContext }

func (wild) Inject(ctx context.Context, to propagation.TextMapCarrier) {
	to.Set("", "no key")
	to.Set(strings.Repeat("k", 256), "long key")
	to.Set("long", strings.Repeat("v", maxValue+1))
	to.Set("empty", "")
	to.Set("a", strings.Repeat("v", maxValue))
	to.Set("b", strings.Repeat("v", maxValue)) // too much with a
	to.Set("c", "1")
	to.Set("c", "2")
	for _, k := range to.Keys() {
		to.Set("seen-"+k, to.Get(k)[:1])
	}
}

func TestWildPropagator(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *shunt.Queue, o *Options) { o.Propagator = wild{} })
	r.enqueue(1)
	es, err := r.List(t.Context(), r.name, shunt.StatePrepare, 0, 0)
	if err != nil || len(es) != 1 {
		t.Fatalf("%v, %v", es, err)
	}
	want := map[string]string{"a": strings.Repeat("v", maxValue), "c": "2", "seen-a": "v", "seen-c": "2"}
	if !maps.Equal(es[0].Headers, want) {
		t.Errorf("%.200v", es[0].Headers)
	}
}

// Without any provider nothing breaks, and a trace that others have begun goes through to what follows.
func TestNoProvider(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *shunt.Queue, o *Options) { *o = Options{Baggage: true} })
	met := make(chan string, 3)
	r.receive(func(ctx context.Context, n int) error {
		info, _ := shunt.FromContext(ctx)
		met <- info.Headers["traceparent"] + info.Headers["tracestate"]
		if n == 1 {
			return shunt.Then(ctx, r.kind().Message(2))
		}
		return nil
	})
	r.enqueue(0)
	r.enqueue(1, shunt.Header("traceparent", foreign), shunt.Header("tracestate", "a=1"))
	r.wait(shunt.EventAcked, 3)
	for _, want := range []string{"", foreign + "a=1", foreign + "a=1"} {
		if got := <-met; got != want {
			t.Errorf("%q: want %q", got, want)
		}
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.enqueue(3)
	r.pulled(1, func(ctx context.Context, end func(error), ms []*shunt.Leased) {
		end(nil)
		if trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("want no trace")
		}
	})
}
