package shunt

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
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
	s := (&Queue{Events: func(e Event) { got = append(got, e) }}).newEvents()
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
	if (&Queue{Quiet: true}).newEvents().On() {
		t.Error("Quiet without a func, and events are on")
	}
}
