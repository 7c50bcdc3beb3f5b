package access

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// maxAge is how long a view is believed without a proof. A deleted token is refused within a second, so a look that
	// just begins has the rest of it.
	maxAge = 900 * time.Millisecond
	// maxKept is how long a view is believed with proofs: what was changed by hand is not hinted at.
	maxKept = time.Minute
	// maxViews bounds the namespaces of which tokens are kept. Beyond it all are read anew.
	maxViews = 10_000
	// lookTimeout bounds a read of Redis, which many may wait for.
	lookTimeout = 3 * time.Second
)

// mirror keeps what Redis has in some keys.
//
// A view is believed while it is young, or while the feed proves it. The feed's spell begins when its subscription is
// confirmed. What was read in this spell, and was not hinted at, is as it was at the time of the last answered ping.
type mirror struct {
	flights singleflight.Group

	mu    sync.Mutex
	views map[string]view
	hints uint64    // heard or caused here
	spell uint64    // odd: the feed hears
	proof time.Time // when the ping was sent that was answered last in this spell
}

// view is what a key had. fields and tokens are not written to.
type view struct {
	fields map[string]string
	tokens map[string]Token // the fields that are tokens, read
	at     time.Time        // before Redis was asked
	spell  uint64
}

// look returns what a key has. It may be as old as maxAge.
func (s *Store) look(ctx context.Context, key string) (view, error) {
	m := &s.mirror
	begun := time.Now()
	if v, ok := m.get(key, begun); ok {
		return v, nil
	}
	for {
		done := m.flights.DoChan(key, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
			defer cancel()
			v, hints := m.begin()
			fields, err := s.all(ctx, key)
			if err != nil {
				return v, err
			}
			v.fields, v.tokens = fields, tokensOf(key, fields)
			m.put(key, v, hints)
			return v, nil
		})
		select {
		case r := <-done:
			if r.Err != nil {
				return view{}, r.Err
			}
			if v := r.Val.(view); begun.Sub(v.at) < maxAge { // else it was begun by another long ago
				return v, nil
			}
		case <-ctx.Done():
			return view{}, context.Cause(ctx)
		}
	}
}

func (m *mirror) get(key string, now time.Time) (view, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.views[key]
	proved := v.spell == m.spell && m.spell%2 == 1 && now.Sub(m.proof) < maxAge && now.Sub(v.at) < maxKept
	return v, ok && (now.Sub(v.at) < maxAge || proved)
}

// Hears says whether the hints of other processes are heard. While they are not, each token is asked for once in
// 900 ms.
func (s *Store) Hears() bool {
	m := &s.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spell%2 == 1 && time.Since(m.proof) < maxAge
}

func (m *mirror) begin() (view, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return view{at: time.Now(), spell: m.spell}, m.hints
}

// put keeps a view, unless a hint came while it was read.
func (m *mirror) put(key string, v view, hints uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hints != hints {
		return
	}
	if m.views == nil || len(m.views) >= maxViews {
		m.views = make(map[string]view)
	}
	m.views[key] = v
}

// drop forgets what a hint names; the namespaces may have changed with any of them.
func (m *mirror) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hints++
	m.flights.Forget(key)
	m.flights.Forget(namespacesKey)
	delete(m.views, key)
	delete(m.views, namespacesKey)
}

// hearing takes in that the feed hears from now on, or no more.
func (m *mirror) hearing(now bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now != (m.spell%2 == 1) {
		m.spell++
	}
	m.proof = time.Time{}
}

// proved takes in that the feed has heard all that was published before a time.
func (m *mirror) proved(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proof = at
}
