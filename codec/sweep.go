package codec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// Lister is a Store that can be swept.
type Lister interface {
	Store
	// List calls each for every object, in any order, until that returns an error, which List then returns. An object
	// that is put or deleted meanwhile may be among them or not.
	List(ctx context.Context, each func(Object) error) error
}

// Object is an object of a Store.
type Object struct {
	Name string
	At   time.Time // it was put, by the store's clock
}

// Swept is what a Sweep has done.
type Swept struct {
	Looked  int // objects of Claim's
	Deleted int
	Young   int // left, because they are too young
	Named   int // left, because a message names them
	// Unknown counts those left because Redis lists no channel that they could be of.
	Unknown int
}

// sweepSome is how many objects Sweep holds in memory, some 10 MB, before it looks for their messages.
const sweepSome = 100_000

// Sweep deletes objects older than d that no message names: those whose deletion was lost. The Store is a Lister. d is
// an hour or more. It has to be longer than the longest handler that calls Then, for its messages are put before they
// are enqueued. It also has to be longer than messages lie outside of Redis, in an export say; a day is well.
//
// It reads the headers of all messages of the channels that such objects are of, and of those in hand the payloads,
// too. A message that moves may be missed: so where an object stays nameless it looks four times, with pauses, and then
// for the object's own message by its serial, which is a look through the channel for each. All channels that use the
// store must be on q's Redis, or not be listed there: give each Redis a store of its own. After an error, call it
// again.
func (c *Claim) Sweep(ctx context.Context, q *shunt.Queue, d time.Duration) (s Swept, err error) {
	if err := c.Validate(); err != nil {
		return s, err
	}
	store, ok := c.Store.(Lister)
	if !ok {
		return s, fmt.Errorf("codec: sweep: a %T has no method List", c.Store)
	}
	if d < time.Hour {
		return s, fmt.Errorf("codec: sweep what is older than %v: want 1h or more", d)
	}
	names, err := q.Channels(ctx)
	if err != nil {
		return s, fmt.Errorf("codec: sweep: %w", err)
	}
	w := &sweep{store: store, q: q, Swept: &s, channels: make(map[string]string), old: make(map[string]map[string]bool)}
	for _, name := range names {
		w.channels[folderOf(name)] = name
	}
	before := time.Now().Add(-d)
	err = store.List(ctx, func(o Object) error { return w.see(ctx, o, before) })
	if err == nil {
		err = w.flush(ctx)
	}
	if err != nil {
		return s, fmt.Errorf("codec: sweep: %w", err)
	}
	return s, nil
}

// sweep is one call of Sweep.
type sweep struct {
	*Swept
	store    Lister
	q        *shunt.Queue
	channels map[string]string          // by their folders
	old      map[string]map[string]bool // objects by the channel that they are of
	n        int                        // of old
}

// see takes in one object.
func (w *sweep) see(ctx context.Context, o Object, before time.Time) error {
	folder, rest, _ := strings.Cut(o.Name, "/")
	serial, _, _ := strings.Cut(rest, ".")
	half := strings.HasSuffix(o.Name, part)
	if !isSum(folder) || !isSerial(serial) || serial != rest && !half {
		return nil // somebody else's
	}
	w.Looked++
	channel, known := w.channels[folder]
	switch {
	case !o.At.Before(before):
		w.Young++
	case half:
		return w.delete(ctx, o.Name)
	case !known:
		w.Unknown++
	default:
		if w.old[channel] == nil {
			w.old[channel] = make(map[string]bool)
		}
		w.old[channel][o.Name] = true
		if w.n++; w.n >= sweepSome {
			return w.flush(ctx)
		}
	}
	return nil
}

// looked are the states in the order in which a message moves: so one that moves is met again rather than missed.
var looked = []shunt.State{shunt.StateDelay, shunt.StateSuspect, shunt.StatePrepare, shunt.StateDoing,
	shunt.StateLeased, shunt.StateDelay, shunt.StateDead}

const (
	// looks bounds how often the messages of a channel are looked through.
	looks = 4
	// breath is how long a sweep rests between two looks on average: by another phase of what moves in circles, each
	// look is a chance of its own.
	breath = 200 * time.Millisecond
)

// flush deletes what no message names.
func (w *sweep) flush(ctx context.Context) error {
	for channel, names := range w.old {
		if err := w.spareAll(ctx, channel, names); err != nil {
			return err
		}
		for name := range names {
			_, serial, _ := strings.Cut(name, "/")
			_, err := w.q.Peek(ctx, shunt.BySerial(channel, serial))
			switch {
			case err == nil:
				w.Named++
				continue
			case !errors.Is(err, shunt.ErrNotFound):
				return err
			}
			if err := w.delete(ctx, name); err != nil {
				return err
			}
		}
	}
	clear(w.old)
	w.n = 0
	return nil
}

// spareAll takes out the names that messages of a channel name.
func (w *sweep) spareAll(ctx context.Context, channel string, names map[string]bool) error {
	for i := range looks {
		if i > 0 {
			select {
			case <-time.After(breath/2 + rand.N(breath)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for _, state := range looked {
			if len(names) == 0 {
				return nil
			}
			if err := w.spare(ctx, channel, state, names); err != nil {
				return err
			}
		}
	}
	return nil
}

// spare takes out the names that messages of one state name.
func (w *sweep) spare(ctx context.Context, channel string, state shunt.State, names map[string]bool) error {
	named := func(es []shunt.Entry) {
		for _, e := range es {
			steps, _ := parse(e.Headers[shunt.EncodingHeader])
			for _, s := range steps {
				if name, _, err := claimed(s.param, channel); err == nil && names[name] {
					delete(names, name)
					w.Named++
				}
			}
		}
	}
	if state == shunt.StateDoing || state == shunt.StateLeased { // their order may change between two pages
		es, err := w.q.List(ctx, channel, state, 0, 0)
		named(es)
		return err
	}
	for from := ""; len(names) > 0; {
		page, err := w.q.Browse(ctx, shunt.BrowseOptions{Channel: channel, State: state, Limit: 1000, From: from})
		if err != nil {
			return err
		}
		named(page.Entries)
		if from = page.Next; from == "" {
			return nil
		}
	}
	return nil
}

func (w *sweep) delete(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := w.store.Delete(ctx, name); err != nil {
		return errors.Join(fmt.Errorf("delete %s", name), err)
	}
	w.Deleted++
	return nil
}
