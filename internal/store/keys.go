// Package store is the typed border to Redis: the keys of a channel, and for each verb that Redis is asked one function with a
// reply type. The Lua contract of a verb stands above its script in lua/.
package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
)

// ChannelsKey is the set of every channel that was delivered to or received from, kept by best effort for operators.
const ChannelsKey = "shunt.channels"

// Keys of one channel share its name as hash tag, so that any script on one channel is legal on Redis Cluster. They are kept
// as any because commands take them so.
type Keys struct {
	Channel string
	Prepare any // list: elements ready to be taken; LPUSH in, RPOP out
	Delay   any // zset: elements by due time, ms of the server's clock; also the pub/sub channel of new earliest times
	Suspect any // list: elements that were in a dying process's hands twice or more
	Dead    any // zset: elements given up on, by time of death
	Living  any // zset {C}.receivers: live incarnations by end of lease
	Gone    any // zset {C}.receivers.dead: dead incarnations by the time of their next sweep
	Keeper  any // hash: who keeps delay's time, and until when

	IDs       any // hash: the record of each id that is taken; lua/ids.lua has its form
	Running   any // hash: by serial, who has a message with an id in hand
	Cancelled any // set: serials of what was cancelled, until it has left its list
	Postponed any // there, with a time to live, while something that was put off may lie in prepare
	Waited    any // set: serials whose end somebody waits for
	Receipts  any // set: of deliveries that may be sent again: the first serial, and with an x before it that of each that was refused
	Done      any // hash: what became of finished messages, by id
	DoneAt    any // zset: their ids by when they finished
	Kept      any // zset: what is to be forgotten, by when
	Recur     any // hash: recurring messages by name
}

func KeysOf(channel string) Keys {
	k := func(suffix string) any { return "{" + channel + "}." + suffix }
	return Keys{channel, k("prepare"), k("delay"), k("suspect"), k("dead"), k("receivers"), k("receivers.dead"), k("keeper"),
		k("ids"), k("running"), k("cancelled"), k("postponed"), k("waited"), k("receipts"), k("done"), k("done.at"), k("kept"), k("recur")}
}

// List is the doing list of what a worker of an incarnation holds.
func (k Keys) List(i Incarnation, worker int) any {
	return "{" + k.Channel + "}.doing." + i.Name + "." + strconv.Itoa(worker)
}

// Doings are the lists of all workers of an incarnation.
func (k Keys) Doings(i Incarnation) []any {
	all := make([]any, i.Workers)
	for w := range all {
		all[w] = k.List(i, w)
	}
	return all
}

// Incarnation is a receiver's hold on Redis; all that others must know of it is in its name: a ULID, the number of its
// workers, and its lease in ms.
type Incarnation struct {
	Name    string
	Workers int
	Lease   time.Duration
}

func NewIncarnation(workers int, lease time.Duration) Incarnation {
	name := fmt.Sprintf("%s-%d-%d", element.NewSerial(), workers, lease.Milliseconds())
	return Incarnation{name, workers, lease}
}

// Term is how long the entry outlives its last beat: a lease from when the next one would have come, so that whatever is shorter
// than a lease costs none, whenever it begins.
func (i Incarnation) Term() time.Duration { return i.Lease * 4 / 3 }

// MaxWorkers of one Receive: what a name may promise, so that no foreign entry makes a sweep ask for millions of keys.
const MaxWorkers = 10000

func ParseIncarnation(name string) (Incarnation, error) {
	part := strings.Split(name, "-")
	if len(part) == 3 {
		_, bad := ulid.ParseStrict(part[0])
		workers, bad2 := strconv.Atoi(part[1])
		lease, bad3 := strconv.ParseInt(part[2], 10, 40)
		if bad == nil && bad2 == nil && bad3 == nil && workers > 0 && workers <= MaxWorkers && lease > 0 {
			return Incarnation{name, workers, time.Duration(lease) * time.Millisecond}, nil
		}
	}
	return Incarnation{}, fmt.Errorf("shunt: %.80q among the receivers is no incarnation's name: remove it", name)
}

// Corpse is a member of {C}.receivers.dead.
type Corpse struct {
	Incarnation

	Death      string // ms
	Superseded bool
}

func ParseCorpse(member string) (Corpse, error) {
	part := strings.Fields(member)
	if len(part) != 3 {
		return Corpse{}, fmt.Errorf("shunt: %.80q among the dead receivers is no entry of shunt's: remove it", member)
	}
	i, err := ParseIncarnation(part[0])
	if _, bad := strconv.ParseUint(part[1], 10, 63); err == nil && (bad != nil || part[2] != "s" && part[2] != "r") {
		err = fmt.Errorf("shunt: %.80q among the dead receivers is no entry of shunt's: remove it", member)
	}
	return Corpse{i, part[1], part[2] == "s"}, err
}

// CheckChannel says what is wrong with a channel's name.
func CheckChannel(name string) error {
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
