package recur

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/store"
)

// queues opens Queues for what their public methods do not offer.
var queues = inside.To[*shunt.Queue, shunt.IMessage, shunt.Option]()

// engine is an open Queue.
type engine = inside.Engine[shunt.IMessage, shunt.Option]

// ErrNotFound means that the channel has no recurring message of that name.
var ErrNotFound = errors.New("recur: no recurring message has that name")

// Timetable manages the recurring messages of a Queue's channels. They are kept in Redis, so every process sees the
// same ones. Its methods may be called by many goroutines at once. Without a deadline of their context they take
// Queue.EnqueueTimeout at most. Every method but Enqueue may safely be called again after an error.
type Timetable struct {
	Queue *shunt.Queue // required
}

// Add makes m recur under a name, in its own channel. It marshals m once, now. The first tick is the first one after
// now.
//
// The same name with the same definition changes nothing, so each process may add what it needs when it starts. Another
// definition replaces the earlier one, and so does another encoding by Queue.Payloads, such as by a new key. A paused
// message stays paused, and with the same Spec its next tick stays too.
//
// The errors are those of the name, of the Spec, of m with its options, and of Redis.
func (t *Timetable) Add(ctx context.Context, name string, s Spec, m shunt.IMessage, opts ...Option) error {
	if err := checkName(name); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("recur: add %q: %w", name, err) }
	if err := s.Err(); err != nil {
		return fail(err)
	}
	engine, err := queues.Open(t.Queue)
	if err != nil {
		return err
	}
	d, err := define(opts)
	if err != nil {
		return fail(err)
	}
	draft, err := engine.Draft(m, d.options)
	if err != nil {
		return fail(err)
	}
	e := draft.Element
	if draft.Due != (store.Due{}) || e.Extra != nil && e.Extra.Deadline != 0 {
		return fail(errors.New("a recurring message is enqueued at its ticks: it takes none of the options In, At " +
			"and Deadline"))
	}
	e.Serial = ulid.ULID{}
	plain := body(d.policy, s, e.Encode())
	draft.Element = e
	if err := engine.Encode(ctx, &draft); err != nil {
		return fail(err)
	}
	b, encoding := body(d.policy, s, draft.Element.Encode()), draft.Element.Headers()[shunt.EncodingHeader]
	return t.change(ctx, "add", draft.Keys.Name, name, func(old *record, now time.Time) (*record, error) {
		if old != nil && (old.body == b || old.encoding() == encoding &&
			old.plain(ctx, engine, draft.Keys.Name) == plain) {
			return nil, nil
		}
		if old == nil {
			old = new(record)
		}
		rec := old.written()
		rec.revision, rec.body = rec.writer, b
		if old.spec.text != s.text || old.spec.zone != s.zone {
			rec.next = s.next(now.UnixMilli())
		}
		return &rec, nil
	})
}

// Pause suspends the ticks of a message until Resume. Ticks that pass meanwhile are not missed. ErrNotFound: the
// channel has no recurring message of that name.
func (t *Timetable) Pause(ctx context.Context, channel, name string) error {
	return t.change(ctx, "pause", channel, name, func(old *record, _ time.Time) (*record, error) {
		if old == nil {
			return nil, ErrNotFound
		}
		if old.paused {
			return nil, nil
		}
		rec := old.written()
		rec.paused = true
		return &rec, nil
	})
}

// Resume ends Pause. The next tick is the first one after now. ErrNotFound: the channel has no recurring message of
// that name.
func (t *Timetable) Resume(ctx context.Context, channel, name string) error {
	return t.change(ctx, "resume", channel, name, func(old *record, now time.Time) (*record, error) {
		if old == nil {
			return nil, ErrNotFound
		}
		if !old.paused {
			return nil, nil
		}
		if err := old.spec.Err(); err != nil {
			return nil, err
		}
		rec := old.written()
		rec.paused, rec.next = false, old.spec.next(now.UnixMilli())
		return &rec, nil
	})
}

// Remove ends a recurring message. Messages that it has enqueued stay. It also removes a record that this version
// cannot read. ErrNotFound: the channel has no recurring message of that name.
func (t *Timetable) Remove(ctx context.Context, channel, name string) error {
	found := false
	return t.change(ctx, "remove", channel, name, func(old *record, _ time.Time) (*record, error) {
		if old == nil && !found {
			return nil, ErrNotFound
		}
		found = true // without a record at the next try, this call or another one has removed it
		if old == nil {
			return nil, nil
		}
		return &record{}, nil
	})
}

// change reads a record and writes the one that decide returns. It begins again where another process has written in
// between, or where the first reply was lost. decide gets nil for no record. It returns nil to change nothing, and a
// record without revision to remove it.
func (t *Timetable) change(ctx context.Context, verb, channel, name string,
	decide func(old *record, now time.Time) (*record, error),
) error {
	fail := func(err error) error { return fmt.Errorf("recur: %s %q of channel %q: %w", verb, name, channel, err) }
	engine, err := queues.Open(t.Queue)
	if err != nil {
		return err
	}
	k := store.KeysOf(channel)
	for {
		read, err := readOne(ctx, engine, k, name)
		if err != nil {
			return fail(err)
		}
		if read.unreadable != nil {
			if verb != "remove" {
				return fail(read.unreadable)
			}
			read.record = new(record)
		}
		rec, err := decide(read.record, read.now)
		if err != nil {
			return fail(err)
		}
		if rec == nil {
			return nil
		}
		raw := ""
		if rec.revision != "" {
			raw = rec.head() + rec.body
		}
		written, err := store.WriteRecur(ctx, engine, k, name, read.head, raw)
		if err != nil {
			return fail(err)
		}
		if written {
			return nil
		}
	}
}

// reading is one record as it was at one time.
type reading struct {
	now        time.Time // by the server's clock
	head       string    // as it is in Redis, empty where there is none
	record     *record   // nil: there is none, or it is unreadable
	unreadable error     // why this version cannot read it
}

func readOne(ctx context.Context, e engine, k *store.Keys, name string) (r reading, err error) {
	now, raw, err := store.ReadRecur(ctx, e, k, name)
	if err != nil || raw == "" {
		return reading{now: now}, err
	}
	r.now = now
	if line, _, ok := strings.Cut(raw, "\n"); ok {
		r.head = line + "\n"
	}
	parsed, err := parseRecord(raw)
	if err != nil {
		r.unreadable = err
	} else {
		r.record = &parsed
	}
	return r, nil
}
