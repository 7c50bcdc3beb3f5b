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
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/store"
)

// Handling is what became of one message that was handled once.
type Handling struct {
	Channel string
	Serial  string // empty for a bare payload
	Attempt int    // counted from 1
	// Message is what Unmarshal made and Resolve was called on; nil if it failed. A test may look at its fields.
	Message shunt.IMessage
	// Verdict is shunt.Acked, Retried, Rejected or Undecodable, of which the last two went to dead; Cancelled or Expired; or Lost, if the
	// lease was lost.
	Verdict shunt.EventKind
	// Err is what Resolve or the middleware returned; a *shunt.PanicError after a panic.
	Err error
	// Wait is how long a Retried message has to wait: what its RetryAfter or Backoff asked for, rounded up to a millisecond. Only Handle sets it.
	Wait time.Duration
	// Result is what shunt.SetResult set, if the message was acked and had an ID and Retain. Only Handle sets it.
	Result []byte
	// Enqueued is what came into any channel meanwhile, also by shunt.Then, in the order of the channels' names and within each in
	// Queue.Enqueued's. Only Handle sets it.
	Enqueued []Enqueue
}

// String tells it in a few words, for the text of a failure.
func (h Handling) String() string {
	s := fmt.Sprintf("%s at attempt %d", h.Verdict, h.Attempt)
	if h.Verdict == shunt.EventRetried && h.Wait > 0 {
		s += fmt.Sprintf(", to wait %v", h.Wait)
	}
	if h.Err != nil {
		s += fmt.Sprintf(": %v", h.Err)
	}
	return s
}

// Option is how a message comes to its handler in Handle.
type Option func(*coming) error

type coming struct {
	attempt int
	age     time.Duration
	failure string
	options []shunt.Option
}

// Attempt says that it is the n-th handling of the message, 1 to 255; the default is 1.
func Attempt(n int) Option {
	return func(c *coming) error {
		if n < 1 || n > 255 {
			return fmt.Errorf("Attempt(%d): want 1 to 255", n)
		}
		c.attempt = n
		return nil
	}
}

// Age says how long ago the message was enqueued: its shunt.Info's Enqueued, and the time in its serial. The default is now.
func Age(d time.Duration) Option {
	return func(c *coming) error {
		if d < 0 {
			return fmt.Errorf("Age(%v): want 0 or more", d)
		}
		c.age = d
		return nil
	}
}

// Failure is what the attempt before failed with: shunt.Info's Failure.
func Failure(text string) Option {
	return func(c *coming) error { c.failure = text; return nil }
}

// With says what the enqueue asked for: shunt.Header, shunt.Timeout, shunt.ID and the like; but not when it is due or expires, for it is
// handled at once.
func With(options ...shunt.Option) Option {
	return func(c *coming) error { c.options = append(c.options, options...); return nil }
}

// Handle has one message handled once, at once, and tells what became of it. prototype is what Receive would be given: it has the
// dependencies, and Unmarshal is called on it; m only gives the payload. The message goes through all that it meets in production: Marshal,
// Redis, Unmarshal, the Queue's Wrap, Resolve with a context that shunt.FromContext knows, and a verdict by the message's and the Queue's
// MaxAttempts and Backoff. A message that cannot be decoded is given as shunt.Raw.
//
// It does not touch the Queue's channels, and leaves nothing there but what the handler enqueues: it runs on a Redis of its own. Of the
// Queue's Events func it calls those of the message. The test ends if the handler takes longer than Patience, or called t.FailNow itself.
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

// exited says whether the handler's goroutine was ended by runtime.Goexit, as t.FailNow does.
func exited(err error) bool {
	var p *shunt.PanicError
	return errors.As(err, &p) && p.Goexit
}

func (q *Queue) handle(prototype, m shunt.IMessage, opts []Option) (out Handling, err error) {
	e, err := q.element(m, opts)
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

	server, pool, err := serve()
	if err != nil {
		return out, err
	}
	defer server.Close()
	defer pool.Close()
	if err := copyIDs(pool, q.pool, channelsOf(q.redis)); err != nil { // so that what follows the message meets the ids that are taken
		return out, err
	}
	now := time.Now().Truncate(time.Millisecond)
	server.SetTime(now) // the clock stands still, so that a due time is the wait to the millisecond
	k := store.KeysOf(channel)
	if _, err := server.DB(0).Push(k.Prepare, string(e.Encode())); err != nil {
		return out, err
	}

	stage := replica(q.Queue)
	stage.Pool = pool
	var begun atomic.Bool
	stage.Wrap = wrap(q.Wrap, func(next shunt.Handler) shunt.Handler {
		return func(ctx context.Context, m shunt.IMessage) error {
			if begun.Swap(true) {
				// The message again, to be retried at once, or one that follows it in its channel: it goes back, for the receiver is about to stop.
				<-ctx.Done()
				return context.Cause(ctx)
			}
			out.Message = m
			return next(ctx, m)
		}
	})
	verdict := make(chan shunt.Event, 1)
	judged := false
	stage.Events = func(ev shunt.Event) {
		if ev.Serial != e.SerialString() || judged {
			return
		}
		if judged = isVerdict(ev.Kind); judged {
			verdict <- ev
		}
		if q.Events != nil {
			q.Events(ev)
		}
	}
	defer stage.Close() // which waits for the Events func
	shutdown, err := stage.Receive(context.Background(), prototype, 1)
	if err != nil {
		return out, err
	}
	end, stop := context.WithCancel(context.Background())
	defer func() {
		stop()
		shutdown(end)
	}()
	select {
	case ev := <-verdict:
		out.Channel, out.Serial, out.Attempt, out.Verdict, out.Err = channel, ev.Serial, ev.Attempt, ev.Kind, ev.Err
	case <-time.After(q.patience()):
		if !begun.Load() {
			return out, fmt.Errorf("the handler has not begun after %v", q.patience())
		}
		return out, fmt.Errorf("the handler has not returned after %v", q.patience())
	}
	if out.Verdict == shunt.EventRetried {
		waiting, err := dues(pool, channel)
		if err != nil {
			return out, err
		}
		for raw, due := range waiting { // it is not among them where it had not to wait
			if isOf(e.SerialString(), raw) {
				out.Wait = time.UnixMilli(int64(due)).Sub(now)
			}
		}
	}
	if id := e.ID(); id != "" && out.Verdict == shunt.EventAcked {
		s, err := stage.Status(context.Background(), channel, id)
		if err != nil && !errors.Is(err, shunt.ErrNotFound) {
			return out, err
		}
		out.Result = s.Outcome.Result
	}
	stop()
	var unclean *shunt.ShutdownError
	if err := shutdown(end); errors.As(err, &unclean) && unclean.Err != nil {
		return out, err
	}
	if err := q.carry(server, pool, e.SerialString()); err != nil {
		return out, err
	}
	after, err := q.enqueued(channelsOf(q.redis)...)
	out.Enqueued = without(after, before)
	return out, err
}

// element is m as it lies in Redis when it comes so.
func (q *Queue) element(m shunt.IMessage, opts []Option) (e element.Element, err error) {
	c := coming{attempt: 1}
	for _, o := range opts {
		if err := o(&c); err != nil {
			return e, err
		}
	}
	door, err := inside.Open(q.desk)
	if err != nil {
		return e, err
	}
	_, e, in, at, err := door.Encode(m, c.options)
	if err != nil {
		return e, err
	}
	if in > 0 || !at.IsZero() {
		return e, errors.New("shunt.In and shunt.At have no meaning here: the message is handled at once")
	}
	if e.Extra != nil && e.Extra.Expires != 0 {
		return e, errors.New("shunt.Expire has no meaning here: the message is handled at once")
	}
	e.Attempts = int16(c.attempt - 1)
	e.SetFailure(c.failure)
	e.Serial = element.NewSerialAt(time.Now().Add(-c.age))
	return e, nil
}

// isOf says whether an element has that serial.
func isOf(serial, raw string) bool {
	e, err := element.Decode([]byte(raw))
	return err == nil && e.SerialString() == serial
}

// carry brings what the verdict enqueued in one step with itself, which is in the stage's Redis, to the Queue's. self is the serial of the
// message that was handled.
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
	case shunt.EventAcked, shunt.EventRetried, shunt.EventRejected, shunt.EventUndecodable, shunt.EventCancelled, shunt.EventExpired, shunt.EventLateVerdict, shunt.EventUnconfirmedVerdict:
		return true
	}
	return false
}

// without is what of all is not among some; bare payloads, which have no serial, are told by their bytes and number.
func without(all, some []Enqueue) (rest []Enqueue) {
	id := func(d *Enqueue) string { return d.Channel + " " + d.Serial + " " + string(d.Payload) }
	known := make(map[string]int)
	for i := range some {
		known[id(&some[i])]++
	}
	for i := range all {
		if k := id(&all[i]); known[k] > 0 {
			known[k]--
		} else {
			rest = append(rest, all[i])
		}
	}
	return rest
}
