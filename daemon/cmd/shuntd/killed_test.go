//go:build !windows

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// process is a shuntd of its own.
type process struct {
	cmd    *exec.Cmd
	client *http.Client
	dial   func() (net.Conn, error)
}

// start has one on a unix socket, without tokens.
func start(t testing.TB, redis string, more ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // a test's own directory may be longer than a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	return startOn(t, "unix", socket, redis, append([]string{"-api.listen=unix:" + socket, "-admin.open"}, more...)...)
}

// startOn waits until a shuntd whose configuration listens at an address is ready.
func startOn(t testing.TB, network, addr, redis string, more ...string) *process {
	t.Helper()
	cmd := exec.Command(
		os.Args[0],
		"-admin.listen=127.0.0.1:0",
		"-checks=off",
		"-log.access=false",
		"-pools.default.redis="+redis,
	)
	cmd.Args = append(cmd.Args, more...)
	cmd.Env = append(os.Environ(), asProcess+"=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dial := func() (net.Conn, error) { return net.Dial(network, addr) }
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() }}
	p := &process{cmd: cmd, client: &http.Client{Transport: transport}, dial: dial}
	t.Cleanup(p.kill)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if status, _ := p.ask("GET", "/readyz", ""); status == 200 {
			return p
		}
		if time.Now().After(end) {
			t.Fatal("not ready in 10 s")
		}
	}
}

// kill ends it with SIGKILL; once is enough.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.client.CloseIdleConnections()
}

// ask is 0 where there is no answer.
func (p *process) ask(method, path, body string) (int, string) {
	r, err := http.NewRequest(method, "http://shuntd"+path, strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	res, err := p.client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, ""
	}
	return res.StatusCode, string(text)
}

// What was published is delivered, although a process that served it was killed in the middle.
func TestKilled(t *testing.T) {
	redistest.Leaks(t)
	b := redistest.Start(t)
	first, second := start(t, b.URL()), start(t, b.URL())
	var now atomic.Pointer[process]
	now.Store(first)
	const jobs, clients = 400, 8
	var mu sync.Mutex
	published, acked := make(map[string]bool), make(map[string]bool)
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for id := range published {
			if !acked[id] {
				return false
			}
		}
		return len(published) == jobs
	}
	end := time.Now().Add(20 * time.Second)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range jobs / clients {
				for time.Now().Before(end) {
					var answer struct {
						ID string `json:"job_id"`
					}
					status, text := now.Load().ask("PUT", "/api/ns/q?tries=20", "x")
					if status == 201 && json.Unmarshal([]byte(text), &answer) == nil {
						mu.Lock()
						published[answer.ID] = true
						mu.Unlock()
						break
					}
				}
			}
		})
		all.Go(func() {
			for !done() && time.Now().Before(end) {
				var job struct {
					ID string `json:"job_id"`
				}
				status, text := now.Load().ask("GET", "/api/ns/q?ttr=1&timeout=1", "")
				if status != 200 || json.Unmarshal([]byte(text), &job) != nil {
					continue
				}
				for status = 0; status != 204 && time.Now().Before(end); { // an ack whose answer is lost is sent again
					status, _ = now.Load().ask("DELETE", fmt.Sprint("/api/ns/q/job/", job.ID), "")
				}
				mu.Lock()
				acked[job.ID] = true
				if len(acked) == jobs/4 {
					first.kill()
					now.Store(second)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if !done() {
		t.Errorf("%d published and %d acked", len(published), len(acked))
	}
	for _, path := range []string{"/api/ns/q/size", "/api/ns/q/deadletter/size"} {
		if status, text := second.ask("GET", path, ""); status != 200 || !strings.Contains(text, `"size":0`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}
