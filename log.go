package shunt

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/shuntmq/shunt/internal/event"
)

// LogEvents returns a func for Queue.Events that writes each Event to l, at these levels. Error: a message went to dead
// or was dropped there, a verdict came too late, a lease was lost, a handler does not end, or somebody has to act.
// Warn: an attempt failed, Redis is away, the outcome of a verdict is not known, or shunt has mended something. Debug:
// what happens to every message. Info: the rest, such as the life of a receiver, or a message that was cancelled or
// expired. Of one kind on one channel it writes up to 1,000 lines in a second; a later line says how many it left out.
func LogEvents(l *slog.Logger) func(Event) {
	s := newSampler(func() *slog.Logger { return l }, logAllEvery, func(EventKind) int { return logAll })
	return s.take
}

func levelOf(e Event) slog.Level { return event.Kind(e.Kind).Level(e.Fatal, e.Err) }

// How many lines a sampler writes about one subject in so long: of all Events, and where a Queue has no Events of
// trouble and of dead letters.
const (
	logAll, logAllEvery        = 1000, time.Second
	logMost, logDead, logEvery = 10, 1000, 10 * time.Second
	logSubjects                = 1000 // beyond these all channels are one subject
)

// newTroubleLog writes warnings and errors to slog.Default, where a Queue has no Events.
func newTroubleLog() *sampler {
	return newSampler(slog.Default, logEvery, func(k EventKind) int {
		switch k {
		case EventRejected, EventPoisoned, EventUndecodable: // a person may want to see each
			return logDead
		}
		return logMost
	})
}

// sampler writes Events to a log. Of a subject with many it leaves some out, and a later line says how many: the next
// one about it, or one for the last that was left out.
type sampler struct {
	to    func() *slog.Logger
	every time.Duration
	most  func(EventKind) int

	mu      sync.Mutex
	windows map[subject]*window
	timer   *time.Timer // runs where any has lines left out
}

// subject is what lines are counted by.
type subject struct {
	kind    EventKind
	channel string
}

// window is one subject's count since a time.
type window struct {
	since  time.Time
	lines  int
	hidden int
	last   Event // of the hidden ones
}

func newSampler(to func() *slog.Logger, every time.Duration, most func(EventKind) int) *sampler {
	return &sampler{to: to, every: every, most: most, windows: make(map[subject]*window)}
}

func (l *sampler) take(e Event) {
	if !l.to().Enabled(context.Background(), levelOf(e)) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	of := subject{e.Kind, e.Channel}
	w := l.windows[of]
	if w == nil && len(l.windows) >= logSubjects {
		if l.forget(now); len(l.windows) >= logSubjects {
			of.channel = ""
			w = l.windows[of]
		}
	}
	if w == nil {
		w = &window{since: now}
		l.windows[of] = w
	}
	if now.Sub(w.since) >= l.every {
		w.since, w.lines = now, 0
	}
	if w.lines++; w.lines <= l.most(e.Kind) {
		l.write(w, e)
		return
	}
	w.hidden, w.last = w.hidden+1, e
	if l.timer == nil {
		l.timer = time.AfterFunc(l.every, l.catchUp)
	}
}

// catchUp tells of what was left out some time ago.
func (l *sampler) catchUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil { // it is closed
		return
	}
	if l.timer = nil; l.forget(time.Now()) {
		l.timer = time.AfterFunc(l.every, l.catchUp)
	}
}

// forget drops the subjects whose time is over, with a line of what was left out. It says whether others have any. mu
// is held.
func (l *sampler) forget(now time.Time) (hidden bool) {
	for of, w := range l.windows {
		if now.Sub(w.since) >= l.every {
			l.tell(w)
			delete(l.windows, of)
		}
		hidden = hidden || w.hidden > 0
	}
	return hidden
}

// tell writes the last line that was left out.
func (l *sampler) tell(w *window) {
	if w.hidden > 0 {
		w.hidden--
		l.write(w, w.last)
	}
}

// write writes a line, with the number of those that were left out before it.
func (l *sampler) write(w *window, e Event) {
	attrs := logAttrs(e)
	if w.hidden > 0 {
		attrs = append(attrs, slog.Int("left_out", w.hidden))
	}
	w.hidden = 0
	l.to().LogAttrs(context.Background(), levelOf(e), "shunt: "+string(e.Kind), attrs...)
}

// close tells of all that was left out, and ends the timer.
func (l *sampler) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	for _, w := range l.windows {
		l.tell(w)
	}
	clear(l.windows)
}

// logAttrs are the fields of e that are set.
func logAttrs(e Event) []slog.Attr {
	attrs := make([]slog.Attr, 0, 10)
	add := func(set bool, a slog.Attr) {
		if set {
			attrs = append(attrs, a)
		}
	}
	ofWorker := e.Attempt != 0
	switch e.Kind {
	case EventReleased, EventLateVerdict, EventUnconfirmedVerdict, EventUndecodable:
		ofWorker = true
	}
	add(e.Channel != "", slog.String("channel", e.Channel))
	add(e.Serial != "", slog.String("serial", e.Serial))
	add(e.ID != "", slog.String("id", e.ID))
	add(e.Attempt != 0, slog.Int("attempt", e.Attempt))
	add(e.Receiver != "", slog.String("receiver", e.Receiver))
	add(ofWorker, slog.Int("worker", e.Worker))
	add(e.N != 0, slog.Int("n", e.N))
	add(e.Took != 0, slog.Duration("took", e.Took))
	add(!e.DueAt.IsZero(), slog.Time("due", e.DueAt))
	add(e.Fatal, slog.Bool("fatal", e.Fatal))
	add(e.Err != nil, slog.Any("error", e.Err))
	var p *PanicError
	if errors.As(e.Err, &p) {
		add(len(p.Stack) > 0, slog.String("stack", string(p.Stack)))
	}
	return attrs
}
