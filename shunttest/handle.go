package shunttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Handle has one message handled once, at once, and returns the outcome. prototype is the one that Receive would get.
// It has the dependencies, and Unmarshal is called on it. m gives the payload alone.
//
// The message goes through all that it meets in production: Marshal, Redis, Unmarshal, the Queue's Wrap, and Resolve
// with a context that shunt.FromContext knows. The verdict follows the MaxAttempts and Backoff of the message and the
// Queue. To test a message that Unmarshal refuses, give it as shunt.Raw.
//
// Handle runs on a Redis of its own, so it leaves nothing in the Queue's channels but what the handler enqueues. The
// Queue's Events func gets the events of the message. The test ends if the handler takes longer than Patience, or has
// called t.FailNow itself.
func (q *Queue) Handle(prototype, m shunt.IMessage, opts ...Option) Handling {
	q.t.Helper()
	if prototype == nil || m == nil {
		q.t.Fatalf("shunttest: Handle wants a prototype and a message: one is nil")
	}
	out, err := q.handle(prototype, m, opts)
	if err != nil {
		q.t.Fatalf("shunttest: Handle: %v", err)
	}
	if q.t.Failed() && exited(out.Err) {
		q.t.FailNow()
	}
	return out
}

func (q *Queue) handle(prototype, m shunt.IMessage, opts []Option) (out Handling, err error) {
	e, err := q.element(m, opts, false)
	if err != nil {
		return out, err
	}
	channel := m.Channel()
	if p := prototype.Channel(); p != channel {
		return out, fmt.Errorf("the prototype's channel is %q and the message's %q", p, channel)
	}
	before, err := q.enqueued(channelsOf(q.redis)...)
	if err != nil {
		return out, err
	}
	s, err := q.newStage(channel, e)
	if err != nil {
		return out, err
	}
	defer s.close()
	if out, err = s.run(prototype, q.patience()); err != nil {
		return out, err
	}
	if err := q.carry(s.redis, s.pool, s.serial); err != nil {
		return out, err
	}
	after, err := q.enqueued(channelsOf(q.redis)...)
	out.Enqueued = without(after, before)
	return out, err
}

// stage is where Handle has its message handled: a Redis of its own with that message alone, and a Queue on it. The
// clock of that Redis runs while the handler does. Before and after that it stands still, so that a due time is the
// wait to the millisecond.
type stage struct {
	*shunt.Queue
	redis *miniredis.Miniredis
	pool  *redis.Pool
	now   time.Time // at which the clock stands
	stop  sync.Once // stops the clock when the handler has returned, or its context has ended

	channel, serial, id string

	begun   atomic.Bool
	message shunt.IMessage   // as the handler gets it; to be read after the verdict
	verdict chan shunt.Event // of capacity 1
}

func (q *Queue) newStage(channel string, e element.Element) (*stage, error) {
	s := &stage{
		Queue: queues.Copy(q.Queue), now: time.Now().Truncate(time.Millisecond),
		channel: channel, serial: e.SerialString(), id: e.ID(), verdict: make(chan shunt.Event, 1),
	}
	var err error
	if s.redis, s.pool, err = serve(); err != nil {
		return nil, err
	}
	s.Pool, s.Wrap, s.Events = s.pool, wrap(q.Wrap, s.once), s.observe(q.Events)
	s.redis.SetTime(s.now)
	// a message that the handler enqueues meets the ids that are taken
	for _, channel := range channelsOf(q.redis) {
		err = errors.Join(err, store.CopyIDs(s.pool, q.pool, store.KeysOf(channel)))
	}
	if err == nil {
		_, err = s.redis.DB(0).Push(store.KeysOf(channel).Prepare, string(e.Encode()))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close also waits for the Events func.
func (s *stage) close() {
	_ = s.Close() // an unclean end is an error of run, or follows another error
	s.pool.Close()
	s.redis.Close()
}

// once is the kit's middleware: it lets the first handling pass. A later one is of the message itself, retried at once,
// or of one that follows it in its channel. It goes back to Redis, because the receiver is about to stop.
func (s *stage) once(next shunt.Handler) shunt.Handler {
	return func(ctx context.Context, m shunt.IMessage) error {
		if s.begun.Swap(true) {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		s.message = m
		s.redis.SetTime(time.Time{})
		ends := context.AfterFunc(ctx, s.stopClock)
		defer func() { ends(); s.stopClock() }()
		return next(ctx, m)
	}
}

func (s *stage) stopClock() {
	s.stop.Do(func() {
		s.now = time.Now().Truncate(time.Millisecond)
		s.redis.SetTime(s.now)
	})
}

// observe makes an Events func that passes on the message's events, up to its verdict, to the user's.
func (s *stage) observe(user func(shunt.Event)) func(shunt.Event) {
	judged := false
	return func(ev shunt.Event) {
		if ev.Serial != s.serial || judged {
			return
		}
		if judged = isVerdict(ev.Kind); judged {
			s.verdict <- ev
		}
		if user != nil {
			user(ev)
		}
	}
}

// run has the message handled, and stops the receiver again.
func (s *stage) run(prototype shunt.IMessage, patience time.Duration) (out Handling, err error) {
	shutdown, err := s.Receive(context.Background(), prototype, 1)
	if err != nil {
		return out, err
	}
	end, stop := context.WithCancel(context.Background())
	defer func() {
		stop()
		if bad := stopped(shutdown(end)); err == nil {
			err = bad
		}
	}()
	select {
	case ev := <-s.verdict:
		out = Handling{Channel: s.channel, Serial: ev.Serial, Attempt: ev.Attempt, Message: s.message,
			Verdict: ev.Kind, Err: ev.Err}
	case <-time.After(patience):
		if !s.begun.Load() {
			return out, fmt.Errorf("the handler has not begun after %v", patience)
		}
		return out, fmt.Errorf("the handler has not returned after %v", patience)
	}
	switch {
	case out.Verdict == shunt.EventRetried, out.Verdict == shunt.EventSnoozed:
		out.Wait, err = s.wait()
	case out.Verdict == shunt.EventAcked && s.id != "":
		out.Result, err = s.result()
	}
	return out, err
}

// stopped is the error of a shutdown. It does not count a message that went back to Redis.
func stopped(err error) error {
	var unclean *shunt.ShutdownError
	if errors.As(err, &unclean) && unclean.Err != nil {
		return err
	}
	return nil
}

// wait is how long the retried message has to wait. It is 0 for a message that is not in delay.
func (s *stage) wait() (time.Duration, error) {
	if s.begun.Load() {
		s.stopClock() // it has stopped: this is to see when
	}
	delayed, err := store.Delayed(s.pool, store.KeysOf(s.channel))
	for raw, due := range delayed {
		if isOf(s.serial, raw) {
			return due.Sub(s.now), nil
		}
	}
	return 0, err
}

// result is the result of the acked message, if one is kept.
func (s *stage) result() ([]byte, error) {
	status, err := s.Status(context.Background(), shunt.ByID(s.channel, s.id))
	if errors.Is(err, shunt.ErrNotFound) {
		return nil, nil
	}
	return status.Outcome.Result, err
}

// wrap puts the kit's middleware around the user's. Like the user's, it returns nil where that returns none.
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
