package store

import (
	"reflect"
	"testing"
	"time"
)

func TestParseOutcome(t *testing.T) {
	t.Parallel()
	serial := "0123456789abcdef"
	o := ParseOutcome([]byte(serial + "d 3 1000 2000 4\nboomresult"))
	want := Outcome{Kind: OutcomeRejected, Attempt: 3, EndedAt: time.UnixMilli(1000), KeptUntil: time.UnixMilli(2000),
		Failure: "boom", Result: []byte("result")}
	copy(want.Serial[:], serial)
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
	for _, text := range []string{
		"", "short", serial, serial + "a 1\n", serial + "a 1 2 3 9\nx", serial + "? 1 2 3 0\n",
	} {
		o := ParseOutcome([]byte(text))
		if len(text) < 16 != (o.Serial == [16]byte{}) || o.Failure != "" || o.Result != nil || o.Kind == '?' {
			t.Errorf("%q: %+v", text, o)
		}
	}
	for payload, want := range map[string]bool{
		"1 a" + serial + "a 1 2 3 0\n": true, "1 b" + serial: false, "2 a" + serial: false, "x": false, "": false,
	} {
		if o, is := ParseEnd(payload, "a"); is != want || is && o.Kind != OutcomeAcked {
			t.Errorf("%q: %v %+v", payload, is, o)
		}
	}
	for _, text := range []string{"", "a/1 2", "a/1 2 3 4"} {
		if h := ParseMark([]byte(text)); h != (Handling{}) {
			t.Errorf("%q: %+v", text, h)
		}
	}
}
