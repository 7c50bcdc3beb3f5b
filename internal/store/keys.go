// Package store is the typed border to Redis. It has the keys of a channel, and one function with a reply type for each
// verb that Redis is asked. The Lua contract of a verb stands above its script in lua/.
package store

import "strconv"

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
	Leased  string // zset: leases by their end; with a dot and its name after it, the list of what a lease holds

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
	// hash: what was counted, by time; lua/tally.lua has its form. It may be lost: nothing but figures lies there
	Counts string

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
		Leased:    tag + "leased",
		Receivers: tag + "receivers", DeadReceivers: tag + "receivers.dead", Keeper: tag + "keeper",
		IDs: tag + "ids", Running: tag + "running", Cancelled: tag + "cancelled", Waited: tag + "waited",
		Receipts: tag + "receipts", Done: tag + "done", Kept: tag + "kept", Recur: tag + "recur",
		Counts: tag + "counts",
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

// About is what an incarnation tells of itself, a string; lua/about.lua writes it.
func (k *Keys) About(i Incarnation) string { return "{" + k.Name + "}.about." + i.Name }

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

// args are names as a command takes them.
func args(names []string) []any {
	all := make([]any, len(names))
	for i, n := range names {
		all[i] = n
	}
	return all
}
