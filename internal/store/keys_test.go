package store

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestCheckChannel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"a", true},
		{"orders", true},
		{"orders.eu-west:1/high_*?[x]", true},
		{"приказы", true},
		{"注文", true},
		{`"quoted"\`, true},
		{strings.Repeat("c", 200), true},
		{strings.Repeat("é", 100), true},

		{"", false},
		{strings.Repeat("c", 201), false},
		{strings.Repeat("é", 101), false}, // 200 is a bound of bytes
		{"{a}", false},
		{"a{", false},
		{"}a", false},
		{" a", false},
		{"a b", false},
		{"a\tb", false},
		{"a\n", false},
		{"a\x00", false},
		{"a\x1f", false},
		{"a\x7f", false},
		{"a\u0085", false}, // next line
		{"a\u00a0b", false},
		{"a\u2028", false},
		{"a\u3000b", false},
		{"a\xff", false},
		{"\xc3", false},
	} {
		err := CheckChannel(c.name)
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.name, err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "shunt: the channel's name") || len(err.Error()) > 500) {
			t.Errorf("%q: %v", c.name, err)
		}
	}
}

func TestIncarnationNames(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 64, MaxWorkers} {
		for _, lease := range []time.Duration{time.Second, 10 * time.Second, 1500 * time.Millisecond,
			10 * time.Minute} {
			i := NewIncarnation(workers, lease)
			got, err := ParseIncarnation(i.Name)
			if err != nil || got != i || got.Workers != workers || got.Lease != lease {
				t.Errorf("%d workers, %v: %+v, %v", workers, lease, got, err)
			}
			if again := NewIncarnation(workers, lease); again.Name == i.Name {
				t.Errorf("two are called %s", i.Name)
			}
			for _, how := range []string{"r", "s", "c"} {
				member := i.Name + " 1763726400000 " + how
				c, err := ParseDeadReceiver(member)
				if want := (DeadReceiver{i, "1763726400000", how != "r", how != "s"}); err != nil || c != want {
					t.Errorf("%q: %+v, %v", member, c, err)
				}
			}
		}
	}
}

// Whatever somebody puts into a registry, it makes no sweep ask for millions of keys, nor for none.
func TestJunkNames(t *testing.T) {
	t.Parallel()
	const id = "01J3SWF8DJRFAEBXG730MKMJTW"
	if _, err := ParseIncarnation(id + "-8-10000"); err != nil {
		t.Fatal(err)
	}
	junk := []string{
		"", "x", "-", "--", id, id + "-8", id + "-8-", id + "--10000", "-8-10000", id + "-8-10000-1",
		id[1:] + "-8-10000", id + "0-8-10000", "8" + id[1:] + "-8-10000", strings.Replace(id, "J", "U", 1) + "-8-10000",
		id + "-0-10000", id + "--8-10000", id + "-x-10000", id + "-8.0-10000", id + "-10001-10000",
		id + "-99999999999999999999-10000",
		id + "-8-0", id + "-8--1", id + "-8-x", id + "-8-1e4", id + "-8-9999999999999", id + "-8-99999999999999999999",
		id + "-8-10000 ", " " + id + "-8-10000", id + "-8-10000\n", strings.Repeat("x", 1<<16),
	}
	for _, name := range junk {
		i, err := ParseIncarnation(name)
		if err == nil || i != (Incarnation{}) {
			t.Errorf("%.80q: %+v, %v", name, i, err)
		} else if len(err.Error()) > 500 {
			t.Errorf("%.80q: an error of %d bytes", name, len(err.Error()))
		}
		if _, err := ParseDeadReceiver(name + " 1763726400000 r"); err == nil &&
			strings.TrimSpace(name) != id+"-8-10000" {
			t.Errorf("dead %.80q was taken for an entry", name)
		}
	}
	for _, member := range []string{"", " ", id + "-8-10000", id + "-8-10000 1", id + "-8-10000 1 r r",
		id + "-8-10000 1 sr", "1 r", " 1 r", "x 1 r"} {
		if c, err := ParseDeadReceiver(member); err == nil {
			t.Errorf("%q: %+v", member, c)
		}
	}
}

// The time of a death goes into arithmetic in finish.lua.
func TestJunkDeaths(t *testing.T) {
	t.Parallel()
	name := NewIncarnation(8, 10*time.Second).Name
	for _, member := range []string{name + " x r", name + " 1.5 r", name + " -1 r", name + " 1 x", name + " 1 rs",
		name + " 99999999999999999999999 r"} {
		if c, err := ParseDeadReceiver(member); err == nil {
			t.Errorf("%q: %+v", member, c)
		}
	}
}

// hashTag is what Redis Cluster hashes of a key.
func hashTag(key string) string {
	_, rest, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !open || !closed || tag == "" {
		return key
	}
	return tag
}

// All keys of a channel are in one slot, no two are the same, and none is another channel's.
func TestKeys(t *testing.T) {
	t.Parallel()
	if tag := hashTag(ChannelsKey); tag != ChannelsKey || CheckChannel(ChannelsKey) != nil {
		t.Errorf("the set of channels hashes %q", tag)
	}
	seen := make(map[string]string)
	for _, channel := range []string{"a", "a.doing", "a.receivers", "prepare", "*", "注文", strings.Repeat("c", 200),
		ChannelsKey} {
		if err := CheckChannel(channel); err != nil {
			t.Fatal(err)
		}
		k := KeysOf(channel)
		var all []any
		v := reflect.ValueOf(*k)
		for i := range v.NumField() {
			if i > 0 && v.Type().Field(i).IsExported() { // the first is the channel
				all = append(all, v.Field(i).String())
			}
		}
		if len(all) != 15 {
			t.Fatalf("%d keys", len(all))
		}
		for _, i := range []Incarnation{NewIncarnation(3, time.Second), NewIncarnation(11, time.Second)} {
			doings := k.AllDoing(i)
			if len(doings) != i.Workers {
				t.Errorf("%d lists of %d workers", len(doings), i.Workers)
			}
			for w, d := range doings {
				if d != k.Doing(i, w) || d != fmt.Sprintf("{%s}.doing.%s.%d", channel, i.Name, w) {
					t.Errorf("worker %d: %v", w, d)
				}
			}
			all = append(all, args(doings)...)
		}
		for _, key := range all {
			key := key.(string)
			if tag := hashTag(key); tag != channel {
				t.Errorf("%s hashes %q", key, tag)
			}
			if of, ok := seen[key]; ok {
				t.Errorf("%s is a key of %q and of %q", key, of, channel)
			}
			seen[key] = channel
		}
	}
	k := KeysOf("C")
	for got, want := range map[any]string{
		k.Prepare: "{C}.prepare", k.Delay: "{C}.delay", k.Suspect: "{C}.suspect", k.Dead: "{C}.dead",
		k.Receivers: "{C}.receivers", k.DeadReceivers: "{C}.receivers.dead", k.Keeper: "{C}.keeper",
	} {
		if got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}

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
