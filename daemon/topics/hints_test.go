package topics

import (
	"fmt"
	"testing"
)

// What was met last is remembered, and what all takes is bounded.
func TestHints(t *testing.T) {
	t.Parallel()
	var h hints
	const n = 3*keptHints + 7
	for i := range n {
		h.keep(fmt.Sprint(i), hint{channel: "q"})
		if len(h.now)+len(h.old) > 2*keptHints {
			t.Fatal(len(h.now), len(h.old))
		}
	}
	for i := n - keptHints; i < n; i++ {
		if h.of(fmt.Sprint(i)).channel != "q" {
			t.Fatalf("%d of %d is forgotten", i, n)
		}
	}
	if h.of("0").channel != "" {
		t.Error("the first is there")
	}
	last := fmt.Sprint(n - 1)
	h.drop(last, hint{channel: "other"})
	if h.of(last).channel == "" {
		t.Error("another one was dropped")
	}
	if h.drop(last, hint{channel: "q"}); h.of(last).channel != "" {
		t.Error("it is there")
	}
}

// That an id was delivered from two channels stays known, whatever comes after, until it is dropped.
func TestSeveral(t *testing.T) {
	t.Parallel()
	var h hints
	for _, x := range []struct {
		at      hint
		several bool
	}{
		{hint{channel: "b", receipt: "0"}, false},
		{hint{channel: "a"}, false}, // a push, which has seen that the other one is over
		{hint{channel: "a", receipt: "1"}, false},
		{hint{channel: "a", receipt: "2"}, false},
		{hint{channel: "b", receipt: "3"}, true},
		{hint{channel: "b", receipt: "4"}, true},
		{hint{channel: "c"}, true},
	} {
		if h.keep("1", x.at); h.of("1").several != x.several {
			t.Errorf("%+v: %+v", x.at, h.of("1"))
		}
	}
	h.drop("1", h.of("1"))
	if h.keep("1", hint{channel: "a", receipt: "5"}); h.of("1").several {
		t.Error("it is still known")
	}
}

// A topic's channel is within its prefix, and never in a namespace of its own choice.
func TestTopics(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "gmq/", "a."} {
		ts := Topics{Prefix: prefix}
		for _, topic := range []string{"q", "a.b", "\u00e9", "-"} {
			channel, err := ts.Channel(topic)
			back, ok := ts.Topic(channel)
			if err != nil || channel != prefix+topic || back != topic || !ok {
				t.Error(channel, back, ok, err)
			}
		}
		for _, topic := range []string{"", "/", "a/b", "{a}", "a b", "a\n", "\x00", "\xff", string(make([]byte, 201))} {
			if channel, err := ts.Channel(topic); err == nil {
				t.Errorf("%q", channel)
			}
		}
		for _, channel := range []string{prefix, prefix + "ns/q", "x" + prefix} {
			if topic, ok := ts.Topic(channel); ok && prefix != "" {
				t.Errorf("%q is topic %q of %q", channel, topic, prefix)
			}
		}
	}
}
