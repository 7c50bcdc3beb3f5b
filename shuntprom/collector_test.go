package shuntprom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// What Redis tells is what lies there.
func TestGauges(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBench(t, redistest.Shared(t).URL(), Options{})
	empty := redistest.Name(t)
	b.c.o.Channels = Only(b.channel, empty)
	fail := shunt.Define(b.channel, func(context.Context, string) error { return shunt.Reject(errors.New("no")) })
	for range 3 {
		if err := b.Enqueue(t.Context(), fail.Message("")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Receive(t.Context(), fail, 7); err != nil {
		t.Fatal(err)
	}
	b.until(shunt.EventRejected, 3)
	got := scrape(t, b.c)
	got.want(t, 3, "messages", b.channel, "state", "dead")
	got.want(t, 1, "receivers", b.channel)
	got.want(t, 7, "workers", b.channel)
	got.want(t, 0, "oldest_message_age_seconds", b.channel)
	got.want(t, 3, "enqueued_total", b.channel)
	got.want(t, 3, "outcomes_total", b.channel, "outcome", "dead")
	got.want(t, 3, "handling_seconds", b.channel)
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	for range 3 {
		b.enqueue(b.channel)
	}
	b.enqueue(b.channel, shunt.In(time.Hour))
	if _, err := b.Pull(t.Context(), shunt.PullOptions{Channels: []string{b.channel}, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	b.enqueue(b.channel, shunt.ID("kept"), shunt.Retain(time.Hour))
	got = scrape(t, b.c)
	got.want(t, 1, "channel_up", b.channel)
	got.want(t, 3, "messages", b.channel, "state", "prepare")
	got.want(t, 1, "messages", b.channel, "state", "delay")
	got.want(t, 0, "messages", b.channel, "state", "suspect")
	got.want(t, 0, "messages", b.channel, "state", "done")
	got.want(t, 1, "leases", b.channel)
	got.want(t, 0, "receivers", b.channel)
	for _, name := range []string{"next_due_in_seconds", "lease_ends_in_seconds"} {
		if n, is := got.of(name, b.channel); !is || math.Abs(n-3600) > 30 {
			t.Errorf("%s is %v, want an hour", name, n)
		}
	}
	if n, is := got.of("oldest_message_age_seconds", b.channel); !is || n <= 0 || n > 30 {
		t.Errorf("the oldest is %v s old", n)
	}
	got.want(t, 0, "oldest_message_age_seconds", empty)
	for _, name := range []string{"next_due_in_seconds", "lease_ends_in_seconds"} {
		if n, is := got.of(name, empty); is {
			t.Errorf("%s of an empty channel is %v, want none", name, n)
		}
	}
	if got["shunt_up{}"] != 1 || got["shunt_link_up{}"] != 1 || got["shunt_channels{}"] != 2 {
		t.Errorf("up, link and channels: %v", got)
	}
}

// A bare payload has no age: it is not said to be new.
func TestNoAge(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	b := newBench(t, server.URL(), Options{})
	b.c.o.Channels = Only(b.channel)
	server.Do("LPUSH", "{"+b.channel+"}.prepare", "bare")
	got := scrape(t, b.c)
	got.want(t, 1, "messages", b.channel, "state", "prepare")
	if n, is := got.of("oldest_message_age_seconds", b.channel); is {
		t.Errorf("it is %v s old, want no figure", n)
	}
}

// All commands of a scrape are sent before the first is answered: they are one pipeline.
func TestOnePipeline(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	b := newBench(t, proxy.URL(), Options{Timeout: time.Minute})
	var names []string
	for range 100 {
		names = append(names, redistest.Name(t))
	}
	b.c.o.Channels = Only(names...)
	scrape(t, b.c) // it dials, and Redis learns the scripts
	proxy.ResetCounts()
	scrape(t, b.c)
	if n := proxy.Commands(); n < 200 || n > 203 { // an idle connection may be asked whether it lives
		t.Errorf("%d commands for 100 channels, want two a channel: %v", n, proxy.Log()[:5])
	}

	proxy.ResetCounts()
	proxy.DropReplies(true)
	var wait sync.WaitGroup
	wait.Go(func() {
		if got := scrape(t, b.c); got["shunt_up{}"] != 1 {
			t.Error("a lost reply was not asked for again")
		}
	})
	redistest.Until(t, 5*time.Second, "200 commands without a reply", func() bool { return proxy.Commands() >= 200 })
	proxy.DropReplies(false)
	proxy.CutAll()
	wait.Wait()
}

// Those that scrape while another does ask nothing.
func TestScrapesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, gate := 0, make(chan struct{})
		c, err := New(new(shunt.Queue), Options{Quiet: true, Channels: func(context.Context) ([]string, error) {
			asked++
			<-gate
			return nil, errors.New("enough")
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			go func() {
				if got := scrape(t, c); got["shunt_up{}"] != 0 {
					t.Error("up, though nothing was answered")
				}
			}()
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if asked != 1 {
			t.Errorf("8 scrapes have asked %d times", asked)
		}
	})
}

// It is not parallel, and waits for a moment in which the machine has time.
func TestQuick(t *testing.T) {
	b := newBench(t, redistest.Shared(t).URL(), Options{})
	var names []string
	for range 100 {
		names = append(names, redistest.Name(t))
		b.enqueue(names[len(names)-1])
	}
	b.c.o.Channels = Only(names...)
	best := time.Hour
	for began := time.Now(); best > 20*time.Millisecond; {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("a scrape of 100 channels takes %v, want 20 ms", best)
		}
		before := time.Now()
		b.c.Collect(make(chan prometheus.Metric, 10_000))
		best = min(best, time.Since(before))
	}
}

// What others have written into Redis leaves out what it is about, and nothing else.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBench(t, server.URL(), Options{MaxChannels: 3, Fleet: true})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		b.enqueue(name)
	}
	server.Do("SADD", "shunt.channels", "{a}", "x y", "\xff", strings.Repeat("a", 201), "")
	server.Do("DEL", "{b}.prepare")
	server.Do("HSET", "{b}.prepare", "not", "a list")
	server.Do("SET", "{c}.counts", "not a hash")
	for range 2 {
		got := scrape(t, b.c)
		got.want(t, 1, "channel_up", "a")
		got.want(t, 0, "channel_up", "b")
		got.want(t, 1, "channel_up", "c")
		got.want(t, 1, "messages", "c", "state", "prepare")
		if _, is := got.of("messages", "b", "state", "prepare"); is {
			t.Error("what cannot be read has figures")
		}
		if got["shunt_up{}"] != 1 || got["shunt_channels{}"] != 10 || got["shunt_channels_ungauged{}"] != 7 {
			t.Errorf("up %v, channels %v, ungauged %v; want 1, 10, 7", got["shunt_up{}"], got["shunt_channels{}"],
				got["shunt_channels_ungauged{}"])
		}
		b.c.fleet.until = b.c.fleet.until.Add(-time.Minute) // it asks for counts again
	}
}

func TestChannelsFunc(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL(), Options{})
	b.enqueue(b.channel)
	b.c.o.Channels = Only()
	got := scrape(t, b.c)
	if _, is := got.of("channel_up", b.channel); is || got["shunt_up{}"] != 1 || got["shunt_channels{}"] != 0 {
		t.Errorf("of no channels: %v", got)
	}
	b.c.o.Channels = func(ctx context.Context) ([]string, error) {
		if _, is := ctx.Deadline(); !is {
			t.Error("its context does not end")
		}
		return nil, errors.New("no")
	}
	if got := scrape(t, b.c); got["shunt_up{}"] != 0 {
		t.Errorf("an error of Channels: %v", got)
	}
	b.c.o.Channels = func(context.Context) ([]string, error) { panic("no") }
	if got := scrape(t, b.c); got["shunt_up{}"] != 0 {
		t.Errorf("a panic of Channels: %v", got)
	}
	names := []string{b.channel, b.channel}
	only := Only(names...)
	names[0] = "changed"
	b.c.o.Channels = only
	got = scrape(t, b.c) // the same name twice would be an error of Gather
	got.want(t, 1, "channel_up", b.channel)
}

// Local leaves out all that Redis tells.
func TestLocal(t *testing.T) {
	t.Parallel()
	m := local(t, Options{})
	m.Event(shunt.Event{Kind: shunt.EventConnected})
	got := scrape(t, m)
	for _, name := range got.names() {
		if !strings.HasPrefix(name, "shunt_link_") && name != "shunt_events_dropped_total{}" {
			t.Errorf("%s is there", name)
		}
	}
}

var histogram = regexp.MustCompile(`(fleet|handling).*_seconds$`)

// A channel has as many series as the package's page says.
func TestSeriesOfAChannel(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t).URL(), Options{Fleet: true})
	b.c.o.Channels = Only(b.channel)
	b.enqueue(b.channel, shunt.In(time.Hour))
	b.enqueue(b.channel)
	if _, err := b.Pull(t.Context(), shunt.PullOptions{Channels: []string{b.channel}}); err != nil {
		t.Fatal(err)
	}
	b.until(shunt.EventEnqueued, 2)
	counts := make(map[string]int)
	for name := range scrape(t, b.c) {
		n := 1
		name, _, _ = strings.Cut(name, "{")
		if histogram.MatchString(name) {
			n = len(bounds) + 3 // and +Inf, the sum and the count
		}
		switch of := strings.TrimPrefix(name, "shunt_"); {
		case strings.HasPrefix(of, "fleet_"):
			counts["fleet"] += n
		case families[of].help != "" || of == "handling_seconds":
			counts["events"] += n
		case of != "up" && of != "scrape_duration_seconds" && of != "channels" && of != "channels_ungauged" &&
			!strings.HasPrefix(of, "link_") && of != "events_dropped_total":
			counts["redis"] += n
		}
	}
	if got := fmt.Sprint(counts); got != "map[events:45 fleet:67 redis:13]" {
		t.Error(got)
	}
}
