//go:build unix

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// fails has a Pool handle one message outside of a receiver, and returns the failure, which is of a kind.
func fails(t *testing.T, p *Pool, payload string, kind error, parts ...string) {
	t.Helper()
	m, _ := p.Message("c").Unmarshal([]byte(payload))
	err := m.Resolve(t.Context())
	if !errors.Is(err, kind) {
		t.Fatalf("%q: %v, want %v", payload, err, kind)
	}
	contains(t, err.Error(), parts...)
}

func succeeds(t *testing.T, p *Pool, payload string) {
	t.Helper()
	m, _ := p.Message("c").Unmarshal([]byte(payload))
	if err := m.Resolve(t.Context()); err != nil {
		t.Fatalf("%q: %v", payload, err)
	}
}

// pool is a Pool of the test binary that is closed with the test.
func pool(t *testing.T, mode string, set ...func(*Pool)) *Pool {
	redistest.Leaks(t)
	p := helper(mode, set...)
	t.Cleanup(func() { closePool(t, p) })
	return p
}

func TestLines(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBench(t, helper("lines", func(p *Pool) { p.Children = 3 }))
	b.receive(3)
	for _, payload := range []string{"", "hello", "bytes \x00\xff\xfe\n\r\n and more", strings.Repeat("\xff", 1<<19),
		"line\u2028separator\ufffd"} {
		if got := b.ask(payload); got != payload {
			t.Errorf("%.40q came back as %.40q", payload, got)
		}
	}
	b.enqueue("plain") // without an ID, its result is dropped
	b.wait(shunt.EventAcked, 6)

	id := redistest.Name(t)
	var r request
	text := b.ask("request", shunt.ID(id), shunt.Header("tenant", "7"))
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if r.Channel != b.channel || r.ID != id || len(r.Serial) != 26 || r.Attempt != 1 || r.Headers["tenant"] != "7" ||
		r.Text == nil || *r.Text != "request" || string(r.Payload) != "request" || r.N < 1 || r.Failure != "" {
		t.Errorf("the child got %s", text)
	}
	if at, err := time.Parse(time.RFC3339, r.EnqueuedAt); err != nil || time.Since(at) > time.Minute {
		t.Errorf("enqueued_at: %s, %v", r.EnqueuedAt, err)
	}
	contains(t, b.ask("request \xff"), `"payload":"cmVxdWVzdCD/"`)
	if text := b.ask("request \xff"); strings.Contains(text, `"text":`) {
		t.Errorf("no text is given as text: %s", text)
	}
}

func TestLinesVerdicts(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBench(t, helper("lines"))
	b.receive(1)
	b.enqueue(`say "retry":"busy","after_ms":0`, shunt.MaxAttempts(2))
	contains(t, b.wait(shunt.EventRetried, 1), "busy")
	contains(t, b.wait(shunt.EventRejected, 1), "busy")
	b.enqueue(`say "reject":"no such order"`)
	contains(t, b.wait(shunt.EventRejected, 2), "no such order")
	b.enqueue(`say "retry":"later","after_ms":3600000`)
	contains(t, b.wait(shunt.EventRetried, 2), "later")
	b.enqueue(`say "snooze_ms":3600000`)
	b.wait(shunt.EventSnoozed, 1)
	es, err := b.List(t.Context(), b.channel, shunt.StateDelay, 0, 0)
	if err != nil || len(es) != 2 {
		t.Fatal(es, err)
	}
	for _, e := range es {
		if wait := time.Until(e.DueAt); wait < 59*time.Minute || wait > 61*time.Minute {
			t.Errorf("%s: due in %v, want an hour", e.Payload, wait)
		}
	}
	if pid := b.ask("pid"); pid != b.ask("pid") {
		t.Error("verdicts have cost a child")
	}
}

// A kill -9 of a child in the middle of a message costs that message one attempt, and others nothing.
func TestLinesKilled(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	log := newLines()
	b := newBench(t, helper("lines", func(p *Pool) { p.Children, p.Stderr = 2, log }))
	b.receive(2)
	b.enqueue("hang", shunt.MaxAttempts(2))
	for attempt := 1; attempt <= 2; attempt++ {
		pid := log.next(t, "hanging")
		for range 20 {
			b.ask("others go on")
		}
		syscall.Kill(atoi(t, pid), syscall.SIGKILL)
		ends(t, pid)
	}
	contains(t, b.wait(shunt.EventRejected, 1), "ended before it answered", "signal: killed", "hanging")
	if n := b.count(shunt.EventRetried); n != 1 {
		t.Errorf("%d retries", n)
	}
	// An idle child's death costs nobody an attempt.
	for range 3 {
		pid := b.ask("pid")
		syscall.Kill(atoi(t, pid), syscall.SIGKILL)
		redistest.Until(t, 10*time.Second, "its end", func() bool { return syscall.Kill(atoi(t, pid), 0) != nil })
		if next := b.ask("pid"); next == pid {
			t.Errorf("%s answers after its death", pid)
		}
	}
	if n := b.count(shunt.EventRetried); n != 1 {
		t.Errorf("%d retries", n)
	}
}

func TestLinesFaults(t *testing.T) {
	t.Parallel()
	p := pool(t, "lines", func(p *Pool) { p.MaxOutput, p.MaxStderr = 64<<10, 64<<10 })
	succeeds(t, p, "stderr 60000") // from then on no restart waits
	succeeds(t, p, "stderr 60000") // the bound is one for each message
	succeeds(t, p, "long 60000")
	succeeds(t, p, "extra")
	for _, c := range []struct {
		payload string
		kind    error
		parts   []string
	}{
		{"crash here", ErrExit, []string{"ended before it answered (exit status 3)",
			"first line\nabout to crash here"}},
		{"print Hello, world", ErrAnswer, []string{`answered "Hello, world"`, "invalid character", `{"n":`,
			"to standard error"}},
		{"print " + strings.Repeat("é", 200), ErrAnswer, []string{strings.Repeat("é", 60) + `"… (400 bytes)`}},
		{`print {"n":77,"ok":true}`, ErrAnswer, []string{`"n" is 77`}},
		{`print {"ok":true}`, ErrAnswer, []string{`no "n"`}},
		{`say "ok":true,"reject":"x"`, ErrAnswer, []string{"2 verdicts"}},
		{`say "okay":true`, ErrAnswer, []string{`unknown field "okay"`}},
		{"long 65536", ErrOutput, []string{"more than 65536 bytes", "MaxOutput"}},
		{"flood", ErrOutput, []string{"more than 65536 bytes", "MaxOutput"}},
		{"stderr 1048576", ErrOutput, []string{"more than 65536 bytes to standard error", "MaxStderr"}},
		{"mute", ErrExit, []string{"ended before it answered", "signal: "}},
	} {
		if c.payload == "mute" {
			p = pool(t, "lines", func(p *Pool) { p.Grace = 50 * time.Millisecond })
		}
		succeeds(t, p, "hello")
		fails(t, p, c.payload, c.kind, c.parts...)
		succeeds(t, p, "hello")
	}
}

// A timeout ends a child by SIGTERM, and one that ignores that by SIGKILL. The failure says both.
func TestLinesTimeout(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	log := newLines()
	b := newBench(t, helper("lines", func(p *Pool) {
		p.Timeout, p.Grace, p.Stderr = 2*time.Second, 100*time.Millisecond, log
	}))
	b.receive(1)
	for i, payload := range []string{"hang", "ignore"} {
		b.enqueue(payload, shunt.MaxAttempts(1))
		pid := log.next(t, "hanging")
		text := b.wait(shunt.EventRejected, i+1)
		contains(t, text, "was ended before it answered", shunt.ErrTimeout.Error(), "hanging "+pid)
		ends(t, pid)
	}
	if got := b.ask("hello"); got != "hello" {
		t.Errorf("after that: %q", got)
	}
}

func TestLinesCancel(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	log := newLines()
	b := newBench(t, helper("lines", func(p *Pool) { p.Stderr = log }))
	b.receive(1)
	id := redistest.Name(t)
	b.enqueue("hang", shunt.ID(id))
	pid := log.next(t, "hanging")
	if _, err := b.Cancel(t.Context(), shunt.ByID(b.channel, id)); err != nil {
		t.Fatal(err)
	}
	b.wait(shunt.EventCancelled, 1)
	ends(t, pid)
}

func TestLinesRecycled(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := newBench(t, helper("lines", func(p *Pool) { p.MaxMessages = 3 }))
	b.receive(1)
	var pids []string
	for range 9 {
		pids = append(pids, b.ask("pid"))
	}
	for i := range pids {
		if same := pids[i] == pids[i/3*3]; !same || i >= 3 && pids[i] == pids[i-3] {
			t.Errorf("messages had the children %v, want three each", pids)
			break
		}
	}
	ends(t, pids[0])
}

// A message waits for a child, and its timeout runs meanwhile.
func TestLinesBusy(t *testing.T) {
	t.Parallel()
	log := newLines()
	p := pool(t, "lines", func(p *Pool) { p.Stderr = log })
	first, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		m, _ := p.Message("c").Unmarshal([]byte("hang"))
		done <- m.Resolve(first)
	}()
	log.next(t, "hanging")
	second, cancel := context.WithCancelCause(t.Context())
	cancel(shunt.ErrTimeout)
	m, _ := p.Message("c").Unmarshal([]byte("hello"))
	if err := m.Resolve(second); err != shunt.ErrTimeout {
		t.Error(err)
	}
	end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
