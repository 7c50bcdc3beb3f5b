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

// refusals are error replies, as Redis writes them.
var refusals = []string{
	"LOADING Redis is loading the dataset in memory",
	"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"OOM command not allowed when used memory > 'maxmemory'.",
	"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	"READONLY You can't write against a read only replica.",
	"NOREPLICAS Not enough good replicas to write.",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"CLUSTERDOWN Hash slot not served",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"NOSCRIPT No matching script. Please use EVAL.",
	"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
	"NOPERM User default has no permissions to run this command",
	"WRONGTYPE Operation against a key holding the wrong kind of value",
	"ERR something that nobody foresaw",
}
