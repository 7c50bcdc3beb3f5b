package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/shuntmq/shunt/internal/resp"
)

// The keys are as long as shunt's: Redis reads and hashes them with each command.
const (
	prepareKey = "{bench}.prepare"
	doingKey   = "{bench}.doing.%026d-64-10000."
)

// depths are the commands, or pairs of them, that are under way at once; the best of them is the limit.
var depths = []int{1, 4, 16, 64, 256, 1024}

// limitQueue is what Redis itself allows: the commands that a reliable queue cannot do without, and nothing else. Its
// elements are as large as shunt's.
type limitQueue struct {
	addr   string
	header int // bytes of an element that are not payload
	pool   *redis.Pool
}

func openLimit(t task) (queue, error) {
	p, err := openLoop(t)
	if err != nil {
		return nil, err
	}
	q := limitQueue{t.srv.addr, t.header, p.(loopQueue).pool}
	if q.header > 0 {
		return q, nil
	}
	s, err := openShunt(0)(t)
	if err != nil {
		return nil, err
	}
	err = s.(client).sender()(context.Background(), nil)
	if err := errors.Join(err, s.close()); err != nil {
		return nil, err
	}
	element, err := redis.Bytes(t.srv.conn.Do("LINDEX", "{bench}.prepare", 0))
	if err != nil {
		return nil, fmt.Errorf("look at an element of shunt's: %w", err)
	}
	q.header = len(element)
	_, err = t.srv.conn.Do("FLUSHALL")
	return q, err
}

func (q limitQueue) sender() func(context.Context, []byte) error {
	return loopQueue{q.pool}.sender()
}

// receive is what hears of a message soonest: one connection that waits for it.
func (q limitQueue) receive(ctx context.Context, _ int, handle func([]byte)) (func() error, error) {
	c, err := q.pool.Dial()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	var busy sync.Mutex // what is handled is removed too, before the connection ends
	g.Go(func() error {
		defer context.AfterFunc(ctx, func() { busy.Lock(); c.Close(); busy.Unlock() })()
		for {
			payload, err := redis.Bytes(redis.DoWithTimeout(c, 0, "BRPOPLPUSH", "prepare", "doing", 0))
			if err == nil {
				busy.Lock()
				handle(payload)
				_, err = c.Do("LREM", "doing", -1, payload)
				busy.Unlock()
			}
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	return func() error { stop(); return g.Wait() }, nil
}

func (q limitQueue) fill(ctx context.Context, t task) error {
	_, err := q.push(ctx, t, 0, t.n, 100, 16)
	return err
}

func (q limitQueue) enqueue(ctx context.Context, t task) (best work, err error) {
	for _, depth := range depths {
		if _, err := t.srv.conn.Do("FLUSHALL"); err != nil {
			return best, err
		}
		n := few(t.n, depth)
		m := t.srv.meter()
		rate, err := q.push(ctx, t, 0, n, t.batch, depth)
		c, bad := m.stop(n)
		if err := errors.Join(err, bad, expect(ctx, q, n)); err != nil {
			return best, err
		}
		if rate > best.rate {
			best = work{rate: rate, cost: c, depth: depth}
		}
	}
	return best, nil
}

func (q limitQueue) drain(ctx context.Context, t task) (best work, err error) {
	pushed, pulled := t.n, 0
	seen := make([]atomic.Bool, t.n+len(depths)*t.want)
	for _, depth := range depths {
		if _, err := q.push(ctx, t, pushed, pulled+t.n, 100, 16); err != nil {
			return best, err
		}
		pushed = pulled + t.n
		tally := newTally(seen, few(t.want, depth))
		m := t.srv.meter()
		err := q.pull(ctx, t, tally, depth, pulled, false)
		c, bad := m.stop(int(tally.want))
		if err := errors.Join(err, bad, tally.verdict()); err != nil {
			return best, err
		}
		if tally.rate() > best.rate {
			best = work{rate: tally.rate(), cost: c, depth: depth}
		}
		pulled += int(tally.want)
	}
	return best, expect(ctx, q, pushed-pulled)
}

// few is a part of n for the shallow depths, which are slow and never the best.
func few(n, depth int) int { return max(1, n*min(depth, 16)/16) }

// push enqueues messages, those from from to to, batch of them a command.
func (q limitQueue) push(ctx context.Context, t task, from, to, batch, depth int) (rate float64, err error) {
	w, err := dialWire(ctx, q.addr)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	header := q.header
	if t.bare {
		header = 0
	}
	element := make([]byte, header+t.size)
	lists := named(prepareKey, t.over)
	if len(lists) > 1 {
		batch = 1 // in turn, as they are taken
	}
	next, calls, answered := from, 0, 0
	ask := func(out []byte) []byte {
		n := min(batch, to-next)
		if n <= 0 {
			return out
		}
		out = append(resp.AppendCommand(out, "LPUSH", nil, n+1), lists[next%len(lists)]...)
		for ; n > 0; n-- {
			binary.BigEndian.PutUint64(element[header:], uint64(next))
			out = resp.AppendBytes(out, element)
			next++
		}
		calls++
		return out
	}
	began := time.Now()
	err = w.run(ctx, t.stall, depth, ask, func(out []byte, kind byte, _ []byte) ([]byte, error) {
		if kind != ':' {
			return out, errors.New("LPUSH was not answered with a number")
		}
		answered++
		return ask(out), nil
	}, func() bool { return next == to && answered == calls })
	return float64(to-from) / time.Since(began).Seconds(), err
}

// pull takes what tally wants, the first from the list whose turn it is, and removes each element when it is there, the
// oldest first: LREM finds it at the tail. With toTheEnd it takes what there is.
func (q limitQueue) pull(ctx context.Context, t task, tally *tally, depth, turn int, toTheEnd bool) error {
	w, err := dialWire(ctx, q.addr)
	if err != nil {
		return err
	}
	defer w.Close()
	own := fmt.Sprintf(doingKey, os.Getpid()) // no other process's, whose elements LREM would have to pass
	from, to := named(prepareKey, t.over), named(own, t.lists)
	asked, got, removed, empty := 0, 0, 0, 0
	take := func(out []byte) []byte {
		if asked == int(tally.want) || empty > 0 {
			return out
		}
		out = append(resp.AppendCommand(out, "RPOPLPUSH", nil, 2), from[(turn+asked)%len(from)]...)
		out = append(out, to[asked%len(to)]...)
		asked++
		return out
	}
	err = w.run(ctx, t.stall, depth, take, func(out []byte, kind byte, body []byte) ([]byte, error) {
		switch {
		case kind == ':' && string(body) == "1":
			removed++
			return out, nil
		case kind == '$' && body != nil:
			tally.handle(body[q.header:])
			out = append(resp.AppendCommand(out, "LREM", nil, 3), to[got%len(to)]...)
			out = resp.AppendBytes(append(out, "$2\r\n-1\r\n"...), body)
			got++
			return take(out), nil
		case kind == '$' && toTheEnd:
			empty++
			return out, nil
		}
		return out, fmt.Errorf("message %d is missing: Redis answers %c%s", got, kind, body)
	}, func() bool { return removed+empty == asked })
	tally.last.Store(int64(time.Since(tally.epoch)))
	if err == nil && t.atRest != nil && depth == depths[len(depths)-1] {
		err = t.atRest()
	}
	return err
}

func (q limitQueue) pullAll(ctx context.Context, t task, tally *tally) error {
	return q.pull(ctx, t, tally, t.depth, 0, true)
}

func (q limitQueue) left(ctx context.Context) (int, error) { return loopQueue{q.pool}.left(ctx) }

func (q limitQueue) close() error { return q.pool.Close() }

// named are the names of n lists, ready to be sent.
func named(name string, n int) (lists [][]byte) {
	for i := range max(1, n) {
		lists = append(lists, resp.AppendString(nil, name+strconv.Itoa(i)))
	}
	return lists
}

// wire is a connection that speaks RESP without ceremony.
type wire struct {
	net.Conn
	in *resp.Reader
}

func dialWire(ctx context.Context, addr string) (wire, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	return wire{c, resp.NewReader(c, 64<<10)}, err
}

// run asks depth times, and again what answer makes of each reply, until done. One goroutine is enough: while it works
// on some replies, Redis works on what was asked before.
func (w wire) run(ctx context.Context, stall time.Duration, depth int, ask func(out []byte) []byte,
	answer func(out []byte, kind byte, body []byte) ([]byte, error), done func() bool) error {
	defer context.AfterFunc(ctx, func() { w.Close() })()
	var out []byte
	for range depth {
		out = ask(out)
	}
	for !done() {
		if w.in.Buffered() == 0 || len(out) > 16<<10 {
			w.SetDeadline(time.Now().Add(stall))
			if _, err := w.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		kind, body, err := w.in.Peek()
		if err != nil {
			return err
		}
		if kind == '-' {
			return fmt.Errorf("redis-server: %s", body)
		}
		if out, err = answer(out, kind, body); err != nil {
			return err
		}
	}
	return nil
}
