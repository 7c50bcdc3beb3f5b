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
// expired.
func LogEvents(l *slog.Logger) func(Event) {
	return func(e Event) { writeLog(l, e) }
}

func writeLog(l *slog.Logger, e Event, more ...slog.Attr) {
	level := levelOf(e)
	ctx := context.Background()
	if !l.Enabled(ctx, level) {
		return
	}
	l.LogAttrs(ctx, level, "shunt: "+string(e.Kind), append(logAttrs(e), more...)...)
}

func levelOf(e Event) slog.Level {
	return event.Kind(e.Kind).Level(e.Fatal, e.Err)
}

// A troubleLog writes at most so many lines about one subject in so long.
const (
	logMost  = 10
	logEvery = 10 * time.Second
)

// troubleLog writes warnings and errors to slog.Default, where a Queue has no Events. A subject with many has lines
// left out, and a later line says how many.
type troubleLog struct {
	mu      sync.Mutex
	windows map[subject]*window
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

func (l *troubleLog) take(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := subject{e.Kind, e.Channel}
	w := l.windows[of]
	if w == nil {
		w = &window{since: e.Time}
		l.windows[of] = w
	}
	if e.Time.Sub(w.since) >= logEvery {
		w.since, w.lines = e.Time, 0
	}
	if w.lines++; w.lines > logMost {
		w.hidden, w.last = w.hidden+1, e
		return
	}
	w.write(e)
}

// write writes a line, with the number of those that were left out before it.
func (w *window) write(e Event) {
	if w.hidden > 0 {
		writeLog(slog.Default(), e, slog.Int("left_out", w.hidden))
	} else {
		writeLog(slog.Default(), e)
	}
	w.hidden = 0
}

// close writes one line for each subject that has some left out.
func (l *troubleLog) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.windows {
		if w.hidden > 0 {
			w.hidden-- // the line itself is the last one
			w.write(w.last)
		}
	}
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
