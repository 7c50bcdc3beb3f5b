package shuntotel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// What the receiving process is told by.
const (
	envURL      = "SHUNTOTEL_TEST_URL"
	envName     = "SHUNTOTEL_TEST_NAME"
	envSpans    = "SHUNTOTEL_TEST_SPANS"
	envOneTrace = "SHUNTOTEL_TEST_ONE_TRACE"
)

// pay and ship are the two channels of the chain.
func pay(name string, handle func(context.Context, int) error) *shunt.Kind[int] {
	return shunt.Define(name+".pay", handle)
}

func ship(name string, handle func(context.Context, int) error) *shunt.Kind[int] {
	return shunt.Define(name+".ship", handle)
}

// receive is the other process: it handles until it reads a line, and leaves its spans in a file.
func receive() int {
	if err := receiveUntilTold(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func receiveUntilTold() error {
	ctx := context.Background()
	file, err := os.Create(os.Getenv(envSpans))
	if err != nil {
		return err
	}
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(file))
	if err != nil {
		return err
	}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	pool, err := shunt.NewPool(os.Getenv(envURL))
	if err != nil {
		return err
	}
	q := &shunt.Queue{Pool: pool}
	Instrument(q, Options{TracerProvider: tracers, OneTrace: os.Getenv(envOneTrace) != ""})

	name := os.Getenv(envName)
	shipping := ship(name, func(context.Context, int) error { return shunt.Reject(errors.New("no such street")) })
	paying := pay(name, func(ctx context.Context, n int) error {
		if info, _ := shunt.FromContext(ctx); info.Attempt == 1 {
			return shunt.RetryAfter(0, errors.New("the bank is busy"))
		}
		_, span := tracers.Tracer("bank").Start(ctx, "charge")
		defer span.End()
		if err := shunt.SetResult(ctx, []byte("paid")); err != nil {
			return err
		}
		return shunt.Then(ctx, shunt.With(shipping.Message(n), shunt.ID("parcel"), shunt.Retain(time.Minute)))
	})
	for _, k := range []shunt.IMessage{paying, shipping} {
		if _, err := q.Receive(ctx, k, 1); err != nil {
			return err
		}
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	return errors.Join(q.Close(), tracers.Shutdown(ctx), file.Close(), pool.Close())
}

// exported is a span as the exporter writes it.
type exported struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ TraceID, SpanID string }
	SpanKind    trace.SpanKind
	Links       []struct {
		SpanContext struct{ TraceID, SpanID string }
	}
	Attributes []struct {
		Key   string
		Value struct{ Value any }
	}
	Events []struct{ Name string }
	Status struct {
		Code        string
		Description string
	}
}

func (s *exported) attr(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return fmt.Sprint(a.Value.Value)
		}
	}
	return ""
}

// linksTo says whether the span has one link, to that.
func (s *exported) linksTo(trace, span string) bool {
	return len(s.Links) == 1 && s.Links[0].SpanContext.TraceID == trace && s.Links[0].SpanContext.SpanID == span
}

// readSpans reads what the other process has exported.
func readSpans(t *testing.T, path string) map[string][]*exported {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	spans := make(map[string][]*exported)
	for d := json.NewDecoder(file); d.More(); {
		s := new(exported)
		if err := d.Decode(s); err != nil {
			t.Fatal(err)
		}
		spans[s.Name] = append(spans[s.Name], s)
	}
	return spans
}

// One process enqueues, and waits for the result. Another fails once, handles the message, and lets one follow, which
// goes to dead. Links lead from each span to the one before, and with OneTrace all are one trace.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	for mode, oneTrace := range map[string]string{"links": "", "one trace": "1"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			path := filepath.Join(t.TempDir(), "spans.json")
			child := redistest.Run(t, []string{envURL + "=" + redistest.Shared(t).URL(), envName + "=" + r.name,
				envSpans + "=" + path, envOneTrace + "=" + oneTrace}, os.Args[0])

			ctx, request := r.tracer.Start(t.Context(), "request")
			limited, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			out, err := r.EnqueueAndWait(limited, pay(r.name, nil).Message(7))
			request.End()
			if err != nil || string(out.Result) != "paid" {
				t.Fatalf("%+v, %v: the other process said %s", out, err, child.Said())
			}
			out, err = r.Wait(limited, shunt.ByID(r.name+".ship", "parcel"))
			if err != nil || out.Kind != shunt.EventRejected {
				t.Fatalf("%+v, %v: the other process said %s", out, err, child.Said())
			}
			if err := child.Tell("end"); err != nil {
				t.Fatal(err)
			}
			if child.Code() != 0 {
				t.Fatalf("the other process said %s", child.Said())
			}

			sent := r.must("enqueue "+r.name+".pay", 1)[0]
			if sent.SpanKind() != trace.SpanKindProducer || sent.Parent().SpanID() != request.SpanContext().SpanID() {
				t.Errorf("the enqueue: kind %v, parent %v", sent.SpanKind(), sent.Parent().SpanID())
			}
			spans := readSpans(t, path)
			paid, follow, shipped, charge := spans["handle "+r.name+".pay"], spans["enqueue "+r.name+".ship"],
				spans["handle "+r.name+".ship"], spans["charge"]
			if len(paid) != 2 || len(follow) != 1 || len(shipped) != 1 || len(charge) != 1 {
				t.Fatalf("%d %d %d %d spans", len(paid), len(follow), len(shipped), len(charge))
			}
			sentTrace, sentSpan := sent.SpanContext().TraceID().String(), sent.SpanContext().SpanID().String()
			for i, s := range paid {
				if s.SpanKind != trace.SpanKindConsumer || !s.linksTo(sentTrace, sentSpan) ||
					s.attr(string(attemptKey)) != fmt.Sprint(i+1) {
					t.Errorf("attempt %d: %+v", i+1, s)
				}
			}
			if f := paid[0]; f.Status.Code != codes.Error.String() || f.Status.Description != "the bank is busy" ||
				f.attr("messaging.shunt.verdict") != "fail" || len(f.Events) != 1 || f.Events[0].Name != "exception" {
				t.Errorf("the first attempt failed: %+v", f)
			}
			if s := paid[1]; s.Status.Code != codes.Unset.String() || s.attr("messaging.shunt.verdict") != "ack" ||
				s.attr("messaging.message.id") != attrsOf(sent)["messaging.message.id"] {
				t.Errorf("the second one was acked: %+v", s)
			}
			if charge[0].Parent.SpanID != paid[1].SpanContext.SpanID {
				t.Errorf("a handler's own span: %+v", charge[0])
			}
			if f := follow[0]; f.SpanKind != trace.SpanKindProducer || f.Parent.SpanID != paid[1].SpanContext.SpanID {
				t.Errorf("the follow-up: %+v", f)
			}
			if s := shipped[0]; !s.linksTo(follow[0].SpanContext.TraceID, follow[0].SpanContext.SpanID) ||
				s.attr("messaging.shunt.verdict") != "reject" || s.Status.Description != "no such street" {
				t.Errorf("the dead one: %+v", s)
			}
			traces := map[string]bool{sentTrace: true}
			for _, s := range []*exported{paid[0], paid[1], charge[0], follow[0], shipped[0]} {
				traces[s.SpanContext.TraceID] = true
			}
			if want := map[string]int{"": 4, "1": 1}[oneTrace]; len(traces) != want {
				t.Errorf("%d traces: want %d", len(traces), want)
			}
		})
	}
}
