package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt/internal/redisd"
)

// childEnv names the variable that makes of this program a child, and what its errand is.
const childEnv = "SHUNT_BENCH_CHILD"

// errand is what a child does: it drains the queue until its stdin ends, or it holds for ever what it was given.
type errand struct {
	System  string
	Addr    string
	Hold    bool
	N       int // messages that there are
	Workers int
	Lease   time.Duration
	Header  int // the limit's
	Depth   int // likewise
}

// account is what a child did.
type account struct {
	Seen        []byte // a bit a message
	Count       int64
	First, Last int64 // Unix ns
}

// isChild does a child's errand, if this process is one.
func isChild() bool {
	text := os.Getenv(childEnv)
	if text == "" {
		return false
	}
	var e errand
	err := json.Unmarshal([]byte(text), &e)
	if err == nil {
		err = e.run(context.Background(), bufio.NewReader(os.Stdin), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	return true
}

func (e errand) run(ctx context.Context, in *bufio.Reader, out io.Writer) error {
	i := slices.IndexFunc(systems, func(s system) bool { return s.name == e.System })
	if i < 0 {
		return fmt.Errorf("there is no system %q", e.System)
	}
	t := task{srv: &server{addr: e.Addr}, header: e.Header}
	t.n, t.want, t.workers, t.lease, t.depth, t.stall = e.N, e.N, e.Workers, e.Lease, e.Depth, 20*time.Second
	q, err := systems[i].open(t)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if e.Hold {
		_, err := q.receive(ctx, e.Workers, func([]byte) {
			fmt.Fprintln(out, "held")
			select {}
		})
		if err != nil {
			return err
		}
		select {}
	}
	tally := newTally(make([]atomic.Bool, e.N), e.N)
	var last time.Time
	if p, ok := q.(puller); ok {
		err = p.pullAll(ctx, t, tally)
		last = time.Now()
	} else {
		last, err = tally.until(in, func() (func() error, error) { return q.receive(ctx, e.Workers, tally.handle) })
	}
	a := account{Seen: make([]byte, (e.N+7)/8), Count: tally.count.Load() + tally.doubled.Load(),
		First: tally.epoch.UnixNano() + tally.first.Load(), Last: last.UnixNano()}
	for i := range tally.seen {
		if tally.seen[i].Load() {
			a.Seen[i/8] |= 1 << (i % 8)
		}
	}
	return errors.Join(err, q.close(), json.NewEncoder(out).Encode(a))
}

// puller drains until there is nothing more.
type puller interface {
	pullAll(ctx context.Context, t task, tally *tally) error
}

// until receives until in ends, and tells when the last message was handled, to the millisecond.
func (t *tally) until(in io.Reader, receive func() (stop func() error, err error)) (last time.Time, err error) {
	stop, err := receive()
	if err != nil {
		return last, err
	}
	ended := make(chan struct{})
	go func() { // it ends with this process, which has nothing else to do, at the latest
		io.Copy(io.Discard, in)
		close(ended)
	}()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for before := int64(0); ; {
		select {
		case <-ended:
			return last, stop()
		case now := <-look.C:
			if n := t.count.Load(); n != before {
				before, last = n, now
			}
		}
	}
}

// child is a process that runs an errand.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs bytes.Buffer // to be read when it has ended
}

// startChild returns a child that is ready to be told to go.
func startChild(ctx context.Context, e errand) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, program)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr, c.cmd.SysProcAttr = &c.errs, redisd.ChildAttr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a child: %w", err)
	}
	if err := c.hear("ready"); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

func (c *child) hear(word string) error {
	line, err := c.out.ReadString('\n')
	if err != nil || line != word+"\n" {
		c.kill()
		return fmt.Errorf("a child said %q (%v) instead of %q: %s", line, err, word, c.errs.String())
	}
	return nil
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // an error means that it has ended already
	_ = c.cmd.Wait()
}

// account ends a child that drains.
func (c *child) account() (a account, err error) {
	c.in.Close()
	bad := json.NewDecoder(c.out).Decode(&a)
	if err := errors.Join(bad, c.cmd.Wait()); err != nil {
		return a, fmt.Errorf("a child's account: %w: %s", err, c.errs.String())
	}
	return a, nil
}

// drainInChildren is drain by n processes: what they have handled ÷ the time from the first of all to the last.
func drainInChildren(ctx context.Context, q queue, t task, n int) (rate float64, err error) {
	if err := fill(ctx, q, t); err != nil {
		return 0, err
	}
	e := errand{System: t.system.name, Addr: t.srv.addr, N: t.n, Workers: t.workers, Lease: t.lease, Depth: t.depth}
	if l, ok := q.(limitQueue); ok {
		e.Header = l.header
	}
	children := make([]*child, n)
	for i := range children {
		if children[i], err = startChild(ctx, e); err != nil {
			return 0, err
		}
		defer children[i].kill()
	}
	for _, c := range children {
		if _, err := fmt.Fprintln(c.in, "go"); err != nil {
			return 0, err
		}
	}
	for end := time.Now().Add(t.stall + time.Duration(t.n)*100*time.Microsecond); ; {
		left, err := q.left(ctx)
		if err != nil {
			return 0, err
		}
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%d messages are left", left)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
	accounts := make([]account, n)
	for i, c := range children {
		if accounts[i], err = c.account(); err != nil {
			return 0, err
		}
	}
	return balance(t.n, accounts)
}

// balance is the rate of all of them, if together they have handled each of n messages once.
func balance(n int, accounts []account) (rate float64, err error) {
	seen, handled, distinct := make([]byte, (n+7)/8), 0, 0
	first, last := int64(math.MaxInt64), int64(0)
	for _, a := range accounts {
		for i, b := range a.Seen {
			distinct += bits.OnesCount8(b &^ seen[i])
			seen[i] |= b
		}
		if handled += int(a.Count); a.Count > 0 {
			first, last = min(first, a.First), max(last, a.Last)
		}
	}
	return float64(n) / time.Duration(last-first).Seconds(), verdict(n, n-distinct, handled-distinct)
}
