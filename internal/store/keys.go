// Package store is the typed border to Redis. It has the keys of a channel, and one function with a reply type for each
// verb that Redis is asked. The Lua contract of a verb stands above its script in lua/.
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

// ChannelsKey is the set of every channel that was enqueued to or received from, kept by best effort for operators.
const ChannelsKey = "shunt.channels"

// Keys are the names of a channel's keys. They share the channel's name as hash tag, so that any script on one channel
// is legal on Redis Cluster.
type Keys struct {
	Name    string
	Prepare string // list: elements ready to be taken; LPUSH in, RPOP out
	Delay   string // zset: elements by due time, ms of the server's clock; also the pub/sub channel of hints
	Suspect string // list: elements that dying processes held twice or more
	Dead    string // zset: dead letters by time of death

	Receivers     string // zset: live incarnations by end of lease
	DeadReceivers string // zset: dead incarnations by the time of their next sweep
	Keeper        string // hash: the receiver that keeps delay's time, and until when

	IDs       string // hash: the record of each id that is taken; lua/ids.lua has its form
	Running   string // hash: by serial, the worker that handles a message with an id
	Cancelled string // set: serials of cancelled messages, until they have left their list
	Waited    string // set: serials of messages whose end a Wait expects
	// set: of sends that may be repeated: the first serial, and with an x before it that of each refused one
	Receipts string
	Done     string // hash: outcomes of finished messages, by id
	// zset: outcomes by when they ended, and what is to be forgotten, by when; lua/ending.lua has its form
	Kept  string
	Recur string // hash: recurring messages by name

	arg keyArgs
}

// keyArgs are the keys as commands take them, so that those which are sent for every message allocate none anew.
type keyArgs struct {
	Prepare, Delay, Dead, Receivers, IDs, Running, Cancelled, Waited, Receipts, Done, Kept any
}

// Key is a key as commands take it: a string. A caller that sends it often keeps it as a Key, so that it is not
// allocated anew.
type Key any

// KeysOf names the keys of a channel.
func KeysOf(channel string) *Keys {
	tag := "{" + channel + "}."
	k := &Keys{
		Name:    channel,
		Prepare: tag + "prepare", Delay: tag + "delay", Suspect: tag + "suspect", Dead: tag + "dead",
		Receivers: tag + "receivers", DeadReceivers: tag + "receivers.dead", Keeper: tag + "keeper",
		IDs: tag + "ids", Running: tag + "running", Cancelled: tag + "cancelled", Waited: tag + "waited",
		Receipts: tag + "receipts", Done: tag + "done", Kept: tag + "kept", Recur: tag + "recur",
	}
	k.arg = keyArgs{
		Prepare: k.Prepare, Delay: k.Delay, Dead: k.Dead, Receivers: k.Receivers, IDs: k.IDs, Running: k.Running,
		Cancelled: k.Cancelled, Waited: k.Waited, Receipts: k.Receipts, Done: k.Done, Kept: k.Kept,
	}
	return k
}

// Doing is the doing list of one worker of an incarnation.
func (k *Keys) Doing(i Incarnation, worker int) string {
	return "{" + k.Name + "}.doing." + i.Name + "." + strconv.Itoa(worker)
}

// AllDoing are the doing lists of all workers of an incarnation.
func (k *Keys) AllDoing(i Incarnation) []string {
	all := make([]string, i.Workers)
	for w := range all {
		all[w] = k.Doing(i, w)
	}
	return all
}

// DoingKeys are AllDoing for a caller that sends them often.
func (k *Keys) DoingKeys(i Incarnation) []Key {
	all := make([]Key, i.Workers)
	for w := range all {
		all[w] = k.Doing(i, w)
	}
	return all
}

// Incarnation is the entry of a receiver in Redis. Its name has all that others must know of it: a ULID, the number of
// its workers, and its lease in ms.
type Incarnation struct {
	Name    string
	Workers int
	Lease   time.Duration
}

func NewIncarnation(workers int, lease time.Duration) Incarnation {
	name := fmt.Sprintf("%s-%d-%d", element.NewSerial(), workers, lease.Milliseconds())
	return Incarnation{name, workers, lease}
}

// Term is how long the entry outlives its last beat: a lease from the time when the next beat is due. So an outage that
// is shorter than a lease costs none, whenever it begins.
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

// DeadReceiver is a member of {C}.receivers.dead.
type DeadReceiver struct {
	Incarnation

	Death      string // ms
	Superseded bool   // by its own receiver, so that it may be swept at any time
	// the reap raises the recovery counts: its process died, or what it holds has broken its connection
	Counted bool
}

func ParseDeadReceiver(member string) (DeadReceiver, error) {
	part := strings.Fields(member)
	if len(part) != 3 {
		return DeadReceiver{}, fmt.Errorf("shunt: %.80q among the dead receivers is no entry of shunt's: remove it",
			member)
	}
	i, err := ParseIncarnation(part[0])
	if _, bad := strconv.ParseUint(part[1], 10, 63); err == nil &&
		(bad != nil || len(part[2]) != 1 || !strings.Contains("src", part[2])) {
		err = fmt.Errorf("shunt: %.80q among the dead receivers is no entry of shunt's: remove it", member)
	}
	return DeadReceiver{i, part[1], part[2] != "r", part[2] != "s"}, err
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
			return fmt.Errorf("shunt: the channel's name %.80q contains %q: no braces, blanks or control characters",
				name, r)
		}
	}
	return nil
}

// args are names as a command takes them.
func args(names []string) []any {
	all := make([]any, len(names))
	for i, n := range names {
		all[i] = n
	}
	return all
}

// Args are names as a command takes them.
func Args(names []string) []any { return args(names) }
