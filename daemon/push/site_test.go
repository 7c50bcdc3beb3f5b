package push

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/internal/testkit"
	"github.com/shuntmq/shunt/internal/redistest"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

var loopback = prefixes("127.0.0.0/8", "::1/128")

// site is a Pusher of a test, on a pool that no other test meets.
type site struct {
	t     testing.TB
	pool  string
	queue *shunt.Queue
	push  *Pusher
	admin *httptest.Server
	log   *testkit.Log
	stop  func() // ends Run

	mu     sync.Mutex
	events []shunt.Event
}

// uniquePool is a name for a pool.
func uniquePool(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if isName(string(r)) {
			return r
		}
		return '-'
	}, redistest.Name(t))
	return name[max(0, len(name)-50):]
}

func newSite(t testing.TB, url, pool string, change ...func(*Pusher)) *site {
	t.Helper()
	s := &site{t: t, pool: pool, log: new(testkit.Log)}
	queues, err := shunt.NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	own, err := shunt.NewPool(url)
	if err != nil {
		t.Fatal(err)
	}
	s.queue = &shunt.Queue{Pool: queues, Lease: 2 * time.Second, Events: func(e shunt.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	}}
	s.push = &Pusher{Pools: map[string]*shunt.Queue{pool: s.queue}, Redis: own, Allow: loopback, Grace: 5 * time.Second,
		Log: slog.New(slog.NewTextHandler(s.log, nil))}
	for _, f := range change {
		f(s.push)
	}
	if err := s.push.Validate(); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for pattern, h := range s.push.Routes() {
		mux.Handle(pattern, h)
	}
	s.admin = httptest.NewServer(mux)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.push.Run(ctx)
	}()
	s.stop = func() { cancel(); <-over }
	t.Cleanup(func() {
		s.stop()
		s.admin.Close()
		if err := s.queue.Close(); err != nil {
			t.Error(err)
		}
		_, _ = queues.Close(), own.Close()
		if log := s.log.String(); strings.Contains(log, "whsec_") || strings.Contains(log, secret[6:]) {
			t.Errorf("the log has a secret: %s", log)
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

func shared(t testing.TB, change ...func(*Pusher)) *site {
	t.Helper()
	return newSite(t, redistest.Shared(t).URL(), uniquePool(t), change...)
}

// ns is the site's namespace, for channels that no other test meets.
func (s *site) ns() string { return s.pool }

func (s *site) do(method, path, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.admin.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if q := r.URL.Query(); !q.Has("pool") {
		q.Set("pool", s.pool)
		r.URL.RawQuery = q.Encode()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.Contains(string(text), "whsec_") && res.StatusCode != http.StatusBadRequest {
		s.t.Errorf("%s %s has a secret: %s", method, path, text)
	}
	return res.StatusCode, string(text)
}

func (s *site) want(status int, part, method, path, body string) string {
	s.t.Helper()
	got, text := s.do(method, path, body)
	if got != status || !strings.Contains(text, part) {
		s.t.Fatalf("%s %s: %d %.600s, want %d %s", method, path, got, text, status, part)
	}
	return text
}

// group creates a group of queue q with the settings that more has besides.
func (s *site) group(name, endpoint string, more map[string]any) {
	s.t.Helper()
	all := map[string]any{"queues": []string{"q"}, "endpoint": endpoint, "secrets": []string{secret}, "backoff_ms": 100,
		"max_backoff_ms": 200}
	for k, v := range more {
		all[k] = v
	}
	body, err := json.Marshal(all)
	if err != nil {
		s.t.Fatal(err)
	}
	s.want(201, `"state":"active"`, "POST", "/push/"+s.ns()+"/"+name, string(body))
}

func (s *site) publish(queue, payload string, opts ...shunt.Option) {
	s.t.Helper()
	if err := s.queue.Enqueue(context.Background(), shunt.Raw(s.ns()+"/"+queue, []byte(payload)), opts...); err != nil {
		s.t.Fatal(err)
	}
}

// count is how many messages of a queue are in a state.
func (s *site) count(queue string, states ...shunt.State) (n int) {
	s.t.Helper()
	stats, err := s.queue.Stats(context.Background(), s.ns()+"/"+queue)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, st := range states {
		n += stats[st].Count
	}
	return n
}

// empty waits until nothing of a queue is left to be handled.
func (s *site) empty(queue string) {
	s.t.Helper()
	until(s.t, queue+" is empty", func() bool {
		return s.count(queue, shunt.StatePrepare, shunt.StateDoing, shunt.StateDelay, shunt.StateSuspect) == 0
	})
}

// event waits for one about the message with an ID.
func (s *site) event(kind shunt.EventKind, id string) (e shunt.Event) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s of %s", kind, id), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e = range s.events {
			if e.Kind == kind && e.ID == id {
				return true
			}
		}
		return false
	})
	return e
}

func (s *site) happened() []shunt.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]shunt.Event(nil), s.events...)
}

func until(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	return redistest.Until(t, 20*time.Second, what, ok)
}

// got is a request that an endpoint has met.
type got struct {
	header http.Header
	body   string
	proto  int
	at     time.Time
}

// endpoint is a server that notes requests and then answers by a func.
type endpoint struct {
	*httptest.Server
	mu   sync.Mutex
	gots []got
}

func newEndpoint(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, body string)) *endpoint {
	e := unstarted(answer)
	e.Start()
	t.Cleanup(e.Close)
	return e
}

func unstarted(answer func(w http.ResponseWriter, r *http.Request, body string)) *endpoint {
	e := new(endpoint)
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.gots = append(e.gots, got{r.Header.Clone(), string(body), r.ProtoMajor, time.Now()})
		e.mu.Unlock()
		if answer != nil {
			answer(w, r, string(body))
		}
	}))
	e.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	return e
}

func (e *endpoint) all() []got {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]got(nil), e.gots...)
}

// of are the requests with a body.
func (e *endpoint) of(body string) (some []got) {
	for _, g := range e.all() {
		if g.body == body {
			some = append(some, g)
		}
	}
	return some
}

func nothingAllowed(p *Pusher) { p.Allow = []netip.Prefix{} }
