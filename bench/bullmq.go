package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/shuntmq/shunt/internal/redisd"
)

const bullmqVersion, ioredisVersion = "6.7.0", "5.11.1"

//go:embed bullmq.js
var bullmqProgram string

// bullmqQueue is a Node program that does for itself what the harness does for Go, and counts likewise.
type bullmqQueue struct{ *nodeProgram }

// nodeProgram answers one request at a time.
type nodeProgram struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs bytes.Buffer // to be read when it has ended
}

// bullmqDir is where npm has put it, once for ever.
func bullmqDir() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "shunt-bench", "bullmq-"+bullmqVersion), err
}

// installBullmq sees to it that the directory is there.
func installBullmq(ctx context.Context) error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	dir, err := bullmqDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	// Into another one first, so that one that is there is complete.
	half, err := os.MkdirTemp(filepath.Dir(dir), "half")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "install", "--prefix", half, "--no-audit", "--no-fund", "--ignore-scripts",
		"bullmq@"+bullmqVersion, "ioredis@"+ioredisVersion)
	npm.SysProcAttr = redisd.ChildAttr
	if text, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w: %s", err, bytes.TrimSpace(text))
	}
	return os.Rename(half, dir)
}

func openBullmq(t task) (queue, error) {
	dir, err := bullmqDir()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(t.srv.addr)
	if err != nil {
		return nil, err
	}
	q := bullmqQueue{&nodeProgram{cmd: exec.Command("node", "-e", bullmqProgram, port)}}
	q.cmd.Dir, q.cmd.Stderr, q.cmd.SysProcAttr = dir, &q.errs, redisd.ChildAttr
	if q.in, err = q.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := q.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	q.out = bufio.NewReader(out)
	if err := q.cmd.Start(); err != nil {
		return nil, err
	}
	if err := q.ask(context.Background(), nil, `{"do": "warm", "n": %d}`, min(3000, t.n)); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

// ask sends a request and decodes the answer into reply, if that is not nil.
func (p *nodeProgram) ask(ctx context.Context, reply any, request string, args ...any) error {
	defer context.AfterFunc(ctx, func() { p.cmd.Process.Kill() })()
	if _, err := fmt.Fprintf(p.in, request+"\n", args...); err != nil {
		return fmt.Errorf("ask node: %w", err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.in.Close()
		return fmt.Errorf("node ended: %w: %s", errors.Join(err, p.cmd.Wait()), p.errs.String())
	}
	answer := struct {
		OK    any
		Error string
	}{OK: reply}
	if err := json.Unmarshal(line, &answer); err != nil {
		return fmt.Errorf("node's answer %.200q: %w", line, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}

// spent is how long something took, and what the program used of a core for it.
type spent struct{ MS, CPU float64 }

func (s spent) work(n int, c cost) work {
	return work{rate: float64(n) / s.MS * 1000, cost: cost{c.redis, s.CPU / float64(n), -1}}
}

func (q bullmqQueue) fill(ctx context.Context, t task) error {
	return q.ask(ctx, nil, `{"do": "send", "n": %d, "size": %d, "callers": 8, "batch": 100}`, t.n, t.size)
}

func (q bullmqQueue) enqueue(ctx context.Context, t task) (work, error) {
	m := t.srv.meter()
	var s spent
	err := q.ask(
		ctx,
		&s,
		`{"do": "send", "n": %d, "size": %d, "callers": %d, "batch": %d}`,
		t.n,
		t.size,
		t.workers,
		t.batch,
	)
	c, bad := m.stop(t.n)
	return s.work(t.n, c), errors.Join(err, bad)
}

func (q bullmqQueue) drain(ctx context.Context, t task) (work, error) {
	m := t.srv.meter()
	var s struct {
		spent
		Mean        float64 // ms
		Lost, Again int
	}
	err := q.ask(ctx, &s, `{"do": "drain", "n": %d, "workers": %d, "wait": %f, "stall": %d}`,
		t.n, t.workers, t.wait.Seconds()*1000, t.stall.Milliseconds())
	c, bad := m.stop(t.n)
	if err := errors.Join(err, bad, verdict(t.n, s.Lost, s.Again)); err != nil {
		return work{}, err
	}
	w := s.work(t.n, c)
	w.mean = time.Duration(s.Mean * float64(time.Millisecond))
	return w, expect(ctx, q, 0)
}

func (q bullmqQueue) wake(ctx context.Context, t task) (took []time.Duration, err error) {
	var ms []float64
	err = q.ask(ctx, &ms, `{"do": "wake", "wakes": %d, "limit": %d, "size": %d, "workers": %d}`,
		t.wakes, t.wakeFor.Milliseconds(), t.size, t.workers)
	for _, m := range ms {
		took = append(took, time.Duration(m*float64(time.Millisecond)))
	}
	return took, err
}

// receive starts workers that count what they handle for themselves.
func (q bullmqQueue) receive(ctx context.Context, workers int, _ func([]byte)) (func() error, error) {
	err := q.ask(ctx, nil, `{"do": "idle", "workers": %d}`, workers)
	return func() error { return q.ask(context.Background(), nil, `{"do": "stop"}`) }, err
}

func (q bullmqQueue) left(ctx context.Context) (n int, err error) {
	err = q.ask(ctx, &n, `{"do": "left"}`)
	return n, err
}

func (q bullmqQueue) close() error {
	q.in.Close()
	return q.cmd.Wait()
}
