package shunt

import (
	"context"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// asker is a Queue as the store asks it: every question is open to an operator's whole Queue, and may be sent twice.
type asker struct {
	q    *Queue
	once bool // it may not
	each bool // the errors of single commands are the caller's
}

var _ store.Asker = asker{}

// Ask sends commands in one pipeline, and once more where their replies were lost. Without a deadline of ctx that takes
// EnqueueTimeout at most. channel is empty where the commands concern none.
func (a asker) Ask(
	ctx context.Context, channel string, fill func(*link.Call),
) (replies []link.Reply, twice bool, err error) {
	q := a.q
	if err := q.open(ctx); err != nil {
		return nil, false, err
	}
	if channel != "" {
		if err := store.CheckChannel(channel); err != nil {
			return nil, false, err
		}
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	server := q.router.For(channel)
	if why := server.Hopeless(); why != nil {
		return nil, false, q.explain(&link.Error{Class: link.NotExecuted, Err: why}, "look at", channel)
	}
	for again := (link.Resend{}); ; twice = true {
		c := link.NewCall()
		fill(c)
		err := server.Data.Run(ctx, c)
		unknown := link.Classify(err) == link.Unknown
		err = again.Failed(err)
		if unknown && ctx.Err() == nil && !twice && !a.once {
			continue
		}
		refused := link.Classify(err) == link.Fatal || link.Classify(err) == link.Failed
		if err != nil && !(a.each && c.Answered && refused) { // the link may still write to the call's replies
			return nil, twice, q.explain(err, "look at", channel)
		}
		return c.Replies, twice, nil
	}
}
