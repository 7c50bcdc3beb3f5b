package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt/internal/redistest"
)

// logged is what LogEvents writes of one event, without the time.
func logged(t *testing.T, e Event, least slog.Level) map[string]any {
	t.Helper()
	var b bytes.Buffer
	LogEvents(slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: least})))(e)
	if b.Len() == 0 {
		return nil
	}
	line := make(map[string]any)
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Fatalf("%v in %s", err, b.String())
	}
	delete(line, "time")
	return line
}

func TestLogLevels(t *testing.T) {
	t.Parallel()
	levels := map[EventKind]string{
		EventEnqueued: "DEBUG", EventAcked: "DEBUG", EventSnoozed: "DEBUG",
		EventPromoted: "DEBUG", EventReleased: "DEBUG",
		EventStarted: "INFO", EventStopped: "INFO", EventConnected: "INFO",
		EventRetried: "WARN", EventUnconfirmedVerdict: "WARN", EventRecovered: "WARN", EventSuspected: "WARN",
		EventTimedOut: "WARN", EventHandedOver: "WARN", EventReceiversDied: "WARN",
		EventReceiverError: "WARN", EventDisconnected: "WARN",
		EventRejected: "ERROR", EventPoisoned: "ERROR", EventUndecodable: "ERROR", EventLateVerdict: "ERROR",
		EventOrphaned: "ERROR", EventWorkersMissing: "ERROR",
		EventLeaseLost: "ERROR", EventTrimmed: "ERROR", EventEventsDropped: "ERROR",
	}
	for kind, want := range levels {
		if line := logged(t, Event{Kind: kind}, slog.LevelDebug); line["level"] != want ||
			line["msg"] != "shunt: "+string(kind) {
			t.Errorf("%s: %v, want %s", kind, line, want)
		}
		if line := logged(t, Event{Kind: kind, Fatal: true}, slog.LevelDebug); line["level"] != "ERROR" {
			t.Errorf("%s, fatal: %v", kind, line)
		}
		var least slog.Level
		if err := least.UnmarshalText([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if line := logged(t, Event{Kind: kind}, least+1); line != nil {
			t.Errorf("%s was logged although its level is off: %v", kind, line)
		}
	}
}

func TestLogFields(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		e    Event
		want map[string]any
	}{
		{Event{Kind: EventAcked, Time: due, Channel: "c", Serial: "01J", Attempt: 1, Receiver: "r",
			Took: 3 * time.Millisecond},
			map[string]any{"level": "DEBUG", "msg": "shunt: acked", "channel": "c", "serial": "01J", "attempt": 1.,
				"receiver": "r", "worker": 0., "took": 3e6}},
		{Event{Kind: EventRetried, Channel: "c", Serial: "01J", Attempt: 2, Receiver: "r", Worker: 7,
			Took: time.Second, Err: errors.New("oh"), DueAt: due},
			map[string]any{"level": "WARN", "msg": "shunt: retried", "channel": "c", "serial": "01J", "attempt": 2.,
				"receiver": "r", "worker": 7., "took": 1e9,
				"due": "2026-11-21T12:00:00Z", "error": "oh"}},
		{Event{Kind: EventEnqueued, Channel: "c", N: 1000},
			map[string]any{"level": "DEBUG", "msg": "shunt: enqueued", "channel": "c", "n": 1000.}},
		{Event{Kind: EventReceiverError, Channel: "c", Receiver: "r", Err: fmt.Errorf("a: %w", errors.New("b")),
			Fatal: true},
			map[string]any{"level": "ERROR", "msg": "shunt: receiver-error", "channel": "c", "receiver": "r",
				"fatal": true, "error": "a: b"}},
	} {
		if line := logged(t, c.e, slog.LevelDebug); !reflect.DeepEqual(line, c.want) {
			t.Errorf("%v, want %v", line, c.want)
		}
	}
}

// The worker's number is known of everything that an attempt or a release of a worker tells.
func TestLogWorker(t *testing.T) {
	t.Parallel()
	for _, kind := range []EventKind{EventReleased, EventLateVerdict} {
		if line := logged(t, Event{Kind: kind, Channel: "c", Receiver: "r", Worker: 3},
			slog.LevelDebug); line["worker"] != 3. {
			t.Errorf("%v", line)
		}
	}
}

// A receiver that did not stop cleanly is worth a warning: "errors at Error or Warn".
func TestLogUncleanStop(t *testing.T) {
	t.Parallel()
	if line := logged(t, Event{Kind: EventStopped, Receiver: "r", Err: errors.New("oh")},
		slog.LevelDebug); line["level"] != "WARN" && line["level"] != "ERROR" {
		t.Errorf("%v", line)
	}
}

// lines are what was logged of one channel.
type lines struct {
	mu  sync.Mutex
	all []map[string]any
}

func (l *lines) Write(b []byte) (int, error) {
	line := make(map[string]any)
	err := json.Unmarshal(b, &line)
	l.mu.Lock()
	l.all = append(l.all, line)
	l.mu.Unlock()
	return len(b), err
}

// of are the lines of a message, and of a channel where one is named.
func (l *lines) of(message, channel string) (some []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if line["msg"] == message && (channel == "" || line["channel"] == channel) {
			some = append(some, line)
		}
	}
	return some
}

// defaultLog is what goes to slog.Default() during the test.
func defaultLog(t *testing.T) *lines {
	t.Helper()
	l, before := new(lines), slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { slog.SetDefault(before) })
	return l
}

// silent is a bench without Events.
func silent(t *testing.T, url string, set ...func(*Queue)) *bench {
	t.Helper()
	return newBench(t, url, append([]func(*Queue){func(q *Queue) { q.Events = nil }}, set...)...)
}

// Who sets nothing sees each failure, a panic, a dead letter and an outage, and nothing of what goes well.
func TestDefaultLog(t *testing.T) {
	log := defaultLog(t)
	s := redistest.Start(t)
	redistest.Leaks(t)
	q := silent(t, s.URL())
	q.receive(1, func(_ context.Context, i int) error {
		switch i {
		case 1:
			return errors.New("no stamps")
		case 2:
			panic("no ink")
		case 3:
			return Reject(errors.New("no address"))
		}
		return nil
	})
	q.enqueue(0, 5)
	redistest.Until(t, 5*time.Second, "all is logged", func() bool {
		return len(log.of("shunt: retried", q.name)) == 2 && len(log.of("shunt: rejected", q.name)) == 1
	})
	retried := log.of("shunt: retried", q.name)
	if e := fmt.Sprint(retried); !strings.Contains(e, "no stamps") || !strings.Contains(e, "panicked: no ink") ||
		retried[0]["level"] != "WARN" || retried[0]["due"] == nil || retried[0]["attempt"] != 1. {
		t.Errorf("%v", e)
	}
	if e := log.of("shunt: rejected", q.name)[0]; e["level"] != "ERROR" || e["error"] != "no address" {
		t.Errorf("%v", e)
	}
	s.Kill()
	redistest.Until(t, 5*time.Second, "the outage is logged", func() bool {
		return len(log.of("shunt: disconnected", "")) > 0
	})
	q.Close()
	for _, quiet := range []string{"enqueued", "acked", "started", "connected"} {
		if some := log.of("shunt: "+quiet, ""); len(some) > 0 {
			t.Errorf("%v", some)
		}
	}
}

// However much fails, the log has a bounded number of lines, and says how many it left out.
func TestDefaultLogIsBounded(t *testing.T) {
	log := defaultLog(t)
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := silent(t, s.URL())
	seen := newTally()
	q.receive(4, func(_ context.Context, i int) error { seen.add(i); return RetryAfter(time.Hour, errors.New("no")) })
	const n = 500
	q.enqueue(0, n)
	q.until(10*time.Second, "all have failed", func() bool {
		st, err := q.Stats(t.Context(), q.name)
		return err == nil && st[StateDelay].Count == n
	})
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	all := log.of("shunt: retried", q.name)
	told := 0
	for _, line := range all {
		told++
		if out, ok := line["left_out"].(float64); ok {
			told += int(out)
		}
	}
	if told != n || len(all) > 3*(logMost+1) {
		t.Errorf("%d lines, which tell of %d messages of %d", len(all), told, n)
	}
}

// What is left out is told after a while although nothing else happens; each dead letter has a line; and the subjects
// that are remembered are bounded.
func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		l := newTroubleLog()
		l.to = func() *slog.Logger { return slog.New(slog.NewJSONHandler(&log, nil)) }
		for range 30 {
			l.take(Event{Kind: EventRetried, Channel: "a"})
			l.take(Event{Kind: EventRejected, Channel: "a"})
		}
		time.Sleep(logEvery + time.Second)
		if some := log.of("shunt: retried", "a"); len(some) != logMost+1 || some[logMost]["left_out"] != 19. {
			t.Errorf("%v", some)
		}
		if some := log.of("shunt: rejected", "a"); len(some) != 30 {
			t.Errorf("%d dead letters have a line", len(some))
		}
		subjects := func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.windows)
		}
		if n := subjects(); n > 0 {
			t.Errorf("%d subjects are remembered", n)
		}
		for i := range 5 * logSubjects {
			l.take(Event{Kind: EventRetried, Channel: fmt.Sprint(i)})
		}
		if n := subjects(); n > logSubjects+1 {
			t.Errorf("%d subjects are remembered", n)
		}
		if some := log.of("shunt: retried", ""); len(some) > logSubjects+30 {
			t.Errorf("%d lines", len(some))
		}
		l.close()
		if some := log.of("shunt: retried", ""); some[len(some)-1]["left_out"] == nil {
			t.Errorf("the last line is %v", some[len(some)-1])
		}
	})
}

// LogEvents writes as many lines as a person can use.
func TestLogEventsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		write := LogEvents(slog.New(slog.NewJSONHandler(&log, nil)))
		for range 5000 {
			write(Event{Kind: EventRetried, Channel: "a"})
		}
		time.Sleep(2 * logAllEvery)
		if some := log.of("shunt: retried", "a"); len(some) != logAll+1 || some[logAll]["left_out"] != 3999. {
			t.Errorf("%d lines, the last one is %v", len(some), some[len(some)-1])
		}
	})
}

// Quiet, and Events of one's own, leave the log alone.
func TestQuiet(t *testing.T) {
	log := defaultLog(t)
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q, events := silent(t, s.URL(), func(q *Queue) { q.Quiet = true }), newBench(t, s.URL())
	for _, b := range []*bench{q, events} {
		b.receive(1, func(context.Context, int) error { return Reject(errors.New("no")) })
		b.enqueue(0, 1)
		b.until(5*time.Second, "it is dead", func() bool {
			st, err := b.Stats(t.Context(), b.name)
			return err == nil && st[StateDead].Count == 1
		})
		b.Close()
		if some := log.of("shunt: rejected", b.name); len(some) > 0 {
			t.Errorf("%v", some)
		}
	}
}

// An Events func that panics loses those events, and the log says so once.
func TestEventsPanic(t *testing.T) {
	log := defaultLog(t)
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) {
		note := q.Events
		q.Events = func(e Event) {
			note(e)
			if e.Kind == EventAcked {
				panic("no paper")
			}
		}
	})
	q.receive(1, func(context.Context, int) error { return nil })
	q.enqueue(0, 20)
	q.wait(EventAcked, 20, 5*time.Second)
	q.Close()
	all := log.of("shunt: Queue.Events panicked; it loses such events, and this is said once", "")
	if len(all) != 1 || !strings.Contains(fmt.Sprint(all), "no paper") {
		t.Errorf("%v", all)
	}
}

// The Event of a key of the wrong type names the key.
func TestEventNamesKey(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	redistest.Leaks(t)
	q := newBench(t, s.URL(), func(q *Queue) { q.Quiet = true })
	q.receive(1, func(context.Context, int) error { return nil })
	key := "{" + q.name + "}.prepare"
	s.Do("SET", key, "not shunt's")
	q.wait(EventReceiverError, 1, 10*time.Second)
	if story := q.story(); !strings.Contains(story, "the key "+key+" holds something that is not shunt's") {
		t.Error(story)
	}
	s.Do("DEL", key)
}
