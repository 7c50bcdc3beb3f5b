package gmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// The end answers pops that wait, lets what runs come to its end, and leaves no half answer.
func TestStop(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	waiting, idle, half := s.dial(), s.dial(), s.dial()
	waiting.send(`{"method":"Service.Pop","params":[["q"]],"id":1}`)
	half.send(`{"method":"Service.Push"`)
	idle.send(`{"method":"Service.Ack","params":["x"],"id":1}`).answer()
	s.until("it waits", func() bool { return s.server.Budget.Waiting() == 1 })
	begun := time.Now()
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > popWait/2 {
		t.Errorf("it took %v", took)
	}
	if got := waiting.rest(); got != `{"id":1,"result":null,"error":"empty"}`+"\n" {
		t.Errorf("%q", got)
	}
	if a, b := idle.rest(), half.rest(); a+b != "" {
		t.Errorf("%q %q", a, b)
	}
}

// Jobs that come while the server stops are delivered, or wait as if nobody had taken them.
func TestStopLosesNothing(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	const n = 30
	answers := make(chan string, n)
	for i := range n {
		c := s.dial().send(fmt.Sprintf(`{"method":"Service.Pop","params":[["q"]],"id":%d}`, i))
		go func() { answers <- c.rest() }()
	}
	s.until("all wait", func() bool { return s.server.Budget.Waiting() == n })
	stopped := make(chan error, 1)
	for i := range n {
		if i == n/2 {
			go func() { stopped <- s.stop() }()
		}
		m := shunt.Raw(s.server.Topics.Prefix+"q", []byte("x"))
		if err := s.queue.Enqueue(context.Background(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	delivered := 0
	for range n {
		if strings.Contains(<-answers, `"status":"3"`) {
			delivered++
		}
	}
	left, err := s.queue.List(context.Background(), s.server.Topics.Prefix+"q", shunt.StatePrepare, 0, 0)
	if err != nil || delivered+len(left) != n {
		t.Errorf("%d delivered and %d left of %d, %v", delivered, len(left), n, err)
	}
	for _, e := range left {
		if e.Attempts != 0 {
			t.Errorf("an attempt was counted: %+v", e)
		}
	}
}

// When the grace is over connections are closed, and Shutdown says so.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	ours, theirs := net.Pipe()
	defer ours.Close()
	s.server.take(theirs)
	if _, err := io.WriteString(ours, `{"method":"Service.Ack","params":["x"],"id":1}`); err != nil {
		t.Fatal(err)
	}
	s.until("it runs", func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		for c := range s.server.conns {
			return c.running.Load() == 1
		}
		return false
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := s.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}

// ended is a connection that notes how it is closed.
type ended struct {
	*net.TCPConn
	mu  sync.Mutex
	how []string
}

func (e *ended) note(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.how = append(e.how, what)
}

func (e *ended) CloseWrite() error {
	e.note("half")
	return e.TCPConn.CloseWrite()
}

func (e *ended) Close() error {
	e.note("whole")
	return e.TCPConn.Close()
}

// Where the server is the one to leave it lets the client read: not every system gives what has come before a reset.
func TestLinger(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for text, want := range map[string]string{"no object": "half whole", "": "whole"} {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		e := &ended{TCPConn: c.(*net.TCPConn)}
		s.server.take(e)
		if _, err := io.WriteString(client, text); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if _, err := io.ReadAll(client); err != nil {
				t.Error(err)
			}
		}
		_ = client.Close()
		s.until("it is closed", func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return strings.Join(e.how, " ") == want
		})
	}
}
