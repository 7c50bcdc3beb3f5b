package delayq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A job's life: delayed, ready, popped, finished; each is seen by info.
func TestLife(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	if data := s.want("ping", ""); data != "PONG" {
		t.Error(data)
	}
	// It is due when the next second begins, which shall not be before it was looked at.
	redistest.Until(t, 2*time.Second, "a second is young", func() bool { return time.Now().Nanosecond() < 3e8 })
	begun := time.Now()
	added := s.job("job/add", `{"jobid":"1","name":"n","topic":"q","data":"<d>","exectime":0}`)
	now := begun.Unix()
	want := job{JobID: "1", Name: "n", Topic: "q", Data: "<d>", AddTime: added.AddTime, ExecTime: added.AddTime + 1,
		TTR: 20}
	if added != want || added.AddTime < now || added.AddTime > now+5 {
		t.Errorf("%+v, want %+v", added, want)
	}
	seen := s.job("job/info", `{"jobid":"1"}`)
	if want.AddTime = seen.AddTime; seen != want {
		t.Errorf("%+v, want %+v", seen, want)
	}
	s.refused("exists", "job/add", `{"jobid":"1","topic":"q"}`)
	s.refused("exists", "job/add", `{"jobid":"1","topic":"other"}`)
	s.refused(noJob, "job/pop", `{"topic":"q"}`)
	got := s.popped("q")
	want.State, want.Tries, want.PopTime = reserved, 1, got.PopTime
	if got != want || time.Now().Before(time.Unix(want.ExecTime, 0)) || got.PopTime < want.ExecTime {
		t.Errorf("%+v, want %+v", got, want)
	}
	seen = s.job("job/info", `{"jobid":"1","topic":"q"}`)
	if seen.State != reserved || seen.Tries != 1 || seen.PopTime == 0 {
		t.Errorf("%+v", seen)
	}
	for range 2 {
		if data := s.want("job/finish", `{"jobid":"1"}`); data != "" {
			t.Error(data)
		}
	}
	seen = s.job("job/info", `{"jobid":"1"}`)
	if want.State, want.PopTime = finished, seen.PopTime; seen != want {
		t.Errorf("%+v, want %+v", seen, want)
	}
	s.refused("exists", "job/add", `{"jobid":"1","topic":"q"}`)
	s.refused(noJob, "job/pop", `{"topic":"q"}`)
}

// What is not finished within its ttr has failed after its last try, and is popped again before it.
func TestTTR(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(a *API) { a.Tries = 2 })
	s.want("job/add", `{"jobid":"1","topic":"q","exectime":1,"ttr":1}`)
	for try := 1; try <= 2; try++ {
		if j := s.popped("q"); j.Tries != try || j.TTR != 1 {
			t.Errorf("%+v", j)
		}
	}
	redistest.Until(t, 20*time.Second, "it has failed", func() bool {
		return s.job("job/info", `{"jobid":"1"}`).State == failed
	})
	s.want("job/finish", `{"jobid":"1"}`)
	s.refused(noSuchJob, "job/info", `{"jobid":"1"}`)
}

// finish ends jobs that nobody has popped, and one that does not exist is no error.
func TestFinish(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	later := fmt.Sprint(time.Now().Add(time.Hour).Unix())
	for i, exec := range []string{"1", later, "-5", "99999999999999"} {
		id := fmt.Sprint("j", i)
		s.want("job/add", `{"jobid":"`+id+`","topic":"q","exectime":`+exec+`}`)
		s.want("job/finish", `{"jobid":"`+id+`"}`)
		s.refused(noSuchJob, "job/info", `{"jobid":"`+id+`"}`)
	}
	s.refused(noJob, "job/pop", `{"topic":"q"}`)
	s.want("job/finish", `{"jobid":"unknown"}`)
	s.want("job/finish", `{"jobid":"unknown","topic":"unknown"}`)
	large := strings.Repeat("x", keptData+1)
	s.want("job/add", `{"jobid":"large","topic":"q","exectime":1,"data":"`+large+`"}`)
	if j := s.popped("q"); j.Data != large {
		t.Error(len(j.Data))
	}
	s.want("job/finish", `{"jobid":"large"}`)
	if j := s.job("job/info", `{"jobid":"large"}`); j.State != finished || j.Data != "" {
		t.Errorf("%+v", j)
	}
}

// finish without a topic ends the job that is popped, where one of its id waits on another topic. Of two that are
// popped it ends none.
func TestFinishOfTwo(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	other := newSite(t, func(a *API) { a.Topics.Prefix = s.api.Topics.Prefix })
	s.want("job/add", `{"jobid":"1","topic":"a","exectime":1}`)
	other.want("job/add", `{"jobid":"1","topic":"b","exectime":1}`)
	s.popped("b")
	s.popped("a")
	s.refused(severalOf, "job/finish", `{"jobid":"1"}`)
	s.want("job/finish", `{"jobid":"1","topic":"a"}`)
	s.want("job/finish", `{"jobid":"1"}`)
	if j := s.job("job/info", `{"jobid":"1","topic":"b"}`); j.State != finished {
		t.Errorf("%+v", j)
	}
	s.want("job/add", `{"jobid":"2","topic":"a","exectime":1}`)
	other.want("job/add", `{"jobid":"2","topic":"b","exectime":1}`)
	other.popped("b")
	s.want("job/finish", `{"jobid":"2"}`)
	if j := s.popped("a"); j.JobID != "2" {
		t.Errorf("%+v", j)
	}
}

// finish ends a message without an id, also where it waits again.
func TestFinishOfASerial(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	channel := s.api.Topics.Prefix + "q"
	if err := s.queue.Enqueue(context.Background(), shunt.Raw(channel, nil)); err != nil {
		t.Fatal(err)
	}
	id := s.popped("q").JobID
	ref := shunt.BySerial(channel, strings.TrimPrefix(id, "serial:"))
	l, err := s.queue.LeasedBy(context.Background(), ref)
	if err != nil || l.Release(context.Background()) != nil {
		t.Fatal(err)
	}
	s.want("job/finish", `{"jobid":"`+id+`"}`)
	s.refused(noJob, "job/pop", `{"topic":"q"}`)
}

// Whatever comes, the answer is 200 and says what is wrong.
func TestJunk(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(a *API) { a.Budget = bounded(budget.Limits{MaxBody: 1000}) })
	long := strings.Repeat("x", 300)
	for _, x := range []struct{ path, body, why string }{
		{"job/add", "", "wrong parameters"}, {"job/add", "{", "wrong parameters"},
		{"job/add", "[]", "wrong parameters"},
		{"job/add", "5", "wrong parameters"}, {"job/add", "null", "jobid and topic"},
		{"job/add", "{}", "jobid and topic"},
		{"job/add", `{"jobid":"","topic":"q"}`, "jobid and topic"}, {"job/add", `{"jobid":"a"}`, "jobid and topic"},
		{"job/add", `{"jobid":5,"topic":"q"}`, "wrong parameters"}, {"job/add", "{\"jobid\":\"\xff\"}", "not UTF-8"},
		{"job/add", `{"jobid":"a","topic":"q","exectime":"1"}`, "wrong parameters"},
		{"job/add", `{"jobid":"a","topic":"q","exectime":1.5}`, "wrong parameters"},
		{"job/add", `{"jobid":"a","topic":"q","exectime":99999999999999999999}`, "wrong parameters"},
		{"job/add", `{"jobid":"a","topic":"a/b"}`, "wrong topic"},
		{"job/add", `{"jobid":"a","topic":"a b"}`, "wrong topic"},
		{"job/add", `{"jobid":"` + long + `","topic":"q"}`, "wrong jobid"},
		{"job/add", `{"jobid":"serial:a","topic":"q"}`, "wrong jobid"},
		{"job/add", `{"jobid":"a","topic":"` + long + `"}`, "wrong topic"},
		{"job/add", `{"jobid":"a","topic":"q","name":"` + strings.Repeat("x", maxName+1) + `"}`, "wrong name"},
		{"job/add", `{"jobid":"a","topic":"q","data":"` + strings.Repeat("x", 1001) + `"}`, "too large"},
		{"job/add", strings.Repeat("x", 100_000), "too large"},
		{"job/pop", "", "wrong parameters"}, {"job/pop", "{}", "topic is required"},
		{"job/pop", `{"topic":"{"}`, "wrong topic"},
		{"job/pop", `{"topic":["q"]}`, "wrong parameters"},
		{"job/finish", "{}", "jobid is required"}, {"job/finish", `{"jobid":"a","topic":"/"}`, "wrong topic"},
		{"job/info", "{}", "jobid is required"}, {"job/info", `{"jobid":"` + long + `"}`, noSuchJob},
		{"job/info", `{"jobid":"a","topic":" "}`, "wrong topic"}, {"job/info", `{"jobid":"a","topic":"q"}`, noSuchJob},
		{"job/nothing", "{}", "no such route"}, {"", "", "no such route"}, {"job/add/", "{}", "no such route"},
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			if code, info, _ := s.do(method, x.path, x.body); code != "1" || !strings.Contains(info, x.why) {
				t.Errorf("%s %s %.60s: %s %s, want %s", method, x.path, x.body, code, info, x.why)
			}
		}
	}
	if log := s.log.String(); log != "" {
		t.Error(log)
	}
}

// A page that is open in a browser does nothing; nor does what has no body in its answer take a job.
func TestBrowsers(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.want("job/add", `{"jobid":"1","topic":"q","exectime":1}`)
	for _, header := range []string{"Origin", "Sec-Fetch-Site"} {
		for _, path := range []string{"ping", "job/add", "job/pop", "job/finish"} {
			if code, _, _ := s.do("POST", path, `{"jobid":"1","topic":"q"}`, header, "x"); code != "1" {
				t.Errorf("%s %s", header, path)
			}
		}
	}
	redistest.Until(t, 20*time.Second, "it is ready", func() bool { return s.count("q", shunt.StatePrepare) == 1 })
	r, err := http.NewRequest("HEAD", s.http.URL+"/delayq/job/pop", strings.NewReader(`{"topic":"q"}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil || res.StatusCode != 200 || res.Body.Close() != nil {
		t.Error(res, err)
	}
	s.api.Stop()
	s.refused(noJob, "job/pop", `{"topic":"q"}`)
	if n := s.count("q", shunt.StateLeased); n != 0 {
		t.Error(n)
	}
}

// unwritable is an answer that the client cannot have.
type unwritable struct{ *httptest.ResponseRecorder }

func (unwritable) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// What could not be handed over is taken next, and no try is counted.
func TestNotWritten(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	s.want("job/add", `{"jobid":"1","topic":"q","exectime":1}`)
	redistest.Until(t, 20*time.Second, "it is ready", func() bool { return s.count("q", shunt.StatePrepare) == 1 })
	r := httptest.NewRequest("GET", "/delayq/job/pop", strings.NewReader(`{"topic":"q"}`))
	s.api.serve(unwritable{httptest.NewRecorder()}, r)
	if j := s.popped("q"); j.Tries != 1 {
		t.Errorf("%+v", j)
	}
}

// Half and slow bodies end, and add nothing.
func TestSlow(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(a *API) { a.Budget = bounded(budget.Limits{BodyTimeout: 200 * time.Millisecond}) })
	for _, half := range []bool{false, true} {
		c, err := net.Dial("tcp", s.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		text := "POST /delayq/job/add HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + `{"jobid":"1","topic":"q"`
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if half {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		got, _ := io.ReadAll(c) // a reset is an answer, too
		if !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || !strings.Contains(string(got), "could not be read") {
			t.Errorf("%q", got)
		}
		_ = c.Close()
	}
	s.refused(noSuchJob, "job/info", `{"jobid":"1"}`)
}

// An answer that nobody reads is counted among the bodies, and no further request is read beside too many.
func TestUnreadAnswer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(a *API) { a.Budget = bounded(budget.Limits{MaxBody: 16 << 20}) })
	const size = 15 << 20 // more than a socket keeps
	s.want("job/add", `{"jobid":"1","topic":"q","exectime":1,"ttr":60,"data":"`+strings.Repeat("x", size)+`"}`)
	redistest.Until(t, 20*time.Second, "it is ready", func() bool { return s.count("q", shunt.StatePrepare) == 1 })
	if err := s.api.Budget.SetLimits(budget.Limits{MaxBody: 16 << 20, MaxBodies: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", s.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const pop = `{"topic":"q"}`
	_, err = fmt.Fprintf(c, "POST /delayq/job/pop HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(pop), pop)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, 20*time.Second, "it is answered", func() bool { return s.api.Budget.Bodies() >= size })
	s.refused(budget.ErrFull.Error(), "job/pop", `{"topic":"none"}`)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, 20*time.Second, "it is over", func() bool { return s.api.Budget.Bodies() == 0 })
	if j := s.popped("q"); j.Tries != 1 || len(j.Data) != size {
		t.Errorf("try %d, %d bytes", j.Tries, len(j.Data))
	}
}

// 1,000 jobs through 8 clients: nothing is lost or doubled.
func TestThousand(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	const clients, each = 8, 125
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[string]int)
	for i := range clients {
		all.Go(func() {
			for n := range each {
				body := fmt.Sprintf(`{"jobid":"%d-%d","topic":"q","exectime":1}`, i, n)
				if code, info, _ := s.do("POST", "job/add", body); code != "0" {
					t.Error(info)
				}
			}
			for {
				var j job
				code, info, data := s.do("POST", "job/pop", `{"topic":"q"}`)
				if code != "0" {
					mu.Lock()
					n := len(seen)
					mu.Unlock()
					if info != noJob || n == clients*each || t.Failed() {
						return
					}
					continue
				}
				if err := json.Unmarshal([]byte(data), &j); err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[j.JobID]++
				mu.Unlock()
				if code, info, _ := s.do("POST", "job/finish", `{"jobid":"`+j.JobID+`"}`); code != "0" {
					t.Error(info)
				}
			}
		})
	}
	all.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s: %d times", id, n)
		}
	}
	if len(seen) != clients*each || s.count("q", shunt.StateLeased) != 0 {
		t.Errorf("%d of %d", len(seen), clients*each)
	}
}

// A finish without a topic ends the job that this process has added, where none of that id was popped. A late one ends
// none that another client has.
func TestFinishAmongTwo(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	for _, late := range []bool{false, true} {
		s := newSite(t)
		other := newSite(t, func(a *API) { a.Topics.Prefix = s.api.Topics.Prefix })
		s.want("job/add", `{"jobid":"1","topic":"a","exectime":1}`)
		other.want("job/add", `{"jobid":"1","topic":"b","exectime":1}`)
		if late {
			s.popped("a")
			other.popped("b")
			l, err := s.queue.LeasedBy(t.Context(), shunt.ByID(s.api.Topics.Prefix+"a", "1"))
			if err != nil || l.Release(t.Context()) != nil { // as the end of its lease
				t.Fatal(err)
			}
		}
		s.want("job/finish", `{"jobid":"1"}`)
		s.refused(noSuchJob, "job/info", `{"jobid":"1","topic":"a"}`)
		if j := s.job("job/info", `{"jobid":"1","topic":"b"}`); j.State == finished {
			t.Errorf("late: %v: %+v", late, j)
		}
	}
}
