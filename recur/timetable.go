package recur

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/inside"
	"github.com/shuntmq/shunt/internal/store"
)

// ErrNotFound says that the channel has no recurring message of that name.
var ErrNotFound = errors.New("recur: no recurring message has that name")

// Timetable is the recurring messages of a Queue's channels. They are kept in Redis: what one process does, all see.
// Its methods may be called by many goroutines at once; where their context has no deadline they have
// Queue.EnqueueTimeout. Each but Enqueue may safely be called again after an error.
type Timetable struct {
	Queue *shunt.Queue // required
}

// Option is what one recurring message wants.
type Option func(*definition) error

// definition is what Add is asked for.
type definition struct {
	policy  Policy
	options []shunt.Option
}

// Missed says what becomes of missed ticks, in place of One.
func Missed(p Policy) Option {
	return func(d *definition) error {
		d.policy = p
		return p.check()
	}
}

// With enqueues each message with options of package shunt, all but In, At and Deadline. With shunt.ID a tick that
// comes while the message of a former one lives enqueues nothing but an Event Duplicate.
func With(options ...shunt.Option) Option {
	return func(d *definition) error {
		d.options = append(d.options, options...)
		return nil
	}
}

// Entry is a recurring message as it is in Redis.
type Entry struct {
	Name    string // 1 to 200 bytes that can be printed
	Channel string
	Spec    Spec // its Err says so where this process cannot run it: the zone is not known here
	Missed  Policy
	Paused  bool
	Next    time.Time // the next tick, or the first that was not enqueued; zero while paused, or where none is to come
	Last    time.Time // the latest tick that was enqueued; zero: none
	Count   int       // ticks enqueued, with those that were refused as duplicates, and Enqueues
	Payload []byte
	Headers map[string]string
}

// Add makes m recur under a name of its channel. m is marshalled once, now. The same name with the same definition
// changes nothing: so each process may add what it needs when it starts. Another definition replaces the former; a
// message that is paused stays so, and where the Spec is the same its next tick stays, too. The first tick is the first
// after now.
func (t *Timetable) Add(ctx context.Context, name string, s Spec, m shunt.IMessage, opts ...Option) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("recur: add %q: %w", name, err)
	}
	door, err := inside.Open(t.Queue)
	if err != nil {
		return err
	}
	d := definition{policy: One}
	for _, o := range opts {
		if err := o(&d); err != nil {
			return fmt.Errorf("recur: add %q: %w", name, err)
		}
	}
	channel, e, in, at, err := door.Encode(m, d.options)
	if err != nil {
		return fmt.Errorf("recur: add %q: %w", name, err)
	}
	if in != 0 || !at.IsZero() || e.Extra != nil && e.Extra.Deadline != 0 {
		return fmt.Errorf(
			"recur: add %q: a recurring message is enqueued at its ticks: it takes none of the options In, At and "+
				"Deadline",
			name,
		)
	}
	e.Serial = ulid.ULID{}
	b := body(d.policy, s, e.Encode())
	return t.change(ctx, "add", channel, name, func(old *record, now int64) (*record, error) {
		if old != nil && old.body == b {
			return nil, nil
		}
		if old == nil {
			old = new(record)
		}
		r := old.written()
		r.revision, r.body = r.writer, b
		if old.spec.text != s.text || old.spec.zone != s.zone {
			r.next = s.next(now)
		}
		return &r, nil
	})
}

// Pause keeps the ticks of a message from being enqueued until Resume.
func (t *Timetable) Pause(ctx context.Context, channel, name string) error {
	return t.change(ctx, "pause", channel, name, func(old *record, _ int64) (*record, error) {
		if old == nil {
			return nil, ErrNotFound
		}
		if old.paused {
			return nil, nil
		}
		r := old.written()
		r.paused = true
		return &r, nil
	})
}

// Resume ends Pause. The next tick is the first after now.
func (t *Timetable) Resume(ctx context.Context, channel, name string) error {
	return t.change(ctx, "resume", channel, name, func(old *record, now int64) (*record, error) {
		if old == nil {
			return nil, ErrNotFound
		}
		if !old.paused {
			return nil, nil
		}
		if err := old.spec.Err(); err != nil {
			return nil, err
		}
		r := old.written()
		r.paused, r.next = false, old.spec.next(now)
		return &r, nil
	})
}

// Remove ends a recurring message. What was enqueued stays.
func (t *Timetable) Remove(ctx context.Context, channel, name string) error {
	found := false
	return t.change(ctx, "remove", channel, name, func(old *record, _ int64) (*record, error) {
		if old == nil && !found {
			return nil, ErrNotFound
		}
		found = true // and if it is gone the next time, then by this call or another like it
		if old == nil {
			return nil, nil
		}
		return &record{}, nil
	})
}

// change reads a record and writes what decide makes of it, and begins again where another has written meanwhile.
// decide gets nil where there is none, and the server's time in ms; it returns nil to leave all as it is, and a record
// without revision to remove it.
func (t *Timetable) change(
	ctx context.Context,
	what, channel, name string,
	decide func(old *record, now int64) (*record, error),
) error {
	fail := func(err error) error { return fmt.Errorf("recur: %s %q of channel %q: %w", what, name, channel, err) }
	door, err := inside.Open(t.Queue)
	if err != nil {
		return err
	}
	for {
		now, head, old, err := read(ctx, door, channel, name)
		var foreign *foreignError
		if errors.As(err, &foreign) && what == "remove" {
			err = nil // whatever it is
			old = &record{}
		}
		if err != nil {
			return fail(err)
		}
		r, err := decide(old, now)
		if err != nil {
			return fail(err)
		}
		if r == nil {
			return nil
		}
		raw := ""
		if r.revision != "" {
			raw = r.head() + r.body
		}
		done, err := store.RunRecurSet(ctx, door, store.KeysOf(channel), name, head, raw, element.NewSerial().String())
		if err != nil {
			return fail(err)
		}
		if done {
			return nil
		}
	}
}

// foreignError is that of a record which this version cannot read.
type foreignError struct{ error }

// read gives the server's time in ms and, where there is one, a record and its head as it is.
func read(ctx context.Context, door inside.Door, channel, name string) (now int64, head string, r *record, err error) {
	now, raw, err := store.RecurRecord(ctx, door, store.KeysOf(channel), name)
	if raw == "" || err != nil {
		return now, "", nil, err
	}
	line, _, ok := strings.Cut(raw, "\n")
	if ok {
		head = line + "\n"
	}
	parsed, err := parseRecord(raw)
	if err != nil {
		return now, head, nil, &foreignError{err}
	}
	return now, head, &parsed, nil
}

// List gives the recurring messages of a channel by name. What a newer version of shunt wrote, or somebody else, is an
// error beside the rest.
func (t *Timetable) List(ctx context.Context, channel string) ([]Entry, error) {
	door, err := inside.Open(t.Queue)
	if err != nil {
		return nil, err
	}
	_, _, raws, err := store.RecurAll(ctx, door, store.KeysOf(channel))
	if err != nil {
		return nil, fmt.Errorf("recur: list channel %q: %w", channel, err)
	}
	var es []Entry
	var bad []error
	for name, raw := range raws {
		r, err := parseRecord(raw)
		if err != nil {
			bad = append(bad, fmt.Errorf("recur: list channel %q: %q: %w", channel, name, err))
			continue
		}
		e := Entry{
			Name:    name,
			Channel: channel,
			Spec:    r.spec,
			Missed:  r.policy,
			Paused:  r.paused,
			Count:   int(r.count),
			Payload: r.element.Payload,
			Headers: r.element.Headers(),
		}
		if r.next != 0 && !r.paused {
			e.Next = time.UnixMilli(r.next).In(r.spec.location())
		}
		if r.last != 0 {
			e.Last = time.UnixMilli(r.last).In(r.spec.location())
		}
		es = append(es, e)
	}
	slices.SortFunc(es, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return es, errors.Join(bad...)
}

func checkName(name string) error {
	if len(name) < 1 || len(name) > 200 || !utf8.ValidString(name) {
		return fmt.Errorf("recur: the name %.80q has %d bytes: want 1 to 200, in UTF-8", name, len(name))
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("recur: the name %.80q contains %q: want only what can be printed", name, r)
		}
	}
	return nil
}

// The tick of a message travels with it.
const (
	tickHeader = "shunt-tick"
	tickFormat = time.RFC3339Nano
)

// Tick is the time for which the message that a handler has was enqueued, in the offset of its Spec's zone; false where
// it was no tick's.
func Tick(ctx context.Context) (time.Time, bool) {
	i, ok := shunt.FromContext(ctx)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(tickFormat, i.Headers[tickHeader])
	return t, err == nil
}
