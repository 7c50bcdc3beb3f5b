package shunt

import (
	"context"
	"fmt"
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

// wrongType names the key that an error of the wrong type is about.
func (q *Queue) wrongType(channel string, err error) error {
	key := q.foreign.find(q.router.For(channel), channel)
	if key == "" {
		return fmt.Errorf("a key of the channel holds something that is not shunt's: see docs/lifecycle.md: %w", err)
	}
	return fmt.Errorf("the key %s holds something that is not shunt's: rename or delete it: %w", key, err)
}
