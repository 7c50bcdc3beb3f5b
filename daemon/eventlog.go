package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

// Of one kind of event on one channel so many lines are written in so long, as a Queue without Events has it.
const (
	eventLines  = 10
	eventWindow = 10 * time.Second
	maxWindows  = 10_000 // subjects that are counted; beyond, all begin anew
)

// eventLog writes a Queue's warnings and errors to a log, in bounded numbers.
type eventLog struct {
	write func(shunt.Event)
	log   *slog.Logger

	mu      sync.Mutex
	windows map[subject]*window
}

type subject struct {
	kind    shunt.EventKind
	channel string
}

type window struct {
	since  time.Time
	lines  int
	hidden int
}

func newEventLog(pool string, l *slog.Logger) *eventLog {
	l = l.With("pool", pool)
	troubles := slog.New(warnings{l.Handler()})
	return &eventLog{write: shunt.LogEvents(troubles), log: l, windows: make(map[subject]*window)}
}

// warnings leaves out what is less.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// take writes an event, unless its window is full. The first line of the next window says how many were left out.
func (l *eventLog) take(e shunt.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := subject{e.Kind, e.Channel}
	w := l.windows[of]
	if w == nil {
		if len(l.windows) >= maxWindows {
			clear(l.windows)
		}
		w = &window{since: e.Time}
		l.windows[of] = w
	}
	if e.Time.Sub(w.since) >= eventWindow {
		if w.hidden > 0 {
			l.log.Warn("shunt: lines were left out", "event", string(e.Kind), "channel", e.Channel, "lines", w.hidden)
		}
		*w = window{since: e.Time}
	}
	if w.lines++; w.lines > eventLines {
		w.hidden++
		return
	}
	l.write(e)
}
