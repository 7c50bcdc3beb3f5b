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

func TestExec(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBench(t, helper("exec", func(p *Pool) { p.Children = 2 }))
	b.receive(2)
	for _, payload := range []string{"", "hello", "bytes \x00\xff\xfe\n\r\n and more", strings.Repeat("\xff", 1<<19)} {
		if got := b.ask(payload); got != payload {
			t.Errorf("%.40q came back as %.40q", payload, got)
		}
	}
	id := redistest.Name(t)
	env := b.ask("env", shunt.ID(id), shunt.Header("tenant", "7"))
	contains(t, env, "SHUNT_CHANNEL="+b.channel+"\n", "SHUNT_ID="+id+"\n", "SHUNT_ATTEMPT=1\n", "SHUNT_TYPE=\n",
		"SHUNT_RECOVERIES=0\n", "SHUNT_FAILURE=\n", `SHUNT_HEADERS={"tenant":"7"}`+"\n", "SHUNT_SERIAL=01",
		"SHUNT_ENQUEUED_AT=20")

	b.enqueue("exit 7", shunt.MaxAttempts(2))
	contains(t, b.wait(shunt.EventRetried, 1), "exit status 7", "exits with 7")
	b.wait(shunt.EventRejected, 1)
	b.enqueue("exit 65")
	if text := b.wait(shunt.EventRejected, 2); text != "exits with 65" {
		t.Errorf("rejected: %s", text)
	}
	if n := b.count(shunt.EventRetried); n != 1 {
		t.Errorf("%d retries", n)
	}
}

func TestExecFaults(t *testing.T) {
	t.Parallel()
	log := newLines()
	p := pool(t, "exec", func(p *Pool) { p.MaxOutput, p.MaxStderr = 64<<10, 64<<10 })
	fails(t, p, "crash here", ErrExit, "exit status 3", "first line\nabout to crash here")
	fails(t, p, "flood", ErrOutput, "more than 65536 bytes to standard output", "MaxOutput")
	fails(t, p, "stderr 1048576", ErrOutput, "more than 65536 bytes to standard error", "MaxStderr")
	fails(t, p, "both "+strings.Repeat("x", 65537), ErrOutput)
	succeeds(t, p, "both "+strings.Repeat("x", 65536))
	p = pool(t, "exec", func(p *Pool) { p.Stderr = log })
	fails(t, p, "parent-crash", ErrExit, "exit status 4")
	ends(t, log.next(t, "grandchild"))
	fails(t, p, "parent-crash apart", ErrExit, "exit status 4")
	livesOn(t, log.next(t, "grandchild"))
	succeeds(t, pool(t, "exec-deaf"), strings.Repeat("x", 1<<20))
	succeeds(t, pool(t, "exec-streams"), strings.Repeat("x", 1<<20))
}

// The end of a context ends the child and its group, by SIGKILL where SIGTERM is ignored.
func TestExecTimeout(t *testing.T) {
	t.Parallel()
	log := newLines()
	p := pool(t, "exec", func(p *Pool) { p.Stderr, p.Grace = log, 100*time.Millisecond })
	for _, payload := range []string{"hang", "ignore", "parent-hang"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		pid := make(chan string, 1)
		word := "hanging"
		if payload == "parent-hang" {
			word = "grandchild"
		}
		go func() {
			pid <- log.next(t, word)
			cancel(shunt.ErrTimeout)
		}()
		m, _ := p.Message("c").Unmarshal([]byte(payload))
		err := m.Resolve(ctx)
		if !errors.Is(err, shunt.ErrTimeout) {
			t.Errorf("%s: %v", payload, err)
			continue
		}
		contains(t, err.Error(), "was ended before its exit", shunt.ErrTimeout.Error(), word)
		ends(t, <-pid)
	}
}
