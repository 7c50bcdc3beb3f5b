package shunt

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/event"
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

// constants are the string constants of a file that are written out, by name.
func constants(t *testing.T, file, prefix string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		text, ok := v.Values[0].(*ast.BasicLit)
		if name, is := strings.CutPrefix(v.Names[0].Name, prefix); ok && is && text.Kind == token.STRING {
			found[name], _ = strconv.Unquote(text.Value)
		}
		return true
	})
	return found
}

// The documented kinds, with the one of package recur, are the kinds of internal/event.
func TestKinds(t *testing.T) {
	t.Parallel()
	documented := constants(t, "event.go", "Event")
	maps.Copy(documented, constants(t, "recur/missed.go", ""))
	all := constants(t, "internal/event/event.go", "")
	if !maps.Equal(documented, all) || len(all) < 29 {
		t.Errorf("documented are %v\nwant %v", documented, all)
	}
}

// Every field reaches the user's func, and what came first comes first.
func TestPublicEvent(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	e := event.Event{Kind: event.Retried, Channel: "c", Serial: element.NewSerial(), ID: "i", Attempt: 2,
		Receiver: "r", Worker: 3, N: 4,
		Took: 5, Due: event.TimeOf(time.Unix(6, 7)), Fatal: true, Err: errors.New("oh")}
	want := Event{Kind: EventRetried, Channel: "c", Serial: e.Serial.String(), ID: "i", Attempt: 2, Receiver: "r",
		Worker: 3, N: 4,
		Took: 5, DueAt: time.Unix(6, 7), Fatal: true, Err: e.Err}
	var got []Event
	s := newEvents(func(e Event) { got = append(got, e) })
	s.Emit(e, event.Event{Kind: event.Connected})
	s.Close(t.Context())
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	want.Time = got[0].Time
	if v := reflect.ValueOf(want); got[0] != want || want.Time.IsZero() {
		t.Errorf("%+v, want %+v", got[0], want)
	} else {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("this test does not set %s", v.Type().Field(i).Name)
			}
		}
	}
	if e := got[1]; e.Kind != EventConnected || e.Serial != "" || !e.DueAt.IsZero() {
		t.Errorf("%+v", e)
	}
	if newEvents(nil).On() {
		t.Error("no func, and events are on")
	}
}
