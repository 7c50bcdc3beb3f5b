package sim

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// on matches commands by name, empty for all, of which each of more occurs within some argument. So a script is met
// whatever its text is.
func on(name string, more ...string) match {
	return func(args [][]byte) bool {
		if name != "" && !strings.EqualFold(string(args[0]), name) {
			return false
		}
		for _, want := range more {
			if !slices.ContainsFunc(args[1:], func(a []byte) bool { return bytes.Contains(a, []byte(want)) }) {
				return false
			}
		}
		return true
	}
}

// looksAgain matches the end of a look at what a dead receiver has left.
var looksAgain = on("EVALSHA", "}.receivers.dead", ".doing.")

// aims are what a blow can be aimed at.
var aims = map[string]match{
	"any":        on(""),
	"script":     on("EVALSHA"),
	"enqueue":    on("LPUSH"),
	"take":       on("RPOPLPUSH"),
	"waiter":     on("BRPOPLPUSH"),
	"bell":       on("BLMOVE"),
	"ack":        on("LREM"),
	"verdict":    on("", ".doing.", "}.receivers"),
	"retry":      on("", ".doing.", "}.delay"),
	"long retry": longRetry,
	"reject":     on("", ".doing.", "}.dead"),
	"put back":   on("", ".doing.", "}.prepare"),
	"promote":    on("", "}.delay", "}.prepare"),
	"receivers":  on("", "}.receivers"),
	"pull":       on("", "}.suspect", "}.leased."),
	"lease":      on("", "}.leased."),
	"lapse":      on("", "}.leased.", "}.dead"),
	"sweep":      on("", "}.receivers.dead", "}.suspect"),
	"id":         on("", "}.ids"),
	"counts":     on("", "}.counts"),
	"subscribe":  on("SUBSCRIBE"),
}

var (
	aimed   = slices.Sorted(maps.Keys(aims))
	parting = []string{"waiter", "waiter", "waiter", "bell", "long retry", "long retry", "take", "ack", "retry",
		"reject", "promote", "put back", "pull", "lease", "lapse", "id"}
	mistaken = []string{"prepare", "prepare", "suspect", "delay", "dead", "keeper", "leased"}
)

// longRetry matches a retry that is still in delay when a handover sends it again.
func longRetry(args [][]byte) bool {
	if len(args) != 9 || !bytes.Contains(args[4], []byte(".doing.")) || !bytes.HasSuffix(args[5], []byte("}.delay")) {
		return false
	}
	ms, err := strconv.Atoi(string(args[6]))
	return err == nil && ms >= 1000
}
