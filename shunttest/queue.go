package shunttest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
)

// Queue is a shunt.Queue on a Redis of its own, with helpers for a test. The program under test gets the embedded
// *shunt.Queue. Make it with New.
type Queue struct {
	*shunt.Queue

	// Patience bounds one Handle, one Drain and the closing at the test's end: default 30 s. Each fails the test when
	// it takes longer.
	Patience time.Duration
	// MaxHandlings bounds how many messages one Drain handles, retries included, before it fails the test: default
	// 10,000.
	MaxHandlings int

	t     testing.TB
	redis *miniredis.Miniredis
	pool  *redis.Pool
	own   *shunt.Queue // the kit's own: it serves on when the program has closed the other
}

const (
	defaultPatience     = 30 * time.Second
	defaultMaxHandlings = 10_000
)

// New starts a Redis and makes a Queue on it, configured by the given funcs but for its Pool. Both are closed with the
// test, and the test fails where that takes longer than Patience. What is wrong with the configuration ends the test at
// once.
func New(t testing.TB, configure ...func(*shunt.Queue)) *Queue {
	t.Helper()
	q := &Queue{Queue: &shunt.Queue{}, t: t}
	for _, f := range configure {
		f(q.Queue)
	}
	var err error
	if q.redis, q.pool, err = serve(); err != nil {
		t.Fatalf("shunttest: start a Redis: %v", err)
	}
	q.Pool = q.pool
	if tell := q.Events; tell != nil {
		var mu sync.Mutex // Handle and Drain have Queues of their own, and the func is promised one Event at a time
		q.Events = func(e shunt.Event) {
			mu.Lock()
			defer mu.Unlock()
			tell(e)
		}
	}
	q.own = queues.Copy(q.Queue)
	q.own.Wrap, q.own.Events = nil, nil
	t.Cleanup(q.end)
	if err := q.Validate(); err != nil {
		t.Fatalf("shunttest: %v", err)
	}
	return q
}

func (q *Queue) end() {
	q.t.Helper()
	done := make(chan error, 1)
	go func() { // which ends with the last handler, even where that is too late for the test
		err := errors.Join(q.Queue.Close(), q.own.Close())
		q.pool.Close()
		q.redis.Close()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			q.t.Errorf("shunttest: close the Queue: %v", err)
		}
	case <-time.After(q.patience()):
		q.t.Errorf("shunttest: the Queue is not closed after %v: does a handler of a receiver still run?", q.patience())
	}
}

func (q *Queue) patience() time.Duration { return cmp.Or(q.Patience, defaultPatience) }

// serve starts a Redis. An idle receiver blocks in BRPOPLPUSH for a second at least, and miniredis has no CLIENT
// UNBLOCK to end that at a shutdown. So here it blocks for 5 ms instead. The hook may write to args: the command is run
// with the same slice.
func serve() (*miniredis.Miniredis, *redis.Pool, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, nil, err
	}
	m.Server().SetPreHook(func(_ *server.Peer, command string, args ...string) bool {
		if command == "BRPOPLPUSH" && len(args) == 3 {
			args[2] = "0.005"
		}
		return false
	})
	pool, err := shunt.NewPool("redis://" + m.Addr())
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, pool, nil
}

// channelsOf are all in which there is something, in the order of their names.
func channelsOf(m *miniredis.Miniredis) []string {
	found := make(map[string]bool)
	for _, key := range m.DB(0).Keys() {
		if channel, _, ok := strings.Cut(strings.TrimPrefix(key, "{"), "}."); ok {
			found[channel] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
