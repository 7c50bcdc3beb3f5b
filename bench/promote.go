package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// promoter is a queue that makes due messages ready by calls of its own.
type promoter interface {
	// overdue puts t.n due messages into the queue, of t.size bytes, and tells where they lie: in a zset.
	overdue(t task) (key string, err error)
}

// promote measures how fast due messages leave the zset, and how long Redis was held up by one call at most, by several
// sizes.
func promote(ctx context.Context, q queue, t task) (samples []sample, err error) {
	for i, size := range []int{128, 1 << 10, 8 << 10, 64 << 10} {
		t.size, t.n = size, min(t.load.overdue, t.overdueBytes/size)
		rate, calls, err := promoteOnce(ctx, q, t)
		if err != nil {
			return nil, fmt.Errorf("%d bytes: %w", t.size, err)
		}
		if i == 0 {
			samples = append(samples, sample{"promote", rate, perSecond})
		}
		samples = append(samples, sample{fmt.Sprint("promote-p99.9-", size), thousandth(calls, 999), "ms"},
			sample{fmt.Sprint("promote-longest-", size), thousandth(calls, 1000), "ms"})
	}
	return samples, nil
}

func promoteOnce(ctx context.Context, q queue, t task) (rate float64, calls []time.Duration, err error) {
	key, err := q.(promoter).overdue(t)
	if err != nil {
		return 0, nil, err
	}
	for _, command := range [][]any{{"SET", "slowlog-log-slower-than", 0}, {"SET", "slowlog-max-len", 1_000_000}} {
		_, bad := t.srv.conn.Do("CONFIG", command...)
		err = errors.Join(err, bad)
	}
	_, bad := t.srv.conn.Do("SLOWLOG", "RESET")
	if err := errors.Join(err, bad); err != nil {
		return 0, nil, err
	}
	// The handlers wait until all is promoted, so that the workers take nothing of Redis' time.
	promoted := make(chan struct{})
	tally := newTally(make([]atomic.Bool, t.n), t.n)
	stop, err := q.receive(ctx, 1, func(payload []byte) {
		<-promoted
		tally.handle(payload)
	})
	if err != nil {
		return 0, nil, err
	}
	took, err := t.srv.emptied(ctx, key, t)
	if err == nil {
		calls, err = t.srv.scripts()
	}
	close(promoted)
	if err == nil {
		err = tally.wait(ctx, t.stall)
	}
	if err := errors.Join(err, stop(), tally.verdict()); err != nil {
		return 0, nil, err
	}
	return float64(t.n) / took.Seconds(), calls, expect(ctx, q, 0)
}

// emptied is how long it takes a zset of t.n members to be emptied, from when the first is gone.
func (s *server) emptied(ctx context.Context, key string, t task) (time.Duration, error) {
	began := time.Now()
	for end := began.Add(t.stall); ; {
		n, err := redis.Int(s.conn.Do("ZCARD", key))
		now := time.Now()
		switch {
		case err != nil:
			return 0, err
		case n == 0:
			return now.Sub(began), nil
		case n == t.n:
			began = now
		case now.After(end):
			return 0, fmt.Errorf("of %d due messages %d are not ready after %v", t.n, n, t.stall)
		}
		if err := sleep(ctx, time.Millisecond/2); err != nil {
			return 0, err
		}
	}
}

// scripts are the times of all scripts in the slow log.
func (s *server) scripts() (calls []time.Duration, err error) {
	logs, err := redis.SlowLogs(s.conn.Do("SLOWLOG", "GET", -1))
	for _, l := range logs {
		if len(l.Args) > 0 && (l.Args[0] == "EVALSHA" || l.Args[0] == "EVAL") {
			calls = append(calls, l.ExecutionTime)
		}
	}
	if err == nil && len(calls) == 0 {
		err = errors.New("the slow log has no script")
	}
	return calls, err
}

// overdue takes a real element for a pattern, for no message can be enqueued as due in the past.
func (s shuntQueue) overdue(t task) (string, error) {
	c, key := t.srv.conn, "{"+s.name+"}.delay"
	if err := s.sender()(context.Background(), make([]byte, t.size)); err != nil {
		return "", err
	}
	element, err := redis.Bytes(c.Do("RPOP", "{"+s.name+"}.prepare"))
	if err != nil {
		return "", fmt.Errorf("look at an element: %w", err)
	}
	payload := element[len(element)-t.size:]
	due := time.Now().Add(-time.Hour).UnixMilli()
	const batch = 100
	for i := 0; i < t.n; i += batch {
		args := []any{key}
		for j := i; j < min(i+batch, t.n); j++ {
			binary.BigEndian.PutUint64(payload, uint64(j))
			args = append(args, due+int64(j)*3_000_000/int64(t.n), string(element))
		}
		if err := errors.Join(c.Send("ZADD", args...), c.Flush()); err != nil {
			return "", err
		}
		if _, err := c.Receive(); err != nil {
			return "", err
		}
	}
	return key, nil
}
