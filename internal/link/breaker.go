package link

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Jitter is d less up to a tenth: whoever waits for the same thing does not do so in step.
func Jitter(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

const (
	MinTrouble = 250 * time.Millisecond
	MaxTrouble = 5 * time.Second
)

// Breaker slows a whole receiver down while Redis refuses its commands: one step at a time, with a growing wait.
type Breaker struct {
	Over  func()                      // told when the refusals have ended
	Tells func(err error, fatal bool) // told of each refusal that is worth it

	on    atomic.Bool
	mu    sync.Mutex
	wait  time.Duration
	until time.Time
}

// Pass says how long to wait before a step; who gets zero in trouble is the only one until the next wait is over.
func (b *Breaker) Pass() time.Duration {
	if !b.on.Load() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := time.Until(b.until); b.on.Load() && d > 0 {
		return d
	}
	b.until = time.Now().Add(b.wait)
	return 0
}

// Judge hears how a step went.
func (b *Breaker) Judge(err error) {
	if err == nil {
		if b.on.Load() && b.on.Swap(false) {
			b.Over()
		}
		return
	}
	class := Classify(err)
	least := MinTrouble
	if Code(err) == "NOSCRIPT" {
		least = MinTrouble / 50 // next time it goes with its text
	}
	b.mu.Lock()
	b.wait = min(max(2*b.wait, least), MaxTrouble)
	if !b.on.Swap(true) {
		b.wait = least
	}
	fatal := class == Fatal || class == Failed
	if fatal {
		b.wait = MaxTrouble
	}
	b.until = time.Now().Add(Jitter(b.wait))
	b.mu.Unlock()
	if least == MinTrouble {
		b.Tells(err, fatal)
	}
}
