//go:build !windows

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

const python = `import json, os, sys, time
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    m = json.loads(line)
    what, _, arg = m["text"].partition(" ")
    print("has", m["text"])
    if what == "die":
        print("the last words")
        os.kill(os.getpid(), 9)
    if what == "slow":
        open(arg + ".begun", "w").close()
        while not os.path.exists(arg):
            time.sleep(0.01)
    if what == "eat":
        b = b"x" * (int(arg) << 20)
    answer = {"n": m["n"], "ok": True, "result": str(os.getpid())}
    if what == "reject":
        answer = {"n": m["n"], "reject": "no such picture"}
    print(json.dumps(answer), file=answers, flush=True)
`

// workbench is a channel of a real server, and a queue to fill it.
type workbench struct {
	t       *testing.T
	url     string
	channel string
	queue   *shunt.Queue
	dir     string
}

func newBench(t *testing.T) *workbench {
	t.Helper()
	t.Parallel()
	redistest.Leaks(t)
	s := redistest.Shared(t)
	pool, err := shunt.NewPool(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	b := &workbench{t: t, url: s.URL(), channel: redistest.Name(t), queue: &shunt.Queue{Pool: pool, Quiet: true},
		dir: t.TempDir()}
	t.Cleanup(func() { _, _ = b.queue.Close(), pool.Close() })
	return b
}

// handler is a program in a file.
func (b *workbench) handler(text string) string {
	b.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil && text == python {
		b.t.Skip(err)
	}
	name := filepath.Join(b.dir, "handler")
	if text == python {
		text = "#!/usr/bin/env python3\n" + text
	}
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
		b.t.Fatal(err)
	}
	return name
}

// work starts shunt work.
func (b *workbench) work(flags []string, command ...string) *redistest.Child {
	b.t.Helper()
	args := append([]string{"work", "--redis", b.url, "--channel", b.channel}, flags...)
	c := redistest.Run(b.t, []string{asProcess + "=1"}, os.Args[0], append(append(args, "--"), command...)...)
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Log(c.Said())
		}
	})
	return c
}

func (b *workbench) enqueue(text string, opts ...shunt.Option) {
	b.t.Helper()
	opts = append(opts, shunt.ID(text), shunt.Retain(time.Minute))
	if err := b.queue.Enqueue(context.Background(), shunt.Raw(b.channel, []byte(text)), opts...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *workbench) outcome(id string) shunt.Outcome {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o, err := b.queue.Wait(ctx, shunt.ByID(b.channel, id))
	if err != nil {
		b.t.Fatalf("%s: %v", id, err)
	}
	return o
}

func (b *workbench) status(id string) shunt.Status {
	b.t.Helper()
	s, err := b.queue.Status(context.Background(), shunt.ByID(b.channel, id))
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// ends has a process end in order, with a status.
func (b *workbench) ends(c *redistest.Child, status int) {
	b.t.Helper()
	if err := c.Term(); err != nil {
		b.t.Fatal(err)
	}
	if got := c.Code(); got != status {
		b.t.Errorf("exit status %d, want %d:\n%s", got, status, c.Said())
	}
}

func said(t *testing.T, c *redistest.Child, text string) {
	t.Helper()
	redistest.Until(t, 20*time.Second, "it says "+text, func() bool { return strings.Contains(c.Said(), text) })
}

// Messages of several channels are handled by as many children as there are workers, which are replaced in time.
func TestMessagesAreHandled(t *testing.T) {
	b := newBench(t)
	c := b.work([]string{"--workers", "3", "--channel", b.channel + "2", "--max-messages", "10"}, b.handler(python))
	const n = 100
	for i := range n {
		b.enqueue(fmt.Sprint(i))
	}
	other := shunt.With(shunt.Raw(b.channel+"2", []byte("x")), shunt.ID("x"), shunt.Retain(time.Minute))
	if o, err := b.queue.EnqueueAndWait(context.Background(), other); err != nil || o.Kind != shunt.EventAcked {
		t.Errorf("the second channel: %+v, %v", o, err)
	}
	children := map[string]int{}
	for i := range n {
		o := b.outcome(fmt.Sprint(i))
		if o.Kind != shunt.EventAcked {
			t.Errorf("%d: %+v", i, o)
		}
		children[string(o.Result)]++
	}
	for pid, messages := range children {
		if messages > 10 {
			t.Errorf("child %s had %d messages", pid, messages)
		}
	}
	b.enqueue("reject")
	if o := b.outcome("reject"); o.Kind != shunt.EventRejected || o.Failure != "no such picture" {
		t.Errorf("%+v", o)
	}
	said(t, c, `message "reject" is dead after attempt 1: no such picture`)
	said(t, c, "\nhas reject\n")
	b.ends(c, exitOK)
	said(t, c, "all handlers have ended")
}

// SIGTERM has what is being handled end, and nothing else begin.
func TestTermDrains(t *testing.T) {
	b := newBench(t)
	c := b.work([]string{"--workers", "1"}, b.handler(python))
	go_ := filepath.Join(b.dir, "go")
	b.enqueue("slow " + go_)
	redistest.Until(t, 20*time.Second, "it is handled", func() bool {
		_,
			err := os.Stat(go_ + ".begun")
		return err == nil
	})
	b.enqueue("later")
	if err := c.Term(); err != nil {
		t.Fatal(err)
	}
	said(t, c, "it ends, and waits up to 30s")
	if c.Gone() {
		t.Error("it did not wait")
	}
	if err := os.WriteFile(go_, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.Code(); code != exitOK {
		t.Errorf("exit status %d", code)
	}
	if o := b.outcome("slow " + go_); o.Kind != shunt.EventAcked || o.Attempt != 1 {
		t.Errorf("%+v", o)
	}
	if s := b.status("later"); s.State != shunt.StatePrepare || s.Attempt != 0 {
		t.Errorf("%+v", s)
	}
}

// What outlasts the grace goes back, with no attempt counted, and the status says so.
func TestGraceIsOver(t *testing.T) {
	b := newBench(t)
	c := b.work([]string{"--grace", "200ms"}, b.handler(python))
	b.enqueue("slow " + b.dir + "/never")
	redistest.Until(t, 20*time.Second, "it is handled", func() bool {
		_, err := os.Stat(b.dir + "/never.begun")
		return err == nil
	})
	b.ends(c, exitGrace)
	said(t, c, "the grace is over")
	if s := b.status("slow " + b.dir + "/never"); s.State != shunt.StatePrepare || s.Attempt != 0 {
		t.Errorf("%+v", s)
	}
}

// A child that is killed costs its message one attempt, and no other message anything.
func TestKilledChild(t *testing.T) {
	b := newBench(t)
	c := b.work([]string{"--workers", "2", "--stderr", "failures"}, b.handler(python))
	b.enqueue("die now", shunt.MaxAttempts(1))
	b.enqueue("die", shunt.MaxAttempts(2))
	for i := range 20 {
		b.enqueue(fmt.Sprint(i))
	}
	if o := b.outcome("die now"); o.Kind != shunt.EventRejected || o.Attempt != 1 ||
		!strings.Contains(o.Failure, "the last words") {
		t.Errorf("%+v", o)
	}
	for i := range 20 {
		if o := b.outcome(fmt.Sprint(i)); o.Kind != shunt.EventAcked || o.Attempt != 1 {
			t.Errorf("%d: %+v", i, o)
		}
	}
	redistest.Until(t, 20*time.Second, "one attempt is counted", func() bool {
		s := b.status("die")
		return s.State == shunt.StateDelay && s.Attempt == 1
	})
	said(t, c, `message "die" failed at attempt 1, and is tried again in`)
	said(t, c, "\n    | the last words\n")
	if strings.Contains(c.Said(), "\nhas 1\n") {
		t.Error("the output of children is there although only failures are wanted")
	}
	b.ends(c, exitOK)
}

func TestTimeout(t *testing.T) {
	b := newBench(t)
	c := b.work([]string{"--timeout", "500ms"}, b.handler(python))
	b.enqueue("slow "+b.dir+"/never", shunt.MaxAttempts(1))
	o := b.outcome("slow " + b.dir + "/never")
	if o.Kind != shunt.EventRejected || !strings.Contains(o.Failure, "timeout") {
		t.Errorf("%+v", o)
	}
	b.ends(c, exitOK)
}

func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has it")
	}
	b := newBench(t)
	c := b.work([]string{"--max-memory", "200MB"}, b.handler(python))
	b.enqueue("eat 300", shunt.MaxAttempts(1))
	if o := b.outcome("eat 300"); o.Kind != shunt.EventRejected || !strings.Contains(o.Failure, "MemoryError") {
		t.Errorf("%+v", o)
	}
	b.ends(c, exitOK)
}

// With exec any command is a handler: its input is the payload, its output the result, its status the verdict.
func TestExec(t *testing.T) {
	b := newBench(t)
	c := b.work([]string{"--protocol", "exec"}, b.handler(`#!/bin/sh
read text
echo "$text of $SHUNT_ATTEMPT and $1" >&2
case $text in bad) exit 65;; esac
printf 'did %s' "$text"
`), "--argument")
	b.enqueue("well")
	b.enqueue("bad")
	if o := b.outcome("well"); string(o.Result) != "did well" {
		t.Errorf("%+v", o)
	}
	if o := b.outcome("bad"); o.Kind != shunt.EventRejected || !strings.Contains(o.Failure, "bad of 1 and --argument") {
		t.Errorf("%+v", o)
	}
	b.ends(c, exitOK)
}

// A second signal ends it at once. Its message is handled by the next process.
func TestSecondSignal(t *testing.T) {
	b := newBench(t)
	c := b.work(nil, b.handler(python))
	b.enqueue("slow " + b.dir + "/go")
	redistest.Until(t, 20*time.Second, "it is handled", func() bool {
		_, err := os.Stat(b.dir + "/go.begun")
		return err == nil
	})
	if err := c.Term(); err != nil {
		t.Fatal(err)
	}
	said(t, c, "it ends, and waits up to 30s")
	b.ends(c, -1)
	if err := os.WriteFile(b.dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next := b.work(nil, b.handler(python))
	if o := b.outcome("slow " + b.dir + "/go"); o.Kind != shunt.EventAcked || o.Attempt != 1 {
		t.Errorf("%+v", o)
	}
	b.ends(next, exitOK)
}

// A Redis that is not there, or refuses, is told at the start, without its password.
func TestNoRedis(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	c := redistest.Run(t, []string{asProcess + "=1", "SHUNT_REDIS=redis://ann:hunter2@127.0.0.1:1"}, os.Args[0], "work",
		"--channel", "c", "cat")
	if code := c.Code(); code != exitFailed || !strings.Contains(c.Said(), "it cannot receive") ||
		strings.Contains(c.Said(), "hunter2") {
		t.Errorf("exit status %d: %s", code, c.Said())
	}
}
