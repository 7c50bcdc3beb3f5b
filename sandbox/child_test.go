//go:build unix

package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// At a shutdown a child may finish its message in the grace; the message of one that does not goes back.
func TestLinesShutdown(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	log := newLines()
	b := newBench(t, helper("lines", func(p *Pool) { p.Children, p.Stderr = 2, log }))
	shutdown := b.receive(2)
	b.enqueue("finish")
	b.enqueue("hang")
	pids := []string{log.next(t, "hanging"), log.next(t, "hanging")}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := shutdown(ended); err != nil {
		var unclean *shunt.ShutdownError
		if !errors.As(err, &unclean) || unclean.Running > 0 || unclean.Err != nil {
			t.Error(err)
		}
	}
	for _, pid := range pids {
		ends(t, pid)
	}
	b.wait(shunt.EventAcked, 1)
	es, err := b.List(t.Context(), b.channel, shunt.StatePrepare, 0, 0)
	if err != nil || len(es) != 1 || string(es[0].Payload) != "hang" || es[0].Attempts != 0 {
		t.Errorf("left: %+v, %v", es, err)
	}
}

// A child that dies takes its group with it, and holds up nobody.
func TestLinesGrandchild(t *testing.T) {
	t.Parallel()
	log := newLines()
	p := pool(t, "lines", func(p *Pool) { p.Stderr = log })
	fails(t, p, "parent-crash", ErrExit, "exit status 4", "grandchild")
	ends(t, log.next(t, "grandchild"))

	ctx, cancel := context.WithCancelCause(t.Context())
	began := make(chan string, 1)
	go func() {
		began <- log.next(t, "grandchild")
		cancel(shunt.ErrTimeout)
	}()
	m, _ := p.Message("c").Unmarshal([]byte("parent-hang"))
	if err := m.Resolve(ctx); !errors.Is(err, shunt.ErrTimeout) {
		t.Error(err)
	}
	ends(t, <-began)

	// One that has left the group lives on, but the message does not wait for it, although it holds the pipes.
	fails(t, p, "parent-crash apart", ErrExit, "exit status 4", "grandchild")
	livesOn(t, log.next(t, "grandchild"))
}

// A child that is dead before its message costs that no attempt: where its pipes are closed, and where a process that
// has left the group holds them open.
func TestLinesDeadBefore(t *testing.T) {
	t.Parallel()
	p := pool(t, "lines")
	succeeds(t, p, "hello")
	dead := func() *child {
		c := <-p.state.idle
		c.kill()
		<-c.gone
		return c
	}
	c := dead()
	if _, err := c.ask(t.Context(), &shunt.Info{}, nil); err != errNotBegun {
		t.Errorf("a dead child: %v", err)
	}
	p.state.give(c)

	s := p.state
	started, err := s.newChild()
	if err != nil {
		t.Fatal(err)
	}
	<-s.empty
	v, err := started.ask(t.Context(), &shunt.Info{}, []byte("parent apart"))
	if err != nil {
		t.Fatal(err)
	}
	defer livesOn(t, string(v.result))
	s.give(started)
	s.idle <- dead()
	succeeds(t, p, "hello")
}

// A child that ends between two messages is no fault, also where the next message is in its pipe by then: it has read
// nothing of it.
func TestLinesEndsBetween(t *testing.T) {
	t.Parallel()
	p := pool(t, "lines")
	for _, payload := range []string{"hello", strings.Repeat("x", 1<<20)} { // within a pipe, and beyond it
		succeeds(t, p, "leave")
		succeeds(t, p, payload)
	}
}

// An idle child that does not end with its standard input gets SIGTERM.
func TestLinesCloseTerm(t *testing.T) {
	t.Parallel()
	log := newLines()
	p := pool(t, "lines-term", func(p *Pool) { p.Stderr, p.Grace = log, 3*time.Second })
	succeeds(t, p, "hello")
	c := <-p.state.idle
	p.state.idle <- c
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if pid := log.next(t, "terminated"); atoi(t, pid) != c.cmd.Process.Pid {
		t.Errorf("%s was terminated, want %d", pid, c.cmd.Process.Pid)
	}
}

// A child's idle grandchild ends with a child that is closed.
func TestLinesClose(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	log := newLines()
	b := newBench(t, helper("lines-stays", func(p *Pool) { p.Stderr, p.Grace = log, 50*time.Millisecond }))
	shutdown := b.receive(1)
	pid, grandchild := b.ask("pid"), b.ask("parent")
	if err := shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.pool.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := log.next(t, "staying"); got != pid { // it has seen the end of its input, and was killed
		t.Errorf("%s stays, want %s", got, pid)
	}
	ends(t, pid)
	ends(t, grandchild)
	if err := b.pool.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Close cuts messages short when its context ends, and they are snoozed, as are those that come later.
func TestLinesCloseBusy(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	log := newLines()
	p := helper("lines", func(p *Pool) { p.Stderr = log })
	b := newBench(t, helper("lines"))
	b.pool = p
	b.receive(2)
	b.enqueue("hang")
	pid := log.next(t, "hanging")
	b.enqueue("waits for a place")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.Close(ctx)
	if err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	} else {
		contains(t, err.Error(), "1 messages cut short")
	}
	ends(t, pid)
	b.wait(shunt.EventSnoozed, 2)
	if n := b.count(shunt.EventRetried); n > 0 {
		t.Errorf("%d attempts", n)
	}
}
