package store

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

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
		if len(all) != 17 {
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
			all = append(append(all, args(doings)...), k.About(i))
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
		k.About(Incarnation{Name: "N"}): "{C}.about.N",
		k.Receivers:                     "{C}.receivers", k.DeadReceivers: "{C}.receivers.dead", k.Keeper: "{C}.keeper",
	} {
		if got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
