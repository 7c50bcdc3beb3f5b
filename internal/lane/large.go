package lane

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/shuntmq/shunt/internal/link"
)

const (
	largeElement  = 64 << 10 // what is larger holds up a shared connection
	largeInFlight = 64 << 20 // bytes of takes under way at once, by the largest element lately seen
	largeFor      = 100      // elements that have to be small before the site goes back to the shared connection
)

// Large is a site's way with large elements: one at a time a worker, on a link of the receiver's own.
type Large struct {
	site    *Site
	left    atomic.Int32 // small elements still to be seen; written under mu, as biggest is
	biggest atomic.Int64
	bytes   *semaphore.Weighted

	mu     sync.Mutex
	l      *link.Link
	closed bool
}

func (l *Large) init(s *Site) { l.site, l.bytes = s, semaphore.NewWeighted(largeInFlight) }

// Saw takes in the size of an element.
func (l *Large) Saw(n int) {
	if n <= largeElement && !l.On() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > largeElement {
		l.left.Store(largeFor)
		l.biggest.Store(max(l.biggest.Load(), int64(n)))
	} else if l.On() && l.left.Add(-1) == 0 {
		l.biggest.Store(0)
	}
}

// On says whether large elements were seen lately.
func (l *Large) On() bool { return l.left.Load() > 0 }

// Reserve makes room for a take, and returns how much; 0 if there is none now.
func (l *Large) Reserve() int64 {
	n := min(max(l.biggest.Load(), 1), largeInFlight)
	if !l.bytes.TryAcquire(n) {
		return 0
	}
	return n
}

// Release gives back what Reserve returned.
func (l *Large) Release(n int64) {
	if n > 0 {
		l.bytes.Release(n)
	}
}

// link is the connection for the commands of a step.
func (l *Large) link() *link.Link {
	if !l.On() {
		return l.site.Server.Data
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.site.Server.Data
	}
	if l.l == nil {
		l.l = link.New(l.site.Server.Node, l.site.conf.ReplyTimeout, true)
	}
	return l.l
}

// Close ends the link of its own, within the reply timeout. Workers that outlast a shutdown do not wait for that.
func (l *Large) Close() {
	l.mu.Lock()
	own := l.l
	l.l, l.closed = nil, true
	l.mu.Unlock()
	if own != nil {
		own.Close()
	}
}
