package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

// clients is how many keep-alive connections the rates below have.
const clients = 32

// load is clients of a Daemon, which runs in this process too.
type load struct {
	*running
	b      *testing.B
	client *http.Client
}

func loaded(b *testing.B, url string) *load {
	quiet := func(c *config.Config) {
		c.Log.Access = false
		c.Limits.MaxWaiting, c.Limits.MaxConnections = 20_000, 20_000
	}
	r := serving(b, url, quiet)
	r.want(201, userToken, "POST", r.admin+"/token/ns?description=d&token="+userToken, "")
	transport := &http.Transport{MaxIdleConnsPerHost: 2000}
	b.Cleanup(transport.CloseIdleConnections)
	return &load{r, b, &http.Client{Transport: transport}}
}

func (l *load) ask(method, url, body string) string {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		l.b.Error(err)
		return ""
	}
	req.Header.Set("X-Token", userToken)
	res, err := l.client.Do(req)
	if err != nil {
		l.b.Error(err)
		return ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 && res.StatusCode != 404 {
		l.b.Error(method, url, res.Status, err)
	}
	return string(text)
}

// rate has 32 clients do n things together, and reports how many a second.
func (l *load) rate(name string, n int, one func(i int)) {
	var all sync.WaitGroup
	began := time.Now()
	for c := range clients {
		all.Go(func() {
			for i := c; i < n; i += clients {
				one(i)
			}
		})
	}
	all.Wait()
	l.b.ReportMetric(float64(n)/time.Since(began).Seconds(), name+"/s")
}

// BenchmarkRates is lmstfy's interface with 32 clients and 128 bytes: a no-op, publish, and consume and ack.
func BenchmarkRates(b *testing.B) {
	l := loaded(b, redistest.Start(b).URL())
	body, at := strings.Repeat("x", 128), l.api+"/api/ns/q"
	const n = 40_000
	for b.Loop() {
		l.rate("noop", n, func(int) { l.ask("GET", l.admin+"/version", "") })
		l.rate("publish", n, func(int) { l.ask("PUT", at+"?tries=3", body) })
		l.rate("consume-ack", n, func(int) {
			_, rest, _ := strings.Cut(l.ask("GET", at+"?ttr=60", ""), `"job_id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			l.ask("DELETE", at+"/job/"+id, "")
		})
	}
}

// BenchmarkWake is from a publish to the answer of an idle long poll.
func BenchmarkWake(b *testing.B) {
	l := loaded(b, redistest.Start(b).URL())
	at := l.api + "/api/ns/q"
	var took []time.Duration
	for b.Loop() {
		for range 300 {
			woken := make(chan time.Time, 1)
			go func() { l.ask("GET", at+"?ttr=60&timeout=10", ""); woken <- time.Now() }()
			time.Sleep(5 * time.Millisecond)
			began := time.Now()
			l.ask("PUT", at, "x")
			took = append(took, (<-woken).Sub(began))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
}

// share is what Redis uses of a core for so long, in percent.
func share(b *testing.B, s *redistest.Server, d time.Duration, name string) {
	before := s.CPU()
	time.Sleep(d)
	b.ReportMetric(100*float64(s.CPU()-before)/float64(d), name)
}

// BenchmarkWaiting is 1,000 long polls on 100 queues that nobody publishes to.
func BenchmarkWaiting(b *testing.B) {
	s := redistest.Start(b)
	l := loaded(b, s.URL())
	for b.Loop() {
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() { l.ask("GET", fmt.Sprintf("%s/api/ns/q%d?timeout=25", l.api, i%100), "") })
		}
		for l.Daemon.api.Waiting() < 1000 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		share(b, s, 15*time.Second, "%-of-Redis")
		b.ReportMetric(float64(s.Connections()), "connections")
		all.Wait()
	}
}

// BenchmarkIdleChannels is 10,000 known channels without anything, under the upkeep of a Daemon.
func BenchmarkIdleChannels(b *testing.B) {
	s := redistest.Start(b)
	for i := range 10_000 {
		s.Do("SADD", "shunt.channels", fmt.Sprint("ns/q", i))
	}
	loaded(b, s.URL())
	for b.Loop() {
		time.Sleep(3 * time.Second)
		share(b, s, 65*time.Second, "%-of-Redis")
	}
}

// BenchmarkIdleConnections is the memory of a process with a Daemon and 9,900 connections that say nothing. Both ends
// are in this process, so it needs two files for each.
func BenchmarkIdleConnections(b *testing.B) {
	l := loaded(b, redistest.Start(b).URL())
	for b.Loop() {
		addr := strings.TrimPrefix(l.api, "http://")
		var all []net.Conn
		for range 9_900 {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := c.Read(make([]byte, 1000)); err != nil {
				b.Fatal(err)
			}
			all = append(all, c)
		}
		runtime.GC()
		b.ReportMetric(rss(b), "MB")
		for _, c := range all {
			c.Close()
		}
	}
}

// rss is the resident memory of this process in MB, with the clients' ends of the connections.
func rss(b *testing.B) (mb float64) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return resident * float64(os.Getpagesize()) / 1e6
}

// BenchmarkLeaseEnds is how late leases end, with 100,000 others out that do not.
func BenchmarkLeaseEnds(b *testing.B) {
	s := redistest.Start(b)
	pool, err := shunt.NewPool(s.URL())
	if err != nil {
		b.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool, Quiet: true}
	b.Cleanup(func() { q.Close(); pool.Close() })
	ctx := context.Background()
	fill := func(n int) {
		ms := make([]shunt.IMessage, n)
		for i := range ms {
			ms[i] = shunt.Raw("c", []byte("x"))
		}
		if err := q.EnqueueAll(ctx, ms); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		fill(100_000)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range 100_000 / 16 {
					if _, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{"c"}, Lease: time.Hour}); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		var late []time.Duration
		fill(500)
		ends := make(map[string]time.Time)
		for i := range 500 {
			term := 3*time.Second + time.Duration(i)*7*time.Millisecond
			ms, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{"c"}, Lease: term})
			if err != nil || len(ms) != 1 {
				b.Fatal(len(ms), err)
			}
			ends[ms[0].Serial] = ms[0].EndsAt
		}
		for range 500 {
			ms, err := q.Pull(ctx, shunt.PullOptions{Channels: []string{"c"}, Lease: time.Hour, Wait: 20 * time.Second})
			if err != nil || len(ms) != 1 {
				b.Fatal(len(ms), err)
			}
			late = append(late, time.Since(ends[ms[0].Serial]))
		}
		slices.Sort(late)
		b.ReportMetric(float64(late[0])/1e6, "earliest-ms")
		b.ReportMetric(float64(late[len(late)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(late[len(late)*99/100])/1e6, "p99-ms")
	}
}
