package shunt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/redistest"
	"github.com/shuntmq/shunt/internal/worker"
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
		EventEnqueued: "DEBUG", EventAcked: "DEBUG", EventPromoted: "DEBUG", EventReleased: "DEBUG",
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
			Took: time.Second, Err: errors.New("oh"), Due: due},
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
		slog.LevelDebug); line["level"] != "WARN" &&
		line["level"] != "ERROR" {
		t.Errorf("%v", line)
	}
}

// stream is an events func that keeps what it gets, and that waits before each event until it is let go on.
type stream struct {
	mu   sync.Mutex
	got  []Event
	gate chan struct{} // nil: open
	do   func(Event)
}

func (s *stream) to(e Event) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	s.got = append(s.got, e)
	s.mu.Unlock()
	if s.do != nil {
		s.do(e)
	}
}

// numbers are the events' N, in order.
func (s *stream) numbers(kind EventKind) (ns []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.got {
		if e.Kind == kind {
			ns = append(ns, e.N)
		}
	}
	return ns
}

func (s *stream) wantUpTo(t *testing.T, n int) {
	t.Helper()
	ns := s.numbers(EventAcked)
	for i, got := range ns {
		if got != i {
			t.Fatalf("event %d is number %d", i, got)
		}
	}
	if len(ns) != n {
		t.Errorf("%d events, want %d", len(ns), n)
	}
}

func minute(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestEventsInOrder(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := &stream{}
	e := newEvents(s.to)
	began := time.Now()
	for i := 0; i < 1000; i += 2 {
		e.tell(worker.Event{Kind: worker.Acked, N: i}, worker.Event{Kind: worker.Acked, N: i + 1})
	}
	e.tell()
	e.close(minute(t)) // enqueues what waits
	s.wantUpTo(t, 1000)
	for _, ev := range s.got {
		if ev.Time.Before(began) || ev.Time.After(time.Now()) {
			t.Fatalf("event %d has the time %v", ev.N, ev.Time)
		}
	}
	e.close(minute(t)) // again
	e.emit(Event{})    // a late one harms nobody
}

// Many emit at once; none is lost and those of each come in its order.
func TestEventsConcurrently(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := &stream{}
	e := newEvents(s.to)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 1000 {
				e.emit(Event{Kind: EventAcked, Worker: w, N: i})
			}
		})
	}
	all.Wait()
	e.close(minute(t))
	next := make([]int, 8)
	for _, ev := range s.got {
		if ev.N != next[ev.Worker] {
			t.Fatalf("worker %d: event %d, want %d", ev.Worker, ev.N, next[ev.Worker])
		}
		next[ev.Worker]++
	}
	if len(s.got) != 8000 {
		t.Errorf("%d events", len(s.got))
	}
}

// Events whose serials are named together have each its own, and those without one none.
func TestEventSerials(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := &stream{}
	e := newEvents(s.to)
	evs := make([]worker.Event, 200)
	for i := range evs {
		evs[i] = worker.Event{Kind: worker.Acked, N: i}
		if i%3 > 0 {
			evs[i].Serial = element.NewSerial()
		}
	}
	e.tell(evs...)
	e.emit(Event{Kind: EventEnqueued, Serial: evs[1].Serial.String()})
	e.close(minute(t))
	for i, got := range s.got {
		want := ""
		if n := got.N; i == len(evs) {
			want = evs[1].Serial.String()
		} else if n%3 > 0 {
			want = evs[n].Serial.String()
		}
		if got.Serial != want {
			t.Fatalf("event %d has the serial %q, want %q", i, got.Serial, want)
		}
	}
	if len(s.got) != len(evs)+1 {
		t.Errorf("%d events", len(s.got))
	}
}

func TestNoEvents(t *testing.T) {
	t.Parallel()
	e := newEvents(nil)
	if e.on() || !newEventsClosed(t).on() {
		t.Error("on")
	}
	e.emit(Event{Kind: EventAcked})
	e.close(context.Background())
}

func newEventsClosed(t *testing.T) *events {
	e := newEvents(func(Event) {})
	e.close(minute(t))
	return e
}

// A slow func loses the newest events, is told how many, and then gets what comes.
func TestEventsLost(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	first, told := make(chan struct{}), make(chan struct{})
	s := &stream{gate: make(chan struct{})}
	e := newEvents(func(ev Event) {
		if ev.Kind == EventAcked && ev.N == 0 {
			close(first)
		}
		s.to(ev)
		if ev.Kind == EventEventsDropped {
			close(told)
		}
	})
	e.emit(Event{Kind: EventAcked, N: 0})
	<-first // it is in the func's hands: what follows waits
	for i := 1; i <= eventBuffer+5; i++ {
		e.emit(Event{Kind: EventAcked, N: i})
	}
	e.tell(worker.Event{Kind: worker.Acked, N: -1}, worker.Event{Kind: worker.Acked, N: -2})
	close(s.gate)
	<-told
	e.emit(Event{Kind: EventAcked, N: eventBuffer + 1})
	e.close(minute(t))
	s.wantUpTo(t, eventBuffer+2)
	if lost := s.numbers(EventEventsDropped); len(lost) != 1 || lost[0] != 7 {
		t.Errorf("lost %v, want 7", lost)
	}
	if ev := s.got[eventBuffer+1]; ev.Kind != EventEventsDropped || ev.Time.IsZero() {
		t.Errorf("after the kept ones comes %+v", ev)
	}
}

// A burst that is larger than the buffer by itself.
func TestEventsLostOfOneBurst(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := &stream{}
	e := newEvents(s.to)
	burst := make([]worker.Event, eventBuffer+100)
	for i := range burst {
		burst[i] = worker.Event{Kind: worker.Acked, N: i}
	}
	e.tell(burst...)
	e.close(minute(t))
	s.wantUpTo(t, eventBuffer)
	if lost := s.numbers(EventEventsDropped); len(lost) != 1 || lost[0] != 100 {
		t.Errorf("lost %v, want 100", lost)
	}
}

// A func that panics, or ends its goroutine, gets the next event all the same.
func TestEventsFuncFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			got := make(chan int)
			s := &stream{do: func(e Event) {
				defer func() { got <- e.N }()
				if e.N%3 != 2 {
					fail()
				}
			}}
			e := newEvents(s.to)
			for i := range 300 {
				e.emit(Event{Kind: EventAcked, N: i})
				if n := <-got; n != i { // one at a time: each is a batch of its own
					t.Fatalf("event %d, want %d", n, i)
				}
			}
			e.close(minute(t))
			s.wantUpTo(t, 300)
		})
	}
}

// Nor are those lost that waited behind the event that it failed at.
func TestEventsFuncFailsInABatch(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Leaks(t)
			s := &stream{do: func(e Event) {
				if e.N%3 != 2 {
					fail()
				}
			}}
			e := newEvents(s.to)
			burst := make([]worker.Event, 300)
			for i := range burst {
				burst[i] = worker.Event{Kind: worker.Acked, N: i}
			}
			e.tell(burst...)
			e.close(minute(t))
			s.wantUpTo(t, 300)
		})
	}
}

// close waits for a func that hangs no longer than it was told to.
func TestEventsCloseIsBounded(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := &stream{gate: make(chan struct{})}
	e := newEvents(s.to)
	for i := range 10 {
		e.emit(Event{Kind: EventAcked, N: i})
	}
	ended, end := context.WithCancel(context.Background())
	end()
	e.close(ended) // would hang: the func waits for the gate
	if n := len(s.numbers(EventAcked)); n != 0 {
		t.Errorf("%d events", n)
	}
	close(s.gate)
	e.close(minute(t))
	s.wantUpTo(t, 10)
}
