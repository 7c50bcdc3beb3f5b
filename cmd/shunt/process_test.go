package main

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/redistest"
)

// The program itself: it starts soon, ends by a signal as it says, and a kill doubles nothing.
func TestProcess(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q := queueOn(t, s)
	program := filepath.Join(t.TempDir(), "shunt")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	start := func(in io.Reader, args ...string) *exec.Cmd {
		cmd := exec.Command(program, append(args, "--redis", s.URL())...)
		cmd.Stdin = in
		return cmd
	}
	least, work := time.Hour, time.Hour
	for range 10 { // other tests run, too: the fastest is nearly the program's own, which is 20 to 30 ms
		began := time.Now()
		cmd := start(nil, "channels")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		least = min(least, time.Since(began))
		work = min(work, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	if least > 500*time.Millisecond || work > 100*time.Millisecond { // the first is more where it waits for something
		t.Errorf("it takes %v, and %v of a core", least, work)
	}

	const n = 950
	input := numbered(n, "%d")
	for _, row := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGKILL, -1}, {syscall.SIGINT, exitInterrupted}, {syscall.SIGTERM, exitInterrupted}} {
		name := row.signal.String()
		channel := strings.ReplaceAll(name, " ", "-")
		cmd := start(nil, "deliver", channel, "--text", "--resume", name)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		var said buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(stdin, input[:len(input)*2/3]); err != nil {
			t.Fatal(err)
		}
		redistest.Until(t, 10*time.Second, "some are delivered", func() bool {
			return len(payloads(t, q, channel, shunt.StatePrepare)) > 100
		})
		_ = cmd.Process.Signal(row.signal)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != row.code {
			t.Errorf("%v: exit %d, want %d: %s", row.signal, code, row.code, said.String())
		}
		if out, err := start(strings.NewReader(input), "deliver", channel, "--text", "--resume", name).
			CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		whole(t, payloads(t, q, channel, shunt.StatePrepare), n)
	}
}
