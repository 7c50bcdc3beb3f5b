package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The first program prints what the README shows, and ends at Ctrl-C.
func TestHello(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no interrupt that a process could be sent")
	}
	binary := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := exec.Command(binary)
	c.Env = append(os.Environ(), "REDIS_URL=")
	var log bytes.Buffer
	c.Stderr = &log
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(20*time.Second, func() { c.Process.Kill() }).Stop()
	var printed []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if printed = append(printed, lines.Text()); len(printed) == 2 {
			c.Process.Signal(os.Interrupt)
		}
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if strings.Join(printed, "; ") != "welcome, Ann; welcome, Ben" {
		t.Errorf("it printed %q", printed)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "WARN shunt: retried channel=welcome") ||
		!strings.Contains(text, `error="the mail server is busy"`) {
		t.Errorf("it logged %s", text)
	}
}
