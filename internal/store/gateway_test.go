package store

import (
	"regexp"
	"strings"
	"testing"
)

// doingKeys are the numbers of the KEYS that a script's contract calls doing lists.
func doingKeys(text string) (numbers []string) {
	contract, _, _ := strings.Cut(text, "\n-- ARGV")
	_, keys, _ := strings.Cut(contract, "-- KEYS ")
	for _, m := range regexp.MustCompile(`(\d+)(?:\.\.)? (?:the |all its |old |new )*doing`).FindAllStringSubmatch(keys,
		-1) {
		numbers = append(numbers, m[1])
	}
	return numbers
}

// removals are the commands of a script, outside the gateway, that take something out of one of some keys.
func removals(text string, keys []string) (found []string) {
	for _, k := range keys {
		r := regexp.MustCompile(`(LREM|LTRIM|[LR]POP|LSET|DEL|UNLINK|RENAME|LMOVE|RPOPLPUSH)', KEYS\[` + k + `\]`)
		found = append(found, r.FindAllString(text, -1)...)
	}
	return found
}

// An element leaves a doing list by the functions of leave.lua alone: so that what must happen whenever one leaves has
// one place.
func TestOneWayOut(t *testing.T) {
	files, err := lua.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	with := 0
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		text := source(name)
		keys := doingKeys(text)
		with += len(keys)
		for _, r := range removals(text, keys) {
			t.Errorf("lua/%s.lua removes from a doing list beside leave.lua: %s", name, r)
		}
	}
	if with < 8 {
		t.Errorf("%d doing lists are in the contracts: this test no longer sees them", with)
	}
	beside := "-- KEYS 1 receivers  2 the old doing list\n-- ARGV 1 x\nredis.call('LTRIM', KEYS[2], 1, -1)"
	if len(removals(beside, doingKeys(beside))) != 1 {
		t.Error("a way beside the gateway is not seen")
	}
}

// The time is asked in the prelude alone, so that its rounding has one place.
func TestOneClock(t *testing.T) {
	files, err := lua.ReadDir("lua")
	if err != nil {
		t.Fatal(err)
	}
	asks := regexp.MustCompile(`p?call\(\s*['"](?i:TIME)['"]`)
	var found []string
	for _, f := range files {
		if asks.MatchString(source(strings.TrimSuffix(f.Name(), ".lua"))) {
			found = append(found, f.Name())
		}
	}
	if len(found) != 1 || found[0] != "prelude.lua" {
		t.Errorf("%q ask the time", found)
	}
}
