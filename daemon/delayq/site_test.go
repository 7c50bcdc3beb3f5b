package delayq

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/daemon/topics"
	"github.com/shuntmq/shunt/internal/redistest"
)

// site is an API of a test, whose topics are the test's own.
type site struct {
	t     *testing.T
	api   *API
	queue *shunt.Queue
	http  *httptest.Server
	log   *testkit.Log
}

func newSite(t *testing.T, change ...func(*API)) *site {
	t.Helper()
	pool, err := shunt.NewPool(redistest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, queue: &shunt.Queue{Pool: pool, Quiet: true}, log: new(testkit.Log)}
	if err := s.queue.Upkeep(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.api = &API{Topics: &topics.Topics{Queue: s.queue, Prefix: redistest.Name(t) + "/"},
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(s.log, nil))}
	for _, f := range change {
		f(s.api)
	}
	if err := s.api.Validate(); err != nil {
		t.Fatal(err)
	}
	s.http = httptest.NewServer(s.api.Handler())
	t.Cleanup(func() {
		s.http.Close()
		http.DefaultClient.CloseIdleConnections()
		if err := s.queue.Close(); err != nil {
			t.Error(err)
		}
		_ = pool.Close()
		if n := s.api.Budget.Bodies(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
	return s
}

func (s *site) do(method, path, body string, headers ...string) (code, info, data string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.http.URL+"/delayq/"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var got map[string]string
	if err != nil || json.Unmarshal(text, &got) != nil || len(got) != 3 || res.StatusCode != 200 ||
		res.Header.Get("Content-Type") != "application/json; charset=UTF-8" {
		s.t.Fatalf("%s %s: %d %s %v", method, path, res.StatusCode, text, err)
	}
	return got["code"], got["info"], got["data"]
}

// want does a request that goes well.
func (s *site) want(path, body string) string {
	s.t.Helper()
	code, info, data := s.do("POST", path, body)
	if code != "0" {
		s.t.Fatalf("%s %s: %s %s", path, body, code, info)
	}
	return data
}

// refused does one that does not.
func (s *site) refused(why, path, body string) {
	s.t.Helper()
	if code, info, _ := s.do("POST", path, body); code != "1" || !strings.Contains(info, why) {
		s.t.Errorf("%s %s: %s %s, want %s", path, body, code, info, why)
	}
}

func (s *site) job(path, body string) (j job) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.want(path, body)), &j); err != nil {
		s.t.Fatal(err)
	}
	return j
}

func (s *site) popped(topic string) (j job) {
	s.t.Helper()
	redistest.Until(s.t, 20*time.Second, "a job is ready", func() bool {
		code, _, data := s.do("GET", "job/pop", `{"topic":"`+topic+`"}`)
		return code == "0" && json.Unmarshal([]byte(data), &j) == nil
	})
	return j
}

func (s *site) count(topic string, state shunt.State) int {
	s.t.Helper()
	stats, err := s.queue.Stats(context.Background(), s.api.Topics.Prefix+topic)
	if err != nil {
		s.t.Fatal(err)
	}
	return stats[state].Count
}

// bounded is a Budget with limits that are right.
func bounded(l budget.Limits) *budget.Budget {
	b := new(budget.Budget)
	_ = b.SetLimits(l)
	return b
}
