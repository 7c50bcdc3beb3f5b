package shunt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// waitEvery is how often a Wait looks for what it may have missed.
const waitEvery = 5 * time.Second

// Wait returns the outcome of the message with that id when it is over, at once if the outcome is kept already. The
// server publishes the end, and the Queue's subscription hears it, so Wait does not poll. Only ctx and Close bound it.
// The outcome of a message that somebody waits for is kept for 10 s at least. ErrNotFound: there is no such message.
// ErrNotKept: the connection was away for longer, so Wait missed the end, and no outcome is kept.
func (q *Queue) Wait(ctx context.Context, channel, id string) (Outcome, error) {
	if err := checkID(id); err != nil {
		return Outcome{}, err
	}
	if err := store.CheckChannel(channel); err != nil {
		return Outcome{}, err
	}
	if err := q.open(ctx); err != nil {
		return Outcome{}, err
	}
	if err := q.begin(); err != nil {
		return Outcome{}, err
	}
	defer q.waits.Done()
	w := &wait{
		q: q, keys: store.KeysOf(channel), id: id,
		ended: make(chan store.Outcome, 16), ask: make(chan struct{}, 1),
	}
	hints := q.router.For(channel).Hints
	l := hints.Listen(w.keys.Done, w.heard, w.listening)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		hints.Forget(ctx, l)
	}()
	out, err := w.run(ctx)
	if err != nil {
		err = fmt.Errorf("shunt: wait for %q on %q: %w", id, channel, err)
	}
	return out, err
}

// wait is one call of Wait.
type wait struct {
	q      *Queue
	keys   *store.Keys
	id     string
	serial *ulid.ULID // of the message that is waited for; nil until the first answer

	ended    chan store.Outcome // of messages of that id, as published
	ask      chan struct{}      // of capacity 1: the subscription has been confirmed, so Redis is asked once more
	listened bool               // the subscription's own
}

// heard takes in what is published of a message's end.
func (w *wait) heard(payload string) {
	if o, ok := store.ParseEnd(payload, w.id); ok {
		select {
		case w.ended <- o:
		default:
		}
	}
}

// listening takes in whether ends are heard. Each new Wait of the channel has that confirmed to all.
func (w *wait) listening(now bool) {
	if now && !w.listened {
		select {
		case w.ask <- struct{}{}:
		default:
		}
	}
	w.listened = now
}

// run waits for the end. It asks Redis first, again when the subscription is confirmed, and then every few seconds.
func (w *wait) run(ctx context.Context) (Outcome, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case o := <-w.ended:
			if w.isMine(o.Serial) {
				return outcomeOf(o), nil
			}
			continue
		case <-w.ask:
		case <-timer.C:
		case <-w.q.over:
			return Outcome{}, ErrClosed
		case <-ctx.Done():
			return Outcome{}, context.Cause(ctx)
		}
		timer.Reset(link.Jitter(waitEvery))
		out, over, err := w.look(ctx)
		class := link.Classify(err)
		if !over && (class == link.NotExecuted || class == link.Unknown) && !errors.Is(err, ErrClosed) {
			timer.Reset(link.Jitter(waitEvery / 10)) // Redis is away
			continue
		}
		if over || err != nil {
			return out, err
		}
	}
}

// isMine says whether a serial is that of the message that is waited for.
func (w *wait) isMine(serial ulid.ULID) bool { return w.serial == nil || *w.serial == serial }

// look asks Redis what is known of the message. over: it is, or nothing is known of it.
func (w *wait) look(ctx context.Context) (out Outcome, over bool, err error) {
	a, err := store.RunWait(ctx, asker{w.q}, w.keys, w.id, w.serial)
	if err != nil {
		return out, false, err
	}
	switch {
	case a.Lives && w.isMine(a.Serial):
		w.serial = &a.Serial
		return out, false, nil
	case a.Outcome.Serial != ulid.ULID{} && w.isMine(a.Outcome.Serial):
		return outcomeOf(a.Outcome), true, nil
	case w.serial == nil:
		return out, true, ErrNotFound
	}
	select { // published just now
	case o := <-w.ended:
		if w.isMine(o.Serial) {
			return outcomeOf(o), true, nil
		}
	default:
	}
	return out, true, ErrNotKept
}
