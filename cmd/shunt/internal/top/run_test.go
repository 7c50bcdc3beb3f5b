package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// terminal is what a program draws on.
type terminal struct {
	mu sync.Mutex
	at *vt.Emulator
}

func newTerminal(t *testing.T) *terminal {
	out := &terminal{at: vt.NewEmulator(80, 24)}
	var answers sync.WaitGroup
	answers.Go(func() { _, _ = io.Copy(io.Discard, out.at) }) // it waits until somebody takes them
	t.Cleanup(func() {
		_ = out.at.InputPipe().(io.Closer).Close()
		answers.Wait()
		if t.Failed() {
			t.Log(out.at.String())
		}
	})
	return out
}

// Write moves the cursor to the line's beginning at its end, as the system does for a terminal that is not raw.
func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.at.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")))
	return len(b), err
}

// shown says whether a text is on the screen.
func (t *terminal) shown(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Contains(ansi.Strip(t.at.String()), text)
}

// The real program goes down to a dead letter on a real Redis, retries it, notes that, and outlives an absence.
func TestRun(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t, "appendonly yes")
	pool := s.Pool(t)
	q := &shunt.Queue{Pool: pool, Quiet: true}
	t.Cleanup(func() { _ = q.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dead := make(chan struct{}, 1)
	w := &shunt.Queue{Pool: pool, Events: func(e shunt.Event) {
		if e.Kind == shunt.EventRejected {
			dead <- struct{}{}
		}
	}}
	refuse := shunt.Define("mail", func(context.Context,
		string) error {
		return shunt.Reject(errors.New("no such user"))
	})
	if _, err := w.Receive(ctx, refuse, 1); err != nil {
		t.Fatal(err)
	}
	if err := w.Enqueue(ctx, refuse.Message("ann"), shunt.ID("one"), shunt.Header("trace", "abc")); err != nil {
		t.Fatal(err)
	}
	<-dead
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	keys, typed := io.Pipe()
	defer typed.Close()
	out := newTerminal(t)
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, q, keys, out, Options{Refresh: 100 * time.Millisecond, By: "ann"}) }()
	see := func(text string) {
		t.Helper()
		redistest.Until(t, 10*time.Second, fmt.Sprintf("%q on the screen", text),
			func() bool { return out.shown(text) })
	}
	tap := func(text string) { _, _ = io.WriteString(typed, text) }
	see("mail")
	tap("\r")
	see("end to end")
	for range 5 {
		tap("j")
	}
	tap("\r")
	see("no such user")
	tap("\r")
	see("trace: abc")
	tap("r")
	see("retry one of mail?")
	tap("y")
	see("done")
	all, err := q.Overview(ctx, "mail")
	if err != nil || all[0].Dead != 0 || all[0].Prepare != 1 {
		t.Errorf("after the retry: %+v, %v", all, err)
	}
	log, err := q.AuditLog(ctx, "", 10)
	if err != nil || len(log) != 1 || log[0].By != "ann" || log[0].Verb != "retry" || log[0].Channel != "mail" {
		t.Errorf("audit: %+v, %v", log, err)
	}
	tap("h")
	see("HELD BY")
	s.Kill()
	see("Redis does not answer")
	s.Restart()
	if err := q.Enqueue(ctx, refuse.Message("bob")); err != nil {
		t.Fatal(err)
	}
	see("prepare          2")
	tap("hq")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("q does not end it")
	}
}

// Who leaves the screen right after a y has the action done and noted before the program ends.
func TestLeaveWhileActing(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Start(t)
	p := redistest.NewProxy(t, s.Addr())
	q := &shunt.Queue{Pool: redistest.Pool(t, p.Addr()), Quiet: true}
	t.Cleanup(func() { _ = q.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := q.Enqueue(ctx, shunt.Raw("mail", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	keys, typed := io.Pipe()
	defer typed.Close()
	out := newTerminal(t)
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, q, keys, out, Options{Refresh: 100 * time.Millisecond, By: "ann"}) }()
	see := func(text string) {
		t.Helper()
		redistest.Until(t, 10*time.Second, fmt.Sprintf("%q on the screen", text),
			func() bool { return out.shown(text) })
	}
	tap := func(text string) { _, _ = io.WriteString(typed, text) }
	see("mail")
	tap("\r")
	see("end to end")
	tap("\r")
	see("TRIED")
	for began := time.Now(); !out.shown("y do it") && time.Since(began) < 10*time.Second; {
		tap("c") // which it leaves alone while it looks
		for since := time.Now(); !out.shown("y do it") && time.Since(since) < time.Second; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	asked, goOn := make(chan struct{}), make(chan struct{})
	p.On(redistest.Command("LREM", ".prepare"), 1, redistest.Call(func() { close(asked); <-goOn }))
	tap("y")
	<-asked
	tap("q")
	early := false
	select {
	case err := <-ended:
		early = true
		t.Errorf("it ended while the message was being cancelled: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(goOn)
	if !early {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	log, err := q.AuditLog(ctx, "", 10)
	if err != nil || !early && len(log) != 1 {
		t.Errorf("audit: %+v, %v", log, err)
	}
}
