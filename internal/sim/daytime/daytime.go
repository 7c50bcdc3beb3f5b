// Package daytime is the clocks of simulated processes, which somebody may set wrong. Shunt goes by them in an overlay;
// everything else goes by the right one.
package daytime

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shuntmq/shunt/internal/sim/chance"
)

// Clock is that of a process. It changes the time of day where it is set, and not how much time passes.
type Clock struct {
	ahead atomic.Int64 // whole seconds, of the right clock

	mu   sync.Mutex
	sets []set
}

// set is when a clock was set, and how far ahead of the right one.
type set struct {
	at    time.Time
	ahead time.Duration
}

// Set sets it so many seconds ahead of the right one; less than zero: behind it. Where nobody hears it, it stays right.
func (c *Clock) Set(ahead int) {
	if !chance.Seeded {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sets = append(c.sets, set{time.Now(), time.Duration(ahead) * time.Second})
	c.ahead.Store(int64(ahead))
}

// Right is when this clock said t for the last time.
func (c *Clock) Right(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends := time.Now()
	for _, s := range slices.Backward(c.sets) {
		if right := t.Add(-s.ahead); !right.Before(s.at) && !right.After(ends) {
			return right
		}
		ends = s.at
	}
	return t
}

// Within has f, and all that it starts, go by this clock.
func (c *Clock) Within(f func()) {
	defer chance.Own(chance.Own(unsafe.Pointer(c)))
	f()
}

// Now is the time by the clock of who asks.
func Now() time.Time {
	t := time.Now()
	if c := (*Clock)(chance.Owner()); c != nil {
		// A time with a monotonic reading keeps its seconds above 30 bits of nanoseconds in its first word.
		*(*uint64)(unsafe.Pointer(&t)) += uint64(c.ahead.Load()) << 30
	}
	return t
}

// Since is how long ago t is by that clock.
func Since(t time.Time) time.Duration { return Now().Sub(t) }

// Until is how long t is ahead by that clock.
func Until(t time.Time) time.Duration { return t.Sub(Now()) }

// AfterFunc has f go by the clock of who asks for it.
func AfterFunc(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, same(f)) }

// AfterEnd is context.AfterFunc, and has f go by the clock of who asks for it.
func AfterEnd(ctx context.Context, f func()) (stop func() bool) {
	return context.AfterFunc(ctx, same(f))
}

func same(f func()) func() {
	c := (*Clock)(chance.Owner())
	if c == nil {
		return f
	}
	return func() { c.Within(f) }
}
