package shunttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/store"
)

// Drain handles the messages in the prototypes' channels until only dead ones are left. That includes delayed messages,
// retries, and messages that handlers enqueue meanwhile. It is a ReceiveOrdered of the Queue with one worker, so
// messages of the first channel come first.
//
// Drain does not wait for due times. Whenever only delayed messages are left, it brings all due times of the channels
// forward, by as much as makes the first one due. So their order and distances stay as they are, also for messages that
// are enqueued on the way. The clock does not change: a message's age, Expire and Deadline go by real time. Status
// shows the due times of messages with an ID as they were.
//
// The test ends in three cases, and the failure says what is left: after MaxHandlings or Patience, so that endless
// retries are seen; if another receiver has one of the channels; or if a handler called t.FailNow.
func (q *Queue) Drain(prototypes ...shunt.IMessage) Handlings {
	q.t.Helper()
	out, err := q.drain(prototypes)
	if err != nil {
		q.t.Fatalf("shunttest: Drain: %v", err)
	}
	if q.t.Failed() && len(out) > 0 && exited(out[len(out)-1].Err) {
		q.t.FailNow()
	}
	return out
}

// journal is what a Drain sees of its receiver.
type journal struct {
	mu        sync.Mutex
	messages  map[string]shunt.IMessage // by serial, while they are handled
	handlings Handlings

	more chan struct{} // of capacity 1: something has happened
}

// watch is the kit's middleware.
func (j *journal) watch(next shunt.Handler) shunt.Handler {
	return func(ctx context.Context, m shunt.IMessage) error {
		info, _ := shunt.FromContext(ctx)
		j.mu.Lock()
		j.messages[info.Serial] = m
		j.mu.Unlock()
		return next(ctx, m)
	}
}

// note takes in every Event, for whatever changes the lists is followed by one.
func (j *journal) note(e shunt.Event) {
	if isVerdict(e.Kind) {
		j.mu.Lock()
		j.handlings = append(j.handlings, Handling{Channel: e.Channel, Serial: e.Serial, Attempt: e.Attempt,
			Message: j.messages[e.Serial],
			Verdict: e.Kind, Err: e.Err})
		delete(j.messages, e.Serial)
		j.mu.Unlock()
	}
	select {
	case j.more <- struct{}{}:
	default:
	}
}

// seen is how many handlings have ended, how the last one did, and whether all that began have.
func (j *journal) seen() (n int, last Handling, all bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n = len(j.handlings); n > 0 {
		last = j.handlings[n-1]
	}
	return n, last, len(j.messages) == 0
}

func (q *Queue) drain(prototypes []shunt.IMessage) (Handlings, error) {
	var channels []string
	for _, p := range prototypes {
		if p == nil {
			return nil, errors.New("a prototype is nil")
		}
		channels = append(channels, p.Channel())
		rs, err := q.own.Receivers(context.Background(), p.Channel())
		if err != nil {
			return nil, err
		}
		if len(rs) > 0 && rs[0].Alive {
			return nil, fmt.Errorf("channel %q has a receiver: shut it down first", p.Channel())
		}
	}
	j := &journal{messages: make(map[string]shunt.IMessage), more: make(chan struct{}, 1)}
	stage := queues.Copy(q.Queue)
	stage.Pool, stage.Wrap = q.pool, wrap(q.Wrap, j.watch)
	stage.Events = func(e shunt.Event) {
		j.note(e)
		if q.Events != nil {
			q.Events(e)
		}
	}
	shutdown, err := stage.ReceiveOrdered(context.Background(), 1, prototypes...)
	if err != nil {
		stage.Close()
		return nil, err
	}
	end, cancel := context.WithCancel(context.Background())
	defer cancel()
	why, err := q.untilEmpty(channels, j)
	if why != nil || err != nil {
		cancel()
	}
	stopped := shutdown(end)
	stage.Close() // whereupon all Events have come
	switch {
	case err != nil:
		return nil, err
	case why != nil:
		return j.handlings, q.endless(why, channels, j.handlings)
	}
	return j.handlings, stopped
}

// errExited says that a handler has ended the test.
var errExited = errors.New("a handler called t.FailNow")

// untilEmpty waits until the channels are empty, or says why it waits no longer.
func (q *Queue) untilEmpty(channels []string, j *journal) (why, err error) {
	limit := time.NewTimer(q.patience())
	defer limit.Stop()
	for {
		left, err := store.WhatIsLeft(q.pool, channels, false)
		n, last, all := j.seen()
		switch {
		case err != nil || left == store.NothingLeft:
			return nil, err
		case exited(last.Err) && q.t.Failed():
			return errExited, nil
		case n >= cmp.Or(q.MaxHandlings, defaultMaxHandlings):
			return errors.New("its MaxHandlings"), nil
		case left == store.DelayedLeft && all: // else an Event is to come that may end it
			if _, err := store.WhatIsLeft(q.pool, channels, true); err != nil {
				return nil, err
			}
		}
		select {
		case <-j.more:
		case <-limit.C:
			return fmt.Errorf("its Patience of %v", q.patience()), nil
		}
	}
}

// endless is the error of a Drain that was stopped before its channels were empty, with what is left there.
func (q *Queue) endless(why error, channels []string, done Handlings) error {
	if why == errExited {
		return nil
	}
	there, err := q.enqueued(channels...)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("stopped by %v after %d handlings: %d messages are left", why, len(done), len(there))
	if n := len(done); n > 0 {
		text += fmt.Sprintf("; the last one handled, of %q, was %v", done[n-1].Channel, done[n-1])
	}
	return errors.New(text + "\n" + table(rows(there)))
}
