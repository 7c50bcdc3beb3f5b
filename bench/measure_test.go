package main

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// hasty is a queue in memory that handles each message so long before it is due.
type hasty struct {
	faulty
	early  time.Duration
	handle chan func([]byte)
}

func (h hasty) receive(_ context.Context, _ int, handle func([]byte)) (func() error, error) {
	h.handle <- handle
	return func() error { return nil }, nil
}

func (h hasty) laterSender() func(context.Context, [][]byte, time.Time) error {
	return func(_ context.Context, payloads [][]byte, due time.Time) error {
		if time.Until(due) > time.Hour {
			for _, p := range payloads {
				h.messages <- p
			}
			return nil
		}
		handle, payload := <-h.handle, append([]byte(nil), payloads[0]...)
		h.handle <- handle
		time.AfterFunc(time.Until(due)-h.early, func() { handle(payload) })
		return nil
	}
}

func TestLate(t *testing.T) {
	t.Parallel()
	srv, err := startServer(false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	for _, early := range []time.Duration{-50 * time.Millisecond, 50 * time.Millisecond} {
		work := task{load: tiny, srv: srv, note: func(string, ...any) {}}
		samples, err := late(
			t.Context(),
			hasty{faulty{messages: make(chan []byte, tiny.waiting)}, early, make(chan func([]byte), 1)},
			work,
		)
		if err != nil {
			t.Fatal(err)
		}
		want, got := -early.Seconds()*1000, samples[0].value
		if got < want-5 || got > want+40 || samples[1].value < got {
			t.Errorf("handled %v early: %v", early, samples)
		}
		if n := samples[2].value; n != 0 && early < 0 || n == 0 && early > 0 {
			t.Errorf("handled %v early: %v", early, samples)
		}
	}
}

// TestShare has one worker that does nothing but handle.
func TestShare(t *testing.T) {
	srv, err := startServer(false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	l := task{load: tiny, srv: srv}
	l.workers, l.waves = 1, 20
	samples, err := processWaiting(
		"p",
		5*time.Millisecond,
	)(
		t.Context(),
		faulty{messages: make(chan []byte, 20), times: 1},
		l,
	)
	if err != nil || samples[0].value > 200 || samples[1].value < 0.9 || samples[1].value > 1.01 {
		t.Errorf("%v, %v", samples, err)
	}
}

// TestCommands counts what a client sends, and not what a script calls.
func TestCommands(t *testing.T) {
	t.Parallel()
	srv, err := startServer(false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	c, err := redis.Dial("tcp", srv.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.AfterFunc(300*time.Millisecond, func() {
		for range 3 {
			c.Do("SET", "key] lua", 1)
			c.Do("EVAL", "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[1])", 1, "key] lua")
		}
	})
	if n, err := srv.commands(t.Context(), time.Second); n != 6 || err != nil {
		t.Errorf("%d commands, %v", n, err)
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := 100; i > 0; i-- {
		all = append(all, time.Duration(i)*time.Millisecond)
	}
	for percent, want := range map[int]float64{50: 50, 99: 99, 100: 100} {
		if got := percentile(all, percent); got != want {
			t.Errorf("p%d is %v", percent, got)
		}
	}
	if got := percentile(all[:1], 50); got != 100 {
		t.Errorf("p50 of one is %v", got)
	}
}

func TestCosts(t *testing.T) {
	srv, err := startServer(false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	m := srv.meter()
	var kept [][]byte
	for began := time.Now(); time.Since(began) < 30*time.Millisecond; {
		kept = append(kept[:0], make([]byte, 100))
	}
	if _, err := srv.conn.Do("EVAL", "for i = 1, 1000000 do redis.sha1hex('') end", 0); err != nil {
		t.Fatal(err)
	}
	c, err := m.stop(100)
	if err != nil || c.redis < 100 || c.client < 100 || c.client > 3000 || c.allocs < 10 {
		t.Errorf("%+v, %v, %d", c, err, len(kept))
	}
}

// TestHarnessAllocatesNothing, so that what is counted is the system's.
func TestHarnessAllocatesNothing(t *testing.T) {
	tally, payload, i := newTally(make([]atomic.Bool, 2000), 2000), make([]byte, 128), uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		binary.BigEndian.PutUint64(payload, i)
		tally.handle(payload)
		i++
	}); n != 0 {
		t.Errorf("a handling allocates %v times", n)
	}
	if tally.doubled.Load() != 0 || tally.count.Load() != int64(i) {
		t.Errorf("%d of %d", tally.count.Load(), i)
	}
}
