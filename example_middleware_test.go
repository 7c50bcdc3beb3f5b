package shunt_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/shuntmq/shunt"
)

// plainLog writes to the standard output, without what is another each time.
func plainLog(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "serial", "receiver", "took", "waited":
				return slog.Attr{}
			}
			return a
		},
	}))
}

// Wrap puts middleware around every handler, here a log.
func ExampleQueue_wrap() {
	q, wait, end := open()
	defer end()
	log := plainLog(slog.LevelInfo)
	q.Wrap = func(next shunt.Handler) shunt.Handler {
		return func(ctx context.Context, m shunt.IMessage) error {
			info, _ := shunt.FromContext(ctx)
			began := time.Now()
			err := next(ctx, m)
			log.Info("handled", "channel", info.Channel, "type", info.Type, "id", info.ID, "serial", info.Serial,
				"attempt", info.Attempt, "receiver", info.Receiver, "worker", info.Worker,
				"waited", began.Sub(info.EnqueuedAt), "took", time.Since(began), "error", err)
			return err
		}
	}
	ctx := context.Background()

	welcome := shunt.Define("welcome", func(context.Context, Welcome) error { return nil })
	check(q.Enqueue(ctx, welcome.Message(Welcome{To: "Ann"}), shunt.ID("ann")))
	_, err := q.Receive(ctx, welcome, 1)
	check(err)
	wait(shunt.EventAcked, 1)
	// Output: level=INFO msg=handled channel=welcome type=shunt_test.Welcome id=ann attempt=1 worker=0 error=<nil>
}

// A PanicError tells middleware that a handler panicked, and has its stack.
func ExamplePanicError() {
	q, wait, end := open()
	defer end()
	q.Wrap = func(next shunt.Handler) shunt.Handler {
		return func(ctx context.Context, m shunt.IMessage) error {
			err := next(ctx, m)
			var p *shunt.PanicError
			if errors.As(err, &p) {
				fmt.Println(p.What, "panicked:", p.Value, "with a stack:", len(p.Stack) > 0)
				return shunt.Reject(err) // it would panic again
			}
			return err
		}
	}
	ctx := context.Background()

	check(q.Enqueue(ctx, &Order{ID: 7}))
	_, err := q.Receive(ctx, &Order{}, 1) // without its shop
	check(err)
	wait(shunt.EventRejected, 1)
	// Output: the handler panicked: runtime error: invalid memory address or nil pointer dereference with a stack: true
}

// userKey is the key of a context's user.
type userKey struct{}

// WrapEnqueue puts middleware around every enqueue, here to say on whose behalf it is.
func ExampleQueue_wrapEnqueue() {
	q, _, end := open()
	defer end()
	q.WrapEnqueue = func(next shunt.EnqueueHandler) shunt.EnqueueHandler {
		return func(ctx context.Context, ms []shunt.IMessage) error {
			if user, ok := ctx.Value(userKey{}).(string); ok {
				for i, m := range ms {
					ms[i] = shunt.With(m, shunt.Header("user", user))
				}
			}
			return next(ctx, ms)
		}
	}
	ctx := context.WithValue(context.Background(), userKey{}, "ann")

	check(q.Enqueue(ctx, &Order{ID: 7}))
	orders, err := q.List(ctx, "orders", shunt.StatePrepare, 0, 0)
	check(err)
	for _, e := range orders {
		fmt.Printf("%s of %s\n", e.Payload, e.Headers["user"])
	}
	// Output: {"ID":7} of ann
}

// CarryHeaders names headers that travel along a chain, here the trace of a request.
func ExampleQueue_carryHeaders() {
	q, wait, end := open()
	defer end()
	q.CarryHeaders = []string{"traceparent"}
	ctx := context.Background()

	ship := shunt.Define("ship", func(ctx context.Context, order int) error {
		info, _ := shunt.FromContext(ctx)
		fmt.Println("ships order", order, "in trace", info.Headers["traceparent"])
		return nil
	})
	pay := shunt.Define("pay", func(ctx context.Context, order int) error {
		return shunt.Then(ctx, ship.Message(order))
	})
	for _, step := range []shunt.IMessage{pay, ship} {
		_, err := q.Receive(ctx, step, 1)
		check(err)
	}
	check(q.Enqueue(ctx, pay.Message(7), shunt.Header("traceparent", "00-4bf9-00f0-01")))
	wait(shunt.EventAcked, 2)
	// Output: ships order 7 in trace 00-4bf9-00f0-01
}
