package lmstfy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

func nothingToPull(ctx context.Context, _ *shunt.Queue, o shunt.PullOptions) ([]*shunt.Leased, error) {
	if o.Wait == 0 {
		return nil, nil
	}
	wait := time.NewTimer(o.Wait)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// source is a queue without a Redis, for what that cannot be made to do in time.
type source struct {
	mu       sync.Mutex
	jobs     []*shunt.Leased
	asked    []shunt.PullOptions
	released []shunt.Receipt
	err      error
	waits    chan struct{} // gets one for each wait that begins
}

func newSource(n int) *source {
	src := &source{waits: make(chan struct{}, 100)}
	for i := range n {
		src.jobs = append(src.jobs, &shunt.Leased{
			Info: shunt.Info{Channel: "ns/q", ID: fmt.Sprint("id", i), Attempt: 2,
				Headers: map[string]string{triesHeader: "3"}},
			Payload: []byte("x"), Receipt: shunt.Receipt(fmt.Sprint("r", i)),
		})
	}
	return src
}

func (src *source) use(a *API, _ *Admin) {
	a.pull = func(ctx context.Context, q *shunt.Queue, o shunt.PullOptions) ([]*shunt.Leased, error) {
		src.mu.Lock()
		src.asked = append(src.asked, o)
		n := min(o.Max, len(src.jobs), 2)
		some := src.jobs[:n:n]
		src.jobs = src.jobs[n:]
		err := src.err
		src.mu.Unlock()
		if n > 0 || err != nil {
			return some, err
		}
		if o.Wait > 0 {
			src.waits <- struct{}{}
		}
		return nothingToPull(ctx, q, o)
	}
	a.release = func(_ context.Context, _ *shunt.Queue, rs []shunt.Receipt) error {
		src.mu.Lock()
		defer src.mu.Unlock()
		src.released = append(src.released, rs...)
		return nil
	}
}

func queues(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint("q", i))
	}
	return strings.Join(all, ",")
}

func TestConsumeParameters(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	src := newSource(0)
	s := newSite(t, src.use)
	for _, c := range []struct {
		path   string
		status int
		text   string
	}{
		{"/q", 404, `{"msg":"no job available"}`},
		{"/q?ttr=", 400, `{"error":"invalid ttr"}`},
		{"/q?ttr=-1", 400, `{"error":"invalid ttr"}`},
		{"/q?ttr=4294967296", 400, `{"error":"invalid ttr"}`},
		{"/q?ttr=4294967295", 404, `{"msg":"no job available"}`},
		{"/q?ttr=0", 404, `{"msg":"no job available"}`},
		{"/q?timeout=", 400, `{"error":"invalid timeout"}`},
		{"/q?timeout=1.5", 400, `{"error":"invalid timeout"}`},
		{"/q?timeout=x&ttr=x", 400, `{"error":"invalid ttr"}`},
		{"/q?count=0", 400, `{"error":"invalid count"}`},
		{"/q?count=", 400, `{"error":"invalid count"}`},
		{"/q?count=101", 400, `{"error":"invalid count"}`},
		{"/q?count=100", 404, `{"msg":"no job available"}`},
		{"/,,", 400, `{"error":"invalid queue name(s)"}`},
		{"/,a,,b,", 404, `{"msg":"no job available"}`},
		{"/a,b?timeout=0&count=2&freeze_tries=x", 404, `{"msg":"no job available"}`},
		{"/q,q?count=3", 404, `{"msg":"no job available"}`},
		{"/" + queues(64), 404, `{"msg":"no job available"}`},
		{"/" + queues(65), 400, `{"error":"too many queues, cannot exceed 64"}`},
	} {
		if r := s.do("GET", c.path, ""); r.status != c.status || r.body != c.text {
			t.Errorf("%.40s: %d %s", c.path, r.status, r.body)
		}
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	for _, o := range src.asked {
		if o.Lease < 10*time.Millisecond || o.Lease > 7*24*time.Hour || len(o.Channels) > 64 {
			t.Errorf("pulled with %+v", o)
		}
	}
}

func TestConsumeAnswers(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	src := newSource(4)
	s := newSite(t, src.use)
	r := s.do("GET", "/q", "")
	want := fmt.Sprintf(
		`{"attributes":null,"data":"eA==","elapsed_ms":0,"job_id":"id0","msg":"new job","namespace":%q,`+
			`"queue":"q","remain_tries":1,"ttl":0}`,
		s.ns,
	)
	if r.status != 200 || r.body != want {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, n := range []int{3, 0} { // of two pulls; then nothing is left
		r = s.do("GET", "/q?count=5", "")
		var jobs []jobJSON
		if n > 0 && (json.Unmarshal([]byte(r.body), &jobs) != nil || len(jobs) != n) || n == 0 && r.status != 404 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	src.mu.Lock()
	src.err = errors.New("redis is away")
	src.mu.Unlock()
	if r := s.do("GET", "/q", ""); r.status != 500 || r.body != `{"error":"internal error"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q?count=2", ""); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A wait lasts as long as it was asked for, ends with the server, and no more wait than may.
func TestConsumeWaits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	src := newSource(0)
	s := newSite(t, src.use, func(a *API, _ *Admin) { a.Limits.MaxWaiting = 1 })
	begun := time.Now()
	if r := s.do("GET", "/q?timeout=1", ""); r.status != 404 || time.Since(begun) < time.Second {
		t.Errorf("%d %s after %v", r.status, r.body, time.Since(begun))
	}
	<-src.waits
	answered := make(chan reply)
	go func() { answered <- s.do("GET", "/q?timeout=100", "") }()
	<-src.waits
	if n := s.api.Waiting(); n != 1 {
		t.Errorf("%d wait", n)
	}
	r := s.do("GET", "/q?timeout=1", "")
	if r.status != 503 || r.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.api.Stop()
	if r := <-answered; r.status != 404 || r.body != `{"msg":"no job available"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q?timeout=1", ""); r.status != 503 {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.publish("/q", "other routes go on")
}

// What was taken for a client that has left is put back.
func TestGoneClient(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	src := newSource(0)
	left := make(chan struct{})
	s := newSite(t, src.use, func(a *API, _ *Admin) {
		pull := a.pull
		a.pull = func(ctx context.Context, q *shunt.Queue, o shunt.PullOptions) ([]*shunt.Leased, error) {
			jobs, err := pull(ctx, q, o)
			if ctx.Err() != nil { // as if the message had come at the same time
				return newSource(2).jobs, nil
			}
			return jobs, err
		}
		release := a.release
		a.release = func(ctx context.Context, q *shunt.Queue, rs []shunt.Receipt) error {
			defer close(left)
			return errors.Join(release(ctx, q, rs), ctx.Err())
		}
	})
	ctx, leave := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", s.public.URL+"/api/"+s.ns+"/q?timeout=100", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Token", s.token)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if res, err := http.DefaultClient.Do(r); err == nil {
			res.Body.Close()
		}
	}()
	<-src.waits
	leave()
	<-over
	<-left
	src.mu.Lock()
	defer src.mu.Unlock()
	if len(src.released) != 2 {
		t.Errorf("released %v", src.released)
	}
}
