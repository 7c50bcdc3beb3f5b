package budget

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// Limits bound what a request may cost. The zero value has the defaults.
type Limits struct {
	// MaxBody bounds a message in bytes: up to 64 MiB, default 1 MiB. A bulk is bounded by 64 of these.
	MaxBody int64
	// MaxBodies bounds the bytes of all bodies whose requests are not answered yet, and of answers that are being
	// written: 2 MiB or more, default 256 MiB. A body that comes beyond is 503, and so is a request for
	// messages that comes then. Those that wait already are answered. A body may have half of it.
	MaxBodies int64
	// BodyTimeout bounds the reading of a request's body: default 30 s.
	BodyTimeout time.Duration
	// MaxWait bounds how long a request waits: default 10 min, at most a day.
	MaxWait time.Duration
	// MaxWaiting bounds the requests that wait at the same time: default 10,000. More are 503.
	MaxWaiting int
}

// Validate says all that is wrong with the limits.
func (l *Limits) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("budget: Limits."+format, args...))
		}
	}
	check(l.MaxBody >= 0 && l.MaxBody <= 64<<20, "MaxBody is %d: want up to 64 MiB, or 0 for 1 MiB", l.MaxBody)
	check(l.MaxBodies == 0 || l.MaxBodies >= 2<<20, "MaxBodies is %d: want 2 MiB or more, or 0 for 256 MiB",
		l.MaxBodies)
	check(l.BodyTimeout >= 0, "BodyTimeout is %v: want a positive time, or 0 for 30s", l.BodyTimeout)
	check(l.MaxWait >= 0 && l.MaxWait <= 24*time.Hour, "MaxWait is %v: want up to 24h, or 0 for 10m", l.MaxWait)
	check(l.MaxWaiting >= 0, "MaxWaiting is %d: want 1 or more, or 0 for 10,000", l.MaxWaiting)
	return errors.Join(errs...)
}

// Budget counts what requests cost. The zero value has the default limits. Its methods may be called by many goroutines
// at once. It is not copied once used.
type Budget struct {
	limits  atomic.Pointer[Limits]
	waiting atomic.Int64
	bodies  atomic.Int64 // bytes of bodies and answers
}

// SetLimits changes the limits for requests that come from now on.
func (b *Budget) SetLimits(l Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	l.MaxBody = cmp.Or(l.MaxBody, 1<<20)
	l.MaxBodies = cmp.Or(l.MaxBodies, 256<<20)
	l.BodyTimeout = cmp.Or(l.BodyTimeout, 30*time.Second)
	l.MaxWait = cmp.Or(l.MaxWait, 10*time.Minute)
	l.MaxWaiting = cmp.Or(l.MaxWaiting, 10_000)
	b.limits.Store(&l)
	return nil
}

// Limits are those that hold now. Each is set.
func (b *Budget) Limits() Limits {
	if b.limits.Load() == nil {
		var fresh Budget
		_ = fresh.SetLimits(Limits{})
		b.limits.CompareAndSwap(nil, fresh.limits.Load())
	}
	return *b.limits.Load()
}

// Wait counts a request that begins to wait. It gives false where too many do; else Done follows.
func (b *Budget) Wait() bool {
	if b.waiting.Add(1) > int64(b.Limits().MaxWaiting) {
		b.waiting.Add(-1)
		return false
	}
	return true
}

// Done counts that a request waits no more.
func (b *Budget) Done() { b.waiting.Add(-1) }

// Waiting is how many requests wait.
func (b *Budget) Waiting() int { return int(b.waiting.Load()) }

// Bodies is how many bytes of bodies and answers are held.
func (b *Budget) Bodies() int64 { return b.bodies.Load() }

// Take counts n more bytes of bodies. Where that is too much it counts none, and says false.
func (b *Budget) Take(n int) bool {
	if b.bodies.Add(int64(n)) > b.Limits().MaxBodies {
		b.bodies.Add(-int64(n))
		return false
	}
	return true
}

// Hold counts n bytes of an answer, however much that is, until Return. A client that reads slowly makes it last.
func (b *Budget) Hold(n int) { b.bodies.Add(int64(n)) }

// Full says that no messages should be read for an answer now.
func (b *Budget) Full() bool { return b.bodies.Load() >= b.Limits().MaxBodies }

// Return takes back what Take or Hold has counted.
func (b *Budget) Return(n int) { b.bodies.Add(-int64(n)) }

// ErrFull says that the bodies of all requests together have reached Limits.MaxBodies.
var ErrFull = errors.New("too many bytes at once, please retry later")

// Metered counts what is read of a body among all bodies. It counts what has come, not what a client says will come: so
// slow ones hold little. It is used by one goroutine.
type Metered struct {
	from io.Reader
	of   *Budget
	held int
}

// Meter counts what is read of from, until Release.
func (b *Budget) Meter(from io.Reader) Metered { return Metered{from: from, of: b} }

func (m *Metered) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	if !m.of.Take(n) {
		return n, ErrFull
	}
	m.held += n
	return n, err
}

// Release takes in that the body is not needed any more. The zero Metered holds nothing.
func (m *Metered) Release() {
	if m.of != nil {
		m.of.Return(m.held)
		m.held = 0
	}
}
