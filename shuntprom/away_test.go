package shuntprom

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// While Redis is away a scrape ends in time, however many ask at once, and what comes from Events is there.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	const timeout = time.Second
	server := redistest.Start(t)
	b := newBench(t, server.URL(), Options{Timeout: timeout, Fleet: true})
	b.ReplyTimeout = 4 * time.Second // longer than a scrape may take
	b.enqueue("c")
	b.until(shunt.EventEnqueued, 1)
	answers := func(want float64) {
		t.Helper()
		began := time.Now()
		var wait sync.WaitGroup
		for range 8 {
			wait.Go(func() {
				got := scrape(t, b.c)
				if got["shunt_up{}"] != want {
					t.Errorf("up is %v, want %v", got["shunt_up{}"], want)
				}
				got.want(t, 1, "enqueued_total", "c")
				got.want(t, 0, "fleet_outcomes_total", "c", "outcome", "acked")
				if _, is := got.of("channel_up", "c"); is != (want == 1) {
					t.Errorf("up is %v, and the channel's figures there: %v", want, is)
				}
			})
		}
		wait.Wait()
		if took := time.Since(began); took > 2*timeout+1500*time.Millisecond {
			t.Errorf("scrapes took %v", took)
		}
	}
	comesBack := func() {
		t.Helper()
		redistest.Until(t, 15*time.Second, "a scrape that succeeds", func() bool {
			return scrape(t, b.c)["shunt_up{}"] == 1
		})
	}
	scrape(t, b.c)
	answers(1)
	server.Stop()
	answers(0)
	server.Cont()
	comesBack()
	server.Kill()
	answers(0)
	b.until(shunt.EventDisconnected, 1)
	if got := scrape(t, b.c); got["shunt_link_up{}"] != 0 {
		t.Error("the link is up without a Redis")
	}
	server.Restart()
	comesBack()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, b.c); got["shunt_up{}"] != 0 {
		t.Error("up, though the Queue is closed")
	}
}

func TestNeverThere(t *testing.T) {
	t.Parallel()
	b := newBench(t, "redis://127.0.0.1:1", Options{Timeout: time.Second})
	began := time.Now()
	if got := scrape(t, b.c); got["shunt_up{}"] != 0 {
		t.Error(got)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Why a scrape has failed is said once, until one succeeds. It is not parallel, for the log is the program's.
func TestSaysWhy(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var text bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	b := newBench(t, redistest.Shared(t).URL(), Options{})
	for _, c := range []struct {
		quiet, fails bool
		lines        int
	}{{false, false, 0}, {false, true, 1}, {false, true, 0}, {false, false, 0}, {false, true, 1}, {false, false, 0},
		{true, true, 0}} {
		text.Reset()
		b.c.o.Quiet, b.c.o.Channels = c.quiet, Only(b.channel)
		if c.fails {
			b.c.o.Channels = func(context.Context) ([]string, error) { return nil, errors.New("the reason") }
		}
		scrape(t, b.c)
		if n := strings.Count(text.String(), "the reason"); n != c.lines {
			t.Errorf("%+v: %d lines: %s", c, n, text.String())
		}
	}
}
