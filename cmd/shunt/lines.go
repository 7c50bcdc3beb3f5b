package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
)

// logLines writes a log for people. Its methods may be called by many goroutines at once.
type logLines struct {
	to    io.Writer
	whole bool // failures are written with the child's last lines

	mu sync.Mutex
}

// Write is for what children write: whole lines.
func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// say writes a line of its own. What follows the first line of a text is indented.
func (l *logLines) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	var b strings.Builder
	b.WriteString(time.Now().Format("2006-01-02T15:04:05.000Z07:00 "))
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i > 0 {
			b.WriteString("    | ")
		}
		for j, cell := range strings.Split(line, "\t") { // a tab does no harm, and traces have them
			if j > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(printable(cell))
		}
		b.WriteByte('\n')
	}
	_, _ = l.Write([]byte(b.String()))
}

// failure is an error as the log has it.
func (l *logLines) failure(err error) string {
	if err == nil {
		return "no reason"
	}
	text := err.Error()
	if first, rest, _ := strings.Cut(text, "\n"); !l.whole && rest != "" {
		text = strings.TrimSuffix(first, ":")
	}
	return text
}

// event writes what somebody may want to know.
func (l *logLines) event(e shunt.Event) {
	who := "message " + e.Serial
	if e.ID != "" {
		who = fmt.Sprintf("message %q", e.ID)
	}
	in := e.Channel + ": "
	switch e.Kind {
	case shunt.EventRetried:
		l.say("%s%s failed at attempt %d, and is tried again in %v: %s", in, who, e.Attempt,
			e.DueAt.Sub(e.Time).Round(100*time.Millisecond), l.failure(e.Err))
	case shunt.EventRejected, shunt.EventUndecodable:
		l.say("%s%s is dead after attempt %d: %s", in, who, e.Attempt, l.failure(e.Err))
	case shunt.EventCancelled, shunt.EventExpired, shunt.EventTimedOut, shunt.EventLateVerdict,
		shunt.EventUnconfirmedVerdict, shunt.EventOrphaned:
		l.say("%s%s: %s%s", in, who, e.Kind, l.because(e.Err))
	case shunt.EventRecovered, shunt.EventSuspected, shunt.EventPoisoned, shunt.EventTrimmed, shunt.EventReceiversDied:
		l.say("%s%s: %d", in, e.Kind, e.N)
	case shunt.EventConnected:
		l.say("connected to Redis")
	case shunt.EventDisconnected:
		l.say("Redis is away%s", l.because(e.Err))
	case shunt.EventLeaseLost, shunt.EventHandedOver, shunt.EventWorkersMissing, shunt.EventReceiverError,
		shunt.EventEventsDropped:
		l.say("%s%s%s", in, e.Kind, l.because(e.Err))
	}
}

func (l *logLines) because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + l.failure(err)
}
