package codec

import (
	"context"
	"errors"
	"fmt"
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
// It reads the headers of all messages of the channels that such objects are of, and no payload. It does so twice, for
// a message that moves may be missed once. All channels that use the store must be on q's Redis, or not be listed
// there: give each Redis a store of its own. After an error, call it again.
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

// flush deletes what no message names.
func (w *sweep) flush(ctx context.Context) error {
	for channel, names := range w.old {
		for range 2 {
			for _, state := range shunt.States {
				if err := w.spare(ctx, channel, state, names); err != nil {
					return err
				}
			}
		}
		for name := range names {
			if err := w.delete(ctx, name); err != nil {
				return err
			}
		}
	}
	clear(w.old)
	w.n = 0
	return nil
}

// spare takes out the names that messages of one state name.
func (w *sweep) spare(ctx context.Context, channel string, state shunt.State, names map[string]bool) error {
	if state == shunt.StateDone { // what is kept of these has no headers
		return nil
	}
	for from := ""; len(names) > 0; {
		page, err := w.q.Browse(ctx, shunt.BrowseOptions{Channel: channel, State: state, Limit: 1000, From: from})
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			steps, _ := parse(e.Headers[shunt.EncodingHeader])
			for _, s := range steps {
				if name, _, err := claimed(s.param, channel); err == nil && names[name] {
					delete(names, name)
					w.Named++
				}
			}
		}
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
