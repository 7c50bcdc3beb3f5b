package shunt

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
)

// channelsKey is the set of every channel that was delivered to or received from, kept by best effort for operators.
const channelsKey = "shunt.channels"

// keys of one channel share its name as hash tag, so that any script on one channel is legal on Redis Cluster. They are kept
// as any because commands take them so.
type keys struct {
	channel string
	prepare any // list: elements ready to be taken; LPUSH in, RPOP out
	delay   any // zset: elements by due time, ms of the server's clock; also the pub/sub channel of new earliest times
	suspect any // list: elements that were in a dying process's hands twice or more
	dead    any // zset: elements given up on, by time of death
	living  any // zset {C}.receivers: live incarnations by end of lease
	gone    any // zset {C}.receivers.dead: dead incarnations by the time of their next sweep
	keeper  any // hash: who keeps delay's time, and until when
}

func keysOf(channel string) keys {
	k := func(suffix string) any { return "{" + channel + "}." + suffix }
	return keys{channel, k("prepare"), k("delay"), k("suspect"), k("dead"), k("receivers"), k("receivers.dead"), k("keeper")}
}

// list is the doing list of what a worker of an incarnation holds.
func (k keys) list(i incarnation, worker int) any {
	return "{" + k.channel + "}.doing." + i.name + "." + strconv.Itoa(worker)
}

// doings are the lists of all workers of an incarnation.
func (k keys) doings(i incarnation) []any {
	all := make([]any, i.workers)
	for w := range all {
		all[w] = k.list(i, w)
	}
	return all
}

// incarnation is a receiver's hold on Redis; all that others must know of it is in its name: a ULID, the number of its
// workers, and its lease in ms.
type incarnation struct {
	name    string
	workers int
	lease   time.Duration
}

func newIncarnation(workers int, lease time.Duration) incarnation {
	name := fmt.Sprintf("%s-%d-%d", newSerial(), workers, lease.Milliseconds())
	return incarnation{name, workers, lease}
}

// maxWorkers of one Receive: what a name may promise, so that no foreign entry makes a sweep ask for millions of keys.
const maxWorkers = 10000

func parseIncarnation(name string) (incarnation, error) {
	part := strings.Split(name, "-")
	if len(part) == 3 {
		_, bad := ulid.ParseStrict(part[0])
		workers, bad2 := strconv.Atoi(part[1])
		lease, bad3 := strconv.ParseInt(part[2], 10, 40)
		if bad == nil && bad2 == nil && bad3 == nil && workers > 0 && workers <= maxWorkers && lease > 0 {
			return incarnation{name, workers, time.Duration(lease) * time.Millisecond}, nil
		}
	}
	return incarnation{}, fmt.Errorf("shunt: %.80q among the receivers is no incarnation's name: remove it", name)
}

// corpse is a member of {C}.receivers.dead.
type corpse struct {
	incarnation
	member     string
	death      string // ms
	superseded bool
}

func parseCorpse(member string) (corpse, error) {
	part := strings.Fields(member)
	if len(part) != 3 {
		return corpse{}, fmt.Errorf("shunt: %.80q among the dead receivers is no entry of shunt's: remove it", member)
	}
	i, err := parseIncarnation(part[0])
	return corpse{i, member, part[1], part[2] == "s"}, err
}

// checkChannel says what is wrong with a channel's name.
func checkChannel(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("shunt: the channel's name is empty: Channel() returns 1 to 200 bytes")
	case len(name) > 200:
		return fmt.Errorf("shunt: the channel's name %.40q… has %d bytes: at most 200", name, len(name))
	case !utf8.ValidString(name):
		return fmt.Errorf("shunt: the channel's name %.80q is not UTF-8", name)
	}
	for _, r := range name {
		if r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r) {
			return fmt.Errorf("shunt: the channel's name %.80q contains %q: no braces, blanks or control characters", name, r)
		}
	}
	return nil
}
