package shunt

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// foreign remembers which key of a channel is foreign. All workers and all who enqueue meet it at once, and the search
// asks for each key of the channel.
type foreign struct {
	searches singleflight.Group
	mu       sync.Mutex
	found    map[string]foreignKey // by channel
	told     map[string]time.Time  // when an Event said that a channel cannot be read
}

type foreignKey struct {
	key   string // empty: none was found
	until time.Time
}

const foreignFor = time.Second // so long is the answer of a search used

// find names the foreign key of a channel; empty: none was found. Who comes while it is searched for waits for that.
func (f *foreign) find(server *link.Server, channel string) string {
	f.mu.Lock()
	known, is := f.found[channel]
	f.mu.Unlock()
	if is && time.Now().Before(known.until) {
		return known.key
	}
	key, _, _ := f.searches.Do(channel, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		key, _ := store.WrongKey(ctx, server.Data, store.KeysOf(channel))
		f.remember(channel, key)
		return key, nil
	})
	return key.(string)
}

func (f *foreign) remember(channel, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(f.found, func(_ string, k foreignKey) bool { return now.After(k.until) })
	if f.found == nil {
		f.found = make(map[string]foreignKey)
	}
	f.found[channel] = foreignKey{key, now.Add(foreignFor)}
}

// tellEvery is how often Events say that pulls cannot read a channel.
const tellEvery = time.Second

// tells says whether an Event is to say now that a channel cannot be read.
func (f *foreign) tells(channel string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(f.told, func(_ string, at time.Time) bool { return now.Sub(at) >= tellEvery })
	if _, lately := f.told[channel]; lately {
		return false
	}
	if f.told == nil {
		f.told = make(map[string]time.Time)
	}
	f.told[channel] = now
	return true
}

// foreignError is an error of the wrong type that says where the foreign key is.
type foreignError struct {
	error
	where string
}

func (e *foreignError) Error() string { return e.where + ": " + e.error.Error() }
func (e *foreignError) Unwrap() error { return e.error }

// wrongType names the key that an error of the wrong type is about. One that names it already stays as it is: a pull
// knows in which of its channels that key is.
func (q *Queue) wrongType(channel string, err error) error {
	if known := (*foreignError)(nil); errors.As(err, &known) {
		return err
	}
	key := q.foreign.find(q.router.For(channel), channel)
	if key == "" {
		return &foreignError{err, "a key of the channel holds something that is not shunt's: see docs/lifecycle.md"}
	}
	return &foreignError{err, "the key " + key + " holds something that is not shunt's: rename or delete it"}
}
