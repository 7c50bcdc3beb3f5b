package sandbox

import (
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/link"
)

// The waits of a gate: 0.1, 0.2, 0.4 … 10 s, each less up to a tenth.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 10 * time.Second
)

// gate keeps a command that dies at once from being started again and again. Failures that come while it is shut are
// of children started before, and count as one.
type gate struct {
	mu    sync.Mutex
	last  time.Duration // the last wait, without its jitter; 0: no failure since the last success
	until time.Time
}

// wait is how long the gate is still shut.
func (g *gate) wait(now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until.Sub(now)
}

// fail says that a child could not be started, or had a fault in its first message.
func (g *gate) fail(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.until) {
		return
	}
	g.last = min(max(2*g.last, firstWait), lastWait)
	g.until = now.Add(link.Jitter(g.last))
}

// pass says that a child has answered its first message.
func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.until = 0, time.Time{}
}
