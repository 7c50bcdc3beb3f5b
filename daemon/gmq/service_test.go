package gmq

import (
	"context"

	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A job's life, word for word.
func TestWire(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	c := s.dial()
	for _, x := range []struct{ request, want string }{
		{`{"method":"Service.Push","params":[{"id":"1","topic":"mails","body":"<b>","delay":"0","TTR":"60"}],"id":"x"}`,
			`{"id":"x","result":"success","error":null}`},
		{`{"method":"Service.Push","params":[{"id":"1","topic":"mails","body":"","delay":"0","TTR":"60"}],"id":7}`,
			`{"id":7,"result":"jobKey:job_pool:1,error:has exist","error":null}`},
		{`{"method":"Service.Ack","params":["1"],"id":8}`, `{"id":8,"result":null,"error":"Job is not be reserved"}`},
		{`{"method":"Service.Pop","params":[["none","mails"]],"id":9}`, `{"id":9,"result":{"TTR":"60","body":"` +
			`\u003cb\u003e","consume_num":"0","delay":"0","id":"1","status":"3","topic":"mails"},"error":null}`},
		{`{"method":"Service.Ack","params":["1"],"id":10}`, `{"id":10,"result":true,"error":null}`},
		{`{"method":"Service.Ack","params":["1"],"id":11}`, `{"id":11,"result":null,"error":"Job is not be reserved"}`},
		{`{"method":"Service.Pop","params":[["mails"]],"id":12}`, `{"id":12,"result":null,"error":"empty"}`},
	} {
		if got := c.send(x.request + "\n").line(); got != x.want {
			t.Errorf("%s\n%s, want\n%s", x.request, got, x.want)
		}
	}
}

// Each pop counts; what is not acked within TTR + 3 s is popped again.
func TestTTR(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	c := s.client()
	s.push(c, "id", "1", "topic", "q", "body", "b", "TTR", "1")
	begun := time.Now()
	first := s.pop(c, "q")
	if _, err := pop(c, "q"); err == nil || err.Error() != "empty" || time.Since(begun) < popWait {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	var second map[string]string
	s.until("it is popped again", func() bool { job, err := pop(c, "q"); second = job; return err == nil })
	if took := time.Since(begun); took < 4*time.Second {
		t.Errorf("popped again after %v", took)
	}
	if first["consume_num"] != "0" || second["consume_num"] != "1" {
		t.Error(first, second)
	}
	s.until("it waits again", func() bool { return s.count("q", shunt.StatePrepare) == 1 })
	if err := ack(c, "1"); err == nil || err.Error() != string(errExpired) {
		t.Error(err)
	}
	s.pop(c, "q")
	if err := ack(c, "1"); err != nil {
		t.Error(err)
	}
}

// The wait of a pop is 2 s, a push ends it, and a delay is kept.
func TestWaits(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	c := s.client()
	pushed := time.Now()
	s.push(c, "id", "1", "topic", "q", "body", "late", "delay", "1", "TTR", "9")
	begun := time.Now()
	job := s.pop(c, "q")
	if time.Since(pushed) < 900*time.Millisecond || time.Since(begun) > popWait+time.Second || job["delay"] != "1" {
		t.Errorf("%v after %v", job, time.Since(pushed))
	}
	if err := ack(s.client(), "1"); err != nil { // whoever says so
		t.Error(err)
	}
	begun = time.Now()
	_, err := pop(c, "q")
	if took := time.Since(begun); err == nil || took < popWait || took > popWait+2*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

// A job of the largest size is served where it may have half of all bytes.
func TestHalf(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	const most = 4 << 20
	s := newSite(t, func(v *Server) { v.Budget = bounded(budget.Limits{MaxBody: most, MaxBodies: 2 * most}) })
	c := s.client()
	body := strings.Repeat("x", most)
	s.push(c, "id", "1", "topic", "q", "body", body, "TTR", "60")
	if job := s.pop(c, "q"); job["body"] != body {
		t.Errorf("%d bytes", len(job["body"]))
	}
}

// The topics of a pop are in order of priority.
func TestPriority(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	c := s.client()
	for i := range 3 {
		for _, topic := range []string{"low", "middle", "high"} {
			s.push(c, "id", fmt.Sprint(topic, i), "topic", topic, "TTR", "60")
		}
	}
	got := ""
	for range 9 {
		got += s.pop(c, "high", "middle", "high", "low")["id"] + " "
	}
	if got != "high0 high1 high2 middle0 middle1 middle2 low0 low1 low2 " {
		t.Error(got)
	}
}

// A job without a TTR is gone once it is popped.
func TestNoTTR(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	c := s.client()
	for i, ttr := range []string{"0", "", "-5", "abc", "1.5"} {
		id := fmt.Sprint("j", i)
		s.push(c, "id", id, "topic", "q", "TTR", ttr)
		if job := s.pop(c, "q"); job["id"] != id || job["TTR"] != fmt.Sprint(seconds(ttr)) {
			t.Error(job)
		}
		s.until("it is gone", func() bool {
			return s.count("q", shunt.StateLeased)+s.count("q", shunt.StatePrepare) == 0
		})
		s.push(c, "id", id, "topic", "other") // its id is free
	}
	if log := s.log.String(); log != "" {
		t.Error(log)
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
		c := s.client()
		all.Go(func() {
			for n := range each {
				if result, err := push(c, "id", fmt.Sprint(i, "-", n), "topic", fmt.Sprint("q", n%3), "body",
					fmt.Sprint("body ", i, "-", n), "TTR", fmt.Sprint(60*(n%2))); err != nil || result != "success" {
					t.Error(result, err)
				}
			}
			for {
				job, err := pop(c, "q0", "q1", "q2")
				if err != nil {
					if err.Error() != "empty" {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				seen[job["body"]]++
				mu.Unlock()
				if job["TTR"] != "0" {
					if err := ack(c, job["id"]); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for body, n := range seen {
		if n != 1 {
			t.Errorf("%s: %d times", body, n)
		}
	}
	if len(seen) != clients*each {
		t.Errorf("%d of %d", len(seen), clients*each)
	}
	for _, topic := range []string{"q0", "q1", "q2"} {
		s.until("all is acked", func() bool { return s.count(topic, shunt.StateLeased) == 0 })
	}
	if log := s.log.String(); log != "" {
		t.Error(log)
	}
}

// While Redis is away requests fail in time, as errors without a detail, and it serves when Redis is back.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t, "appendonly yes", "appendfsync always")
	q := newQueue(t, b.URL())
	if err := q.Upkeep(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := newSiteOf(t, q)
	c := s.client()
	s.push(c, "id", "1", "topic", "q", "TTR", "60")
	b.Kill()
	begun := time.Now()
	_, err := pop(c, "q")
	if took := time.Since(begun); err == nil || err.Error() != string(errInternal) || took > popTimeout+2*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	b.Restart()
	s.until("it serves", func() bool {
		job, err := pop(c, "q")
		return err == nil && maps.Equal(job, s.job("1", "q"))
	})
	if err := ack(c, "1"); err != nil {
		t.Error(err)
	}
}

func (s *site) job(id, topic string) map[string]string {
	return map[string]string{"id": id, "topic": topic, "body": "", "status": "3", "delay": "0", "TTR": "60",
		"consume_num": "0"}
}

// A panic is an internal error, and the connection goes on.
func TestPanic(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSiteOf(t, nil)
	c := s.dial()
	for i, request := range []string{`"Service.Pop","params":[["q"]]`, `"Service.Ack","params":["1"]`,
		`"Service.Push","params":[{"id":"1","topic":"q"}]`} {
		if a := c.send(fmt.Sprintf(`{"method":%s,"id":%d}`, request, i)).answer(); a.err != string(errInternal) ||
			a.id != fmt.Sprint(i) || s.server.Budget.Waiting() != 0 {
			t.Error(a)
		}
	}
	if !strings.Contains(s.log.String(), "panicked") {
		t.Error(s.log.String())
	}
}
