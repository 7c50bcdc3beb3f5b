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
	return byID(ctx, q, t, call{name: "status", do: func(id string) error {
		_, found, err := f.status(ctx, id)
		if err == nil && !found {
			err = errors.New("it is not there")
		}
		return err
	}})
}

func cancel(ctx context.Context, q queue, t task) ([]sample, error) {
	c := q.(canceller)
	return byID(ctx, q, t, call{
		name: "cancel", ends: 1,
		do: func(id string) error { return c.cancel(ctx, id) },
		check: func(id string) error {
			_, found, err := c.status(ctx, id)
			if err == nil && found {
				err = errors.New("it is still there")
			}
			return err
		},
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

// postpone gives messages that are due later another time: those that are ready have none.
func postpone(ctx context.Context, q queue, t task) ([]sample, error) {
	p := q.(postponer)
	var due time.Time
	return byID(ctx, q, t, call{
		name: "postpone", delayed: true,
		do: func(id string) error {
			due = time.Now().Add(time.Hour + rand.N(46*time.Hour)).Round(time.Millisecond)
			return p.postpone(ctx, id, due)
		},
		check: func(id string) error {
			at, found, err := p.status(ctx, id)
			if err == nil && (!found || !at.Equal(due)) {
				err = fmt.Errorf("it is due at %v, not at %v", at, due)
			}
			return err
		},
	})
}

// call is what byID measures.
type call struct {
	name    string
	delayed bool                  // of messages that are due later alone
	ends    int                   // 1 if there is one message less after it
	do      func(id string) error // the call
	check   func(id string) error // whether do has done what it was to do, unmeasured; may be nil
}

// byID measures calls by id, one after another, each of another message: half of all are ready, half are due later.
func byID(ctx context.Context, q queue, t task, c call) ([]sample, error) {
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
	first := 0
	if c.delayed {
		first = ready.n
	}
	numbers, end := rand.Perm(n - first)[:min(t.calls, n-first)], time.Now().Add(t.callFor)
	for _, number := range numbers {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if time.Now().After(end) {
			t.note("%d calls, as many as were made in %v", len(took), t.callFor)
			break
		}
		id := idOfNumber(uint64(first + number))
		began := time.Now()
		err := c.do(id)
		took = append(took, time.Since(began))
		if err == nil && c.check != nil {
			err = c.check(id)
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", c.name, id, err)
		}
	}
	return []sample{
		{c.name + "-p50", percentile(took, 50), "ms"},
		{c.name + "-p99", percentile(took, 99), "ms"},
	}, expectIDs(ctx, q, n-c.ends*len(took))
}
