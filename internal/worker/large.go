package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/shuntmq/shunt/internal/link"
)

const (
	largeElement  = 64 << 10 // what is larger holds up a shared connection
	largeInFlight = 64 << 20 // bytes of takes under way at once, by the largest element lately seen
	largeFor      = 100      // elements that have to be small before the receiver goes back to the shared connection
)

// large is a receiver's way with large elements: one at a time a worker, on a link of the receiver's own.
type large struct {
	left    atomic.Int32 // small elements still to be seen
	biggest atomic.Int64
	bytes   *semaphore.Weighted

	mu     sync.Mutex
	l      *link.Link
	closed bool
}

func (l *large) saw(n int) {
	if n > largeElement {
		l.left.Store(largeFor)
		l.biggest.Store(max(l.biggest.Load(), int64(n)))
	} else if l.left.Load() > 0 && l.left.Add(-1) <= 0 {
		l.biggest.Store(0)
	}
}

func (l *large) on() bool { return l.left.Load() > 0 }

// reserve returns 0 if there is no room now.
func (l *large) reserve() int64 {
	n := min(max(l.biggest.Load(), 1), largeInFlight)
	if !l.bytes.TryAcquire(n) {
		return 0
	}
	return n
}

func (l *large) release(n int64) {
	if n > 0 {
		l.bytes.Release(n)
	}
}

// link is the connection for the commands of a step.
func (l *large) link(r *Pool) *link.Link {
	if !l.on() {
		return r.s.Data
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return r.s.Data
	}
	if l.l == nil {
		l.l = link.New(r.s.Node, r.conf.ReplyTimeout, true)
	}
	return l.l
}

func (l *large) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.l != nil {
		l.l.Close()
		l.l = nil
	}
}

// fullRedis is that a Redis without memory has refused something: for a while it is then asked by script,
// which it does not refuse.
type fullRedis struct{ span }

func (f *fullRedis) seen(now time.Time) { f.begin(now, 10*time.Second) }
