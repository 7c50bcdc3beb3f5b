package sender

import (
	"context"
	"errors"
	"time"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// errDue is why it is not known whether elements that were sent twice are there: their due time has come in between.
var errDue = errors.New("it was sent before, and its time has come since")

// resendMargin is how long before its due time an element may be sent again for the last time. Later it may have been
// promoted, and even handled.
const resendMargin = time.Second

// pushLater adds plain elements to delay. They are unique and the script adds each once, so they may be sent again
// while their due time is surely ahead.
func (s *Sender) pushLater(ctx context.Context, k *store.Keys, due store.Due, raws [][]byte) (time.Time, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	began := time.Now()
	mode, ms := due.When(began)
	again := link.Resend{Until: s.router.For(k.Name).Data.Closed()}
	for {
		rep, err := s.call(ctx, 0, k, func(c *link.Call) { store.AddLater(c, k, mode, ms, raws...) })
		if err == nil {
			at, over, err := store.LaterReply(rep)
			if over {
				err = &link.Error{Class: link.Unknown, Err: errDue}
			}
			return at, err
		}
		known := link.Classify(err) != link.Unknown
		err = again.Failed(err)
		left := due.In - time.Since(began)
		if known || ctx.Err() != nil || mode == store.In && left < resendMargin {
			return time.Time{}, err
		}
		again.Pause(ctx, 0)
		if mode != store.In {
			mode = store.Again
			continue
		}
		_, ms = store.Due{In: min(due.In, store.MaxWait) - time.Since(began)}.When(began)
		var end context.CancelFunc
		ctx, end = context.WithDeadline(ctx, began.Add(due.In-resendMargin/2))
		defer end()
	}
}

// bounded is ctx with a deadline.
func (s *Sender) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}
