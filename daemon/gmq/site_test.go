package gmq

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/daemon/topics"
	"github.com/shuntmq/shunt/internal/redistest"
)

// site is a Server of a test, whose topics are the test's own.
type site struct {
	t       testing.TB
	server  *Server
	queue   *shunt.Queue
	log     *testkit.Log
	stop    func() error
	metrics *prometheus.Registry
}

func newQueue(t testing.TB, url string) *shunt.Queue {
	t.Helper()
	pool, err := shunt.NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool, Quiet: true}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		_ = pool.Close()
	})
	return q
}

func newSite(t testing.TB, change ...func(*Server)) *site {
	t.Helper()
	q := newQueue(t, redistest.Shared(t).URL())
	if err := q.Upkeep(context.Background()); err != nil {
		t.Fatal(err)
	}
	return newSiteOf(t, q, change...)
}

// newSiteOf is another process's site on a queue.
func newSiteOf(t testing.TB, q *shunt.Queue, change ...func(*Server)) *site {
	t.Helper()
	s := &site{t: t, queue: q, log: new(testkit.Log), metrics: prometheus.NewRegistry()}
	s.server = &Server{Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(s.log, nil)),
		Topics: &topics.Topics{Queue: q, Prefix: redistest.Name(t) + "/"}, Metrics: NewMetrics(s.metrics)}
	for _, f := range change {
		f(s.server)
	}
	if err := s.server.Open(); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve() }()
	var once sync.Once
	s.stop = func() (err error) {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			err = s.server.Shutdown(ctx)
			if e := <-served; e != nil {
				t.Error(e)
			}
			if n := s.server.Budget.Bodies(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
		})
		return err
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client is Go's own.
func (s *site) client() *rpc.Client {
	s.t.Helper()
	c, err := jsonrpc.Dial("tcp", s.server.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func push(c *rpc.Client, pairs ...string) (result string, err error) {
	args := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		args[pairs[i]] = pairs[i+1]
	}
	return result, c.Call(methodPush, args, &result)
}

func (s *site) push(c *rpc.Client, pairs ...string) {
	s.t.Helper()
	if result, err := push(c, pairs...); err != nil || result != "success" {
		s.t.Fatalf("push %q: %q %v", pairs, result, err)
	}
}

func pop(c *rpc.Client, names ...string) (job map[string]string, err error) {
	return job, c.Call(methodPop, names, &job)
}

func (s *site) pop(c *rpc.Client, names ...string) map[string]string {
	s.t.Helper()
	job, err := pop(c, names...)
	if err != nil {
		s.t.Fatalf("pop %q: %v", names, err)
	}
	return job
}

func ack(c *rpc.Client, id string) error {
	var done bool
	if err := c.Call(methodAck, id, &done); err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("acked: %v", done)
	}
	return nil
}

// raw is a connection of its own.
type raw struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func (s *site) dial() *raw {
	s.t.Helper()
	c, err := net.Dial("tcp", s.server.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &raw{s.t, c, bufio.NewReader(c)}
}

func (r *raw) send(text string) *raw {
	r.t.Helper()
	if _, err := io.WriteString(r.Conn, text); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// answer is a response as it lies on the wire, without its id.
type answer struct {
	id     string
	result any
	err    any
}

func (r *raw) line() string {
	r.t.Helper()
	line, err := r.in.ReadString('\n')
	if err != nil {
		r.t.Fatalf("%q: %v", line, err)
	}
	return line[:len(line)-1]
}

func (r *raw) answer() answer {
	r.t.Helper()
	var got struct {
		ID            json.RawMessage
		Result, Error any
	}
	line := r.line()
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		r.t.Fatalf("%s: %v", line, err)
	}
	return answer{string(got.ID), got.Result, got.Error}
}

// rest is all that comes until the server closes.
func (r *raw) rest() string {
	text, _ := io.ReadAll(r.in)
	return string(text)
}

// count is how many messages of a topic are in a state.
func (s *site) count(topic string, state shunt.State) int {
	s.t.Helper()
	stats, err := s.queue.Stats(context.Background(), s.server.Topics.Prefix+topic)
	if err != nil {
		s.t.Fatal(err)
	}
	return stats[state].Count
}

func (s *site) until(what string, is func() bool) {
	s.t.Helper()
	redistest.Until(s.t, 20*time.Second, what, is)
}

// outcomes is how many requests had an outcome.
func (s *site) outcomes(of string) (n float64) {
	s.t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" && l.GetValue() == of {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// bounded is a Budget with limits that are right.
func bounded(l budget.Limits) *budget.Budget {
	b := new(budget.Budget)
	_ = b.SetLimits(l)
	return b
}
