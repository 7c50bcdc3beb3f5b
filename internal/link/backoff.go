package link

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Jitter is d less up to a tenth, so that waits for the same thing do not end at the same time.
func Jitter(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

// MinTrouble and MaxTrouble bound the waits after refusals.
const (
	MinTrouble = 250 * time.Millisecond
	MaxTrouble = 5 * time.Second
)

// Holdoff is a wait that grows with each refusal in a row.
type Holdoff struct {
	wait     time.Duration
	until    time.Time
	noScript bool // one of these refusals was NOSCRIPT
}

// Refuse notes a refusal, and returns how long to wait. Errors that waiting does not mend wait longest. A script that
// the server has forgotten goes again with its text almost at once, the first time.
func (h *Holdoff) Refuse(err error) time.Duration {
	class := Classify(err)
	switch {
	case Code(err) == "NOSCRIPT" && !h.noScript:
		h.noScript = true
		h.until = time.Now().Add(MinTrouble / 50)
		return MinTrouble / 50
	case class == Fatal || class == Failed:
		h.wait = MaxTrouble
	default:
		h.wait = min(max(2*h.wait, MinTrouble), MaxTrouble)
	}
	wait := Jitter(h.wait)
	h.until = time.Now().Add(wait)
	return wait
}

// Left is how long it still lasts; zero or less: it is over.
func (h *Holdoff) Left() time.Duration {
	if h.until.IsZero() {
		return 0
	}
	return time.Until(h.until)
}

// Breaker slows a whole receiver down while Redis refuses its commands: one step at a time, with a growing wait.
type Breaker struct {
	Over  func()                      // called when refusals have ended that had others wait for long
	Tells func(err error, fatal bool) // called with each refusal that is worth an event

	on     atomic.Bool
	mu     sync.Mutex
	off    Holdoff
	trying bool // a step was let through, and Judge has not heard of it yet
}

// On says whether Redis refuses just now.
func (b *Breaker) On() bool { return b.on.Load() }

// Pass returns how long to wait before a step. While Redis refuses, only one caller a wait gets zero.
func (b *Breaker) Pass() time.Duration {
	if !b.on.Load() {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.off.Left(); b.on.Load() && d > 0 {
		return d
	}
	b.off.until = time.Now().Add(max(b.off.wait, MinTrouble/50))
	b.trying = true
	return 0
}

// Back is called in place of Judge by a caller that had nothing to send. Otherwise no step would be tried until the
// next wait is over.
func (b *Breaker) Back() {
	if !b.on.Load() {
		return
	}
	b.mu.Lock()
	if b.trying { // otherwise the wait is a newer one
		b.off.until, b.trying = time.Now(), false
	}
	b.mu.Unlock()
}

// Judge notes the outcome of a step. Of those that were refused beside each other one counts: otherwise the wait would
// be the longest at once, as each worker's script is refused when the server has forgotten it.
func (b *Breaker) Judge(err error) {
	if err == nil {
		if b.on.Load() && b.end() {
			b.Over()
		}
		return
	}
	b.mu.Lock()
	first := !b.on.Swap(true)
	if first {
		b.off = Holdoff{}
	}
	wait := b.off.Left()
	if first || b.trying || wait <= 0 {
		wait = b.off.Refuse(err)
	}
	b.trying = false
	b.mu.Unlock()
	if class := Classify(err); wait > MinTrouble/50 {
		b.Tells(err, class == Fatal || class == Failed)
	}
}

// end ends the refusals, and says whether anybody has to hear of it. Of a forgotten script nobody has: who waits for
// that looks again in a moment. A worker that woke itself for it would not rest where each script is forgotten.
func (b *Breaker) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on.Swap(false) && b.off.wait > 0
}
