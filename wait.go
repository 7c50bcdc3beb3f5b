package shunt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// waitEvery is how often a Wait looks for what it may have missed.
const waitEvery = 5 * time.Second

// awaitedFor is how long the outcome of a message that somebody waits for is kept at least; lua/ending.lua has it, too.
const awaitedFor = time.Minute

// await gives the draft what finds its outcome: an id, and some time.
func (d *draft) await() {
	x := d.extra()
	if x.ID == "" {
		x.ID = d.Element.Serial.String()
	}
	x.Retain = max(x.Retain, awaitedFor.Milliseconds())
}

// EnqueueAndWait enqueues a message and returns its outcome when it is over, as Enqueue and Wait do. A message without
// an ID gets one, and the outcome is kept for a minute at least, so that it is found however soon it is there. An error
// of Enqueue comes back as it is. Where ctx or the Queue ends first, the error names the ID: the message is handled all
// the same, and Wait finds it.
func (q *Queue) EnqueueAndWait(ctx context.Context, m IMessage, opts ...Option) (Outcome, error) {
	var r Ref
	await := func(d *draft) error { d.awaited = true; return nil }
	if err := q.Enqueue(ctx, m, append(slices.Clip(opts), await, RefTo(&r))...); err != nil {
		return Outcome{}, err
	}
	if r.ID == "" {
		return Outcome{}, errors.New("shunt: Queue.WrapEnqueue enqueued no message to wait for")
	}
	out, err := q.waitFor(ctx, r)
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed)) {
		err = fmt.Errorf("%w: the message is enqueued, and Wait finds it by this id", err)
	}
	return out, err
}

// Wait returns the outcome of a message with an ID when it is over, at once if the outcome is kept already. The
// server publishes the end, and the Queue's subscription hears it, so Wait does not poll. Only ctx and Close bound it.
// The outcome of a message that somebody waits for is kept for a minute at least, unless MaxDone, MaxDoneBytes or the
// next message with its ID cuts that short.
//
// ErrNotFound: there is no such message, or it was over before Wait began, and no Retain kept its outcome. ErrLost:
// Redis has lost it. ErrNotKept: it is over or lost, and its outcome was not kept until the connection was back. The
// end of a message without an ID is announced to nobody, so r must have an ID.
func (q *Queue) Wait(ctx context.Context, r Ref) (Outcome, error) {
	if err := r.check(); err != nil {
		return Outcome{}, err
	}
	if r.ID == "" {
		return Outcome{}, r.failed("wait for", errors.New("nobody announces the end of a message without an ID: "+
			"enqueue it with ID, or by EnqueueAndWait"))
	}
	return q.waitFor(ctx, r)
}

// waitFor waits for a message with an ID.
func (q *Queue) waitFor(ctx context.Context, r Ref) (Outcome, error) {
	w := &wait{id: r.ID}
	if serial := r.ulid(); serial != (ulid.ULID{}) {
		w.serial = &serial
	}
	if err := q.open(ctx); err != nil {
		return Outcome{}, err
	}
	if err := q.begin(); err != nil {
		return Outcome{}, err
	}
	defer q.waits.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.ending, func() { cancel(ErrClosed) })()
	w.q, w.keys = q, store.KeysOf(r.Channel)
	w.ended, w.ask = make(chan store.Outcome, 16), make(chan struct{}, 1)
	hints := q.router.For(r.Channel).Hints
	l := hints.Listen(w.keys.Done, w.heard, w.listening)
	defer func() {
		ctx, cancel := context.WithTimeout(q.life, time.Second)
		defer cancel()
		hints.Forget(ctx, l)
	}()
	out, err := w.run(ctx)
	if err != nil {
		err = fmt.Errorf("shunt: wait for %q on %q: %w", w.id, r.Channel, err)
	}
	return out, err
}

// wait is one call of Wait.
type wait struct {
	q      *Queue
	keys   *store.Keys
	id     string
	serial *ulid.ULID // of the message that is waited for; nil until the first answer
	seen   time.Time  // when Redis has last said that the message is alive; zero: never

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
		case <-ctx.Done():
			return Outcome{}, context.Cause(ctx)
		}
		timer.Reset(link.Jitter(waitEvery))
		out, over, err := w.look(ctx)
		if !over && waits(err) {
			timer.Reset(link.Jitter(waitEvery / 10)) // Redis is away, or ctx has ended
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
	asked := time.Now()
	a, err := store.RunWait(ctx, asker{q: w.q}, w.keys, w.id, w.serial)
	if err != nil {
		return out, false, err
	}
	switch {
	case a.Lives && w.isMine(a.Serial):
		w.serial, w.seen = &a.Serial, asked
		return out, false, nil
	case a.Outcome.Serial != ulid.ULID{} && w.isMine(a.Outcome.Serial):
		return outcomeOf(a.Outcome), true, nil
	case w.serial == nil:
		return out, true, fmt.Errorf("%w: if it is over, Retain or EnqueueAndWait would have kept its outcome",
			ErrNotFound)
	}
	select { // published just now
	case o := <-w.ended:
		if w.isMine(o.Serial) {
			return outcomeOf(o), true, nil
		}
	default:
	}
	// Its outcome would still be there, unless those of messages that have ended since have taken its place.
	if since := time.Since(w.seen); since < awaitedFor*3/4 && (a.LastEnd == 0 || a.LastEnd > since) {
		return out, true, ErrLost
	}
	return out, true, ErrNotKept
}
