package gmq

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/store"
)

// A client that leaves while it waits costs nothing: no job is taken for it, or what was is back without a count.
func TestClientGone(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	mine := s.client()
	for _, ttr := range []string{"60", "0"} {
		for i := range 20 {
			c := s.dial().send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
			s.until("it waits", func() bool { return s.server.Budget.Waiting() == 1 })
			id := fmt.Sprint(ttr, "-", i)
			if i%2 == 0 { // a reset
				_ = c.Conn.(*net.TCPConn).SetLinger(0)
			}
			_ = c.Close()
			s.until("its leaving is seen", func() bool { return s.server.Budget.Waiting() == 0 })
			s.push(mine, "id", id, "topic", "q", "TTR", ttr)
			job := s.pop(mine, "q")
			if job["id"] != id || job["consume_num"] != "0" {
				t.Error(job)
			}
			if ttr != "0" && ack(mine, id) != nil {
				t.Error("not acked")
			}
		}
	}
}

// held is a connection whose write waits, and fails then.
type held struct {
	net.Conn
	reached chan struct{}
	fail    chan struct{}
}

func (h *held) Write([]byte) (int, error) {
	close(h.reached)
	<-h.fail
	return 0, errors.New("broken pipe")
}

// What was popped and could not be written is taken next, and no attempt is counted; also a job without a TTR.
func TestNotWritten(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	mine := s.client()
	for topic, ttr := range map[string]string{"with": "60", "without": "0"} {
		s.push(mine, "id", ttr, "topic", topic, "TTR", ttr)
		s.push(mine, "id", "behind"+ttr, "topic", topic, "TTR", "60")
		ours, theirs := net.Pipe()
		h := &held{Conn: theirs, reached: make(chan struct{}), fail: make(chan struct{})}
		s.server.take(h)
		if _, err := fmt.Fprintf(ours, `{"method":"Service.Pop","params":[["%s"]],"id":1}`, topic); err != nil {
			t.Fatal(err)
		}
		<-h.reached
		if n := s.count(topic, shunt.StateLeased); n != 1 {
			t.Error(n)
		}
		close(h.fail)
		s.until("it is back", func() bool { return s.count(topic, shunt.StatePrepare) == 2 })
		for _, id := range []string{ttr, "behind" + ttr} {
			if job := s.pop(mine, topic); job["id"] != id || job["consume_num"] != "0" {
				t.Error(job)
			}
		}
		s.until("that without a TTR is acked", func() bool {
			return ttr != "0" || s.count(topic, shunt.StateLeased) == 1
		})
		_ = ours.Close()
	}
}

// A client that leaves just when a job was taken for it gets none: the job is back without a count.
func TestGoneMeanwhile(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	p := redistest.NewProxy(t, redistest.Shared(t).Addr())
	s := newSiteOf(t, newQueue(t, p.URL()))
	mine := s.client()
	for topic, ttr := range map[string]string{"with": "60", "without": "0"} {
		s.push(mine, "id", ttr, "topic", topic, "TTR", ttr)
		ours := s.dial() // whose kernel takes an answer also when it is closed
		var c *conn
		s.until("it is connected", func() bool {
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			for each := range s.server.conns {
				if each.nc.RemoteAddr().String() == ours.LocalAddr().String() {
					c = each
				}
			}
			return c != nil
		})
		p.On(redistest.ByScript(store.Extend)(s.server.Topics.Prefix+topic), 1, redistest.Call(func() {
			_ = ours.Close()
			<-c.pops.Done()
		}))
		ours.send(fmt.Sprintf(`{"method":"Service.Pop","params":[["%s"]],"id":1}`, topic))
		s.until("it was taken", func() bool { return c.pops.Err() != nil })
		job := map[string]string{"id": ttr, "topic": topic, "body": "", "status": "3", "delay": "0", "TTR": ttr,
			"consume_num": "0"}
		if got := s.pop(mine, topic); !maps.Equal(got, job) {
			t.Error(got)
		}
	}
	s.until("two pushes and two pops are counted", func() bool { return s.outcomes("ok") == 4 })
}

// A client that is killed after its answer was sent, and before it has read it, costs one try, and its job comes again.
func TestKilledBeforeReading(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	mine := s.client()
	s.push(mine, "id", "1", "topic", "q", "TTR", "1")
	c := s.dial().send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
	s.until("it is sent", func() bool { return s.outcomes("ok") == 2 })
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	var job map[string]string
	s.until("it comes again", func() bool { got, err := pop(mine, "q"); job = got; return err == nil })
	if job["consume_num"] != "1" || ack(mine, "1") != nil {
		t.Error(job)
	}
}

// A client that reads nothing loses its connection; what was popped for it is back.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Limits.WriteTimeout = 300 * time.Millisecond })
	mine := s.client()
	const n = 40
	for i := range n {
		s.push(mine, "id", fmt.Sprint(i), "topic", "q", "TTR", "600", "body", strings.Repeat("x", 1<<20))
	}
	ours, theirs := net.Pipe() // which has no buffer
	s.server.take(theirs)
	for i := range n {
		if _, err := fmt.Fprintf(ours, `{"method":"Service.Pop","params":[["q"]],"id":%d}`, i); err != nil {
			break // it was closed already
		}
	}
	s.until("all are back", func() bool { return s.count("q", shunt.StatePrepare) == n })
	if job := s.pop(mine, "q"); job["consume_num"] != "0" {
		t.Error(job["id"], job["consume_num"])
	}
	_ = ours.Close()
}

// An answer that nobody reads is counted among the bodies, and no further request is taken beside too many.
func TestUnreadAnswer(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Budget = bounded(budget.Limits{MaxBody: 16 << 20}) })
	mine := s.client()
	const size = 15 << 20 // more than a socket keeps
	s.push(mine, "id", "1", "topic", "q", "TTR", "600", "body", strings.Repeat("x", size))
	if err := s.server.Budget.SetLimits(budget.Limits{MaxBody: 16 << 20, MaxBodies: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	deaf := s.dial().send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
	s.until("it is answered", func() bool { return s.server.Budget.Bodies() >= size })
	other := s.dial().send(`{"method":"Service.Pop","params":[["none"]],"id":2}`)
	if got := other.rest(); !strings.Contains(got, budget.ErrFull.Error()) {
		t.Errorf("%q", got)
	}
	if err := deaf.Close(); err != nil {
		t.Fatal(err)
	}
	s.until("it is over", func() bool { return s.server.Budget.Bodies() == 0 })
	if job := s.pop(mine, "q"); job["consume_num"] != "0" || len(job["body"]) != size {
		t.Errorf("%s times, %d bytes", job["consume_num"], len(job["body"]))
	}
}
