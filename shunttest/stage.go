package shunttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// stage is a Redis of its own on which one message is handled once. Its clock stands still, so that a due time is the
// wait to the millisecond.
type stage struct {
	kit     *Queue
	channel string
	element element.Element
	now     time.Time
	redis   *miniredis.Miniredis
	pool    *redis.Pool
	queue   *shunt.Queue

	begun   atomic.Bool
	message shunt.IMessage // as the handler got it; written before the verdict is
	judged  bool           // the Events func's own
	verdict chan shunt.Event
}

// newStage puts the message on a stage, with the ids that are taken at the kit, so that what follows it meets them.
func newStage(q *Queue, channel string, e element.Element) (*stage, error) {
	s := &stage{
		kit:     q,
		channel: channel,
		element: e,
		now:     time.Now().Truncate(time.Millisecond),
		verdict: make(chan shunt.Event, 1),
	}
	var err error
	if s.redis, s.pool, err = serve(); err != nil {
		return nil, err
	}
	s.queue = replica(q.Queue)
	s.queue.Pool, s.queue.Wrap, s.queue.Events = s.pool, wrap(q.Wrap, s.wrap), s.heard
	if err = copyIDs(s.pool, q.pool, channelsOf(q.redis)); err == nil {
		s.redis.SetTime(s.now)
		_, err = s.redis.DB(0).Push(store.KeysOf(channel).Prepare, string(e.Encode()))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close waits for the Events func.
func (s *stage) close() {
	s.queue.Close()
	s.pool.Close()
	s.redis.Close()
}

// wrap lets the handler run once. The message comes again where it is to be retried at once, or one that follows it in
// its channel comes: either goes back, for the receiver is about to stop.
func (s *stage) wrap(next shunt.Handler) shunt.Handler {
	return func(ctx context.Context, m shunt.IMessage) error {
		if s.begun.Swap(true) {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		s.message = m
		return next(ctx, m)
	}
}

// heard takes in the Events of the message, up to its verdict.
func (s *stage) heard(ev shunt.Event) {
	if ev.Serial != s.element.SerialString() || s.judged {
		return
	}
	if s.judged = isVerdict(ev.Kind); s.judged {
		s.verdict <- ev
	}
	if s.kit.Events != nil {
		s.kit.Events(ev)
	}
}

// play has the message handled, and brings what its verdict enqueued to the kit.
func (s *stage) play(prototype shunt.IMessage) (out Handling, err error) {
	shutdown, err := s.queue.Receive(context.Background(), prototype, 1)
	if err != nil {
		return out, err
	}
	end, stop := context.WithCancel(context.Background())
	defer func() {
		stop()
		shutdown(end)
	}()
	select {
	case ev := <-s.verdict:
		out = Handling{
			Channel: s.channel,
			Serial:  ev.Serial,
			Attempt: ev.Attempt,
			Message: s.message,
			Verdict: ev.Kind,
			Err:     ev.Err,
		}
	case <-time.After(s.kit.patience()):
		if !s.begun.Load() {
			return out, fmt.Errorf("the handler has not begun after %v", s.kit.patience())
		}
		return out, fmt.Errorf("the handler has not returned after %v", s.kit.patience())
	}
	if out.Wait, err = s.wait(out.Verdict); err != nil {
		return out, err
	}
	if out.Result, err = s.result(out.Verdict); err != nil {
		return out, err
	}
	stop()
	var unclean *shunt.ShutdownError
	if err := shutdown(end); errors.As(err, &unclean) && unclean.Err != nil {
		return out, err
	}
	return out, s.kit.carry(s.redis, s.pool, s.element.SerialString())
}

// wait is how long a message that is retried has to wait; 0 where it is not in delay.
func (s *stage) wait(verdict shunt.EventKind) (wait time.Duration, err error) {
	if verdict != shunt.EventRetried {
		return 0, nil
	}
	waiting, err := dues(s.pool, s.channel)
	for raw, due := range waiting {
		if isOf(s.element.SerialString(), raw) {
			wait = time.UnixMilli(int64(due)).Sub(s.now)
		}
	}
	return wait, err
}

// result is what the handler set, where it is kept.
func (s *stage) result(verdict shunt.EventKind) ([]byte, error) {
	id := s.element.ID()
	if id == "" || verdict != shunt.EventAcked {
		return nil, nil
	}
	status, err := s.queue.Status(context.Background(), s.channel, id)
	if errors.Is(err, shunt.ErrNotFound) {
		err = nil
	}
	return status.Outcome.Result, err
}

// isOf says whether an element has that serial.
func isOf(serial, raw string) bool {
	e, err := element.Decode([]byte(raw))
	return err == nil && e.SerialString() == serial
}

// carry brings what the verdict enqueued in one step with itself, which is in the stage's Redis, to the Queue's. self
// is the serial of the message that was handled.
func (q *Queue) carry(stage *miniredis.Miniredis, pool *redis.Pool, self string) error {
	from, to := pool.Get(), q.pool.Get()
	defer from.Close()
	defer to.Close()
	for _, channel := range channelsOf(stage) {
		k := store.KeysOf(channel)
		ready, err := redis.Strings(from.Do("LRANGE", k.Prepare, 0, -1))
		if err != nil {
			return err
		}
		for _, raw := range slices.Backward(ready) { // the one to be taken next is the last
			if !isOf(self, raw) {
				if _, err := to.Do("LPUSH", k.Prepare, raw); err != nil {
					return err
				}
			}
		}
		later, err := dues(pool, channel)
		if err != nil {
			return err
		}
		for raw, due := range later {
			if !isOf(self, raw) {
				if _, err := to.Do("ZADD", k.Delay, strconv.FormatInt(int64(due), 10), raw); err != nil {
					return err
				}
			}
		}
	}
	return copyIDs(q.pool, pool, channelsOf(stage))
}

// copyIDs copies the records of the ids that are taken, unless they are known there.
func copyIDs(to, from *redis.Pool, channels []string) error {
	source, target := from.Get(), to.Get()
	defer source.Close()
	defer target.Close()
	for _, channel := range channels {
		k := store.KeysOf(channel)
		ids, err := redis.StringMap(source.Do("HGETALL", k.IDs))
		if err != nil {
			return err
		}
		for id, record := range ids {
			if _, err := target.Do("HSETNX", k.IDs, id, record); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrap puts the kit's middleware around the user's; like it, it is nil where that gives none.
func wrap(user, kit func(shunt.Handler) shunt.Handler) func(shunt.Handler) shunt.Handler {
	return func(next shunt.Handler) shunt.Handler {
		if user != nil {
			if next = user(next); next == nil {
				return nil
			}
		}
		return kit(next)
	}
}

// isVerdict says whether an Event tells how a handling ended.
func isVerdict(k shunt.EventKind) bool {
	switch k {
	case shunt.EventAcked,
		shunt.EventRetried,
		shunt.EventRejected,
		shunt.EventUndecodable,
		shunt.EventCancelled,
		shunt.EventExpired,
		shunt.EventLateVerdict,
		shunt.EventUnconfirmedVerdict:
		return true
	}
	return false
}
