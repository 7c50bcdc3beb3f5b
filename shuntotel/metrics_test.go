package shuntotel

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
)

// However many channels and failures there are, what is remembered is bounded, and further channels share one point.
func TestManyChannels(t *testing.T) {
	t.Parallel()
	in := newInstrumentation(Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
	})
	ctx := context.Background()
	for i := range 3 * maxChannels {
		name := fmt.Sprint("channel ", i)
		_, run := in.begin(ctx, &handling, name)
		run.end(ctx, nil)
		in.meters.enqueued(ctx, name, 1, fmt.Sprint("failure ", i))
		in.meters.took(ctx, site{&enqueueing, name}, time.Second, "")
	}
	if n := len(in.starts.known); n > 2*maxChannels {
		t.Errorf("%d starts", n)
	}
	if n := len(in.meters.channels); n != maxChannels {
		t.Errorf("%d channels", n)
	}
	if n := len(in.meters.sets); n > maxSets {
		t.Errorf("%d sets", n)
	}
	for i, named := range map[int]bool{0: true, maxChannels - 1: true, maxChannels: false, 3*maxChannels - 1: false} {
		set := in.meters.set(label{site{&handling, fmt.Sprint("channel ", i)}, ""})
		if _, ok := set.Value("messaging.destination.name"); ok != named {
			t.Errorf("channel %d is named: %v", i, ok)
		}
	}
}
