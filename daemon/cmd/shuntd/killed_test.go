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
	"slices"
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
	dial := func() (net.Conn, error) { return net.DialTimeout(network, addr, time.Second) }
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

// pair is two shuntd on one Redis, of which one is killed now and then, with what its clients have seen.
type pair struct {
	*testing.T
	redis string
	two   [2]atomic.Pointer[process]

	mu        sync.Mutex
	published map[string]bool
	acked     map[string]time.Time // when the answer was there
	open      int                  // published and not acked
	held      map[string]time.Time // jobs that their client left alone: when the lease ends at the earliest
	killed    time.Time            // zero: a job was taken since
	gaps      []time.Duration      // from a kill to the next job that anybody took
	late      []time.Duration      // after its lease has ended, a job that was left alone
}

// ask goes on by the other one where one gives no answer.
func (p *pair) ask(home int, method, path string) (status int, text string) {
	if status, text = p.two[home].Load().ask(method, path, "x"); status == 0 {
		status, text = p.two[1-home].Load().ask(method, path, "x")
	}
	return status, text
}

// publish publishes one job. One whose answer is lost is published again.
func (p *pair) publish(home int) {
	for p.Context().Err() == nil {
		var answer struct {
			ID string `json:"job_id"`
		}
		status, text := p.ask(home, "PUT", "/api/ns/q?tries=250")
		if status == 201 && json.Unmarshal([]byte(text), &answer) == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.published[answer.ID] = true
			if _, is := p.acked[answer.ID]; !is {
				p.open++
			}
			return
		}
	}
}

const pairTTR = 2 * time.Second

// consume takes a job, and acks it or leaves it alone.
func (p *pair) consume(home int, leave bool) {
	var job struct {
		ID string `json:"job_id"`
	}
	begun := time.Now()
	status, text := p.ask(home, "GET", fmt.Sprintf("/api/ns/q?ttr=%d&timeout=1", pairTTR/time.Second))
	if status != 200 || json.Unmarshal([]byte(text), &job) != nil {
		return
	}
	now := time.Now()
	p.mu.Lock()
	if at, is := p.acked[job.ID]; is && at.Before(begun) {
		p.Errorf("%s was acked %v before it was asked for", job.ID, begun.Sub(at))
	}
	if ends, is := p.held[job.ID]; is {
		if now.Before(ends) {
			p.Errorf("%s comes again %v before its lease ends", job.ID, ends.Sub(now))
		}
		p.late = append(p.late, now.Sub(ends))
		delete(p.held, job.ID)
	}
	if !p.killed.IsZero() && begun.After(p.killed) {
		p.gaps, p.killed = append(p.gaps, now.Sub(p.killed)), time.Time{}
	}
	if leave {
		p.held[job.ID] = begun.Add(pairTTR)
	}
	p.mu.Unlock()
	for status = 0; !leave && status != 204 && p.Context().Err() == nil; { // an ack whose answer is lost is sent again
		status, _ = p.ask(home, "DELETE", "/api/ns/q/job/"+job.ID)
	}
	if !leave {
		p.mu.Lock()
		if _, is := p.acked[job.ID]; !is && p.published[job.ID] {
			p.open--
		}
		p.acked[job.ID] = time.Now()
		p.mu.Unlock()
	}
}

// kill ends one of the two, and begins another one in its place.
func (p *pair) kill(which int) {
	old := p.two[which].Load()
	p.mu.Lock()
	p.killed = time.Now()
	p.mu.Unlock()
	old.kill()
	p.two[which].Store(start(p.T, p.redis))
}

func (p *pair) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// Whatever was published is delivered, and what was acked never again, although one of two processes is killed again
// and again in the middle. What was in the hands of a client comes again when its lease ends.
func TestKilled(t *testing.T) {
	redistest.Leaks(t)
	kills, clients := 50, 32
	if testing.Short() {
		kills, clients = 2, 8
	}
	p := &pair{T: t, redis: redistest.Start(t).URL(), published: make(map[string]bool),
		acked: make(map[string]time.Time), held: make(map[string]time.Time)}
	for i := range p.two {
		p.two[i].Store(start(t, p.redis))
	}
	var over atomic.Bool
	var publishers, consumers sync.WaitGroup
	for i := range clients / 2 {
		publishers.Go(func() {
			for !over.Load() && t.Context().Err() == nil {
				if p.left() < 500 {
					p.publish(i % 2)
				}
				time.Sleep(time.Millisecond)
			}
		})
		consumers.Go(func() {
			for n := 0; (!over.Load() || p.left() > 0) && t.Context().Err() == nil; n++ {
				p.consume(i%2, n%50 == 49 && !over.Load())
			}
		})
	}
	for i := range kills {
		time.Sleep(500 * time.Millisecond)
		p.kill(i % 2)
	}
	time.Sleep(pairTTR) // by then somebody has what was left alone
	over.Store(true)
	publishers.Wait()
	redistest.Until(t, 30*time.Second, "all are acked", func() bool { return p.left() == 0 })
	consumers.Wait()
	for _, path := range []string{"/api/ns/q/size", "/api/ns/q/deadletter/size"} {
		if status, text := p.ask(0, "GET", path); status != 200 || !strings.Contains(text, `"size":0`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	slices.Sort(p.gaps)
	slices.Sort(p.late)
	if len(p.gaps) == 0 || len(p.late) == 0 {
		t.Fatalf("%d gaps and %d leases that ended", len(p.gaps), len(p.late))
	}
	gap, late := p.gaps[len(p.gaps)-1], p.late[len(p.late)-1]
	redistest.Tell(fmt.Sprintf("shuntd: %d kills under %d clients: %d published, all acked, and never seen again\n",
		kills, clients, len(p.published)))
	redistest.Tell(fmt.Sprintf("shuntd: the next job at most %v after a kill; %d leases ended, %v late at the median, "+
		"%v at most\n", gap, len(p.late), p.late[len(p.late)/2], late))
	if gap > time.Second || late > 6*time.Second {
		t.Error("that is too late")
	}
}
