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

// Holdoff is a wait that grows with each refusal in a row.
type Holdoff struct {
	wait   time.Duration
	until  time.Time
	forgot bool // a NOSCRIPT was among these refusals
}

// Refuse takes in a refusal, and returns how long to wait. What waiting does not mend waits longest; a script that was forgotten, the first
// time, goes again with its text almost at once.
func (h *Holdoff) Refuse(err error) time.Duration {
	class := Classify(err)
	switch {
	case Code(err) == "NOSCRIPT" && !h.forgot:
		h.forgot = true
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
	Over  func()                      // told when the refusals have ended
	Tells func(err error, fatal bool) // told of each refusal that is worth it

	on    atomic.Bool
	mu    sync.Mutex
	off   Holdoff
	given bool // the right to try, to one who has not been judged yet
}

// Pass says how long to wait before a step; who gets zero in trouble is the only one until the next wait is over.
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
	b.given = true
	return 0
}

// Back gives the right to a step back, of one who had nothing to send: otherwise nobody would try until the next wait is over.
func (b *Breaker) Back() {
	if !b.on.Load() {
		return
	}
	b.mu.Lock()
	if b.given { // not a wait that began since
		b.off.until, b.given = time.Now(), false
	}
	b.mu.Unlock()
}

// Judge hears how a step went.
func (b *Breaker) Judge(err error) {
	if err == nil {
		if b.on.Load() && b.on.Swap(false) {
			b.Over()
		}
		return
	}
	b.mu.Lock()
	if !b.on.Swap(true) {
		b.off = Holdoff{}
	}
	b.given = false
	wait := b.off.Refuse(err)
	b.mu.Unlock()
	if class := Classify(err); wait > MinTrouble/50 {
		b.Tells(err, class == Fatal || class == Failed)
	}
}
