package shuntprom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// What all processes count is added once, whenever and however often it is asked for.
func TestFleet(t *testing.T) {
	t.Parallel()
	url := redistest.Shared(t).URL()
	exporter := newBench(t, url, Options{Fleet: true})
	channel := exporter.channel
	exporter.c.o.Channels = Only(channel)
	now := time.Now()
	got := scrape(t, exporter.c)
	got.want(t, 0, "fleet_outcomes_total", channel, "outcome", "acked")
	began := exporter.c.fleet.until
	if began.After(time.Now()) || began.Add(time.Minute).Before(now) {
		t.Errorf("at %v the minute that is not over began at %v", now, began)
	}

	work := func() { // in a process of its own, which adds its counts when it ends
		t.Helper()
		p := newBench(t, url, Options{})
		kind := shunt.Define(channel, func(_ context.Context, ok bool) error {
			if ok {
				return nil
			}
			return errors.New("no")
		})
		for i := range 10 {
			if err := p.Enqueue(t.Context(), kind.Message(i < 7)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Receive(t.Context(), kind, 2); err != nil {
			t.Fatal(err)
		}
		p.until(shunt.EventAcked, 7)
		p.until(shunt.EventRetried, 3)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The clock of Redis goes on by itself; a later minute stands for that.
	advance := func(minute time.Time) {
		t.Helper()
		all, err := exporter.Overview(t.Context(), channel)
		if err != nil {
			t.Fatal(err)
		}
		if err := exporter.c.fleet.advance(t.Context(), exporter.Queue, all, minute); err != nil {
			t.Fatal(err)
		}
	}
	want := func(times float64) {
		t.Helper()
		var ms metrics
		exporter.c.fleet.collect(&ms)
		got := scrape(t, fixed(ms))
		got.want(t, 10*times, "fleet_enqueued_total", channel)
		got.want(t, 7*times, "fleet_outcomes_total", channel, "outcome", "acked")
		got.want(t, 3*times, "fleet_outcomes_total", channel, "outcome", "retried")
		got.want(t, 0, "fleet_outcomes_total", channel, "outcome", "dead")
		got.want(t, 10*times, "fleet_wait_seconds", channel)
		got.want(t, 10*times, "fleet_handling_seconds", channel)
		got.want(t, 7*times, "fleet_end_to_end_seconds", channel)
		if n, _ := got.of("fleet_enqueued_bytes_total", channel); (n > 0) != (times > 0) {
			t.Errorf("%v bytes", n)
		}
	}
	work()
	advance(began)
	want(0) // that minute is not over
	next := began.Add(10 * time.Minute)
	advance(next)
	want(1)
	advance(next)
	want(1)
	advance(next.Add(-time.Minute)) // another answer came late
	want(1)

	exporter.c.fleet.until = began // as if it had not been asked for since then
	work()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all, err := exporter.Overview(t.Context(), channel)
	if err != nil {
		t.Fatal(err)
	}
	if err := exporter.c.fleet.advance(ctx, exporter.Queue, all, next); err == nil {
		t.Error("no error though the context has ended")
	}
	want(1) // nothing is in that was not answered
	advance(next)
	want(3)

	exporter.c.fleet.until = began.Add(2 * time.Hour) // that clock was set back
	advance(began)
	if got := exporter.c.fleet.until; !got.Equal(began) {
		t.Errorf("it goes on at %v, want %v", got, began)
	}
	want(3)
	exporter.c.fleet.until = began.Add(-5 * time.Hour)
	advance(began.Add(-30 * time.Minute)) // more than can be caught up: no error
	want(3)

	exporter.c.o.Channels = Only("another")
	got = scrape(t, exporter.c)
	if _, is := got.of("fleet_enqueued_total", channel); is {
		t.Error("a channel that is not asked for any more has counters")
	}
}

// fixed is a Collector of metrics that are there.
type fixed metrics

func (f fixed) Describe(chan<- *prometheus.Desc) {}
func (f fixed) Collect(to chan<- prometheus.Metric) {
	for _, m := range f {
		to <- m
	}
}

// The buckets of shunt fall into those here without a rest: each bound is one of shunt's.
func TestDistribution(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL(), Options{})
	kind := shunt.Define(b.channel, func(context.Context, int) error { return nil })
	for range 50 {
		if err := b.Enqueue(t.Context(), kind.Message(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Receive(t.Context(), kind, 2); err != nil {
		t.Fatal(err)
	}
	b.until(shunt.EventAcked, 50)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	reader := newBench(t, redistest.Shared(t).URL(), Options{})
	counts, err := reader.Counts(t.Context(), shunt.CountsOptions{Channels: []string{b.channel}})
	if err != nil {
		t.Fatal(err)
	}
	c := &counts[0][0]
	var d distribution
	for _, h := range []*shunt.Histogram{&c.Wait, &c.Handling, &c.EndToEnd} {
		d = distribution{}
		d.add(h)
		if d.count != 50 {
			t.Errorf("of 50 there are %d", d.count)
		}
		for i, bound := range bounds {
			upTo, exact := uint64(0), 64*time.Microsecond<<(2*i)
			if math.Abs(bound/exact.Seconds()-1) > 1e-12 {
				t.Errorf("bound %d is %v, want %v", i, bound, exact)
			}
			h.Each(func(below time.Duration, n int64) {
				if below <= exact {
					upTo += uint64(n)
				}
			})
			if d.upTo[i] != upTo {
				t.Errorf("%d up to %v, want %d", d.upTo[i], exact, upTo)
			}
		}
		least, most := 0.0, 0.0
		h.Each(func(below time.Duration, n int64) {
			most += below.Seconds() * float64(n)
			if below > 64*time.Microsecond {
				least += below.Seconds() / 2 * float64(n)
			}
		})
		if d.sum < least || d.sum > most {
			t.Errorf("the sum is %v, want %v to %v", d.sum, least, most)
		}
	}
	var ms metrics
	d.collect(&ms, fleetWait, "c", time.Unix(1e9, 0))
	var m dto.Metric
	if err := ms[0].Write(&m); err != nil {
		t.Fatal(err)
	}
	if m.Histogram.GetCreatedTimestamp().AsTime().Unix() != 1e9 || len(m.Histogram.Bucket) != len(bounds) {
		t.Errorf("%v", m.Histogram)
	}
}

// An hour is caught up for as many channels as there may be.
func TestFleetOfManyChannels(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL(), Options{Fleet: true})
	all := make([]shunt.Overview, 1000)
	for i := range all {
		all[i].Channel = fmt.Sprint(b.channel, i)
	}
	now := time.Now().Truncate(time.Minute)
	b.c.fleet.until = now.Add(-mostBehind)
	if err := b.c.fleet.advance(t.Context(), b.Queue, all, now); err != nil || !b.c.fleet.until.Equal(now) {
		t.Error(err)
	}
}
