//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

const benchToken = "01BENCHMARKBENCHMARKBENCH"

// bar is a shuntd of its own, a Redis of its own, and clients in this process.
type bar struct {
	*testing.B
	*process
	redis *redistest.Server
}

func newBar(b *testing.B) *bar {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	_ = l.Close() // the port is shuntd's now
	s := redistest.Start(b)
	pool := s.Pool(b)
	defer pool.Close() // its connections are none of shuntd's
	store := &access.Store{Redis: pool}
	token := access.Token{Pool: "default", Namespace: "ns", Role: access.Both}
	if err := store.Create(context.Background(), benchToken, token); err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	return &bar{b, startOn(b, "tcp", addr, s.URL(), "-api.listen="+addr), s}
}

// caller is a keep-alive client that does little beside the protocol. One goroutine uses it at a time.
type caller struct {
	b *bar
	c net.Conn
	r *bufio.Reader
}

func (b *bar) caller() *caller {
	c, err := b.dial()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return &caller{b, c, bufio.NewReader(c)}
}

// ask is the status, and what the answer says.
func (c *caller) ask(method, path, body string) (int, string) {
	_, err := fmt.Fprintf(
		c.c,
		"%s %s HTTP/1.1\r\nHost: shuntd\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s",
		method,
		path,
		benchToken,
		len(body),
		body,
	)
	if err != nil {
		c.b.Error(err)
		return 0, ""
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.b.Error(err)
		return 0, ""
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode >= 300 && res.StatusCode != http.StatusNotFound {
		c.b.Error(method, path, res.Status, err)
	}
	return res.StatusCode, string(text)
}

// rate has 32 callers do n things together, and reports how many a second.
func (b *bar) rate(name string, n int, one func(c *caller)) {
	var all sync.WaitGroup
	callers := make([]*caller, 32)
	for i := range callers {
		callers[i] = b.caller()
	}
	began := time.Now()
	for i, c := range callers {
		all.Go(func() {
			for ; i < n; i += len(callers) {
				one(c)
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), name+"/s")
}

// BenchmarkRates is lmstfy's interface with 32 clients and 128 bytes: a no-op, publish, and consume and ack.
func BenchmarkRates(b *testing.B) {
	x := newBar(b)
	body := strings.Repeat("x", 128)
	for b.Loop() {
		x.rate("noop", 100_000, func(c *caller) { c.ask("GET", "/livez", "") })
		x.rate("publish", 60_000, func(c *caller) { c.ask("PUT", "/api/ns/q?tries=3", body) })
		x.rate("consume-ack", 60_000, func(c *caller) {
			_, text := c.ask("GET", "/api/ns/q?ttr=60", "")
			_, rest, _ := strings.Cut(text, `"job_id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			if status, _ := c.ask("DELETE", "/api/ns/q/job/"+id, ""); status != http.StatusNoContent {
				b.Error("acked with", status)
			}
		})
	}
}

// percentiles reports two, in ms.
func percentiles(b *testing.B, name string, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, name+"p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, name+"p99-ms")
}

// BenchmarkWake is from a publish to the answer of an idle long poll; beside it, a request that asks Redis nothing.
func BenchmarkWake(b *testing.B) {
	x := newBar(b)
	var took, plain []time.Duration
	waiter, publisher := x.caller(), x.caller()
	for b.Loop() {
		for range 500 {
			woken := make(chan time.Time, 1)
			go func() { waiter.ask("GET", "/api/ns/q?ttr=60&timeout=10", ""); woken <- time.Now() }()
			time.Sleep(5 * time.Millisecond)
			began := time.Now()
			publisher.ask("PUT", "/api/ns/q", "x")
			took = append(took, (<-woken).Sub(began))
			time.Sleep(5 * time.Millisecond)
			began = time.Now()
			publisher.ask("GET", "/livez", "")
			plain = append(plain, time.Since(began))
		}
	}
	percentiles(b, "", took)
	percentiles(b, "noop-", plain)
}

// share is what Redis uses of a core for so long, in percent.
func (b *bar) share(d time.Duration) {
	before := b.redis.CPU()
	time.Sleep(d)
	b.ReportMetric(100*float64(b.redis.CPU()-before)/float64(d), "%-of-Redis")
}

// BenchmarkWaiting is 1,000 long polls on 100 queues that nobody publishes to.
func BenchmarkWaiting(b *testing.B) {
	x := newBar(b)
	for b.Loop() {
		var all sync.WaitGroup
		for i := range 1000 {
			c := x.caller()
			all.Go(func() { c.ask("GET", fmt.Sprintf("/api/ns/q%d?timeout=20", i%100), "") })
		}
		time.Sleep(2 * time.Second)
		x.share(15 * time.Second)
		b.ReportMetric(float64(x.redis.Connections()), "connections")
		all.Wait()
	}
}

// BenchmarkIdleChannels is 10,000 known channels without anything, under the upkeep of a shuntd.
func BenchmarkIdleChannels(b *testing.B) {
	x := newBar(b)
	for i := range 10_000 {
		x.redis.Do("SADD", "shunt.channels", fmt.Sprint("ns/q", i))
	}
	for b.Loop() {
		time.Sleep(3 * time.Second)
		x.share(65 * time.Second)
	}
}

// BenchmarkIdleConnections is the memory of a shuntd with 10,000 connections that have asked for something once.
func BenchmarkIdleConnections(b *testing.B) {
	x := newBar(b)
	for b.Loop() {
		for range 10_000 {
			x.caller().ask("GET", "/livez", "")
		}
		b.ReportMetric(x.rss(), "MB")
	}
}

// rss is the resident memory of the shuntd in MB.
func (b *bar) rss() (mb float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return resident * float64(os.Getpagesize()) / 1e6
}
