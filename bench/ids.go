package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// identifier is a queue whose messages can have ids.
type identifier interface {
	// ids is the same queue, whose messages have the ids that idOf tells.
	ids() queue
	// taken counts the ids that no other message could have now.
	taken(ctx context.Context) (int, error)
}

// What some can do by id.
type (
	finder interface {
		// status says whether there is such a message, and when it is due: zero if it is ready.
		status(ctx context.Context, id string) (due time.Time, found bool, err error)
	}
	canceller interface {
		finder
		cancel(ctx context.Context, id string) error
	}
	interrupter interface {
		// interrupt cancels n messages while they are handled, and tells how long it took each handler to hear of it.
		interrupt(ctx context.Context, n int, stall time.Duration) ([]time.Duration, error)
	}
	postponer interface {
		finder
		postpone(ctx context.Context, id string, due time.Time) error
	}
)

// idOf is the id of the message with that payload: 16 bytes, as an order may have.
func idOf(payload []byte) string { return idOfNumber(binary.BigEndian.Uint64(payload)) }

func idOfNumber(n uint64) string {
	return string(strconv.AppendUint(append(make([]byte, 0, 32), "order-"...), 1e9+n, 10))
}

// expectIDs is expect for messages with ids: each has its own, and no other is taken.
func expectIDs(ctx context.Context, q queue, want int) error {
	n, err := q.(identifier).taken(ctx)
	if err != nil {
		return fmt.Errorf("count the ids: %w", err)
	}
	if n != want {
		return fmt.Errorf("there are %d ids in Redis, not %d", n, want)
	}
	return expect(ctx, q, want)
}

// processIDs is process for messages with ids.
func processIDs(ctx context.Context, q queue, t task) ([]sample, error) {
	q = q.(identifier).ids()
	samples, err := processAs(ctx, q, t, "-id")
	return samples, errors.Join(err, expectIDs(ctx, q, 0))
}

// enqueueIDs is enqueueOne for messages with ids, while so many others with ids are there already.
func enqueueIDs(name string, alive func(load) int) func(context.Context, queue, task) ([]sample, error) {
	return func(ctx context.Context, q queue, t task) ([]sample, error) {
		q = q.(identifier).ids()
		before := t
		before.n = alive(t.load)
		if err := fill(ctx, q, before); err != nil {
			return nil, err
		}
		t.first, t.batch = before.n, 1
		w, err := enqueue(ctx, q, t)
		if err != nil {
			return nil, err
		}
		return w.addAllocs([]sample{{name, w.rate, perSecond}}, name+"-allocs"), expectIDs(ctx, q, before.n+t.n)
	}
}

// bytesIDs is bytesEach for messages with ids.
func bytesIDs(ctx context.Context, q queue, t task) ([]sample, error) {
	samples, err := bytesAs(ctx, q, t, "bytes-id", func(q queue) queue { return q.(identifier).ids() })
	return samples, errors.Join(err, expectIDs(ctx, q, t.n))
}

func status(ctx context.Context, q queue, t task) ([]sample, error) {
	f := q.(finder)
	return byID(ctx, q, t, "status", 0, func(id string) error {
		_, found, err := f.status(ctx, id)
		if err == nil && !found {
			err = errors.New("it is not there")
		}
		return err
	}, nil)
}

func cancel(ctx context.Context, q queue, t task) ([]sample, error) {
	c := q.(canceller)
	return byID(ctx, q, t, "cancel", 1, func(id string) error { return c.cancel(ctx, id) }, func(id string) error {
		_, found, err := c.status(ctx, id)
		if err == nil && found {
			err = errors.New("it is still there")
		}
		return err
	})
}

// interrupt measures from just before the call until the handler's context has ended.
func interrupt(ctx context.Context, q queue, t task) ([]sample, error) {
	took, err := q.(interrupter).interrupt(ctx, t.calls, t.stall)
	if err != nil {
		return nil, err
	}
	return []sample{{"interrupt-p50", percentile(took, 50), "ms"}, {"interrupt-p99", percentile(took, 99), "ms"},
		{"interrupt-longest", percentile(took, 100), "ms"}}, expectIDs(ctx, q, 0)
}

// postpone gives half of those that were due later an earlier time: among so many that are due at the same one, they
// have to be found.
func postpone(ctx context.Context, q queue, t task) ([]sample, error) {
	p := q.(postponer)
	var due time.Time
	return byID(ctx, q, t, "postpone", 0, func(id string) error {
		due = time.Now().Add(time.Hour + rand.N(46*time.Hour)).Round(time.Millisecond)
		return p.postpone(ctx, id, due)
	}, func(id string) error {
		at, found, err := p.status(ctx, id)
		if err == nil && (!found || !at.Equal(due)) {
			err = fmt.Errorf("it is due at %v, not at %v", at, due)
		}
		return err
	})
}

// byID measures calls by id, one after another, each of another message: half of all are ready, half are due later.
// check, unmeasured, says whether a call has done what it was to do. ends is 1 if there is one message less after it.
func byID(
	ctx context.Context, q queue, t task, name string, ends int, do, check func(id string) error,
) ([]sample, error) {
	named := q.(identifier).ids()
	ready := t
	ready.n = t.waiting / 2
	if err := fill(ctx, named, ready); err != nil {
		return nil, err
	}
	later := t
	later.due, later.waiting = ready.n, t.waiting-ready.n
	n, err := fillLater(ctx, named, later)
	if err != nil {
		return nil, err
	}
	if n += ready.n; n < t.waiting {
		t.note("with %d waiting, as many as were enqueued in %v", n, t.waitFor)
	}
	var took []time.Duration
	calls, end := rand.Perm(n)[:min(t.calls, n)], time.Now().Add(t.callFor)
	for _, number := range calls {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if time.Now().After(end) {
			t.note("%d calls, as many as were made in %v", len(took), t.callFor)
			break
		}
		id := idOfNumber(uint64(number))
		began := time.Now()
		err := do(id)
		took = append(took, time.Since(began))
		if err == nil && check != nil {
			err = check(id)
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, id, err)
		}
	}
	return []sample{
		{name + "-p50", percentile(took, 50), "ms"},
		{name + "-p99", percentile(took, 99), "ms"},
	}, expectIDs(ctx, q, n-ends*len(took))
}
