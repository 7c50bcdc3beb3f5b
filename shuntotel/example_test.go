package shuntotel_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/shuntotel"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// One call, before the Queue is used. The exporter is the program's choice: here each span is printed.
func ExampleInstrument() {
	ctx := context.Background()
	exporter, err := stdouttrace.New(stdouttrace.WithPrettyPrint())
	check(err)
	tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(tracers)
	defer tracers.Shutdown(ctx) // after the Queue's Close

	pool, err := shunt.NewPool(os.Getenv("REDIS_URL"))
	check(err)
	q := &shunt.Queue{Pool: pool}
	shuntotel.Instrument(q, shuntotel.Options{})
	defer q.Close()

	welcome := shunt.Define("welcome", func(ctx context.Context, to string) error {
		fmt.Println("hello,", to) // ctx has the span "handle welcome"
		return nil
	})
	check(q.Enqueue(ctx, welcome.Message("Ann")))
	_, err = q.Receive(ctx, welcome, 8)
	check(err)
}

// A batch has one span, which links to the enqueues of all its messages.
func ExampleInstrumentation_ReceiveBatch() {
	ctx := context.Background()
	q := &shunt.Queue{}
	in := shuntotel.Instrument(q, shuntotel.Options{})
	rows := shunt.Define[int]("rows", nil)
	shutdown, err := in.ReceiveBatch(ctx, q, rows, 4, shunt.Batch{
		Handle: func(ctx context.Context, ms []shunt.IMessage) []error { return insert(ctx, ms) },
	})
	check(err)
	check(shutdown(ctx))
}

func insert(context.Context, []shunt.IMessage) []error { return nil }

// What was pulled is handled within a span, too.
func ExampleInstrumentation_Pulled() {
	ctx := context.Background()
	q := &shunt.Queue{}
	in := shuntotel.Instrument(q, shuntotel.Options{})
	ms, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{"pictures"}})
	check(err)
	for _, m := range ms {
		ctx, end := in.Pulled(ctx, m)
		err := shrink(ctx, m.Payload)
		end(err)
		if err != nil {
			check(m.Fail(ctx, err))
			continue
		}
		check(m.Ack(ctx))
	}
}

func shrink(context.Context, []byte) error { return nil }
