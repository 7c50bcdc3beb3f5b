package lmstfy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/access"
	"github.com/shuntmq/shunt/internal/redistest"
)

// upkept is a site whose pool has an upkeep, as a daemon's has.
func upkept(t *testing.T, change ...func(*API, *Admin)) *site {
	t.Helper()
	s := newSite(t, change...)
	if err := s.queue.Upkeep(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// consume consumes one job, which must be there.
func (s *site) consume(path string) map[string]any {
	s.t.Helper()
	r := s.do("GET", path, "")
	if r.status != 200 {
		s.t.Fatalf("consume %s: %d %s", path, r.status, r.body)
	}
	return r.json(s.t)
}

func (s *site) none(path string) {
	s.t.Helper()
	if r := s.do("GET", path, ""); r.status != 404 {
		s.t.Errorf("%s: %d %s", path, r.status, r.body)
	}
}

// A job's life: published, delivered, seen by id, and acked.
func TestJobIsDeliveredAndAcked(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	s.none("/q")
	began := time.Now()
	id := s.publish("/q?tries=3&ttl=100", "hello", "Enable-Job-Version", "YES", "Job-Attr-K", "v")
	m := s.consume("/q?ttr=100")
	age, _ := m["elapsed_ms"].(float64)
	ttl, _ := m["ttl"].(float64)
	delete(m, "elapsed_ms")
	delete(m, "ttl")
	want := map[string]any{"msg": "new job", "namespace": s.ns, "queue": "q", "job_id": id, "data": "aGVsbG8=",
		"remain_tries": 2.0, "attributes": map[string]any{"k": "v"}}
	if fmt.Sprint(m) != fmt.Sprint(want) || age < 0 || age > 10000 || ttl > 100 ||
		ttl < 100-math.Ceil(time.Since(began).Seconds()) {
		t.Errorf("%v, %v old, ttl %v", m, age, ttl)
	}
	s.none("/q")
	if r := s.do("GET", "/q/job/"+id, ""); r.status != 200 || r.json(t)["data"] != "aGVsbG8=" ||
		r.json(t)["remain_tries"] != 2.0 {
		t.Errorf("a delivered job: %d %s", r.status, r.body)
	}
	for range 2 {
		if r := s.do("DELETE", "/q/job/"+id, ""); r.status != 204 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	s.none("/q/job/" + id)
	s.none("/q")
}

// Another process than the one that has delivered a job may ack it.
func TestAckElsewhere(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s, other := upkept(t), newSite(t)
	other.ns, other.token = s.ns, s.token
	id := s.publish("/q?tries=3", "")
	s.consume("/q?ttr=1")
	if r := other.do("GET", "/q/job/"+id, ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := other.do("DELETE", "/q/job/"+id, ""); r.status != 204 {
		t.Errorf("%d %s", r.status, r.body)
	}
	left, err := s.queue.List(context.Background(), s.ns+"/q", shunt.StateLeased, 0, 0)
	if err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
	for _, at := range []*site{s, other} {
		at.none("/q/job/" + id)
		at.none("/q?timeout=2") // its ttr has ended
	}
}

// A delivered job is replaced; the new one may be delayed.
func TestRepublishDelivered(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s, other := upkept(t), newSite(t)
	other.ns, other.token = s.ns, s.token
	for i, at := range []*site{s, other} {
		s.publish("/q", "old")
		old := s.consume("/q")["job_id"].(string)
		begun := time.Now()
		id := at.publish("/q/job/"+old+"?delay=1&tries=2&ttl=50", "new", "Enable-Job-Version", "yes", "Job-Attr-A", "b")
		at.none("/q/job/" + old)
		m := s.consume("/q?timeout=10")
		if m["job_id"] != id || m["data"] != "bmV3" || m["remain_tries"] != 1.0 || time.Since(begun) < time.Second ||
			fmt.Sprint(m["attributes"]) != "map[a:b]" {
			t.Errorf("%d: %v after %v", i, m, time.Since(begun))
		}
		s.do("DELETE", "/q/job/"+id, "")
	}
}

// What is not acked within ttr is delivered again, behind others, until its tries are used up; then it is dead.
func TestTTR(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	id := s.publish("/q?tries=2", "first")
	if m := s.consume("/q?ttr=1"); m["job_id"] != id || m["remain_tries"] != 1.0 {
		t.Error(m)
	}
	second := s.publish("/q", "second")
	begun := time.Now()
	if m := s.consume("/q?ttr=1000"); m["job_id"] != second || m["remain_tries"] != 0.0 {
		t.Error(m)
	}
	if m := s.consume("/q?ttr=0&timeout=10"); m["job_id"] != id || m["remain_tries"] != 0.0 {
		t.Error(m)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("redelivered after %v", took)
	}
	s.until("it is dead", func() bool {
		m := s.do("GET", "/q/deadletter", "").json(t)
		return m["deadletter_size"] == 1.0 && m["deadletter_head"] == id
	})
	if r := s.do("PUT", "/q/deadletter", ""); r.json(t)["count"] != 1.0 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if m := s.consume("/q"); m["job_id"] != id || m["remain_tries"] != 0.0 || m["data"] != "Zmlyc3Q=" {
		t.Error(m)
	}
	s.do("DELETE", "/q/job/"+id, "")
}

// An ack ends a job also where another consumer has it by then: whoever says so.
func TestLateAck(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	id := s.publish("/q?tries=9", "")
	s.consume("/q?ttr=0")
	if m := s.consume("/q?ttr=1&timeout=10"); m["job_id"] != id {
		t.Error(m)
	}
	s.do("DELETE", "/q/job/"+id, "")
	r := s.do("GET", "/q?timeout=2", "")
	if r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := s.do("GET", "/q/deadletter", ""); r.json(t)["deadletter_size"] != 0.0 {
		t.Error(r.body)
	}
}

func TestDelayAndTTL(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	begun := time.Now()
	late := s.publish("/q?delay=1", "late")
	s.publish("/q?ttl=1", "gone soon")
	s.none("/other?timeout=1")
	if m := s.consume("/q?timeout=10"); m["job_id"] != late || time.Since(begun) < time.Second {
		t.Errorf("%v after %v", m, time.Since(begun))
	}
	s.none("/q")
	if r := s.do("GET", "/q/deadletter/size", ""); r.json(t)["size"] != 0.0 {
		t.Errorf("what expired before its delivery is dead: %s", r.body)
	}
}

// A batch takes what is there from several queues, in the order of the path.
func TestBatch(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	for i := range 3 {
		s.publish("/low", fmt.Sprint("low", i))
		s.publish("/high", fmt.Sprint("high", i))
	}
	var jobs []jobJSON
	r := s.do("GET", "/high,low?count=4&timeout=5", "")
	if err := json.Unmarshal([]byte(r.body), &jobs); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	got := ""
	for _, j := range jobs {
		got += j.Queue + ":" + string(j.Data) + " "
	}
	if got != "high:high0 high:high1 high:high2 low:low0 " {
		t.Error(got)
	}
	if m := s.consume("/high,low"); m["queue"] != "low" || m["data"] != "bG93MQ==" {
		t.Error(m)
	}
	if r := s.do("GET", "/low?count=100", ""); r.body[0] != '[' {
		t.Error(r.body)
	}
}

// A batch of large jobs is answered in parts.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	const n = 8
	large := strings.Repeat("x", 1<<20)
	for range n {
		s.publish("/q", large)
	}
	for got := 0; got < n; {
		r := s.do("GET", "/q?count=100", "")
		var jobs []jobJSON
		if err := json.Unmarshal([]byte(r.body), &jobs); err != nil || len(jobs) == 0 || len(jobs) > 5 {
			t.Fatalf("%d jobs, %.100s %v", len(jobs), r.body, err)
		}
		got += len(jobs)
	}
	s.none("/q")
}

// A token that is deleted while its request waits gets nothing.
func TestTokenDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	token := s.mint(DefaultPool, s.ns, access.Consume)
	got := make(chan reply)
	go func() { got <- s.send(s.public.URL, "GET", "/api/"+s.ns+"/q?timeout=30", "", "X-Token", token) }()
	s.until("it waits", func() bool { return s.api.Waiting() == 1 })
	if err := s.access.Delete(context.Background(), DefaultPool, s.ns, token); err != nil {
		t.Fatal(err)
	}
	id := s.publish("/q?tries=1", "")
	if r := <-got; r.status != 401 || r.body != `{"error":"invalid token"}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	if m := s.consume("/q?timeout=5"); m["job_id"] != id {
		t.Error(m)
	}
}

// A wait is woken by a publish, and one whose client has left takes nothing.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := upkept(t)
	got := make(chan reply)
	go func() { got <- s.do("GET", "/q?timeout=30", "") }()
	s.until("it waits", func() bool { return s.api.Waiting() == 1 })
	begun := time.Now()
	id := s.publish("/q", "")
	if r := <-got; r.status != 200 || r.json(t)["job_id"] != id || time.Since(begun) > 2*time.Second {
		t.Errorf("%d %s after %v", r.status, r.body, time.Since(begun))
	}
	ctx, leave := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", s.public.URL+"/api/"+s.ns+"/q?timeout=30", nil)
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
	s.until("it waits", func() bool { return s.api.Waiting() == 1 })
	leave()
	<-over
	s.until("the server has seen it", func() bool { return s.api.Waiting() == 0 })
	id = s.publish("/q?tries=1", "")
	if m := s.consume("/q"); m["job_id"] != id {
		t.Error(m)
	}
}

// A job that is there waits for no further ones while Redis is away: its ttr runs.
func TestConsumeOfSomeWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	pool, err := shunt.NewPool(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	q := &shunt.Queue{Pool: pool, Quiet: true}
	s := newSite(t, func(a *API, _ *Admin) {
		a.Pools[DefaultPool] = q
		a.pull = func(ctx context.Context, q *shunt.Queue, o shunt.PullOptions) ([]*shunt.Leased, error) {
			ms, err := q.Pull(ctx, o)
			if len(ms) > 0 {
				p.Refuse(true)
				p.CutAll()
				time.AfterFunc(4*time.Second, func() { p.Refuse(false) })
			}
			return ms, err
		}
	})
	t.Cleanup(func() {
		_ = q.Close()
		_ = pool.Close()
	})
	s.publish("/q", "job")
	began := time.Now()
	if r := s.do("GET", "/q?ttr=2&count=2", ""); r.status != 200 || time.Since(began) > 2*time.Second {
		t.Errorf("%d %s after %v, of a ttr of 2 s", r.status, r.body, time.Since(began))
	}
}

// An ID that another way in has given may have anything in it. Its job is acked all the same, and no other.
func TestAckOfAnyID(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	ids := []string{"https://example.com/x", "/x", "x/", "x", "x/../y", "..x", "a b%2F"}
	for _, id := range ids {
		if err := s.queue.Enqueue(t.Context(), shunt.Raw(s.ns+"/q", []byte(id)), shunt.ID(id)); err != nil {
			t.Fatal(err)
		}
		if job := s.consume("/q?ttr=60"); job["job_id"] != id {
			t.Fatalf("%v, and not %s", job, id)
		}
	}
	for i, id := range ids {
		r := s.do("DELETE", "/q/job/"+url.PathEscape(id), "")
		es, err := s.queue.List(t.Context(), s.ns+"/q", shunt.StateLeased, 0, 9)
		if r.status != 204 || err != nil || len(es) != len(ids)-1-i {
			t.Errorf("%s: %d %s %s; %d are left, %v", id, r.status, r.body, r.header.Get("Location"), len(es), err)
		}
	}
}
