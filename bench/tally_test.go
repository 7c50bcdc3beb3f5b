package main

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// faulty is a queue in memory that hands one message out so many times.
type faulty struct {
	messages chan []byte
	times    int
	kept     int // messages that it says are left, though handled
}

func (f faulty) sender() func(context.Context, []byte) error {
	return func(_ context.Context, payload []byte) error {
		f.messages <- append([]byte(nil), payload...)
		return nil
	}
}

func (f faulty) receive(_ context.Context, _ int, handle func([]byte)) (func() error, error) {
	first := <-f.messages
	for len(f.messages) > 0 {
		handle(<-f.messages)
	}
	for range f.times {
		handle(first)
	}
	return func() error { return nil }, nil
}

func (f faulty) left(context.Context) (int, error) { return len(f.messages) + f.kept, nil }
func (f faulty) close() error                      { return nil }

func TestFaultsAreNoResult(t *testing.T) {
	srv, err := startServer(false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	l := task{load: tiny, srv: srv}
	l.n, l.stall = 10, time.Millisecond
	for _, c := range []struct {
		times, kept int
		want        string
	}{
		{0, 0, "of 10 messages 1 were not handled, 0 were handled again"},
		{1, 0, ""},
		{1, 1, "there are 1 messages in Redis, not 0"},
		{3, 0, "of 10 messages 0 were not handled, 2 were handled again"},
	} {
		_, err := process(t.Context(), faulty{make(chan []byte, l.n), c.times, c.kept}, l)
		if got := err != nil; got != (c.want != "") || got && !strings.Contains(err.Error(), c.want) {
			t.Errorf("one message handled %d times, %d kept: %v, want %q", c.times, c.kept, err, c.want)
		}
	}
	before := faulty{make(chan []byte, l.n+1), 1, 0}
	before.messages <- nil
	if _, err := enqueueOne(t.Context(), before, l); err == nil ||
		!strings.Contains(err.Error(), "there are 11 messages in Redis, not 10") {
		t.Errorf("one message too many: %v", err)
	}
}

// TestBullmqFaults enqueues the same numbers twice, and drains as if there were twice as many.
func TestBullmqFaults(t *testing.T) {
	t.Parallel()
	needBullmq(t)
	srv, err := startServer(false)
	if err != nil {
		t.Fatal(err)
	}
	defer srv.stop()
	l := task{load: tiny, srv: srv}
	l.n, l.stall = 2, time.Second
	q, err := openBullmq(l)
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	if err := errors.Join(fill(t.Context(), q, l), fill(t.Context(), q, l)); err != nil {
		t.Fatal(err)
	}
	l.n = 4
	if _, err := drain(t.Context(), q, l); err == nil ||
		!strings.Contains(err.Error(), "of 4 messages 2 were not handled, 2 were handled again") {
		t.Errorf("%v", err)
	}
}

// TestLimitFaults takes from a list in which one message is missing or there twice.
func TestLimitFaults(t *testing.T) {
	for want, numbers := range map[string][]uint64{
		"":                     {0, 1, 2},
		"message 2 is missing": {0, 1},
		"of 3 messages 1 were not handled, 1 were handled again": {0, 1, 1},
	} {
		srv, err := startServer(false)
		if err != nil {
			t.Fatal(err)
		}
		defer srv.stop()
		l := task{load: tiny, srv: srv, want: 3}
		l.n = 3
		q, err := openLimit(l)
		if err != nil {
			t.Fatal(err)
		}
		defer q.close()
		limit := q.(limitQueue)
		for _, n := range numbers {
			element := binary.BigEndian.AppendUint64(make([]byte, limit.header), n)
			if _, err := srv.conn.Do("LPUSH", prepareKey+"0", element); err != nil {
				t.Fatal(err)
			}
		}
		tally := newTally(make([]atomic.Bool, 3), 3)
		err = errors.Join(limit.pull(t.Context(), l, tally, 2, 0, false), tally.verdict())
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", numbers, err, want)
		}
	}
}

func TestBalance(t *testing.T) {
	one, other := account{
		Seen:  []byte{0b0101},
		Count: 2,
		First: 1e9,
		Last:  3e9,
	}, account{
		Seen:  []byte{0b1010},
		Count: 2,
		First: 2e9,
		Last:  5e9,
	}
	if rate, err := balance(4, []account{one, other, {Seen: []byte{0}, First: 5, Last: 5}}); rate != 1 || err != nil {
		t.Errorf("%v, %v", rate, err)
	}
	for want, bad := range map[string][]account{
		"1 were not handled, 0 were handled again": {one, {Seen: []byte{0b1000}, Count: 1}},
		"0 were not handled, 1 were handled again": {one, other, {Seen: []byte{0b0001}, Count: 1}},
		"0 were not handled, 2 were handled again": {one, {Seen: []byte{0b1010}, Count: 4}},
	} {
		if _, err := balance(4, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", bad, err, want)
		}
	}
}
