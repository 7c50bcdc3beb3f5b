//go:build !windows

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A process of its own reads its file again at SIGHUP, and ends well at SIGTERM.
func TestSignals(t *testing.T) {
	redistest.Leaks(t)
	file, pid := filepath.Join(t.TempDir(), "shuntd.toml"), filepath.Join(t.TempDir(), "pid")
	write := func(maxBody int) {
		t.Helper()
		text := fmt.Sprintf("pid_file = %q\n[limits]\nmax_body = %d\n", pid, maxBody)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(10)
	cmd := exec.Command(os.Args[0], "-dev", "-config", file, "-api.listen=127.0.0.1:0", "-admin.listen=127.0.0.1:0")
	cmd.Env = append(os.Environ(), asProcess+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	url := ""
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		if m := regexp.MustCompile(`PUT -d hello '(.*)\?`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	publish := func(body string) int {
		t.Helper()
		r, err := http.NewRequest("PUT", url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res.StatusCode
	}
	if got := publish("0123456789"); got != 201 {
		t.Errorf("%d", got)
	}
	write(5)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); publish("0123456789") != 413; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the file was not read again in 10 s")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(pid); err == nil {
		t.Error("the pid file is still there")
	}
}

// dialer dials a unix socket, whatever the URL says.
func dialer(socket string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
}
