package shunt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// A panic comes to middleware as an error, and a panic of middleware itself is named so.
func TestPanicInMiddleware(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	met := make(chan error, 2)
	q := newBench(t, s.URL(), func(q *Queue) {
		q.Wrap = func(next Handler) Handler {
			return func(ctx context.Context, m IMessage) error {
				err := next(ctx, m)
				met <- err
				if err == nil {
					panic("no pen")
				}
				return err
			}
		}
	})
	q.receive(1, func(_ context.Context, i int) error {
		if i == 0 {
			panic(errOops)
		}
		return nil
	})
	q.enqueue(0, 2)
	q.wait(EventRetried, 2, 5*time.Second)
	var p *PanicError
	if err := <-met; !errors.As(err, &p) || !errors.Is(err, errOops) || p.What != "the handler" || len(p.Stack) == 0 {
		t.Errorf("%v", err)
	}
	if story := q.story(); !strings.Contains(story, "Queue.Wrap panicked: no pen") {
		t.Error(story)
	}
}

var errOops = errors.New("oops")

// traced is middleware that adds a header to each message.
func traced(next EnqueueHandler) EnqueueHandler {
	return func(ctx context.Context, ms []IMessage) error {
		for i, m := range ms {
			ms[i] = With(m, Header("trace", "t1"))
		}
		return next(ctx, ms)
	}
}

// Whatever enqueues goes through the middleware: one, many, and what follows a message.
func TestWrapEnqueue(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	headers := make(chan map[string]string, 10)
	q := newBench(t, s.URL(), func(q *Queue) { q.WrapEnqueue = traced })
	var k *Kind[int]
	k = q.kind(func(ctx context.Context, i int) error {
		info, _ := FromContext(ctx)
		headers <- info.Headers
		if i == 0 {
			return Then(ctx, With(k.Message(1), Header("own", "1")))
		}
		return nil
	})
	if _, err := q.Receive(t.Context(), k, 1); err != nil {
		t.Fatal(err)
	}
	if err := q.Enqueue(t.Context(), k.Message(0), Header("own", "1"), Header("trace", "mine")); err != nil {
		t.Fatal(err)
	}
	ms := []IMessage{With(k.Message(2), Header("own", "1")), k.Message(3)}
	if err := q.EnqueueAll(t.Context(), ms, Header("own", "of all")); err != nil {
		t.Fatal(err)
	}
	if _, ok := ms[1].(*Kind[int]); !ok {
		t.Error("the middleware wrote to the caller's slice")
	}
	own := make(map[string]int)
	for range 4 {
		select {
		case h := <-headers:
			if own[h["own"]]++; h["trace"] != "t1" {
				t.Errorf("%v", h)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("a message is missing")
		}
	}
	if own["1"] != 3 || own["of all"] != 1 {
		t.Errorf("a message's own options win over those of the enqueue: %v", own)
	}
}

// Middleware may refuse, replace and multiply; its own faults are errors of the enqueue, and enqueue nothing.
func TestWrapEnqueueDecides(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	for name, c := range map[string]struct {
		wrap  func(EnqueueHandler) EnqueueHandler
		error string
		n     int
	}{
		"refuses": {func(EnqueueHandler) EnqueueHandler {
			return func(context.Context, []IMessage) error { return errOops }
		}, "oops", 0},
		"drops": {func(EnqueueHandler) EnqueueHandler {
			return func(context.Context, []IMessage) error { return nil }
		}, "", 0},
		"doubles": {func(next EnqueueHandler) EnqueueHandler {
			return func(ctx context.Context, ms []IMessage) error { return next(ctx, append(ms, ms...)) }
		}, "", 2},
		"gives none": {func(EnqueueHandler) EnqueueHandler { return nil }, "WrapEnqueue gave no EnqueueHandler", 0},
		"panics": {func(EnqueueHandler) EnqueueHandler {
			return func(context.Context, []IMessage) error { panic(errOops) }
		}, "Queue.WrapEnqueue panicked: oops", 0},
		"makes it bad": {func(next EnqueueHandler) EnqueueHandler {
			return func(ctx context.Context, ms []IMessage) error {
				return next(ctx, []IMessage{With(ms[0], In(1), At(time.Now()))})
			}
		}, "In and At", 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := newBench(t, s.URL(), func(q *Queue) { q.WrapEnqueue = c.wrap })
			err := q.Enqueue(t.Context(), q.kind(nil).Message(1))
			if c.error == "" && err != nil || c.error != "" && (err == nil || !strings.Contains(err.Error(), c.error)) {
				t.Errorf("%v", err)
			}
			if st, err := q.Stats(t.Context(), q.name); err != nil || st[StatePrepare].Count != c.n {
				t.Errorf("%v, %v", st, err)
			}
		})
	}
}

// Named headers travel with what follows, unless it has its own; others do not.
func TestCarryHeaders(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.CarryHeaders = []string{"trace", "tenant", "absent"} })
	headers := make(chan map[string]string, 2)
	var k *Kind[int]
	k = q.kind(func(ctx context.Context, i int) error {
		if i == 0 {
			return Then(ctx, With(k.Message(1), Header("tenant", "own")))
		}
		info, _ := FromContext(ctx)
		headers <- info.Headers
		return nil
	})
	if _, err := q.Receive(t.Context(), k, 1); err != nil {
		t.Fatal(err)
	}
	q.enqueue(0, 1, Header("trace", "t1"), Header("tenant", "7"), Header("other", "x"))
	q.wait(EventAcked, 2, 5*time.Second)
	if h := <-headers; len(h) != 2 || h["trace"] != "t1" || h["tenant"] != "own" {
		t.Errorf("%v", h)
	}
	bad := &Queue{Pool: q.Pool, CarryHeaders: []string{""}}
	if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "CarryHeaders") {
		t.Errorf("%v", err)
	}
}
